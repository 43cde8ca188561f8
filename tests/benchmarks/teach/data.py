"""Make the data that teaches the embedded model its verdict, from public sets.

``python -m tests.benchmarks.teach.data PUBLISHED SHARED OUT``

``PUBLISHED`` has a folder for each set, with its published files as `SETS` and `HELD_OUT` name them; a set whose files
are not there is left out, and named. ``SHARED`` has labels files of held-out families. Written to ``OUT``:
``train.jsonl``, statements of the training families; ``dev.jsonl``, statements of held-out answers; ``studies.jsonl``,
those of the answers that studies are run on; ``all_shared.jsonl``, those of every labels file; and ``COUNTS.txt``.

Statements of a set keep its labels. Statements whose label follows from how they were made are added: a supported
statement rewritten without a change of meaning stays supported; one with a number, date, unit, name, negation, opposite
or role changed is not; chunks of other contexts change nothing; without the right chunk nothing is supported.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import typer

from faith_dspy.eval_sets import begin, ragtruth
from faith_dspy.eval_sets.public import Files, read_tabs
from faith_dspy.io.labels import read_labels
from faith_dspy.schema import Chunk, LabelledExample, LabelledStatement, Verdict
from faith_dspy.text.sentences import carries_statement, sentences
from tests.benchmarks.perturbations import PERTURBATIONS, Case

SEED = 41
MAX_CHARACTERS, MAX_CHUNKS, MAX_STATEMENT = 5000, 20, 600
"""Of a context, and of a statement."""
HELD_OUT_CHARACTERS = 6000
"""Of a held-out context; what is longer is cut."""
FOREIGN_SHARE = 0.4
"""Share of rows that get chunks of other contexts."""
REWRITTEN_SHARE = 0.4
"""Share of the rows with perturbed twins, and of these, that are rewritten without a change of meaning."""
REMOVED_SHARE, REMOVED_SHARES = 0.08, {"snli": 0.3, "scitail": 0.3, "mnli": 0.15}
"""Share of rows that lose the right chunk instead; more where wording gives the label away."""
MOVED_SHARE = 0.4
"""Share of the rows with twins in which the context is changed instead of the statement."""
SHARED_SENTENCE = 60
"""A training context that has a sentence of so many characters in common with a held-out one is left out."""
PAIRS = 110
"""Faithful answers of a held-out family that get a perturbed twin."""
PER_FAMILY = 300
"""Answers of a family in ``all_shared.jsonl``."""
OTHERS = 4
"""Contexts from which a foreign name is taken."""

SUPPORTED, PARTIAL, NO_EVIDENCE = (
    "fully_supported",
    "partially_supported",
    "no_evidence",
)
CONTRADICTORY, NOT_SUPPORTED = "contradictory", "not_supported"


class Set(NamedTuple):
    """A public set."""

    licence: str
    home: str
    files: str
    """A pattern for its published files."""
    rows: int
    """Rows at most that are trained on."""
    read: Callable[[list[Path]], Iterator[Row]]
    twins: float | None = None
    """Share of its supported statements that get a perturbed twin; None where statements are too short."""


HELD_OUT = {
    "begin": "*.tsv",
    "q2": "*consistent.csv",
    "dialfact": "*.jsonl",
    "qags": "*.jsonl",
    "covidfact": "*.jsonl",
    "summedits": "*.json",
    "paws": "paws.csv",
    "summary_pairs": "*.json",
}
"""Sets that are only measured on, with a pattern for their published files."""


class Row(NamedTuple):
    """A statement over a context."""

    source: str
    context: tuple[str, ...]
    statement: str
    verdict: str
    kind: str
    question: str | None = None
    family: str = ""

    @property
    def label(self) -> bool:
        """Whether people call it supported."""
        return self.verdict == SUPPORTED

    def to_line(self, **more: Any) -> str:
        """Its line of a file."""
        fields = self._asdict()
        fields["label"] = int(self.label)
        fields["licence"] = SETS[self.family].licence if self.family in SETS else None
        return json.dumps(fields | more, ensure_ascii=False)


Rows = Iterator[Row]
Change = Callable[[Row, Sequence[Row], random.Random], "str | None"]
"""A row, rows over other contexts, and chance → its statement changed; None where that cannot be done."""


# -- the training families ---------------------------------------------------------------------------------------------


def read_ragtruth(paths: list[Path]) -> Rows:
    """Responses of the training half with an even source: their sentences, and some of them whole."""
    files = Files({path.name: path for path in paths})
    for answer in ragtruth.rows(files):
        source = answer["group"].rpartition("/")[2]
        if answer["split"] != "train" or int(source) % 2:
            continue
        context = tuple(answer["context"])
        question = answer["question"]
        for s in answer["statements"] or ():
            yield Row(source, context, s["text"], s["verdict"], "sentence", question)
        faithful = answer["faithful"]
        verdict = SUPPORTED if faithful else NOT_SUPPORTED
        yield Row(source, context, answer["answer"], verdict, "answer", question)


NLI = {
    "e": SUPPORTED,
    "n": NO_EVIDENCE,
    "c": CONTRADICTORY,
    "0": SUPPORTED,
    "1": NO_EVIDENCE,
    "2": CONTRADICTORY,
    "S": SUPPORTED,
    "R": CONTRADICTORY,
    "N": NO_EVIDENCE,
}
"""How labels of inference sets begin, and the verdict they are."""


def pair(premise: str, hypothesis: str, label: str) -> Row:
    """A pair of an inference set, by how its label begins."""
    verdict = NOT_SUPPORTED if label.startswith("not") else NLI[label[0]]
    return Row(premise, (premise,), hypothesis, verdict, "claim")


def read_docnli(paths: list[Path]) -> Rows:
    """Lines of label, premise and hypothesis."""
    for line in lines(paths):
        cells = line.split("\t")
        if len(cells) == 3:
            label, premise, hypothesis = cells
            yield pair(untokenized(premise), untokenized(hypothesis), label)


def read_numbered(paths: list[Path]) -> Rows:
    """Lines of premise, hypothesis and a number: 0 entailment, 1 neutral, 2 contradiction."""
    for line in lines(paths):
        cells = line.split("\t")
        if len(cells) == 3:
            premise, hypothesis, label = cells
            yield pair(sentence_case(premise), sentence_case(hypothesis), label)


def read_farstail(paths: list[Path]) -> Rows:
    """Persian premises and hypotheses."""
    for path in paths:
        for r in read_tabs(path):
            if r["label"] in NLI:
                yield pair(r["premise"], r["hypothesis"], r["label"])


def read_indonli(paths: list[Path]) -> Rows:
    """Indonesian premises and hypotheses."""
    for r in objects(paths):
        yield pair(r["premise"], r["hypothesis"], r["label"])


def read_jnli(paths: list[Path]) -> Rows:
    """Japanese captions of one picture."""
    for r in objects(paths):
        yield pair(r["sentence1"], r["sentence2"], r["label"])


def read_klue(paths: list[Path]) -> Rows:
    """Korean premises and hypotheses."""
    for path in paths:
        for r in read_json(path):
            yield pair(r["premise"], r["hypothesis"], r["gold_label"])


def read_fever_symmetric(paths: list[Path]) -> Rows:
    """Claims and evidence in which the same words stand under both labels."""
    for r in objects(paths):
        label = r.get("gold_label") or r["label"]
        yield pair(untokenized(r["evidence"]), untokenized(r["claim"]), label)


def read_wice(paths: list[Path]) -> Rows:
    """Partially supported claims; and what is left of them without the words that are not supported."""
    for r in objects(paths):
        source = r["meta"]["id"]
        context = around(r["evidence"], r["supporting_sentences"][0])
        yield Row(source, context, r["claim"], PARTIAL, "claim")
        if rest := supported_rest(r["claim_tokens"], r["non_supported_spans"]):
            yield Row(source, context, rest, SUPPORTED, "perturbed")
        yield from of_document(source, context, None)


def around(
    document: list[str], numbers: Iterable[int], room: int = 2500
) -> tuple[str, ...]:
    """The numbered sentences, and their neighbours while there is room."""
    chosen = {n for n in numbers if n < len(document)}
    size = sum(len(document[n]) for n in chosen)
    for distance in range(1, len(document)):
        for n in sorted(chosen):
            for near in (n - distance, n + distance):
                if 0 <= near < len(document) and near not in chosen and size < room:
                    chosen.add(near)
                    size += len(document[near])
        if size >= room:
            break
    return chunks([document[n] for n in sorted(chosen)])


def supported_rest(tokens: list[str], unsupported: list[bool]) -> str | None:
    """A claim without its unsupported words, where few of them are cut out of its middle."""
    cut = sum(unsupported)
    if unsupported[0] or unsupported[-2] or cut > len(tokens) // 3:
        return None
    rest = untokenized(
        " ".join(t for t, out in zip(tokens, unsupported, strict=True) if not out)
    )
    return None if DANGLING.search(rest) else rest


DANGLING = re.compile(
    r"\b(?:in|of|on|at|by|with|to|the|a|an|is|was|were|are|and|from|as|for|not)\b ?[,.%;]"
    r"|^\w+,|\b(?:is|was|were) [A-Z]",
    re.IGNORECASE,
)
"""What is left where words were cut out of the middle of a phrase."""


def read_entailment_bank(paths: list[Path]) -> Rows:
    """Hypotheses that follow from several facts among others; and over the same facts without one that is needed."""
    rng = random.Random(SEED)
    for i, r in enumerate(objects(paths)):
        question, hypothesis, context = re.findall(
            r"\$(?:question|hypothesis|context)\$ = (.*?)(?= ; \$|$)", r["input"]
        )
        facts = re.split(r"\s*sent\d+: ", context)[1:]
        needed = sorted({int(n) - 1 for n in re.findall(r"sent(\d+)", r["output"])})
        if not needed or needed[-1] >= len(facts):
            continue
        facts, needed = some_facts(facts, needed, rng)
        whole = tuple(map(sentence_case, facts))
        statement = sentence_case(hypothesis)
        removed = (
            {best_fact(statement, whole, needed)} if rng.random() < 0.5 else set(needed)
        )
        others = [n for n in range(len(whole)) if n not in needed]
        shuffled = rng.sample(others, len(others))
        spared = set(shuffled[: len(removed)])
        right = tuple(f for n, f in enumerate(whole) if n not in spared)
        wrong = tuple(f for n, f in enumerate(whole) if n not in removed)
        yield Row(str(i), right, statement, SUPPORTED, "claim", question)
        yield Row(str(i), wrong, statement, NO_EVIDENCE, "perturbed", question)


def some_facts(
    facts: list[str], needed: list[int], rng: random.Random
) -> tuple[list[str], list[int]]:
    """The needed facts among a few of the others, and their new numbers."""
    room = max(len(needed) + 1, rng.randint(4, MAX_CHUNKS))
    others = [n for n in range(len(facts)) if n not in needed]
    rng.shuffle(others)
    chosen = sorted([*needed, *others[: room - len(needed)]])
    return [facts[n] for n in chosen], [chosen.index(n) for n in needed]


def best_fact(statement: str, facts: Sequence[str], needed: Sequence[int]) -> int:
    """The needed fact that shares most words with the statement."""
    words = set(statement.lower().split())
    return max(needed, key=lambda n: len(words & set(facts[n].lower().split())))


def read_summaries(paths: list[Path]) -> Rows:
    """Summaries of news, judged by people: whole, and the sentences of those that are right."""
    for path in paths:
        for r in csv.DictReader(path.open(encoding="utf-8")):
            text = r["grounding"].replace("\\'", "'")
            context = chunks([s.text for s in sentences(untokenized(text))])
            summary = untokenized(r["generated_text"].replace("\\'", "'"))
            yield from of_summary(context, summary, r["label"] == "1")


def of_summary(context: tuple[str, ...], summary: str, faithful: bool) -> Rows:
    """A summary as a whole, and its sentences when all are right."""
    source = context[0]
    verdict = SUPPORTED if faithful else NOT_SUPPORTED
    yield Row(source, context, summary, verdict, "answer")
    found = statements_of(summary)
    if faithful and len(found) > 1:
        for s in found:
            yield Row(source, context, s, SUPPORTED, "sentence")


def read_fib(paths: list[Path]) -> Rows:
    """Summaries of models, by file: people found all of them consistent, or none; the other choice is corrected."""
    for path in paths:
        consistent = "consistent" in path.name
        for r in objects([path]):
            context = chunks([s.text for s in sentences(r["input"])])
            for choice in r["list_choices"]:
                is_consistent = consistent or choice == r["correct_choice"]
                yield from of_summary(context, choice.strip(), is_consistent)


def read_qmsum(paths: list[Path]) -> Rows:
    """Questions about meetings: people's answers over the turns that they marked; and over other turns."""
    for path in paths:
        meeting = read_json(path)
        turns = [
            f"{t['speaker']}: {spoken(t['content'])}"
            for t in meeting["meeting_transcripts"]
        ]
        for query in meeting["specific_query_list"]:
            spans = [
                range(int(start), int(end) + 1)
                for start, end in query["relevant_text_span"]
            ]
            marked = [turns[n] for n in chain(*spans) if n < len(turns)]
            if sum(map(len, marked)) > MAX_CHARACTERS:
                continue
            context = chunks(marked, 900)
            answer = query["answer"].strip()
            for s in statements_of(answer):
                yield Row(path.stem, context, s, SUPPORTED, "sentence", query["query"])
            yield Row(path.stem, context, answer, SUPPORTED, "answer", query["query"])


def spoken(text: str) -> str:
    """A turn without the transcriber's marks."""
    return untokenized(re.sub(r"\{\w+\}", "", text))


def read_wiki_split(paths: list[Path]) -> Rows:
    """A sentence, and two that say the same: each of the two over the one, and the one over the two."""
    for line in lines(paths):
        whole, _, parts = line.partition("\t")
        first, _, second = parts.partition("<::::>")
        one, two = untokenized(whole), (untokenized(first), untokenized(second))
        yield Row(one, (" ".join(two),), one, SUPPORTED, "claim")
        yield Row(one, (one,), two[0], SUPPORTED, "claim")


def read_e2e(paths: list[Path]) -> Rows:
    """Descriptions of restaurants over the fields they describe; and over fields of which one has another value."""
    rng = random.Random(SEED)
    records = [r for path in paths for r in csv.DictReader(path.open(encoding="utf-8"))]
    fields = [dict(re.findall(r"(\w[\w ]*)\[(.*?)\]", r["mr"])) for r in records]
    values = defaultdict(set)
    for field in fields:
        for name, value in field.items():
            values[name].add(value)
    for r, field in zip(records, fields, strict=True):
        yield Row(r["mr"], (table(field),), r["ref"], SUPPORTED, "answer")
        name = rng.choice(sorted(field))
        others = sorted(values[name] - {field[name]})
        if others and name != "priceRange":
            changed = field | {name: rng.choice(others)}
            yield Row(r["mr"], (table(changed),), r["ref"], CONTRADICTORY, "perturbed")


def table(fields: dict[str, str]) -> str:
    """Fields with their values, one a line."""
    return "\n".join(f"{name}: {value}" for name, value in fields.items())


def read_tabfact(paths: list[Path]) -> Rows:
    """Statements about tables, in the published form with base forms of words."""
    for line in lines(paths):
        name, _, _, rows, statement, label = line.split("\t")
        context = re.sub(r" \. (?=row \d)", "\n", rows)
        supported = label == "1"
        verdict = SUPPORTED if supported else CONTRADICTORY
        yield Row(name, (context,), statement, verdict, "claim")


def read_scitldr(paths: list[Path]) -> Rows:
    """Sentences of abstracts."""
    for r in objects(paths):
        yield from of_document(r["paper_id"], chunks(r["source"]), None)


def read_pubmedqa(paths: list[Path]) -> Rows:
    """Sentences of medical abstracts, under the question that the study asked."""
    for path in paths:
        for name, r in read_json(path).items():
            yield from of_document(name, tuple(r["CONTEXTS"]), r["QUESTION"])


def of_document(source: str, context: tuple[str, ...], question: str | None) -> Rows:
    """Two sentences of a context, which supports them."""
    found = [
        s
        for text in context
        for s in statements_of(text)
        if 40 < len(s) < MAX_STATEMENT
    ]
    for s in random.Random(source).sample(found, min(2, len(found))):
        yield Row(source, context, s, SUPPORTED, "sentence", question)


def read_squad(paths: list[Path]) -> Rows:
    """Short answers to questions; and answers to other questions about the same text."""
    for path in paths:
        paragraphs = [
            p for article in read_json(path)["data"] for p in article["paragraphs"]
        ]
        for i, p in enumerate(paragraphs):
            source = f"{path.stem}/{i}"
            context = chunks(
                statements_of(p["context"].partition("[SEP]")[2] or p["context"]), 500
            )
            yield from of_answers(source, context, p["qas"])
            yield from of_document(source, context, None)


def of_answers(
    source: str, context: tuple[str, ...], asked: list[dict[str, Any]]
) -> Rows:
    """Right answers, and those of the question after it where they share no word."""
    for here, there in zip(asked, [*asked[1:], *asked[:1]], strict=True):
        right = here["answers"][0]["text"]
        other = there["answers"][0]["text"]
        yield Row(source, context, right, SUPPORTED, "answer", here["question"])
        accepted = " ".join(a["text"] for a in here["answers"]).lower()
        new_letters = set(other.lower()) - set(accepted) - {" "}
        if kind_of(right) == kind_of(other) and new_letters and apart(other, accepted):
            yield Row(source, context, other, CONTRADICTORY, "answer", here["question"])


def apart(one: str, other: str) -> bool:
    """Whether no word of one is in the other."""
    return not any(word in other for word in one.lower().split())


def kind_of(answer: str) -> str:
    """A number, a name or neither."""
    if re.search(r"\d", answer):
        return "number"
    return "name" if answer[:1].isupper() else "words"


SETS = {
    "ragtruth": Set(
        "MIT", "github.com/ParticleMedia/RAGTruth", "*.jsonl", 15000, read_ragtruth, 0.3
    ),
    "fever_nli": Set(
        "CC BY-SA 3.0", "github.com/salesforce/DocNLI", "*.txt", 9000, read_docnli, 0.3
    ),
    "mnli": Set(
        "OANC and others",
        "github.com/salesforce/DocNLI",
        "*.txt",
        5000,
        read_docnli,
        0.25,
    ),
    "snli": Set(
        "CC BY-SA 4.0",
        "nlp.stanford.edu/projects/snli",
        "*.txt",
        3000,
        read_numbered,
        0.3,
    ),
    "scitail": Set(
        "Apache-2.0", "github.com/allenai/scitail", "*.txt", 1600, read_numbered
    ),
    "fever_symmetric": Set(
        "CC BY-SA 3.0",
        "github.com/TalSchuster/FeverSymmetric",
        "*.jsonl",
        1400,
        read_fever_symmetric,
        0.3,
    ),
    "wice": Set(
        "ODC-BY, CC BY-SA",
        "github.com/ryokamoi/wice",
        "train.jsonl",
        1500,
        read_wice,
        1.0,
    ),
    "frank": Set(
        "MIT", "github.com/artidoro/frank", "frank.csv", 900, read_summaries, 0.4
    ),
    "summeval": Set(
        "MIT",
        "github.com/Yale-LILY/SummEval",
        "summeval.csv",
        1500,
        read_summaries,
        0.6,
    ),
    "fib": Set(
        "CC BY 4.0", "github.com/r-three/fib", "xsum-*.jsonl", 2400, read_fib, 0.4
    ),
    "entailment_bank": Set(
        "Apache-2.0",
        "github.com/allenai/entailment_bank",
        "*.jsonl",
        4000,
        read_entailment_bank,
        0.3,
    ),
    "qmsum": Set("MIT", "github.com/Yale-LILY/QMSum", "*.json", 8000, read_qmsum, 1.0),
    "wiki_split": Set(
        "CC BY-SA 4.0",
        "github.com/google-research-datasets/wiki-split",
        "*.tsv",
        6000,
        read_wiki_split,
        1.0,
    ),
    "e2e": Set(
        "CC BY-SA 4.0",
        "github.com/tuetschek/e2e-cleaning",
        "*.csv",
        3000,
        read_e2e,
        1.0,
    ),
    "tabfact": Set(
        "MIT", "github.com/wenhuchen/Table-Fact-Checking", "*.tsv", 1200, read_tabfact
    ),
    "scitldr": Set(
        "Apache-2.0", "github.com/allenai/scitldr", "*.jsonl", 2500, read_scitldr, 1.0
    ),
    "pubmedqa": Set(
        "MIT", "github.com/pubmedqa/pubmedqa", "*.json", 2500, read_pubmedqa, 1.0
    ),
    "xquad": Set(
        "CC BY-SA 4.0",
        "github.com/google-deepmind/xquad",
        "*.json",
        4500,
        read_squad,
        1.0,
    ),
    "cmrc": Set(
        "CC BY-SA 4.0", "github.com/ymcui/cmrc2018", "*.json", 1400, read_squad
    ),
    "jsquad": Set(
        "CC BY-SA 4.0", "github.com/yahoojapan/JGLUE", "*.json", 1400, read_squad
    ),
    "jnli": Set(
        "CC BY-SA 4.0", "github.com/yahoojapan/JGLUE", "*.json", 1500, read_jnli
    ),
    "klue": Set(
        "CC BY-SA 4.0", "github.com/KLUE-benchmark/KLUE", "*.json", 1600, read_klue
    ),
    "farstail": Set(
        "Apache-2.0", "github.com/dml-qom/FarsTail", "*.csv", 2500, read_farstail
    ),
    "indonli": Set(
        "CC BY-SA 4.0", "github.com/ir-nlp-csui/indonli", "*.jsonl", 2500, read_indonli
    ),
}
"""Training families. Left out, as they may not be used for all purposes: ANLI, XNLI, OCNLI, SICK, WebNLG."""


# -- text --------------------------------------------------------------------------------------------------------------


def lines(paths: Iterable[Path]) -> Iterator[str]:
    """The lines of text files."""
    for path in paths:
        yield from path.read_text(encoding="utf-8").splitlines()


def objects(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The objects of JSON lines files."""
    return (json.loads(line) for line in lines(paths))


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


_TOKENS = [
    (re.compile(r"-LRB-\s*"), "("),
    (re.compile(r"\s*-RRB-"), ")"),
    (re.compile(r"-LSB-\s*"), "["),
    (re.compile(r"\s*-RSB-"), "]"),
    (re.compile(r"(?:``|''|\"\s)\s*([^`\"]+?)\s*(?:''|``|\s\")"), r'"\1"'),
    (re.compile(r"``|''"), '"'),
    (re.compile(r"\bdo n't"), "don't"),
    (re.compile(r"\s+(?=[.,;:!?%)\]])"), ""),
    (re.compile(r"(?<=[(\[$])\s+"), ""),
    (re.compile(r"\s+(?=(?:'s|n't|'re|'ve|'ll|'d|'m)\b)"), ""),
    (re.compile(r"(?<=\w) - (?=\w)"), "-"),
    (re.compile(r"\s--\s"), " – "),
    (re.compile(r"[ \t]+"), " "),
]


def untokenized(text: str) -> str:
    """Text with its words and signs joined again."""
    for pattern, plain in _TOKENS:
        text = pattern.sub(plain, text)
    return text.strip()


def sentence_case(text: str) -> str:
    """A lower-case line as a sentence."""
    text = untokenized(text)
    if not text:
        return text
    end = "" if text[-1] in ".!?" else "."
    return text[0].upper() + text[1:] + end


def statements_of(text: str) -> list[str]:
    """Its sentences that can assert anything, as the judge has them."""
    return [s.text for s in sentences(text) if carries_statement(s.text)]


def chunks(texts: Sequence[str], size: int = 600) -> tuple[str, ...]:
    """Texts joined to chunks of about ``size`` characters."""
    out: list[str] = []
    for text in texts:
        if out and len(out[-1]) + len(text) < size:
            out[-1] += " " + text
        else:
            out.append(text)
    return tuple(out)


# -- changes that make a supported statement unsupported ---------------------------------------------------------------


def of_product(name: str) -> Change:
    """One of the perturbations of `..perturbations`."""

    def change(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
        sample = [example(o) for o in rng.sample(others, min(OTHERS, len(others)))]
        return PERTURBATIONS[name](Case(example(row), sample, rng))

    return change


def example(row: Row) -> LabelledExample:
    """The row as a labelled answer."""
    context = tuple(Chunk(id=i, text=text) for i, text in enumerate(row.context))
    return LabelledExample(
        id="row", context=context, answer=row.statement, faithful=row.label
    )


NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?![\w.,]*\d)")
NAME = re.compile(
    r"(?<!^)(?<![.!?:] )\b[A-ZÀ-Þ][a-zà-ÿ]{2,}(?: [A-ZÀ-Þ][a-zà-ÿ]{2,})*\b"
)
MONTHS = (
    "January|February|March|April|June|July|August|September|October|November|December"
)
ALIKE = f"""\
{MONTHS}
Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday
kilometres|miles|metres
km|miles|cm
million|billion|thousand
percent|per mille|times
hours|minutes|days
weeks|months|years
dollars|euros|pounds
kg|tons|grams
first|second|third|last
north|south
east|west
mother|father
brother|sister
son|daughter
American|British|French|German
red|blue|green|yellow|black|white
two|three|four|five|six
increased|decreased
increase|decrease
increases|decreases
higher|lower
highest|lowest
more|less
most|fewest
before|after
largest|smallest
larger|smaller
always|never
all|none
old|new
oldest|youngest
good|bad
agreed|refused
accepted|rejected
won|lost
born|killed
began|ended
early|late
with|without
possible|impossible
significant|insignificant
men|women
man|woman
above|below
inside|outside
male|female
expensive|cheap
easy|difficult
positive|negative
approved|disapproved
improves|worsens
improve|worsen
improved|worsened
high|low
near|far from
thought|doubted
included|excluded
"""
"""Words of one kind, and opposites, a group a line."""
GROUPS = {
    word: group.split("|") for group in ALIKE.splitlines() for word in group.split("|")
}
WORD = re.compile(rf"\b(?:{'|'.join(sorted(GROUPS, key=len, reverse=True))})\b")
NEGATIONS = re.compile(
    r"\b(?P<verb>is|are|was|were|do|does|did|could|would|should|will|can|has|have|had)(?:n['’]t| not)\b"
)


def other_number(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """A number replaced by another one that the context has."""
    found = {m[0] for text in row.context for m in NUMBER.finditer(text)} | {
        m[0] for m in NUMBER.finditer(row.statement)
    }
    return exchanged(NUMBER, row.statement, found, rng)


def other_name(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """A name replaced by another one that the context has."""
    found = {m[0] for text in row.context for m in NAME.finditer(text)}
    return exchanged(NAME, row.statement, found, rng)


def exchanged(
    pattern: re.Pattern[str], statement: str, found: set[str], rng: random.Random
) -> str | None:
    """The statement with one match replaced by something that it does not have."""
    matches = list(pattern.finditer(statement))
    absent = sorted(
        text
        for text in found
        if text not in statement and not any(text in m[0] for m in matches)
    )
    absent = [text for text in absent if not any(m[0] in text for m in matches)]
    if not matches or not absent:
        return None
    at = rng.choice(matches)
    alike = [text for text in absent if shape(text) == shape(at[0])]
    if not alike:
        return None
    return statement[: at.start()] + rng.choice(alike) + statement[at.end() :]


def shape(text: str) -> str:
    """Its digits as zeros and its words as one letter: a year is like a year, two words are like two."""
    return re.sub(r"[^\W\d]+", "x", re.sub(r"\d", "0", text))


def roles(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """Two names on either side of a verb in each other's place."""
    match = re.fullmatch(
        r"(?P<one>(?:[A-Z][\w.'-]+ ){1,3})(?P<verb>(?!and |or |of |in |was a |is a )[a-z][^,;]*? )"
        r"(?P<two>(?:[A-Z][\w'-]+)(?: [A-Z][\w'-]+){0,2})(?P<rest>(?:[ ,.;].*)?)",
        row.statement,
    )
    symmetric = r"\b(?:and|with|met|marr|between|near|or|equal|same|both|like|play\w* for|in|on|at|from|of)\b"
    if (
        match is None
        or re.search(symmetric, match["verb"])
        or match["verb"].count(" ") > 3
    ):
        return None
    if {match["one"].split()[0], match["two"].split()[0]} & set(FUNCTION_WORDS.split()):
        return None
    return f"{match['two']} {match['verb']}{match['one'].strip()}{match['rest']}"


FUNCTION_WORDS = """\
The A An In On At This That He She It They His Her There We When Then However These Those Some Although After For If
As Most
"""
"""Words that begin sentences and are no names."""


def word(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """A month, day, unit, place in an order, kin or quality replaced by another of its kind, or by its opposite."""
    matches = [
        m
        for m in WORD.finditer(row.statement)
        if not re.match(r" (?:than|of)\b.*\bor\b", m.string[m.end() :])
    ]
    if not matches:
        return None
    at = rng.choice(matches)
    new = rng.choice([w for w in GROUPS[at[0]] if w != at[0]])
    changed = row.statement[: at.start()] + new + row.statement[at.end() :]
    return (
        None
        if new in " ".join(row.context) and at[0] not in " ".join(row.context)
        else changed
    )


def affirmed(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """A negation taken out."""
    match = NEGATIONS.search(row.statement)
    if match is None:
        return None
    return row.statement[: match.start()] + match["verb"] + row.statement[match.end() :]


WRONG: dict[str, Change] = {
    "number": of_product("number"),
    "name": of_product("name"),
    "negation": of_product("negation"),
    "other number": other_number,
    "other name": other_name,
    "roles": roles,
    "word": word,
    "affirmed": affirmed,
}
"""By name."""
RANK = {
    "number": 0.6,
    "name": 1.8,
    "negation": 1.6,
    "other number": 0.4,
    "other name": 0.9,
}
RANK |= {"roles": 0.4, "word": 0.9, "affirmed": 0.3}
"""What can seldom be done is tried first, more often than not."""
OPPOSED = {"negation", "roles", "affirmed", "word"}
"""Those after which the context says the opposite."""


# -- changes of the context --------------------------------------------------------------------------------------------


def moved(row: Row, others: Sequence[Row], rng: random.Random) -> list[Row]:
    """A number or name of the statement changed in the context: the statement, which it no longer supports, and the
    statement with the same change, which it does. So no wording gives the label away."""
    swap = swapped_value(row, others, rng)
    if swap is None:
        return []
    old, new = swap
    everywhere = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    context = tuple(everywhere.sub(lambda _: new, text) for text in row.context)
    statement = everywhere.sub(lambda _: new, row.statement)
    wrong = row._replace(context=context, verdict=NOT_SUPPORTED, kind="perturbed")
    return [wrong, row._replace(context=context, statement=statement, kind="perturbed")]


def swapped_value(
    row: Row, others: Sequence[Row], rng: random.Random
) -> tuple[str, str] | None:
    """A number or name that statement and context share, and one of the same shape that neither has."""
    whole = "\n".join(row.context)
    values = [
        m[0]
        for pattern in (NUMBER, NAME)
        for m in pattern.finditer(row.statement)
        if m[0] in whole
    ]
    if not values:
        return None
    old = rng.choice(values)
    if old[0].isdigit():
        found = {re.sub(r"\d", lambda _: str(rng.randint(1, 9)), old)}
    else:
        found = {
            m[0] for o in others for text in o.context for m in NAME.finditer(text)
        }
    alike = [
        v
        for v in sorted(found)
        if shape(v) == shape(old) and v not in whole and v not in row.statement
    ]
    return (old, rng.choice(alike)) if alike else None


# -- changes that leave a supported statement supported ----------------------------------------------------------------

SMALL = "zero one two three four five six seven eight nine ten eleven twelve"
CONTRACTIONS = """\
isn't|is not
aren't|are not
wasn't|was not
weren't|were not
didn't|did not
doesn't|does not
don't|do not
can't|cannot
couldn't|could not
won't|will not
"""
SYNONYMS = """\
began|started
started|began
large|big
many|a lot of
however|but
approximately|about
about|approximately
movie|film
film|movie
because|since
near|close to
purchased|bought
bought|purchased
often|frequently
children|kids
begins|starts
obtained|got
located|situated
"""
"""Words, and what can stand for them, a pair a line."""
SHORT_FORMS = dict(line.split("|") for line in CONTRACTIONS.splitlines())
FORMS = SHORT_FORMS | {long: short for short, long in SHORT_FORMS.items()}
OTHERWISE = dict(line.split("|") for line in SYNONYMS.splitlines())


def reordered(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """A time or place from the beginning to the end."""
    match = re.fullmatch(
        r"(In|On|At|During|After|Before|From|By) ([^,]{3,40}), ([^,;]+)\.",
        row.statement,
    )
    if match is None:
        return None
    body = match[3]
    begin = body[0].upper() + body[1:]
    return f"{begin} {match[1].lower()} {match[2]}."


def shortened(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """A bracket or a relative clause left out."""
    short = re.sub(
        r" \([^()]*\)|, (?:which|who|where) [^,]{5,60},(?= \w)",
        "",
        row.statement,
        count=1,
    )
    return None if short == row.statement else short


RESPELLINGS: list[tuple[str, Callable[[re.Match[str]], str]]] = [
    (r"(?<![\d.,])(?:[2-9]|1[0-2])(?= [a-z]{3,})", lambda m: SMALL.split()[int(m[0])]),
    (rf"\b({MONTHS}) (\d{{1,2}}), (?=\d{{4}})", lambda m: f"{m[2]} {m[1]} "),
    (rf"\b(\d{{1,2}}) ({MONTHS}) (?=\d{{4}})", lambda m: f"{m[2]} {m[1]}, "),
    (r"(?<=\d),(?=\d{3}\b)", lambda m: ""),
    (r"(?<=\d) ?%", lambda m: " percent"),
    (rf"\b(?:{'|'.join(FORMS)})\b", lambda m: FORMS[m[0]]),
    (rf"\b(?:{'|'.join(OTHERWISE)})\b", lambda m: OTHERWISE[m[0]]),
]
"""What is written in one way, and the same in another."""


def respelled(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """A number, date, negation or word in its other form."""
    for pattern, form in rng.sample(RESPELLINGS, len(RESPELLINGS)):
        changed = re.sub(pattern, form, row.statement, count=1)
        if changed != row.statement:
            return changed
    return None


def introduced(row: Row, others: Sequence[Row], rng: random.Random) -> str | None:
    """Said with a few words before it."""
    first, _, rest = row.statement.partition(" ")
    if not row.statement.isascii() or not first.istitle() or not rest[:1].islower():
        return None
    begin = rng.choice(
        (
            "According to the text, ",
            "Yes, ",
            "As stated, ",
            "Indeed, ",
            "In short, ",
            "Overall, ",
        )
    )
    is_word = first in FUNCTION_WORDS.split() or any(
        first.lower() in text for text in row.context
    )
    return begin + (first.lower() if is_word else first) + " " + rest


RIGHT: dict[str, Change] = {
    "respelled": respelled,
    "reordered": reordered,
    "shortened": shortened,
    "introduced": introduced,
}


def perturbed(row: Row, others: Sequence[Row], rng: random.Random) -> list[Row]:
    """A twin of a supported row that is not supported, where one can be made."""
    for name in sorted(WRONG, key=lambda name: rng.random() * RANK[name]):
        statement = WRONG[name](row, others, rng)
        if statement and statement != row.statement:
            verdict = CONTRADICTORY if name in OPPOSED else NOT_SUPPORTED
            return [
                row._replace(statement=statement, verdict=verdict, kind="perturbed")
            ]
    return []


def rewritten(row: Row, others: Sequence[Row], rng: random.Random) -> Row:
    """The same said otherwise, where that can be done."""
    for name in rng.sample(list(RIGHT), len(RIGHT)):
        if statement := RIGHT[name](row, others, rng):
            return row._replace(statement=statement, kind="perturbed")
    return row


# -- the training rows -------------------------------------------------------------------------------------------------


def training_rows(published: Path, blocked: set[str]) -> list[Row]:
    """The rows of every training family that is there."""
    out: list[Row] = []
    for family, public in SETS.items():
        if paths := sorted((published / family).glob(public.files)):
            rows = of_family(family, public.read(paths), blocked)
            print(family, len(rows), dict(Counter(r.label for r in rows)), flush=True)
            out += rows
        else:
            print(f"{family}: not there, and left out", flush=True)
    random.Random(SEED).shuffle(out)
    return out


def of_family(family: str, rows: Iterable[Row], blocked: set[str]) -> list[Row]:
    """Rows of one family: usable ones, with twins, other chunks among theirs, and both labels alike."""
    rng = random.Random(family)
    named = (r._replace(family=family) for r in rows)
    usable = [r for r in named if is_usable(r, blocked)]
    if family == "scitail":
        usable = under_both_labels(usable)
    rng.shuffle(usable)
    most, share = SETS[family].rows, SETS[family].twins
    usable = balanced(usable, most * 2, rng)
    if share is not None:
        usable = with_twins(usable, share, rng)
    usable = [r for r in with_chunks(usable, rng) if fits(r)]
    return balanced(usable, most, rng, exactly=True)


def under_both_labels(rows: Sequence[Row]) -> list[Row]:
    """Rows whose statement is supported by one context and not by another."""
    sides = [{r.statement for r in rows if r.label is label} for label in (True, False)]
    return [r for r in rows if r.statement in sides[0] & sides[1]]


def is_usable(row: Row, blocked: set[str]) -> bool:
    """Whether it fits, says something, and shares no sentence with a held-out context."""
    if not fits(row) or len(row.statement) < 2:
        return False
    return not any(s in blocked for text in row.context for s in long_sentences(text))


def fits(row: Row) -> bool:
    """Whether its context and statement are short enough."""
    size = sum(map(len, row.context))
    return (
        0 < size <= MAX_CHARACTERS
        and len(row.context) <= MAX_CHUNKS
        and len(row.statement) <= 2 * MAX_STATEMENT
    )


def long_sentences(text: str) -> Iterator[str]:
    """Its long sentences, in a form in which copies are equal."""
    for piece in re.split(r"[.!?。\n]", text):
        plain = re.sub(r"\W+", " ", piece).strip().lower()
        if len(plain) >= SHARED_SENTENCE:
            yield plain


def balanced(
    rows: Sequence[Row], most: int, rng: random.Random, *, exactly: bool = False
) -> list[Row]:
    """At most so many rows, the labels alike as far as both are there, each source as seldom as can be."""
    sides = [spread([r for r in rows if r.label is label]) for label in (True, False)]
    few = min(map(len, sides)) if exactly else max(map(len, sides))
    half = min(few, most // 2)
    out = [*sides[0][:half], *sides[1][:half]]
    rng.shuffle(out)
    return out


def spread(rows: Iterable[Row]) -> list[Row]:
    """Rows so ordered that a source comes again only after all others came."""
    seen: Counter[str] = Counter()
    ranks = []
    for row in rows:
        ranks.append((seen[row.source], row))
        seen[row.source] += 1
    ranks.sort(key=lambda ranked: ranked[0])
    return [row for _, row in ranks]


def with_twins(rows: Sequence[Row], share: float, rng: random.Random) -> list[Row]:
    """The rows; some of the supported ones with a twin; some of all rewritten."""
    out: list[Row] = []
    for row in rows:
        if not row.label or rng.random() > share:
            is_rewritten = rng.random() < REWRITTEN_SHARE * share
            out.append(rewritten(row, rows, rng) if is_rewritten else row)
        else:
            out += twins_over(row, rows, rng)
    return out


def twins_over(row: Row, rows: Sequence[Row], rng: random.Random) -> list[Row]:
    """A supported row with a twin: the statement changed, or the context."""
    others = rng.sample(rows, min(30, len(rows)))
    others = [o for o in others if o.source != row.source]
    if rng.random() < MOVED_SHARE and (pair_of_rows := moved(row, others, rng)):
        return pair_of_rows
    twins = [row, *perturbed(row, others, rng)]
    return [
        rewritten(r, others, rng) if rng.random() < REWRITTEN_SHARE else r
        for r in twins
    ]


def with_chunks(rows: Sequence[Row], rng: random.Random) -> Rows:
    """The rows; some with chunks of other contexts among theirs, some without their own."""
    for row in rows:
        chance = rng.random()
        removed = REMOVED_SHARES.get(row.family, REMOVED_SHARE)
        if chance < removed and row.label and row.kind != "perturbed":
            foreign = foreign_chunks(row, rows, rng, MAX_CHARACTERS // 2)
            if foreign:
                yield row._replace(
                    context=tuple(foreign),
                    verdict=NO_EVIDENCE,
                    kind="perturbed",
                )
        elif chance < removed + FOREIGN_SHARE and len(row.context) < 8:
            mixed = [
                *row.context,
                *foreign_chunks(
                    row, rows, rng, MAX_CHARACTERS - sum(map(len, row.context))
                ),
            ]
            if rng.random() < 0.5:
                rng.shuffle(mixed)
            yield row._replace(context=tuple(mixed))
        else:
            yield row


def foreign_chunks(
    row: Row, rows: Sequence[Row], rng: random.Random, room: int
) -> list[str]:
    """Chunks of other sources while there is room: mostly few, sometimes many."""
    wanted = min(int(rng.expovariate(1 / 3)) + 1, MAX_CHUNKS - len(row.context))
    room = min(room, int(rng.triangular(300, MAX_CHARACTERS, 900)))
    out: list[str] = []
    for other in rng.sample(rows, min(wanted * 2, len(rows))):
        text = rng.choice(other.context)
        if (
            other.source != row.source
            and text not in row.context
            and len(text) < room
            and len(out) < wanted
        ):
            out.append(text)
            room -= len(text)
    return out


# -- held-out answers --------------------------------------------------------------------------------------------------

FILES = {
    "begin_wow": ("begin_wow.jsonl", "begin_wow"),
    "expertqa": ("expertqa_claims.jsonl", "expertqa_claims"),
    "expertqa_long": ("long_context.jsonl", "expertqa_answers"),
    "mtrag": ("long_context.jsonl", "mtrag_human_eval"),
    "factcheck_gpt": ("factcheck_gpt.jsonl", "factcheck_gpt"),
    "rte3_fr": ("rte3_fr.jsonl", "rte3_fr"),
    "summedits": ("summedits.jsonl", "summedits"),
}
"""Held-out families of the labels files, with their source there."""
STUDIES = {
    "ragtruth": ("ragtruth_qa.jsonl", "ragtruth_qa"),
    "wice": ("wice_oracle.jsonl", "wice_oracle"),
}
SWAPPED = {"summedits", "covidfact", "paws", "summary_pairs"}
"""Published families in which answers are wrong by a word or two."""
TWINNED = {
    "swapped_begin": ("begin_wow", "begin_cmu", "begin_tc"),
    "swapped_expertqa": ("expertqa",),
    "swapped_dialogue": ("q2", "dialfact"),
    "swapped_mtrag": ("mtrag",),
    "swapped_qags": ("qags_cnndm", "qags_xsum"),
}
"""Families of perturbed answers, and whose faithful answers they are made from."""
DEV_ANSWERS = 120
"""Answers of a held-out family, half of them faithful where there are as many."""


def read_begin(paths: list[Path]) -> Iterator[LabelledExample]:
    """Replies over what was discussed, from the development parts."""
    files = Files(
        {
            path.name: path
            for path in paths
            if "_dev_" in path.name and "wow" not in path.name
        }
    )
    for r in begin.rows(files):
        yield labelled(
            f"begin_{r['domain']}",
            r["id"],
            r["context"],
            r["answer"],
            r["faithful"],
            r["question"],
        )


def read_q2(paths: list[Path]) -> Iterator[LabelledExample]:
    """Replies of two dialogue systems, in files by label."""
    for path in paths:
        faithful = "inconsistent" not in path.name
        for r in csv.DictReader(path.open(encoding="utf-8")):
            name = f"{path.stem}/{r['episode_idx']}/{r['round']}"
            yield labelled(
                "q2", name, [r["knowledge"]], r["response"], faithful, r["message"]
            )


def read_dialfact(paths: list[Path]) -> Iterator[LabelledExample]:
    """Replies over retrieved sentences; those about the speaker alone are left out."""
    for r in objects(paths):
        if r["type_label"] == "factual":
            context = [e[2] for e in r["evidence_list"]]
            faithful = r["response_label"] == "SUPPORTS"
            said = r["context"][-1] if r["context"] else None
            yield labelled("dialfact", r["id"], context, r["response"], faithful, said)


def read_qags(paths: list[Path]) -> Iterator[LabelledExample]:
    """Summaries whose sentences three people judged; the majority counts."""
    for path in paths:
        for i, r in enumerate(objects([path])):
            judged = [yes(s["responses"]) for s in r["summary_sentences"]]
            answer = " ".join(s["sentence"] for s in r["summary_sentences"])
            article = [s.text for s in sentences(r["article"])]
            yield labelled(
                f"qags_{path.stem[6:]}", str(i), chunks(article), answer, all(judged)
            )


def yes(responses: list[dict[str, Any]]) -> bool:
    """Whether most people said yes."""
    agreeing = [r for r in responses if r["response"] == "yes"]
    return 2 * len(agreeing) > len(responses)


def read_covidfact(paths: list[Path]) -> Iterator[LabelledExample]:
    """Claims, and the same with a word replaced by a language model, over evidence."""
    for i, r in enumerate(objects(paths)):
        yield labelled(
            "covidfact", str(i), r["evidence"], r["claim"], r["label"] == "SUPPORTED"
        )


def read_paws(paths: list[Path]) -> Iterator[LabelledExample]:
    """Sentences, and others with the same words in another order."""
    for path in paths:
        for i, r in enumerate(csv.DictReader(path.open(encoding="utf-8"))):
            context = [untokenized(r["grounding"])]
            yield labelled(
                "paws",
                str(i),
                context,
                untokenized(r["generated_text"]),
                r["label"] == "1",
            )


def read_summary_pairs(paths: list[Path]) -> Iterator[LabelledExample]:
    """Sentences of news, each with a right and a wrong short form."""
    for path in paths:
        for i, r in enumerate(read_json(path)):
            for right in (True, False):
                answer = r["correct_sent" if right else "incorrect_sent"]
                name = f"{i}/{'right' if right else 'wrong'}"
                yield labelled(
                    "summary_pairs", name, [r["article_sent"]], answer, right
                )


def labelled(
    family: str,
    name: str,
    context: Sequence[str],
    answer: str,
    faithful: bool,
    question: str | None = None,
) -> LabelledExample:
    """A labelled answer."""
    chunked = tuple(
        Chunk(id=i, text=text) for i, text in enumerate(context) if text.strip()
    )
    return LabelledExample(
        id=f"{family}/{name}",
        question=question,
        context=chunked,
        answer=answer,
        faithful=faithful,
        tags={"source": family},
    )


READ_HELD_OUT = {
    "begin": read_begin,
    "q2": read_q2,
    "dialfact": read_dialfact,
    "qags": read_qags,
    "covidfact": read_covidfact,
    "paws": read_paws,
    "summary_pairs": read_summary_pairs,
}

Families = dict[str, list[LabelledExample]]


def held_out(published: Path, shared: Path) -> Families:
    """Labelled answers of the held-out families."""
    found: Families = {
        f: of_source(shared / name, source) for f, (name, source) in FILES.items()
    }
    for name, read in READ_HELD_OUT.items():
        for e in read(sorted((published / name).glob(HELD_OUT[name]))):
            if e.context and e.answer.strip():
                found.setdefault(e.tags["source"], []).append(e)
    return {
        family: list({e.id: e for e in examples}.values())
        for family, examples in found.items()
    }


def of_source(path: Path, source: str) -> list[LabelledExample]:
    """The labelled answers of a file that are from a source."""
    return [e for e in read_labels(path) if e.tags.get("source") == source]


def dev_lines(families: Families) -> Iterator[str]:
    """Statements of a sample of each family, and of perturbed families."""
    rng = random.Random(SEED)
    for family, examples in families.items():
        group = "swapped" if family in SWAPPED else "rag"
        for e in sampled(examples, DEV_ANSWERS, rng):
            yield from statement_lines(family, group, shortened_context(e))
    for family, sources in TWINNED.items():
        faithful = [e for f in sources for e in families[f] if e.label]
        for e in twins_of(faithful, rng):
            yield from statement_lines(family, "swapped", e)


def sampled(
    examples: Sequence[LabelledExample], most: int, rng: random.Random
) -> list[LabelledExample]:
    """At most so many answers, half of them faithful where there are as many, short contexts first."""
    sides = []
    for label in (True, False):
        side = [e for e in examples if e.label is label]
        rng.shuffle(side)
        side.sort(key=lambda e: utf8_size(e) > HELD_OUT_CHARACTERS)
        sides.append(side)
    faithful = min(len(sides[0]), max(most // 2, most - len(sides[1])))
    return [*sides[0][:faithful], *sides[1][: most - faithful]]


def utf8_size(e: LabelledExample) -> int:
    """Characters of its context."""
    return sum(len(c.text) for c in e.context)


def shortened_context(e: LabelledExample) -> LabelledExample:
    """The answer over the beginning of its context."""
    room = HELD_OUT_CHARACTERS
    kept = []
    for c in e.context:
        if room > 0:
            kept.append(Chunk(id=c.id, text=c.text[:room]))
        room -= len(c.text)
    return e.model_copy(update={"context": tuple(kept)})


def twins_of(
    faithful: Sequence[LabelledExample], rng: random.Random
) -> Iterator[LabelledExample]:
    """Faithful answers, each followed by its perturbed twin."""
    short = [e for e in faithful if utf8_size(e) <= HELD_OUT_CHARACTERS]
    rng.shuffle(short)
    rows = [as_row(e) for e in short]
    made = 0
    for e, row in zip(short, rows, strict=True):
        others = [
            o for o in rng.sample(rows, min(30, len(rows))) if o.source != row.source
        ]
        for changed in perturbed(row, others, rng):
            new = set(statements_of(changed.statement)) - set(statements_of(e.answer))
            if new and made < PAIRS // 2:
                made += 1
                yield e
                yield twin(e, changed.statement)


def twin(e: LabelledExample, answer: str) -> LabelledExample:
    """The answer as changed; its sentences that are not those of the original are wrong."""
    right = set(statements_of(e.answer))
    verdicts = {
        s: Verdict.FULLY_SUPPORTED if s in right else Verdict.NOT_SUPPORTED
        for s in statements_of(answer)
    }
    statements = tuple(
        LabelledStatement(text=s, verdict=verdict) for s, verdict in verdicts.items()
    )
    changed = {
        "id": f"{e.id}/perturbed",
        "answer": answer,
        "faithful": False,
        "statements": statements,
    }
    return e.model_copy(update=changed)


def as_row(e: LabelledExample) -> Row:
    """A faithful answer as a row."""
    context = tuple(c.text for c in e.context)
    family = e.tags["source"]
    return Row(
        e.context_key, context, e.answer, SUPPORTED, "answer", e.question, family
    )


def statement_lines(
    family: str, group: str, e: LabelledExample, **more: Any
) -> Iterator[str]:
    """Lines of an answer's sentences, as the judge has them."""
    verdicts = {
        s.text.strip(): s.verdict.value for s in e.statements if s.verdict is not None
    }
    context = tuple(c.text for c in e.context)
    for text in statements_of(e.answer) or [e.answer]:
        verdict = verdicts.get(text.strip()) or (
            SUPPORTED if e.label else NOT_SUPPORTED
        )
        kind = "perturbed" if e.id.endswith("/perturbed") else "sentence"
        row = Row(e.context_key, context, text, verdict, kind, e.question, family)
        labelled_itself = text.strip() in verdicts or bool(e.label)
        level = "statement" if labelled_itself else "answer"
        yield row.to_line(
            answer_id=f"{family}/{e.id}",
            answer_label=int(bool(e.label)),
            group=group,
            label_of=level,
            **more,
        )


def study_lines(shared: Path) -> Iterator[str]:
    """Statements of the answers that studies are run on."""
    for family, (name, source) in STUDIES.items():
        for e in of_source(shared / name, source):
            yield from statement_lines(family, "study", e)


def shared_lines(shared: Path) -> Iterator[str]:
    """Statements of up to `PER_FAMILY` answers of every family of the labels files."""
    rng = random.Random(SEED)
    families: dict[tuple[str, str], list[LabelledExample]] = defaultdict(list)
    for path in sorted(shared.glob("*.jsonl")):
        for e in read_labels(path):
            families[path.name, e.tags.get("source", path.stem)].append(e)
    for (name, family), examples in families.items():
        for e in sampled(examples, PER_FAMILY, rng):
            yield from statement_lines(family, "shared", e, id=e.id, file=name)


def held_out_sentences(families: Families, published: Path, shared: Path) -> set[str]:
    """Long sentences of every held-out context."""
    examples = chain(
        *families.values(),
        *(read_labels(path) for path in sorted(shared.glob("*.jsonl"))),
    )
    texts = [c.text for e in examples for c in e.context]
    for path in sorted((published / "summedits").glob(HELD_OUT["summedits"])):
        texts += [r["doc"] for r in read_json(path)]
    return {s for text in texts for s in long_sentences(text)}


# -- output ------------------------------------------------------------------------------------------------------------


def write(path: Path, lines_of_file: Iterable[str]) -> list[dict[str, Any]]:
    """Write lines of a file, and read them again."""
    texts = list(lines_of_file)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return [json.loads(text) for text in texts]


def counts(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """Rows of a file by family, label and kind, with answers where there are any, and licences."""
    out = [f"# {name}: {len(rows)} rows"]
    for family in sorted({r["family"] for r in rows}):
        mine = [r for r in rows if r["family"] == family]
        labels = Counter(r["label"] for r in mine)
        kinds = Counter(r["kind"] for r in mine)
        line = f"{family}\t{mine[0]['licence'] or ''}\tyes {labels[1]}\tno {labels[0]}"
        line += "\t" + ", ".join(f"{kind} {n}" for kind, n in kinds.most_common())
        if answers := {
            r["answer_id"]: r["answer_label"] for r in mine if "answer_id" in r
        }:
            line += f"\t{len(answers)} answers, {sum(answers.values())} faithful"
        out.append(line)
    return "\n".join(out) + "\n"


def main(published: Path, shared: Path, out: Path) -> None:
    """Read, make, count, write."""
    out.mkdir(parents=True, exist_ok=True)
    families = held_out(published, shared)
    blocked = held_out_sentences(families, published, shared)
    files = {
        "dev.jsonl": dev_lines(families),
        "studies.jsonl": study_lines(shared),
        "all_shared.jsonl": shared_lines(shared),
        "train.jsonl": (row.to_line() for row in training_rows(published, blocked)),
    }
    tables = [counts(name, write(out / name, rows)) for name, rows in files.items()]
    (out / "COUNTS.txt").write_text("\n".join(tables), encoding="utf-8")
    print(*tables, sep="\n")


if __name__ == "__main__":
    typer.run(main)
