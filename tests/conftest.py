"""For all tests."""

from __future__ import annotations

import pytest

from tests.emulation.emulated import missing


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out the Metal half of a test where its emulator cannot work."""
    parameters = getattr(item, "callspec", None)
    if parameters is not None and "metal" in parameters.params.values() and (reason := missing(metal=True)):
        pytest.skip(reason)
