import json
import random
import shutil
from copy import deepcopy
from functools import reduce
from operator import getitem

import dspy
import pytest

from faith_dspy import Judge, JudgeConfig, load_judge
from faith_dspy.errors import ArtifactError, ConfigError, FaithDspyError, InputError
from faith_dspy.export import FORMAT_VERSION, save_judge
from faith_dspy.io.inputs import log_once
from faith_dspy.lm.make import make_lm
from tests.support.classifiers import by_weakest, linear
from tests.support.exports import edit, read, reference_of, seal

KEY = "sk-verysecret-0123456789"
CONTEXT = ["The Brennick kettle is blue.", "It holds 0.9 litres."]
ANSWER = "The kettle is blue. It holds 2 litres."
YES = {"The kettle is blue.": 0.9, "It holds 2 litres.": 0.3}
HEAD = by_weakest(
    linear({"lm": 1, "novel_number_count": -0.5}, 0.3, (0.1, 0.2), (1.5, 1)),
    threshold=0.4,
)
DEMO = {
    "context": ["Snow is white."],
    "question": "",
    "statement": "Snow is black.",
    "verdict": "No",
}


def instruct(judge, text):
    """Change its instruction, as an optimizer does; its predictor."""
    predict = judge.program.verify.predict
    text = f"{text}\n\nIs it so? Answer Yes or No."
    predict.signature = predict.signature.with_instructions(text)
    return predict


@pytest.fixture
def tuned(judge_at):
    """A judge with a classifier, compiled instruction and a demo; (judge, endpoint)."""
    judge, server = judge_at(yes=YES)
    judge = judge.copy(manifest={"study_id": "s1", "agreement": {"n": 3}})
    demo = dspy.Example(**DEMO).with_inputs("context", "question", "statement")
    instruct(judge, "Compiled – “quoted”.").demos = [demo]
    judge.classifier = HEAD
    return judge, server


@pytest.fixture
def exported(tuned, tmp_path):
    """The folder of that judge, with one reference judgment."""
    judge, _ = tuned
    references = reference_of(judge, CONTEXT, ANSWER)
    save_judge(judge, tmp_path / "judge", reference=references)
    return tmp_path / "judge"


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_a_loaded_judge_is_the_saved_one(tuned, exported, tmp_path):
    """It gives the same judgment, asks for it in the same bytes, and is saved as the same bytes."""
    judge, server = tuned
    loaded = load_judge(exported, lm=judge.lm)
    before = judge(context=CONTEXT, answer=ANSWER)
    dspy.configure_cache(enable_disk_cache=False)  # forget the replies
    after = loaded(context=CONTEXT, answer=ANSWER)
    cost = {"usage", "replayed"}
    assert after.model_dump(exclude=cost) == before.model_dump(exclude=cost)
    assert server.requests[:2] == server.requests[2:]
    loaded.save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(exported)


def test_a_copy_of_a_loaded_judge_can_be_saved(tuned, exported, tmp_path):
    """Other options or another LM on a loaded judge are what its own export says; its references still hold."""
    judge, _ = tuned
    loaded = load_judge(exported, lm=judge.lm)
    weights = {**loaded.config.verdict_scores, "not_supported": 0.5}
    loaded.copy(config=JudgeConfig.make(verdict_scores=weights)).save(tmp_path / "copy")
    assert load_judge(tmp_path / "copy").config.verdict_scores["not_supported"] == 0.5
    edit(exported, lambda d: d["lm"].update(sha256="0" * 64))
    load_judge(exported, lm="openai/other").save(tmp_path / "named")
    again = load_judge(tmp_path / "named")
    assert (again.lm_name, again.manifest["lm"]["sha256"]) == ("openai/other", None)


def test_no_key_no_address_no_path_no_pickle(exported, chat_server, tmp_path):
    server = chat_server()
    judge = Judge("openai/tiny", api_base=server.base, api_key=KEY)
    judge(context=CONTEXT, answer="It is blue.")
    judge.save(tmp_path / "keyed")
    Judge(f"local:{tmp_path}/home/model.gguf").save(tmp_path / "file")
    assert read(tmp_path / "file")["lm"]["model"] == "local:model.gguf"
    for folder in (exported, tmp_path / "keyed", tmp_path / "file"):
        files = contents(folder)
        assert list(files) == ["CARD.md", "judge.json", "program.json"]
        everything = b"".join(files.values()).decode()
        secrets = KEY, "127.0.0.1", str(tmp_path), "/root", "/home"
        assert not [secret for secret in secrets if secret in everything]


def test_a_prompt_that_is_altered_or_gone(exported):
    """It is refused, with where to take the export from."""
    path = exported / "program.json"
    path.write_bytes(path.read_bytes().replace(b"Is it so?", b"Say yes."))
    with pytest.raises(ArtifactError, match=r"not have the SHA-256.*Take the"):
        load_judge(exported)
    path.unlink()
    gone = r"program\.json: cannot be read .*No such file.*A judge is a folder w"
    with pytest.raises(ArtifactError, match=gone):
        load_judge(exported)


def test_an_export_that_asks_for_labels_that_are_gone(exported):
    """It says how to make it anew; other options that are gone are in its prompts."""
    former = {"instruction": "every_detail", "strict_mode": False}
    edit(exported, lambda document: document["config"].update(former))
    load_judge(exported)
    edit(exported, lambda document: document["config"].update(instruction="grounded"))
    with pytest.raises(ArtifactError, match="'grounded' is no longer asked: tune it"):
        load_judge(exported)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda d: d.update(format_version=FORMAT_VERSION + 1),
            r"version 2; this .* reads 1\. Install the version",
        ),
        (
            lambda d: d["classifier"]["statement"].update(intercept=0.4),
            r"was altered .*reference 0 had \w+ .* when it was exported and has .* now",
        ),
        (lambda d: d["config"].update(granularity="statement"), "has the predictors"),
        (lambda d: d["lm"].update(model="local:/etc/passwd"), "contains a path or URL"),
    ],
)
def test_a_changed_export_is_refused(exported, change, said):
    """What no longer fits is named; a changed number by a stored judgment that it does not give."""
    edit(exported, change)
    with pytest.raises(ArtifactError, match=said):
        load_judge(exported)


def test_what_is_kept_of_a_prompt(tuned, exported, chat_server):
    """Instructions and demos: not what DSPy traced and trained on. An LM, an address or a setting inside program.json
    reaches nobody, whatever hashes it carries."""
    judge, server = tuned
    predict, elsewhere = judge.program.verify.predict, chat_server(says="Yes")
    predict.traces = predict.train = [DEMO]
    judge.save(exported)
    program = read(exported, "program")
    (state,) = program.values()
    assert (state["lm"], state["traces"], state["train"]) == (None, [], [])
    settings = {"model": "openai/tiny", "api_base": elsewhere.base, "api_key": "k"}
    state |= {"lm": settings, "config": settings, "callbacks": [1], "temperature": 9}
    state["demos"][0]["note"] = "x"
    seal(exported, program=program)
    loaded = load_judge(exported, lm="openai/tiny", api_base=server.base)
    assert loaded.program.verify.predict.demos == [DEMO]
    assert loaded.fingerprint == judge.fingerprint
    dspy.configure_cache(enable_disk_cache=False)  # forget the replies
    server.requests.clear()
    loaded(context=CONTEXT, answer=ANSWER)
    assert (len(server.requests), elsewhere.requests) == (2, [])


def test_a_classifier_belongs_to_the_prompts_it_was_fitted_with(
    tuned, exported, caplog
):
    """After they change neither it nor what was measured with it is used or saved, and the judge says so, once; a
    classifier fitted to the new ones is."""
    log_once.cache_clear()
    _, server = tuned
    loaded = load_judge(exported, api_base=server.base, api_key="none")
    assert loaded(context=CONTEXT, answer=ANSWER).probability is not None
    instruct(loaded, "Other.")
    for _ in range(2):
        assert loaded(context=CONTEXT, answer=ANSWER).probability is None
    assert caplog.text.count("have changed since the classifier was fitted") == 1
    loaded.save(exported)
    stored = read(exported, "judge")
    assert (stored["classifier"], "agreement" in stored) == (None, False)
    fitted = loaded.copy(classifier=HEAD)
    assert fitted(context=CONTEXT, answer=ANSWER).probability is not None


def test_a_classifier_asked_with_another_lm_is_told(exported, tmp_path, caplog):
    """Its threshold was fitted to the probabilities of one LM; with that one, or without any, nothing is said."""
    load_judge(exported)
    load_judge(exported, lm="openai/tiny")
    lexical = by_weakest(linear({"novel_words": -1}))
    Judge("openai/tiny", classifier=lexical).save(tmp_path / "lexical")
    load_judge(tmp_path / "lexical", lm="openai/other")
    assert caplog.messages == []
    edit(exported, lambda d: d["lm"].update(model="local", sha256="0" * 64))
    load_judge(exported)
    assert "of local, and another version of it is asked" in caplog.messages[-1]


def test_what_is_no_judge_or_no_lm(exported):
    """No LM does not stand in for one, nor one for none; an empty name, as of an unset variable, is no default."""
    with pytest.raises(
        ConfigError, match="tuned on replies of openai/tiny, got lm='no"
    ):
        load_judge(exported, lm="none")
    with pytest.raises(ConfigError, match="lm is ''; expected 'local'"):
        _ = load_judge(exported, lm="").lm
    with pytest.raises(ConfigError, match="asks no LM"):
        _ = Judge("none").lm
    Judge("none").save(exported)
    with pytest.raises(ConfigError, match="asks no LM, got lm='openai/tiny'"):
        load_judge(exported, lm="openai/tiny")


# --- changed by somebody who knows about the hashes: refused in our words, or a working judge ---

GONE = object()
VALUES = (
    None, True, -1, 0, 7, 0.5, 1e308, -1e308, 1e-308, 10**299, 10**4000, "", "x", "../x", "https://host/v1", "\ud800",
    "\x00", GONE, GONE, [], {}, [None], {"x": 1}, {"api_base": "http://host/v1"}, json.loads("[" * 900 + "]" * 900),
)  # fmt: skip


def places(value, path=()):
    """Where every value of a document stands."""
    yield path
    items = {dict: dict.items, list: enumerate}.get(type(value), lambda _: ())
    for key, inside in items(value):
        yield from places(inside, (*path, key))


def changed(document, path, value):
    """A copy of a document with one value put in place of another, or removed."""
    copy = deepcopy(document)
    holder = reduce(getitem, path[:-1], copy)
    holder[path[-1]] = value
    if value is GONE:
        del holder[path[-1]]
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
    assert all(lm.model == "openai/tiny" for lm in judge.prepare())
    judge.save(again)
    assert load_judge(again, lm=lm).fingerprint == judge.fingerprint
    return True


@pytest.mark.parametrize("name", ["judge", "program"])
def test_every_value_of_an_export(exported, chat_server, tmp_path, name):
    """Any value of an export may be any other, or be gone: it is refused in words, or the judge works."""
    server = chat_server(says=lambda _: {"text": "Yes", "top": {"Yes": 0.9, "No": 0.1}})
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    document = read(exported, name)
    chance, outcomes = random.Random(14), []
    for path in list(places(document))[1:]:
        if len(path) > 6 and chance.random() < 0.9:
            continue  # one of many numbers of one kind
        value, folder = chance.choice(VALUES), tmp_path / "tampered"
        shutil.copytree(exported, folder, dirs_exist_ok=True)
        seal(folder, **{name: changed(document, path, value)})
        try:
            outcomes.append(loads(folder, lm, tmp_path / "again"))
        except BaseException as exc:
            exc.add_note(f"{name}: {str(value)[:60]!r} at {path}")
            raise
    assert 0 < sum(outcomes) < len(outcomes)


def test_saving_never_goes_through_a_link(tmp_path):
    """What lies behind a link in the folder is neither written nor deleted; a folder may be a link itself."""
    other = tmp_path / "other"
    Judge("none").save(other)
    files = contents(other)
    strict = Judge("none", verdict_scores={"no_evidence": -1})
    for name, target in (("escalate_to", other), ("judge.json", other / "judge.json")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).symlink_to(target)
        with pytest.raises(InputError, match=f"{name} is a link to .*Remove the link"):
            strict.save(folder)
        assert contents(other) == files
    (tmp_path / "latest").symlink_to(other)
    strict.save(tmp_path / "latest")
    assert load_judge(other).config.verdict_scores["no_evidence"] == -1
