from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from faith_dspy.optimize.results import StudyResult


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory, endpoint: Any) -> StudyResult:
    """A finished study with recorded replies, logged nowhere yet; it takes a while, once is enough."""
    from recorded import recorded_study

    return recorded_study(endpoint, tmp_path_factory.mktemp("studied"))
