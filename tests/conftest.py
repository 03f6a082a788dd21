"""For all tests."""

from __future__ import annotations

import pytest

from tests.emulation.emulated import missing


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out the Metal half of a test where its emulator cannot work."""
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    if any(isinstance(v, str) and v == "metal" for v in values) and (reason := missing(metal=True)):
        pytest.skip(reason)
