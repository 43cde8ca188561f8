"""The examples in docstrings of the public entries."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "faith_dspy.judge",
        "faith_dspy.load",
        "faith_dspy.config",
        "faith_dspy.optimize.plan",
        "faith_dspy.optimize.study",
    ],
)
def test_examples_print_what_they_say(module):
    """Every public entry's module has examples, and they run."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = [t for t in finder.find(import_module(module)) if t.examples]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert tests
    for test in tests:
        assert not runner.run(test).failed, test.name
