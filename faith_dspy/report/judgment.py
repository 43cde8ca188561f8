"""A judgment for readers: in the terminal, in a notebook and as one self-contained HTML page.

Each shows the verdict, the number that decided it beside its threshold, and the statements that carry it. The page is
``page.html`` with ``page.css`` and ``page.js`` inside and the judgments as JSON in a script element. Its content
security policy allows this one script and this one style, by their hashes, and nothing from any network.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from faith_dspy.errors import counted
from faith_dspy.io.documents import mapping
from faith_dspy.io.files import write_file
from faith_dspy.io.inputs import AnswerInput
from faith_dspy.io.meanings import label_meaning
from faith_dspy.io.terminal import PLAIN_SIGNS
from faith_dspy.report.tables import Table as ShownTable
from faith_dspy.report.tables import report_footer, shown
from faith_dspy.schema import Chunk, Citations, Judgment, StatementVerdict, Usage
from faith_dspy.scoring.classifier import describe_fit
from faith_dspy.text.words import visible

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
    line = "faithful" if judgment.faithful else "not faithful"
    by = decided_by(judgment)
    if by:
        line += f": {by}"
    return line


def decided_by(judgment: Judgment) -> str:
    """Return what decided the verdict: the probability beside its threshold, else the score beside its threshold, else
    how many statements are supported."""
    name = "probability"
    value = judgment.probability
    if value is None:
        name = "score"
        value = judgment.score
    if value is None:
        return ""
    threshold = judgment.threshold
    if threshold is None:
        return supported(judgment)
    for digits in (2, 3, 4):  # the fewest that tell them apart
        shown_value = f"{value:.{digits}f}"
        shown_threshold = f"{threshold:.{digits}f}"
        if value == threshold or shown_value != shown_threshold:
            break
    return f"{name} {shown_value} (threshold {shown_threshold})"


def supported(judgment: Judgment) -> str:
    """Return ``1 of 2 statements supported``; nothing without statements."""
    n = len(judgment.statements)
    if not n:
        return ""
    return f"{judgment.supported} of {counted(n, 'statement')} supported"


def display_verdicts(judgment: Judgment) -> list[str]:
    """Return the verdict of each statement as it is shown, a key of `WORDING`.

    A classifier judges statements and answers by thresholds of their own. What lies on the other side than its answer
    is in doubt: in a faithful answer a statement below its threshold, in any other whose statements all reach theirs
    the weakest.
    """
    statements = judgment.statements
    verdicts = [s.verdict.value if s.verdict else UNJUDGED for s in statements]
    if judgment.probability is None:
        return verdicts
    if judgment.faithful:
        for i, statement in enumerate(statements):
            if statement.is_supported is False:
                verdicts[i] = IN_DOUBT
    elif set(verdicts) == {"fully_supported"}:
        chances = [1.0 if s.confidence is None else s.confidence for s in statements]
        for i, chance in enumerate(chances):
            if chance == min(chances):
                verdicts[i] = IN_DOUBT
    return verdicts


def explanation(statement: StatementVerdict) -> str | None:
    """Return why the statement has its verdict: the LM's reason, else what the context lacks; None where its chunks
    tell.

    Of a supported one that cites other chunks, that they do not support it.
    """
    if statement.is_supported and statement.citations_support is False:
        cited = _bracketed(statement.cited_chunk_ids)
        fault = f"cites {cited}, which does not support it alone"
        return f"{statement.reason}; {fault}" if statement.reason else fault
    why = statement.reason or statement.error
    if why:
        return why
    if statement.missing is None:
        return None
    words = ""
    if statement.missing:
        words = f"not in the context: {', '.join(statement.missing)}"
    if statement.is_supported:
        return f"supported in other words; {words}" if words else None
    return words or "all its words occur in the context, but not this claim"


def why_not_faithful(judgment: Judgment) -> str:
    """Return why an answer is not faithful, or unscored; nothing for a faithful one.

    Each statement that fails is followed by its explanation: ``Delivery is free. – not in the context: free``.
    """
    if judgment.faithful:
        return ""
    lines = [judgment.detail] if judgment.detail else []
    verdicts = display_verdicts(judgment)
    for statement, verdict in zip(judgment.statements, verdicts, strict=True):
        if verdict != "fully_supported":
            why = explanation(statement) or WORDING[verdict][1]
            lines.append(f"{statement.text} – {why}")
    return "\n".join(lines)


def notes_on(judgment: Judgment) -> list[str]:
    """Return where a reply of the LM could not be used as it is, a sentence each."""
    notes = []
    if judgment.stand_ins:
        notes.append(
            f"{counted(judgment.stand_ins, 'sentence')} judged as written: the LM's statements were missing or left "
            "something out."
        )
    if judgment.citations is not None:
        notes.append(_citations_line(judgment.citations))
    dropped = {
        "chunk id": judgment.dropped_chunk_ids,
        "quote": judgment.dropped_quotes,
    }
    for what, n in dropped.items():
        if n:
            notes.append(
                f"{counted(n, what)} the LM named: not in the context, so not shown."
            )
    return notes


def _citations_line(citations: Citations) -> str:
    """Return ``citations: precision 0.50, recall 1.00; not in the context: [7]``."""
    figures = []
    if citations.precision is not None:
        figures.append(f"precision {citations.precision:.2f}")
    if citations.recall is not None:
        figures.append(f"recall {citations.recall:.2f}")
    if citations.unchecked:
        figures.append(f"{counted(citations.unchecked, 'statement')} not checked")
    line = f"citations: {', '.join(figures)}"
    if citations.unknown:
        line += f"; not in the context: {_bracketed(citations.unknown)}"
    return f"{line}."


def _bracketed(names: Iterable[object]) -> str:
    """Return ``[0, 3]``."""
    return f"[{', '.join(map(str, names))}]"


def citation_faults(judgment: Judgment) -> list[str]:
    """Name the statements that cite nothing or what does not support them, and what is cited and not there.

    Returns:
        A line each: ``cites [1], supported by [0]: The kettle is blue.``; none for an answer that cites nothing.
    """
    if judgment.citations is None:
        return []
    lines = [f"not in the context: [{name}]" for name in judgment.citations.unknown]
    for statement in judgment.statements:
        supporting = statement.supporting_chunk_ids
        evidence = "not supported"
        if supporting:
            evidence = f"supported by {_bracketed(supporting)}"
        cited = statement.cited_chunk_ids
        if not cited:
            lines.append(f"cites nothing, {evidence}: {statement.text}")
        elif not statement.citations_support:
            if statement.citations_support is None:
                evidence = "not checked"
            lines.append(f"cites {_bracketed(cited)}, {evidence}: {statement.text}")
    return lines


def judge_summary(judge: Any) -> str:
    """Return a judge in one line: where it comes from, its LMs, and the beginning of its fingerprint."""
    origin = describe_fit(judge.classifier)
    variant = judge.manifest.get("variant")
    if variant:
        # A study's champion may be the untuned or the default judge, to which labels did nothing.
        fitted = judge.classifier
        how = "chosen"
        if fitted is not None and fitted.fitted_to == "labels":
            how = "tuned"
        origin = f"{variant}, {how} on {judge.manifest['labels_file']}"
    lms = [j.lm_name if j.asks_lm else "lexical features" for j in judge.cascade]
    lms[0] += "".join(f", with {column!r}" for column in judge.columns)
    return f"{origin} · {', then '.join(lms)} · fingerprint {judge.fingerprint[:8]}"


# In the terminal and in notebooks


def judgment_view(judgment: Judgment) -> RenderableType:
    """Return one judgment: the result on top, a line per statement below."""
    verdict, _, by = verdict_line(judgment).partition(": ")
    colour = {True: "green", False: "red", None: "yellow"}[judgment.faithful]
    head = Text.assemble((verdict, f"bold {colour}"), "   " if by else "", by)
    if judgment.turn is not None:
        head.append(f" – turn {judgment.turn}")
    if judgment.detail:
        head.append_text(shown(f" – {judgment.detail}", "dim"))
    if judgment.fitted_to == "default":
        head.append("\nnot fitted to your labels", style="dim")
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    table.add_column(style="dim", no_wrap=True)
    verdicts = display_verdicts(judgment)
    for statement, key in zip(judgment.statements, verdicts, strict=True):
        mark, words, style = WORDING[key]
        beside = _where(statement)
        if key not in _PLAIN:
            beside = " · ".join(filter(None, (words, beside)))
        table.add_row(Text(mark, style), shown(statement.text), Text(beside))
        why = explanation(statement)
        if why:
            table.add_row("", shown(why, "italic dim"), "")
    parts: list[RenderableType] = [head]
    if judgment.statements:
        parts.append(table)
    usage = judgment.usage
    cost = spent(usage, judgment.replayed)
    if usage.calls:
        cost.append(f"{usage.seconds:.1f} s")
    for line in (*notes_on(judgment), " · ".join(cost)):
        if line:
            parts.append(shown(line, "dim"))
    return Panel(Group(*parts), expand=False)


def _where(statement: StatementVerdict) -> str:
    """Return ``← [0], [3]``, what supports a statement; else ``closest [1]``, where to look."""
    ids = [f"[{i}]" for i in statement.supporting_chunk_ids]
    if ids:
        more = f" +{len(ids) - 3}" if len(ids) > 3 else ""  # all would leave no room
        return f"← {', '.join(ids[:3])}{more}"
    if statement.is_supported is False and statement.closest_chunk_ids:
        return f"closest [{statement.closest_chunk_ids[0]}]"
    return ""


def spent(usage: Usage, replayed: Usage) -> list[str]:
    """Return what was paid for and what was not, a phrase each; nothing where no LM was asked."""
    parts = []
    if usage.calls:
        read = counted(usage.prompt_tokens, "prompt token")
        written = counted(usage.output_tokens, "completion token")
        parts.append(counted(usage.calls, "call"))
        parts.append(f"{read} ({usage.cached_tokens:,} cached), {written}")
    if replayed.calls:
        parts.append(f"{counted(replayed.calls, 'reply')} from the cache")
    return parts


def print_judgment(judgment: Judgment, **how: Any) -> None:
    """Print `judgment_view`, as wide as the terminal, 60 to 100 columns; ``how`` as for rich's `Console`."""
    width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
    Console(width=width, **how).print(judgment_view(judgment))


def render(judgment: Judgment) -> str:
    """Return the judgment as text for a terminal, in signs that standard output can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding, PLAIN_SIGNS, newline="")
    print_judgment(judgment, file=out, color_system=None)
    out.flush()
    return raw.getvalue().decode(encoding)


def render_html(judgment: Judgment) -> str:
    """Return `judgment_view` as HTML for a notebook, in the same colours."""
    console = Console(
        file=io.StringIO(),
        width=100,
        record=True,
        force_jupyter=False,
    )
    console.print(judgment_view(judgment))
    return console.export_html(
        inline_styles=True, code_format="<pre style='line-height:1.2'>{code}</pre>"
    )


# As an HTML page

_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
_STEERING = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C1 controls, and what shows the letters after it in another order."""


def write_html(
    items: Iterable[Judgment | tuple[Mapping[str, Any], Judgment]],
    path: str | Path,
    *,
    title: str = "Faithfulness",
    total: int | None = None,
    judge: str | None = None,
    tables: Iterable[ShownTable] = (),
) -> None:
    """Write judgments as one HTML page that needs no network.

    A judgment that was read from a file shows the sentences of its answer alone; to show question and context, give it
    with its record, as `Judge.stream` takes it, whose ``faithful`` is its label. ``total``: number of all judgments,
    where the items are only the first of them. ``judge``: who judged, for the last line. ``tables``: what stands above
    them.
    """
    rows = []
    for item in items:
        pair = (None, item) if isinstance(item, Judgment) else item
        rows.append(_item(*pair))
    verdicts = {}
    for verdict, (mark, words, _) in WORDING.items():
        verdicts[verdict] = [mark, words.capitalize()]
    data = {"items": rows, "total": total or len(rows), "verdicts": verdicts}
    script = _read("page.js")
    page = fill_page(
        "page.html",
        ["page.css"],
        title=title,
        tables=tables,
        script=script,
        script_hash=csp_hash(script),
        data=script_json(data),
        signed=report_footer(judge),
    )
    write_file(Path(path), page)


def fill_page(
    template: str,
    styles: Sequence[str],
    filters: Mapping[str, Callable[[Any], str]] | None = None,
    **values: Any,
) -> str:
    """Return a page made from files of this folder. Every value is escaped that the template does not call safe; its
    policy names `style_hash`."""
    import jinja2

    style = "".join(map(_read, styles))
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"line": _line, **(filters or {})}
    page = environment.from_string(_read(template)).render(
        style=style, style_hash=csp_hash(style), **values
    )
    # Lone surrogates cannot be written.
    return page.encode("utf-8", "replace").decode("utf-8")


def _read(name: str) -> str:
    return (files("faith_dspy.report") / name).read_text(encoding="utf-8")


def _line(text: str) -> str:
    """Return a text in one line, without what cannot be seen."""
    return visible(" ".join(text.split()))


def script_json(value: Any) -> str:
    """JSON that is safe in a script element: nothing in it can end the element or start a comment."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    text = _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)  # as long: offsets hold
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csp_hash(text: str) -> str:
    """Return the source expression by which a content security policy allows one inline style or script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _item(
    record: Mapping[str, Any] | None,
    judgment: Judgment,
) -> dict[str, Any]:
    """Return the judgment's public fields and the texts it is about."""
    input = judgment.input if record is None else AnswerInput.of(record)
    is_bare = input is None
    input = input or AnswerInput()
    answer = input.answer
    if any(answer[s.start : s.end] != s.text for s in judgment.sentences):
        answer = ""  # of another record
        for s in judgment.sentences:
            answer = answer.ljust(s.start) + s.text
    fields = judgment.to_dict()
    verdicts = display_verdicts(judgment)
    for i, statement in enumerate(judgment.statements):
        fields["statements"][i]["display"] = verdicts[i]
        fields["statements"][i]["grounds"] = explanation(statement)
    chunks = []
    for chunk in input.chunks:
        if chunk.text.strip():
            parts = _quoted(chunk, judgment.statements)
            chunks.append({"id": chunk.id, "source": chunk.source, "parts": parts})
    names = [] if input.id is None else [str(input.id)]
    if judgment.turn is not None:
        names.append(f"turn {judgment.turn}")
    return fields | {
        "id": ", ".join(names) or None,
        "question": (input.question or "").strip() or None,
        "bare": is_bare,
        "notes": notes_on(judgment),
        "decided_by": decided_by(judgment),
        "people": label_meaning(mapping(record).get("faithful")),
        "parts": _parts(answer, judgment, verdicts),
        "chunks": chunks,
    }


def _parts(
    answer: str,
    judgment: Judgment,
    verdicts: Sequence[str],
) -> list[list[Any]]:
    """Return the answer in pieces, ``[text]`` or ``[text, worst verdict, statements]``; joined they are the answer.

    Statements without a sentence are about the whole answer: they count for each sentence. Where all are, the answer is
    one piece.
    """
    places = {s.index: (s.start, s.end) for s in judgment.sentences}
    everywhere = [*places.values()]
    indices = [s.sentence_index for s in judgment.statements]
    if everywhere and places.keys().isdisjoint(indices):
        everywhere = [(everywhere[0][0], everywhere[-1][1])]
    spans = []
    for i, index in enumerate(indices):
        where = [places[index]] if index in places else everywhere
        spans += [(start, end, i) for start, end in where]
    parts: list[list[Any]] = []
    for piece, about in _pieces(answer, spans):
        if about:
            worst = min((verdicts[i] for i in about), key=list(WORDING).index)
            parts.append([piece, worst, about])
        else:
            parts.append([piece])
    return parts


def _pieces(
    text: str, spans: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[str, list[int]]]:
    """Yield a text piece by piece, each with the statements whose spans, from start to end, hold it."""
    cuts = {0, len(text)}
    for start, end, _ in spans:
        cuts |= {start, end}
    for begin, stop in pairwise(sorted(cuts)):
        about = {i for start, end, i in spans if start <= begin and stop <= end}
        yield text[begin:stop], sorted(about)


def _quoted(
    chunk: Chunk,
    statements: Sequence[StatementVerdict],
) -> list[list[Any]]:
    """Return the chunk in pieces, ``[text]`` or ``[text, statements that quote it]``; joined they are the chunk."""
    spans = []
    for i, statement in enumerate(statements):
        for span, quote in zip(statement.quote_spans, statement.quotes, strict=False):
            text = chunk.text[span.start : span.end]
            # Another text: the record is not the one that was judged.
            if span.chunk_id == chunk.id and text == quote:
                spans.append((span.start, span.end, i))
    pieces = _pieces(chunk.text, spans)
    return [[piece, quoting] if quoting else [piece] for piece, quoting in pieces]


def to_html(judgment: Judgment, path: str | Path) -> None:
    """Write the judgment as one self-contained HTML page. Folders that are missing are made."""
    write_html([judgment], path)


def summary(judgment: Judgment) -> str:
    """Return the judgment in one line."""
    line = verdict_line(judgment)
    statements = supported(judgment)
    if statements not in line:
        line += f", {statements}"
    return f"Judgment({line})"


# What a judgment's own methods do: its class lies below all that shows it.
Judgment.pretty = render
Judgment.to_html = to_html
Judgment._repr_html_ = render_html  # type: ignore[attr-defined]
Judgment.__repr__ = summary  # type: ignore[assignment]
Judgment.__str__ = summary  # type: ignore[assignment]
# A process that reads a pickled judgment imports it from here, with these methods.
Judgment.__module__ = "faith_dspy"
