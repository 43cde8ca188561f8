"""Exports that somebody changed who knows about their hashes: each is refused in our words, or is a working judge."""

import json
import random
import shutil
from contextlib import suppress

import dspy
import pytest
import test_export
from test_export import ANSWER, CONTEXT, HEAD, exported, tuned  # noqa: F401 - fixtures

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError
from faith_dspy.export import save_judge
from faith_dspy.io.records import AnswerInput, as_chunks
from faith_dspy.lm.make import make_lm

VALUES = (
    None, True, -1, 0, 7, 0.5, 1e308, -1e308, 1e-308, 10**299, 10**4000, "", "x", "../x", "https://host/v1", "\ud800",
    "\x00", [], {}, [None], [[1]], {"x": 1}, {"api_base": "http://host/v1"}, json.loads("[" * 900 + "]" * 900),
)  # fmt: skip


def places(value, path=()):
    """Where every value of a document stands."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield from places(inside, (*path, key))


def changed(document, path, value, chance):
    """A copy of a document with one value put in place of another, removed, or added beside it."""
    copy = json.loads(json.dumps(document))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    how = chance.choice(["put", "put", "put", "remove", "add"])
    if how == "remove":
        del holder[path[-1]]
    elif how == "add" and isinstance(holder, list):
        holder.append(value)
    elif how == "add":
        holder[chance.choice(["lm", "config", "sha256", "card", "temperature", "x"])] = value
    else:
        holder[path[-1]] = value
    return copy


def seal(folder, program=None, judge=None):
    """Write what was changed, with the hash that fits as far as there is any."""
    for name, document in (("program", program), ("judge", judge)):
        if document is not None:
            (folder / f"{name}.json").write_text(json.dumps(document))
    with suppress(UnicodeEncodeError):
        test_export.seal(folder)


def loads(folder, lm, again):
    """Whether the judge in a folder loads; one that does judges, tells its fingerprint and can be saved."""
    try:
        judge = load_judge(folder, lm=lm)
    except FaithDspyError:
        return False
    judgment = judge(context=CONTEXT, answer=ANSWER)
    json.dumps(judgment.model_dump(mode="json"), allow_nan=False).encode()
    assert judgment.score is None or 0 <= judgment.score <= 1
    assert all(lm.model == "openai/tiny" for lm in judge.lms)
    judge.save(again)
    assert load_judge(again, lm=lm).fingerprint == judge.fingerprint
    return True


@pytest.mark.parametrize("kind", ["judge", "program", pytest.param("without_reference", marks=pytest.mark.all)])
def test_every_value_of_an_export(exported, chat_server, tmp_path, kind):  # noqa: F811
    """Any value of an export may be any other, be gone or have company: it is refused in words, or the judge works."""
    server = chat_server(says=lambda _: {"text": "Yes", "top": {"Yes": 0.9, "No": 0.1}})
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    name = "program.json" if kind == "program" else "judge.json"
    document = json.loads((exported / name).read_text(encoding="utf-8"))
    if kind == "without_reference":
        document["reference"] = []
    chance, outcomes = random.Random(14), []
    for path in list(places(document))[1:]:
        if len(path) > 6 and chance.random() < 0.9:
            continue  # one of many numbers of one kind
        for value in chance.sample(VALUES, 6 if kind == "without_reference" else 3):
            folder = tmp_path / "tampered"
            shutil.copytree(exported, folder, dirs_exist_ok=True)
            new = changed(document, path, value, chance)
            seal(folder, program=new) if kind == "program" else seal(folder, judge=new)
            try:
                outcomes.append(loads(folder, lm, tmp_path / "again"))
            except BaseException as exc:
                exc.add_note(f"{kind}: {str(value)[:60]!r} at {path}")
                raise
    assert 0 < sum(outcomes) < len(outcomes)


def test_a_program_redirects_nothing(exported, tuned, chat_server):  # noqa: F811
    """An LM, an address or a setting inside program.json reaches nobody, whatever hashes it carries."""
    judge, server = tuned
    elsewhere = chat_server(says="Yes")
    program = json.loads((exported / "program.json").read_text(encoding="utf-8"))
    settings = {"model": "openai/tiny", "api_base": elsewhere.base, "api_key": "k"}
    for predictor in program.values():
        predictor |= {"lm": settings, "config": settings, "callbacks": [1], "forward": "x", "temperature": 9}
    seal(exported, program=program)
    loaded = load_judge(exported, lm="openai/tiny", api_base=server.base)
    before = judge(context=CONTEXT, answer=ANSWER)
    dspy.configure_cache(enable_disk_cache=False)  # forget the replies
    assert loaded(context=CONTEXT, answer=ANSWER).probability == before.probability
    assert not elsewhere.requests
    assert loaded.fingerprint == judge.fingerprint


@pytest.mark.parametrize("model", ["local:/etc/passwd", "local:../x.gguf", "huggingface/https://host/v1"])
def test_a_name_that_is_a_place(exported, model):  # noqa: F811
    judge = json.loads((exported / "judge.json").read_text(encoding="utf-8"))
    judge["lm"]["model"] = model
    seal(exported, judge=judge)
    with pytest.raises(FaithDspyError, match="contains a path or URL"):
        load_judge(exported, lm="openai/tiny")


def test_a_half_written_export_is_none(tuned, exported, monkeypatch):  # noqa: F811
    """A disk that fills while a judge is saved over another leaves the other one, whole."""
    judge, _ = tuned
    before = {p.name: p.read_bytes() for p in exported.iterdir()}
    chunks = as_chunks(CONTEXT)
    reference = [(None, chunks, ANSWER, judge._judge(AnswerInput.make(None, chunks, ANSWER))[0])]
    monkeypatch.setattr("faith_dspy.io.files.sync", full := Full())
    for full.left in range(3):
        with pytest.raises(FaithDspyError, match="cannot be written"):
            save_judge(judge, exported, card="new", reference=reference)
        assert {p.name: p.read_bytes() for p in exported.iterdir()} == before
    assert load_judge(exported).classifier == HEAD


class Full:
    """A disk that takes so many files."""

    left = 0

    def __call__(self, handle):
        if self.left == 0:
            raise OSError(28, "No space left on device")
        self.left -= 1
