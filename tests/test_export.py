import json
import random
import shutil
from contextlib import suppress

import dspy
import pytest

from faith_dspy import Judge, JudgeConfig, load_judge
from faith_dspy.errors import ArtifactError, ConfigError, FaithDspyError
from faith_dspy.export import FORMAT_VERSION, _sha256, save_judge
from faith_dspy.io.records import AnswerInput, as_chunks
from faith_dspy.lm.make import make_lm
from faith_dspy.scoring.classifier import AnswerClassifier, Classifier, StatementClassifier

KEY = "sk-verysecret-0123456789"
CONTEXT = ["The Brennick kettle is blue.", "It holds 0.9 litres."]
ANSWER = "The kettle is blue. It holds 2 litres."
YES = {"The kettle is blue.": 0.9, "It holds 2 litres.": 0.3}
HEAD = Classifier(
    statement=StatementClassifier(
        names=("lm", "novel_number_count"),
        means=(0.1, 0.2),
        scales=(1.5, 1),
        weights=(1, -0.5),
        intercept=0.3,
    ),
    answer=AnswerClassifier(names=("weakest",), means=(0.0,), scales=(1.0,), weights=(1.0,), intercept=0.0),
    threshold=0.4,
)
INSTRUCTION = "Top of a compiled prompt – “quoted”.\n\nIs it so? Answer Yes or No."
DEMO = {"context": ["Snow is white."], "question": "", "statement": "Snow is black.", "verdict": "No"}


@pytest.fixture
def tuned(judge_at):
    """A judge with a classifier, compiled instruction and a demo; (judge, endpoint)."""
    judge, server = judge_at(yes=YES)
    judge = judge.copy(classifier=HEAD, manifest={"study_id": "s1", "agreement": {"n": 3}})
    predict = judge.program.verify.predict
    predict.signature = predict.signature.with_instructions(INSTRUCTION)
    predict.demos = [dspy.Example(**DEMO).with_inputs("context", "question", "statement")]
    return judge, server


@pytest.fixture
def exported(tuned, tmp_path):
    """The folder of that judge, with one reference judgment."""
    judge, _ = tuned
    chunks = as_chunks(CONTEXT)
    raw_judgment = judge._judge(AnswerInput.make(None, chunks, ANSWER))[0]
    save_judge(judge, tmp_path / "judge", reference=[(None, chunks, ANSWER, raw_judgment)])
    return tmp_path / "judge"


def seal(folder, **documents):
    """Write what was changed, `judge` or `program`, with the hash that fits as far as there is any."""
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    judge, program = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("judge", "program")
    )
    following = folder / "escalate_to"
    with suppress(UnicodeEncodeError):
        judge["sha256"] = _sha256(judge, program, seal(following) if following.is_dir() else None)
        (folder / "judge.json").write_text(json.dumps(judge), encoding="utf-8")
        return judge["sha256"]


def edit(folder, change):
    """Change judge.json as somebody would who knows about its SHA-256."""
    document = json.loads((folder / "judge.json").read_text(encoding="utf-8"))
    change(document)
    seal(folder, judge=document)


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_a_loaded_judge_judges_as_the_saved_one(tuned, exported):
    """Loaded from its folder a judge gives the same judgment, asks for it in the same bytes, and knows its making."""
    judge, server = tuned
    before = judge(context=CONTEXT, answer=ANSWER)
    assert before.probability is not None
    dspy.configure_cache(enable_disk_cache=False)  # forget the replies
    server.requests.clear()
    loaded = load_judge(exported, lm=judge.lm)
    after = loaded(context=CONTEXT, answer=ANSWER)
    assert after.model_dump(exclude={"usage", "replayed"}) == before.model_dump(exclude={"usage", "replayed"})
    assert len(server.requests) == 2
    sent = server.requests[0]["messages"]
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "user"]
    assert sent[0]["content"] == "Top of a compiled prompt – “quoted”."
    assert "Snow is black." in sent[1]["content"]
    assert sent[2]["content"] == "No"
    assert sent[3]["content"].endswith("Is it so? Answer Yes or No.")
    assert loaded.manifest["study_id"] == "s1"
    assert loaded.config == judge.config
    assert loaded.classifier == HEAD


def test_saved_twice_is_the_same_bytes(tuned, exported, tmp_path):
    judge, _ = tuned
    judge.save(tmp_path / "one")
    judge.save(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    load_judge(exported, lm=judge.lm).save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(exported)


def test_a_copy_of_a_loaded_judge_can_be_saved(tuned, exported, tmp_path):
    """Other options or another LM on a loaded judge are what its own export says; its references still hold."""
    judge, _ = tuned
    loaded = load_judge(exported, lm=judge.lm)
    weights = {**loaded.config.verdict_scores, "not_supported": 0.5}
    loaded.copy(config=JudgeConfig.make(verdict_scores=weights)).save(tmp_path / "copy")
    assert load_judge(tmp_path / "copy").config.verdict_scores["not_supported"] == 0.5
    load_judge(exported, lm="openai/other").save(tmp_path / "other")
    assert load_judge(tmp_path / "other").lm_name == "openai/other"
    edit(exported, lambda d: d["lm"].update(sha256="0" * 64))
    for lm, sha256 in ((None, "0" * 64), ("openai/other", None)):  # the hash is that of the LM it names
        load_judge(exported, lm=lm).save(tmp_path / "named")
        assert load_judge(tmp_path / "named").manifest["lm"]["sha256"] == sha256


def test_no_key_no_address_no_path_no_pickle(exported, chat_server, tmp_path, monkeypatch):
    server = chat_server()
    judge = Judge("openai/tiny", api_base=server.base, api_key=KEY)
    judge(context=CONTEXT, answer="It is blue.")
    judge.save(tmp_path / "keyed")
    model = tmp_path / "home" / "model.gguf"
    Judge(f"local:{model}").save(tmp_path / "file")
    assert json.loads((tmp_path / "file" / "judge.json").read_text())["lm"]["model"] == "local:model.gguf"
    for folder in (exported, tmp_path / "keyed", tmp_path / "file"):
        files = contents(folder)
        assert list(files) == ["CARD.md", "judge.json", "program.json"]
        json.loads(files["judge.json"])
        json.loads(files["program.json"])
        everything = b"".join(files.values()).decode("utf-8")
        for secret in (KEY, "127.0.0.1", server.base, str(tmp_path), "/root", "/home"):
            assert secret not in everything


@pytest.mark.parametrize("name", ["judge.json", "program.json"])
def test_missing_file(exported, name):
    (exported / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name}: cannot be read .*No such file.*A judge is a folder with judge"):
        load_judge(exported)
    with pytest.raises(ArtifactError, match=r"A judge is a folder with judge\.json"):
        load_judge(exported / "nowhere")


@pytest.mark.parametrize(
    ("name", "before", "after"), [("program", b"Is it so?", b"Say yes."), ("judge", b'"cite": false', b'"cite": true')]
)
def test_altered_by_hand(exported, name, before, after):
    """Another prompt or option is refused, with where to take the export from."""
    path = exported / f"{name}.json"
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(ArtifactError, match=r"altered after the export.*does not have the SHA-256.*Take the folder"):
        load_judge(exported)


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, "1", None])
def test_unknown_format_version(exported, version):
    """A version this code does not read is named with those it reads and what to do."""
    edit(exported, lambda d: d.update(format_version=version))
    with pytest.raises(ArtifactError, match=rf"format version {version!r}; this .* reads {FORMAT_VERSION}\. Inst"):
        load_judge(exported)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["classifier"]["statement"].update(intercept=0.4),
        lambda d: d["classifier"]["answer"]["weights"].__setitem__(0, 1.01),
        lambda d: d["classifier"].update(threshold=0.01),
        lambda d: d["config"]["verdict_scores"].update(not_supported=0.1),
        lambda d: d["reference"][0].update(answer="x", score=0.9),
        lambda d: d["reference"][0]["raw_judgment"]["raw_verdicts"][0].update(logit=-5.0),
    ],
)
def test_changed_number(exported, change):
    edit(exported, change)
    with pytest.raises(
        ArtifactError, match=r"was altered .*reference 0 had \w+ .* when it was exported and has .* now"
    ):
        load_judge(exported)


def test_what_is_kept_of_a_prompt(tuned, exported, tmp_path):
    """Instructions and demos: not what DSPy traced and trained on, nor what a stored answer cost, nor another field."""
    judge, _ = tuned
    predict = judge.program.verify.predict
    predict.traces, predict.train = [DEMO], [DEMO]
    judge.save(tmp_path / "again")
    path = tmp_path / "again" / "program.json"
    program = json.loads(path.read_text(encoding="utf-8"))
    (state,) = program.values()
    assert (state["lm"], state["traces"], state["train"]) == (None, [], [])
    (stored,) = json.loads((exported / "judge.json").read_text(encoding="utf-8"))["reference"]
    assert stored["raw_judgment"]["usage"]["calls"] == 0
    state["demos"][0]["note"] = "x"
    path.write_text(json.dumps(program), encoding="utf-8")
    seal(tmp_path / "again")
    assert load_judge(tmp_path / "again").program.verify.predict.demos == [DEMO]


def test_program_of_another_shape(exported, tmp_path):
    """A program that does not fit the options, here without its extraction prompt, is refused."""
    edit(exported, lambda d: (d["config"].update(granularity="statement"), d.update(reference=[])))
    with pytest.raises(ArtifactError, match=r"program\.json has the predictors \['verify"):
        load_judge(exported)


def test_a_classifier_asked_with_another_lm_is_told(exported, caplog):
    """Its threshold was fitted to the probabilities of one LM; with that one nothing is said."""
    load_judge(exported)
    load_judge(exported, lm="openai/tiny")
    assert caplog.messages == []
    load_judge(exported, lm="openai/other")
    (told,) = caplog.messages
    assert "was fitted to probabilities of openai/tiny, and openai/other is asked" in told
    edit(exported, lambda d: d["lm"].update(model="local", sha256="0" * 64))
    load_judge(exported)
    assert "of local, and another file of it is asked" in caplog.messages[1]
    lexical = HEAD.statement.model_copy(update={"names": ("novel_words", "novel_number_count"), "weights": (-1, -1)})
    Judge("openai/tiny", classifier=HEAD.model_copy(update={"statement": lexical})).save(exported)
    load_judge(exported, lm="openai/other")  # reads no LM: nothing to say
    assert len(caplog.messages) == 2


def test_no_lm_cannot_stand_in_for_one(exported):
    """What was tuned on replies is refused without them, and an LM where none is asked; the message names it."""
    with pytest.raises(ConfigError, match=r"tuned on replies of openai/tiny, got lm='none'. Leave out lm="):
        load_judge(exported, lm="none")
    Judge("none").save(exported)
    assert "not fitted to your labels" in (exported / "CARD.md").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="judges by lexical features only, got lm='openai/tiny'"):
        load_judge(exported, lm="openai/tiny")


def test_nothing_is_no_lm(exported):
    """An empty name, as an unset shell variable makes it, is not taken for the default."""
    with pytest.raises(ConfigError, match="lm is None; expected 'local'"):
        Judge(None)
    with pytest.raises(ConfigError, match="the judge is None; expected its folder"):
        load_judge(None)
    with pytest.raises(ConfigError, match="lm is ''; expected 'local'"):
        _ = load_judge(exported, lm="").lm


def test_looking_for_a_judge_makes_no_database(tmp_path, monkeypatch):
    """MLflow makes its SQLite file when it is read; a judge that is not there leaves the working folder as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    with pytest.raises(ArtifactError, match="set MLFLOW_TRACKING_URI"):
        load_judge("models:/faithfulness@champion")
    assert list(tmp_path.iterdir()) == []


# --- changed by somebody who knows about the hashes: refused in our words, or a working judge ---

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
def test_every_value_of_an_export(exported, chat_server, tmp_path, kind):
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
            seal(folder, **{"program" if kind == "program" else "judge": new})
            try:
                outcomes.append(loads(folder, lm, tmp_path / "again"))
            except BaseException as exc:
                exc.add_note(f"{kind}: {str(value)[:60]!r} at {path}")
                raise
    assert 0 < sum(outcomes) < len(outcomes)


def test_a_program_redirects_nothing(exported, tuned, chat_server):
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
def test_a_name_that_is_a_place(exported, model):
    judge = json.loads((exported / "judge.json").read_text(encoding="utf-8"))
    judge["lm"]["model"] = model
    seal(exported, judge=judge)
    with pytest.raises(FaithDspyError, match="contains a path or URL"):
        load_judge(exported, lm="openai/tiny")


def test_a_half_written_export_is_none(tuned, exported, monkeypatch):
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
