"""pytest: the fixtures ``assert_faithful`` and ``assert_agreement``, installed with the package.

    def test_returns(assert_faithful):
        context = shop.retrieve("How long may I return a lamp?")
        assert_faithful(shop.answer("How long may I return a lamp?", context), context)

    def test_judge(assert_agreement):
        assert_agreement("new-labels.jsonl", 0.75)

The judge is the fixture ``faithfulness_judge``: by default the one that ``--faithfulness-judge`` or the setting
``faithfulness_judge`` names (a folder, models:/…, ``local`` or ``none``), else ``Judge("local")``. Override it in
conftest.py for any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment
    from faith_dspy.scoring.agreement import JudgeAgreement

_NAME = "faithfulness_judge"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the judge, as an option and as a setting."""
    help_text = "Judge of the fixtures: its folder, models:/name@alias, local, none, or a model."
    parser.getgroup("faith_dspy").addoption(
        "--faithfulness-judge", dest=_NAME, help=help_text
    )
    parser.addini(_NAME, help_text)


@pytest.fixture(scope="session")
def faithfulness_judge(pytestconfig: pytest.Config) -> Judge:
    """Return the judge that is asked; a test that needs it fails where its LM does not answer."""
    from faith_dspy import open_judge
    from faith_dspy.errors import FaithDspyError

    source = pytestconfig.getoption(_NAME) or pytestconfig.getini(_NAME) or "local"
    try:
        judge = open_judge(source)
        judge.preflight()
    except FaithDspyError as exc:
        pytest.fail(str(exc), pytrace=False)
    return judge


@pytest.fixture
def assert_faithful(faithfulness_judge: Judge) -> Callable[..., Judgment]:
    """``assert_faithful(answer, context, question=None)``: the judgment; fails with what the context does not support.

    An answer that could not be scored fails, too.
    """

    def check(answer: str, context: Any, question: str | None = None) -> Judgment:
        __tracebackhide__ = True
        judgment = faithfulness_judge(question=question, context=context, answer=answer)
        if not judgment.faithful:
            from faith_dspy.integrations.adapters import line_of

            lines = [f"{judgment!r} by {faithfulness_judge!r}"]
            if judgment.detail:
                lines.append(judgment.detail)
            for statement in judgment.statements:
                if not statement.is_supported:
                    lines.append(f"  {line_of(statement)}")
            pytest.fail("\n".join(lines), pytrace=False)
        return judgment

    return check


@pytest.fixture
def assert_agreement(faithfulness_judge: Judge) -> Callable[..., JudgeAgreement]:
    """``assert_agreement(labels, minimum, min_coverage=0.9)``: the agreement; fails as ``faith-dspy agree --min`` does.

    That is on a balanced accuracy below ``minimum`` (unscored answers are wrong), a coverage below ``min_coverage``,
    fewer than ten sources of a label, and labels that the judge was tuned on.
    """

    def check(
        labels: Any, minimum: float, min_coverage: float | None = None
    ) -> JudgeAgreement:
        __tracebackhide__ = True
        from faith_dspy.errors import FaithDspyError, import_optional
        from faith_dspy.io.labels import read_labels
        from faith_dspy.scoring.agreement import measure_agreement
        from faith_dspy.scoring.gate import gate_checks, refuse_tuned_on

        import_optional("numpy", "Measuring agreement")
        judge = faithfulness_judge
        answer_keys = judge.manifest.get("answer_keys", ())
        try:
            examples = read_labels(labels)
            refuse_tuned_on(answer_keys, examples, "labels", "their agreement")
            judgments = judge.batch(examples)
            agreement = measure_agreement(examples, judgments)
        except FaithDspyError as exc:
            pytest.fail(str(exc), pytrace=False)
        checks = gate_checks(examples, judgments, minimum, min_coverage)
        failures = [failure for failure in checks.values() if failure is not None]
        if failures:
            pytest.fail("\n".join(failures), pytrace=False)
        return agreement

    return check
