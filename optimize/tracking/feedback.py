"""What people say of traces in MLflow, as a labels file.

A trace's human assessments of one name are its label: every person's own is kept in ``annotators``, the label is what
the majority says. `faith_dspy.optimize.tracking.review` brings a labels file there.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from faith_dspy.errors import FaithDspyError, InputError, MissingExtraError
from faith_dspy.integrations.mlflow_traces import expectations, record_of_trace
from faith_dspy.optimize.data.votes import best_rating, majority, meaning
from faith_dspy.optimize.tracking.store import DEFAULT, Store, client_of, quiet, reason, shown, unusable
from faith_dspy.schema import Verdict
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mlflow.entities import Trace


NAME = "faithful"
"""Name of the assessments, unless another is given."""
FILE = "labels"
"""Whom `push` names where a labels file names nobody. Its word counts only as long as nobody else has said anything, or
where the others are split."""
TAG = "faith_dspy.label"
_PAGE = 100


class Pulled(BaseModel):
    """Labels from traces, and what did not become one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: list[dict[str, Any]]
    """Lines of a labels file."""
    split: list[str] = Field(default_factory=list)
    """Traces left out because people are split, by id."""
    unreadable: dict[str, str] = Field(default_factory=dict)
    """Traces left out because they have no answer or no context: id and what is wrong."""
    unknown: dict[str, int] = Field(default_factory=dict)
    """Labels whose meaning is not known, and how often they were given."""

    @property
    def told(self) -> int:
        """Answers people said something of."""
        return len(self.rows) + len(self.split) + len(self.unreadable)

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        text = f"{len(self.rows)} labelled answers"
        if self.split:
            text += f"; {len(self.split)} left out because people are split"
        if self.unreadable:
            text += (
                f"; {len(self.unreadable)} without answer or context, the first: {next(iter(self.unreadable.values()))}"
            )
        if self.unknown:
            named = ", ".join(f"{word!r} ({n})" for word, n in self.unknown.items())
            text += f"; of unknown meaning: {named} – say it with --value WORD=true or WORD=false"
        return f"{text}."


def labels_of(traces: Iterable[Trace], name: str = NAME, words: Mapping[str, bool] | None = None) -> Pulled:
    """The labels people gave traces: human assessments called ``name``, the newest of each person.

    ``words``: what labels mean that are neither yes/no, true/false, a verdict nor a rating. Traces without a human
    label are passed over.
    """
    told = [(trace, people) for trace in traces if (people := _people(trace, name))]
    top = best_rating(a.value for _, people in told for a in people.values())
    rows, split, unreadable = [], [], {}
    unknown: Counter[str] = Counter()
    for trace, people in told:
        votes = {who: meaning(a.value, words or {}, top) for who, a in people.items()}
        unknown.update(str(people[who].value) for who, v in votes.items() if v is None)
        label = majority(v for who, v in votes.items() if who != FILE)
        label = votes.get(FILE) if label is None else label
        if label is None:
            split += [trace.info.trace_id] if any(v is not None for v in votes.values()) else []
            continue
        row, wrong = _row(trace)
        if wrong:
            unreadable[trace.info.trace_id] = wrong
            continue
        rows.append(row | _labels(trace, people, label, row["answer"]))
    return Pulled(rows=rows, split=split, unreadable=unreadable, unknown=dict(unknown))


def _people(trace: Trace, name: str) -> dict[str, Any]:
    """The newest assessment of each person."""
    told: list[Any] = trace.search_assessments(name, type="feedback")
    found = [a for a in told if str(a.source.source_type) == "HUMAN" and a.value is not None]
    return {str(a.source.source_id): a for a in sorted(found, key=lambda a: a.last_update_time_ms or 0)}


def _row(trace: Trace) -> tuple[dict[str, Any], str]:
    """Question, context and answer – and, of a trace that `push` made, what its labels file said besides."""
    kept = json.loads(trace.info.tags.get(TAG, "{}"))
    row = {"id": trace.info.trace_id, **record_of_trace(trace), **kept}
    if kept:  # exactly the chunks that were pushed: people's chunk ids count them
        found = next(s for s in trace.data.spans if s.span_type == "RETRIEVER")
        row["context"] = [
            {"text": d["page_content"], "source": d["metadata"]["doc_uri"]} if d["metadata"] else d["page_content"]
            for d in found.outputs
        ]
    where = f"trace {trace.info.trace_id}"
    if "error" in row:
        return {}, f"{where}: {row['error']}"
    if "conversation" in row or not row["context"] or not row["answer"].strip():
        return {}, f"{where} has no {'answer' if row.get('context') else 'context'}"
    return {k: v for k, v in row.items() if v is not None and v != ""}, ""


def _labels(trace: Trace, people: Mapping[str, Any], label: bool, answer: str) -> dict[str, Any]:
    told = expectations(trace)
    row: dict[str, Any] = {"faithful": label, **{k: told[k] for k in ("statements", "score") if k in told}}
    annotators = {who: a.value for who, a in people.items() if who != FILE}
    reasons = {who: a.rationale for who, a in people.items() if a.rationale}
    if annotators:
        row["annotators"] = annotators
    if reasons:
        row["reasons"] = reasons
    parts = [s for s in sentences(answer) if carries_statement(s.text)]
    if reasons and len(parts) == 1 and "statements" not in row:  # what people said of it, they said of this sentence
        verdict = Verdict.FULLY_SUPPORTED if label else Verdict.NOT_SUPPORTED
        why = "; ".join(reasons.values())
        row["statements"] = [{"text": parts[0].text, "verdict": verdict.value, "reason": why}]
    return row


def traces_in(uri: str | None, experiment: str, *, make: bool = False) -> Store:
    """The experiment that holds the traces, left as its owner furnished it; made if it is not there and ``make``.

    ``uri``: default MLFLOW_TRACKING_URI, else ``mlflow.db`` in the working folder. `InputError` names the experiments
    there are, `FaithDspyError` a store that cannot be used.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
    try:
        with quiet():
            client = client_of(uri)
            found = client.get_experiment_by_name(experiment)
            if found is not None or make:
                known = found.experiment_id if found else client.create_experiment(experiment)
                return Store(client, uri, known)
            names = ", ".join(sorted(e.name for e in client.search_experiments()))
    except MissingExtraError:
        raise
    except Exception as exc:
        raise unusable(uri, exc) from exc
    raise InputError(f"there is no experiment {experiment!r} in {shown(uri)}; there are {names}.")


def pull(store: Store, name: str = NAME, words: Mapping[str, bool] | None = None) -> Pulled:
    """`labels_of` all traces of the store's experiment. Raises `FaithDspyError` when the store does not answer."""
    with working(store, "give its traces"):
        client = client_for(store)
        ids = [i.info.trace_id for i in trace_infos(client, store) if _people(i, name)]
        traces = [t for at in range(0, len(ids), _PAGE) for t in client.batch_get_traces(ids[at : at + _PAGE])]
    return labels_of(sorted(traces, key=lambda t: (t.info.request_time, t.info.trace_id)), name, words)


def client_for(store: Store) -> Any:
    """MLflow's client for traces; the store that MLflow's own functions use stays as it is."""
    from mlflow.tracing.client import TracingClient

    return TracingClient(store.uri)


def trace_infos(client: Any, store: Store) -> Iterator[Trace]:
    """All traces of the experiment, without their spans."""
    token = None
    while True:
        page = client.search_traces(
            locations=[store.experiment_id], include_spans=False, max_results=_PAGE, page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


@contextmanager
def working(store: Store, what: str) -> Iterator[None]:
    """A block of work with the store; what goes wrong there is one error that names it."""
    try:
        with quiet():
            yield
    except FaithDspyError:
        raise
    except Exception as exc:
        raise FaithDspyError(f"MLflow at {shown(store.uri)} cannot {what}: {reason(exc)}.") from exc


def write_labels(rows: Sequence[Mapping[str, Any]], path: Any) -> None:
    """Rows as a labels file; `InputError` when there is none: a file without labels would only fail later."""
    if not rows:
        raise InputError(f"there is no labelled answer to write to {path}.")
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
