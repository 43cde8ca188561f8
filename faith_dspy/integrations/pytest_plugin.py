"""pytest: the fixture ``assert_faithful``, installed with the package.

    def test_returns(assert_faithful):
        context = shop.retrieve("How long may I return a lamp?")
        assert_faithful(shop.answer("How long may I return a lamp?", context), context)

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

_NAME = "faithfulness_judge"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The judge, as an option and as a setting."""
    told = "Judge of assert_faithful: its folder, models:/name@alias, local, none, or a model."
    parser.getgroup("faith_dspy").addoption(
        "--faithfulness-judge", dest=_NAME, help=told
    )
    parser.addini(_NAME, told)


@pytest.fixture(scope="session")
def faithfulness_judge(pytestconfig: pytest.Config) -> Judge:
    """The judge that ``assert_faithful`` asks."""
    from faith_dspy import open_judge

    source = pytestconfig.getoption(_NAME) or pytestconfig.getini(_NAME) or "local"
    judge = open_judge(source)
    judge.preflight()
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

            lines = [
                f"{judgment!r} by {faithfulness_judge!r}",
                *filter(None, [judgment.detail]),
            ]
            lines += [
                f"  {line_of(s)}" for s in judgment.statements if not s.is_supported
            ]
            pytest.fail("\n".join(lines), pytrace=False)
        return judgment

    return check
