"""A judgment for readers: in the terminal, in a notebook and as one self-contained HTML page.

Each shows the verdict, the number that decided it beside its threshold, and the statements that carry it. The page is
``page.html`` with ``page.css`` and ``page.js`` inside and the judgments as JSON in a script element. Its content
security policy allows this one script and this one style, by their hashes, and nothing from any network.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from faith_dspy.errors import counted
from faith_dspy.io.files import write_file
from faith_dspy.io.inputs import AnswerInput
from faith_dspy.io.labels import vote
from faith_dspy.io.terminal import PLAIN_SIGNS
from faith_dspy.judge import Judge
from faith_dspy.report.tables import report_footer, shown
from faith_dspy.schema import Chunk, Citations, Judgment, StatementVerdict
from faith_dspy.scoring.classifier import describe_fit

UNJUDGED, IN_DOUBT = "unjudged", "in_doubt"


WORDING = {
    "contradictory": ("!", "contradicted", "bold red"),
    "not_supported": ("✗", "not supported", "red"),
    "no_evidence": ("✗", "no evidence", "red"),
    "partially_supported": ("◐", "partly supported", "yellow"),
    IN_DOUBT: ("~", "in doubt", "yellow"),
    UNJUDGED: ("?", "not judged", "yellow"),
    "fully_supported": ("✓", "supported", "green"),
}
"""How each verdict is shown: a mark of one cell, words, and a style of rich. The worst comes first: a sentence is
coloured by the first that one of its statements has."""
_PLAIN = ("fully_supported", "not_supported")
"""Their marks need no words."""


def verdict_line(judgment: Judgment) -> str:
    """Return ``not faithful: probability 0.38 (threshold 0.48)``, or ``unscored: abstained``."""
    if judgment.unscored is not None:
        return f"unscored: {judgment.unscored.value}"
    by = decided_by(judgment)
    return f"{'faithful' if judgment.faithful else 'not faithful'}{f': {by}' if by else ''}"


def decided_by(judgment: Judgment) -> str:
    """Return what decided the verdict: the probability beside its threshold, else the score beside its threshold, else
    how many statements are supported."""
    name, value = (
        ("score", judgment.score)
        if judgment.probability is None
        else ("probability", judgment.probability)
    )
    if value is None:
        return ""
    if (t := judgment.threshold) is None:
        return supported(judgment)
    digits = next(
        (d for d in (2, 3) if value == t or f"{value:.{d}f}" != f"{t:.{d}f}"), 4
    )  # tells them apart
    return f"{name} {value:.{digits}f} (threshold {t:.{digits}f})"


def supported(judgment: Judgment) -> str:
    """Return ``1 of 2 statements supported``; nothing without statements."""
    n = len(judgment.statements)
    return f"{judgment.supported} of {counted(n, 'statement')} supported" if n else ""


def display_verdicts(judgment: Judgment) -> list[str]:
    """Return the verdict of each statement as it is shown, a key of `WORDING`.

    A classifier judges statements and answers by thresholds of their own. What lies on the other side than its answer
    is in doubt: in a faithful answer a statement below its threshold, in any other whose statements all reach theirs
    the weakest.
    """
    verdicts = [s.verdict.value if s.verdict else UNJUDGED for s in judgment.statements]
    if judgment.probability is None:
        return verdicts
    if judgment.faithful:
        return [
            IN_DOUBT if s.is_supported is False else t
            for s, t in zip(judgment.statements, verdicts, strict=True)
        ]
    if set(verdicts) == {"fully_supported"}:
        chances = [
            1.0 if s.confidence is None else s.confidence for s in judgment.statements
        ]
        return [
            IN_DOUBT if chance == min(chances) else t
            for chance, t in zip(chances, verdicts, strict=True)
        ]
    return verdicts


def explanation(statement: StatementVerdict) -> str | None:
    """Return why the statement has its verdict: the LM's reason, else what the context lacks; None where its chunks
    tell.

    Of a supported one that cites other chunks, that they do not support it.
    """
    if statement.is_supported and statement.citations_support is False:
        cited = ", ".join(map(str, statement.cited_chunk_ids))
        return "; ".join(
            filter(
                None,
                (statement.reason, f"cites [{cited}], which does not support it alone"),
            )
        )
    if why := statement.reason or statement.error:
        return why
    if statement.missing is None:
        return None
    words = (
        f"not in the context: {', '.join(statement.missing)}"
        if statement.missing
        else ""
    )
    if statement.is_supported:
        return f"supported in other words; {words}" if words else None
    return words or "all its words occur in the context, but not this claim"


def notes_on(judgment: Judgment) -> list[str]:
    """Return where a reply of the LM could not be used as it is, a sentence each."""
    notes = []
    if n := judgment.stand_ins:
        notes.append(
            f"{counted(n, 'sentence')} judged as written: the LM's statements were missing or left something out."
        )
    if judgment.citations is not None:
        notes.append(_citations_line(judgment.citations))
    for n, what in (
        (judgment.dropped_chunk_ids, "chunk id"),
        (judgment.dropped_quotes, "quote"),
    ):
        if n:
            notes.append(
                f"{counted(n, what)} the LM named: not in the context, so not shown."
            )
    return notes


def _citations_line(citations: Citations) -> str:
    """Return ``citations: precision 0.50, recall 1.00; [7] is not in the context``."""
    values = (("precision", citations.precision), ("recall", citations.recall))
    line = "citations: " + ", ".join(
        f"{name} {value:.2f}" for name, value in values if value is not None
    )
    if not citations.unknown:
        return f"{line}."
    verb = "is" if len(citations.unknown) == 1 else "are"
    return f"{line}; [{', '.join(citations.unknown)}] {verb} not in the context."


def citation_faults(judgment: Judgment) -> list[str]:
    """Name the statements that cite nothing or what does not support them, and what is cited and not there.

    Returns:
        A line each: ``cites [1], supported by [0]: The kettle is blue.``; none for an answer that cites nothing.
    """
    if judgment.citations is None:
        return []
    lines = [f"not in the context: [{name}]" for name in judgment.citations.unknown]
    for statement in judgment.statements:
        supporting = ", ".join(map(str, statement.supporting_chunk_ids))
        evidence = f"supported by [{supporting}]" if supporting else "not supported"
        if not statement.cited_chunk_ids:
            lines.append(f"cites nothing, {evidence}: {statement.text}")
        elif not statement.citations_support:
            cited = ", ".join(map(str, statement.cited_chunk_ids))
            lines.append(f"cites [{cited}], {evidence}: {statement.text}")
    return lines


def judge_summary(judge: Judge) -> str:
    """Return a judge in one line: where it comes from, its LMs, and the beginning of its fingerprint."""
    manifest, fitted = judge.manifest, judge.classifier
    # A study's champion may be the untuned or the default judge, to which labels did nothing.
    how = "tuned" if fitted is not None and fitted.fitted_to == "labels" else "chosen"
    trained = (
        f"{manifest['variant']}, {how} on {manifest['labels_file']}"
        if "variant" in manifest
        else None
    )
    lms = ", then ".join(
        j.lm_name if j.asks_lm else "lexical features" for j in judge.cascade
    )
    return f"{trained or describe_fit(judge.classifier)} · {lms} · fingerprint {judge.fingerprint[:8]}"


# In the terminal and in notebooks


def judgment_view(judgment: Judgment) -> RenderableType:
    """Return one judgment: the result on top, a line per statement below."""
    verdict, _, by = verdict_line(judgment).partition(": ")
    style = "yellow" if judgment.unscored else "green" if judgment.faithful else "red"
    head = Text.assemble(
        (verdict, f"bold {style}"),
        (": " if judgment.unscored else "   ") * bool(by),
        by,
    )
    if judgment.detail:
        head.append_text(shown(f" – {judgment.detail}", "dim"))
    if judgment.fitted_to == "default":
        head.append("\nnot fitted to your labels", style="dim")
    table = Table(box=None, show_header=False, padding=(0, 1), expand=False)
    table.add_column(width=1)
    table.add_column(overflow="fold")
    table.add_column(style="dim", no_wrap=True)
    verdicts = display_verdicts(judgment)
    for s, key in zip(judgment.statements, verdicts, strict=True):
        mark, words, style = WORDING[key]
        evidence = _where(s)
        words = "" if key in _PLAIN else words
        table.add_row(
            Text(mark, style), shown(s.text), Text(f"{words} {evidence}".strip())
        )
        if why := explanation(s):
            table.add_row("", shown(why, "italic dim"), "")
    last = [
        shown(line, "dim") for line in (*notes_on(judgment), _cost(judgment)) if line
    ]
    return Panel(
        Group(head, *([table] if judgment.statements else []), *last), expand=False
    )


def _where(statement: StatementVerdict) -> str:
    """Return ``← [0], [3]``, what supports a statement; else ``closest [1]``, where to look."""
    ids = [f"[{i}]" for i in statement.supporting_chunk_ids]
    if ids:
        more = f" +{len(ids) - 3}" if len(ids) > 3 else ""  # all would leave no room
        return f"← {', '.join(ids[:3])}{more}"
    if statement.is_supported is False and statement.closest_chunk_ids:
        return f"closest [{statement.closest_chunk_ids[0]}]"
    return ""


def _cost(judgment: Judgment) -> str:
    """Return what was paid for and what was not; nothing where no LM was asked."""
    u, again = judgment.usage, judgment.replayed.calls
    read, written = (
        counted(u.prompt_tokens, "prompt token"),
        counted(u.output_tokens, "completion token"),
    )
    paid = [
        counted(u.calls, "call"),
        f"{read} ({u.cached_tokens:,} cached), {written}",
        f"{u.seconds:.1f} s",
    ]
    return " · ".join(
        [
            *(paid if u.calls else []),
            *([f"{counted(again, 'reply')} from the cache"] if again else []),
        ]
    )


def print_judgment(judgment: Judgment, **how: Any) -> None:
    """Print `judgment_view`, as wide as the terminal, 60 to 100 columns; ``how`` as for rich's `Console`."""
    width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
    Console(width=width, **how).print(judgment_view(judgment))


def render(judgment: Judgment) -> str:
    """Return the same as plain text, in signs that standard output can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding, PLAIN_SIGNS, newline="")
    print_judgment(judgment, file=out, color_system=None)
    out.flush()
    return raw.getvalue().decode(encoding)


def render_html(judgment: Judgment) -> str:
    """Return `judgment_view` as HTML for a notebook, in the same colours."""
    console = Console(file=io.StringIO(), width=100, record=True, force_jupyter=False)
    console.print(judgment_view(judgment))
    return console.export_html(
        inline_styles=True, code_format="<pre style='line-height:1.2'>{code}</pre>"
    )


# As an HTML page

_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
_STEERING = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C1 controls, and what shows the letters after it in another order."""
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def write_html(
    items: Iterable[Judgment | tuple[Mapping[str, Any], Judgment]],
    path: str | Path,
    *,
    title: str = "Faithfulness",
    total: int | None = None,
    judge: str | None = None,
) -> None:
    """Write judgments as one HTML page that needs no network.

    A judgment alone shows the sentences of its answer. To show question and context, give it with its record, as
    `Judge.stream` takes it; ``faithful`` is people's label. ``total``: number of all judgments, where the items are
    only the first of them. ``judge``: who judged, for the last line.
    """
    rows = [
        _item(*((None, item) if isinstance(item, Judgment) else item)) for item in items
    ]
    verdicts = {
        verdict: [mark, words.capitalize()]
        for verdict, (mark, words, _) in WORDING.items()
    }
    reasons = Counter(row["unscored"] for row in rows if row["unscored"])
    summary = {
        "n": len(rows),
        "total": total or len(rows),
        "scored": len(rows) - reasons.total(),
        "faithful": sum(row["faithful"] is True for row in rows),
        "unscored": dict(reasons.most_common()),
        "verdicts": Counter(s["told"] for row in rows for s in row["statements"]),
    }
    data = {"items": rows, "summary": summary, "verdicts": verdicts}
    here = files("faith_dspy.report")
    page, style, script = (
        here.joinpath(f"page.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    )
    slots = {
        "title": html.escape(title),
        "style": style,
        "style_hash": csp_hash(style),
        "script": script,
        "script_hash": csp_hash(script),
        "data": script_json(data),
        "signed": html.escape(report_footer(judge)),
    }
    write_file(Path(path), _SLOT.sub(lambda slot: slots[slot[1]], page))


def script_json(value: Any) -> str:
    """JSON that is safe in a script element: nothing in it can end the element or start a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)  # as long: offsets hold
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csp_hash(text: str) -> str:
    """Return the source expression by which a content security policy allows one inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _item(record: Mapping[str, Any] | None, judgment: Judgment) -> dict[str, Any]:
    """Return the judgment's public fields and the texts it is about."""
    input = AnswerInput.of(record or {})
    answer, notes = input.answer, notes_on(judgment)
    if any(answer[s.start : s.end] != s.text for s in judgment.sentences):
        if record is not None:
            notes.insert(
                0,
                "The record’s answer is not the one that was judged; these are the judged sentences.",
            )
        answer = _answer_of(judgment)
    fields, verdicts = judgment.to_dict(), display_verdicts(judgment)
    return fields | {
        "id": None if input.id is None else str(input.id),
        "question": (input.question or "").strip() or None,
        "bare": record is None,
        "notes": notes,
        "decided_by": decided_by(judgment),
        "people": vote((record or {}).get("faithful")),
        "parts": _parts(answer, judgment, verdicts),
        "statements": [
            dump | {"told": t, "grounds": explanation(s)}
            for dump, t, s in zip(
                fields["statements"], verdicts, judgment.statements, strict=True
            )
        ],
        "chunks": [
            {"id": c.id, "source": c.source, "parts": _quoted(c, judgment.statements)}
            for c in input.chunks
            if c.text.strip()
        ],
    }


def _answer_of(judgment: Judgment) -> str:
    """Return the answer as far as its judgment holds it: its sentences, with spaces between."""
    text = ""
    for s in judgment.sentences:
        text = text.ljust(s.start) + s.text
    return text


def _parts(answer: str, judgment: Judgment, verdicts: Sequence[str]) -> list[list[Any]]:
    """Return the answer in pieces, ``[text]`` or ``[text, worst verdict, statements]``; joined they are the answer.

    Statements without a sentence are about the whole answer: they count for each sentence. Where all are, the answer is
    one piece.
    """
    statements = judgment.statements
    indices = {s.index for s in judgment.sentences}
    whole = [i for i, s in enumerate(statements) if s.sentence_index not in indices]
    spans = []
    for sentence in judgment.sentences:
        about = [
            i for i, s in enumerate(statements) if s.sentence_index == sentence.index
        ]
        spans.append((sentence.start, sentence.end, sorted({*whole, *about})))
    if spans and len(whole) == len(statements):
        spans = [(spans[0][0], spans[-1][1], whole)]
    parts: list[list[Any]] = []
    position = 0
    for start, end, about in spans:
        worst = min((verdicts[i] for i in about), key=list(WORDING).index, default=None)
        piece: list[Any] = [answer[start:end]]
        if about:
            piece += [worst, about]
        parts += [[answer[position:start]], piece]
        position = end
    parts.append([answer[position:]])
    return [p for p in parts if p[0]]


def _quoted(chunk: Chunk, statements: Sequence[StatementVerdict]) -> list[list[Any]]:
    """Return the chunk in pieces, ``[text]`` or ``[text, statements that quote it]``; joined they are the chunk."""
    spans = []
    cuts = {0, len(chunk.text)}
    for i, statement in enumerate(statements):
        for span, quote in zip(statement.quote_spans, statement.quotes, strict=False):
            text = chunk.text[span.start : span.end]
            # Another text: the record is not the one that was judged.
            if span.chunk_id == chunk.id and text == quote:
                spans.append((span.start, span.end, i))
                cuts |= {span.start, span.end}
    parts: list[list[Any]] = []
    for begin, end in pairwise(sorted(cuts)):
        piece: list[Any] = [chunk.text[begin:end]]
        quoting = {i for a, b, i in spans if a <= begin and end <= b}
        if quoting:
            piece.append(sorted(quoting))
        parts.append(piece)
    return parts
