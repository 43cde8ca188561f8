"""Sessions of Strands agents, as records for a judge: those that strands_evals maps, and those that agents save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError, MissingExtraError
from faith_dspy.io.conversation import from_conversation

if TYPE_CHECKING:
    from strands_evals.types.trace import Session


def records(session: Session) -> list[dict[str, Any]]:
    """One record per turn of a strands_evals `Session`, in order, each judged against all that went before it.

    Strands' own extractor splits the session, at the level its faithfulness evaluator uses: what users said, what
    tools returned and what the agent said before. ``source`` reads ``turn 1: tool search_docs``; turns count from 0
    over the session, and the tools of one answer are one turn.
    """
    try:
        from strands_evals.extractors import TraceExtractor
        from strands_evals.types.trace import EvaluationLevel
    except ModuleNotFoundError as exc:
        if exc.name != "strands_evals":
            raise
        raise MissingExtraError("strands_evals", "strands", "reading Strands sessions") from exc
    return [_record(turn) for turn in TraceExtractor(EvaluationLevel.TRACE_LEVEL).extract(session)]


def _record(turn: Any) -> dict[str, Any]:
    messages = [_message(item, i) for i, item in enumerate(turn.session_history)]
    answer = {"role": "assistant", "content": turn.agent_response.text}
    question, context, answer_text = from_conversation([*messages, answer])
    return {"id": turn.span_info.span_id, "question": question, "context": context, "answer": answer_text}


def _message(item: Any, turn: int) -> dict[str, Any]:
    """An entry of Strands' history as a message: what somebody said, or the list of an answer's tool runs."""
    if not isinstance(item, list):
        return {"role": item.role.value, "content": [{"text": b.text} for b in item.content if hasattr(b, "text")]}
    blocks: list[dict[str, Any]] = []
    for i, run in enumerate(item):
        text, status = run.tool_result.content or run.tool_result.error, "error" if run.tool_result.error else "success"
        blocks.append({"toolUse": {"toolUseId": f"{turn}.{i}", "name": run.tool_call.name}})
        blocks.append({"toolResult": {"toolUseId": f"{turn}.{i}", "content": text or "", "status": status}})
    return {"role": "tool", "content": blocks}


def conversations(folder: str | Path) -> list[dict[str, Any]]:
    """One record per agent of a session that Strands' `FileSessionManager` saved: ``id`` and ``conversation``.

    ``folder`` is ``session_ID``, or the folder that holds such folders. Redacted messages are read as redacted. Needs
    no package. An agent with a message that cannot be read is a record with ``error``, which a judge leaves unscored.
    Agents that have not answered yet are left out; raises `InputError` when that leaves nothing.
    """
    folder = Path(folder)
    agents = sorted({p.parents[1] for p in folder.rglob("agents/agent_*/messages/message_*.json")})
    out: list[dict[str, Any]] = []
    for agent in agents:
        name = f"{agent.parents[1].name.removeprefix('session_')}/{agent.name.removeprefix('agent_')}"
        try:
            messages = [
                _saved_message(file) for file in sorted((agent / "messages").glob("message_*.json"), key=_number)
            ]
        except InputError as exc:
            out.append({"id": name, "error": str(exc)})
            continue
        if any(m["role"] == "assistant" for m in messages):
            out.append({"id": name, "conversation": messages})
    if out and all("error" in r for r in out):
        raise InputError(out[0]["error"])
    if not out:
        raise InputError(
            f"{folder}: {len(agents)} agents with messages, none of which has answered; expected a folder as Strands' "
            "FileSessionManager writes it (session_ID/agents/agent_ID/messages/message_N.json)"
        )
    return out


def _number(file: Path) -> int:
    number = file.stem.rpartition("_")[2]
    if not number.isdecimal():
        raise InputError(f"{file}: is no message of a Strands session (expected message_N.json)")
    return int(number)


def _saved_message(file: Path) -> dict[str, Any]:
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        message: dict[str, Any] = saved.get("redact_message") or saved["message"]
        return {"role": message["role"], "content": message["content"]}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InputError(f"{file}: is no message of a Strands session ({type(exc).__name__}: {exc})") from exc
