"""What a verdict says, and of what."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.errors import RunError
from torshc.verify import run_ort


def test_a_peer_that_fails_is_named_with_what_it_was_given() -> None:
    class Session:
        def run(self, names: list[str] | None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            raise ValueError("Invalid input shape: {1,1}")

    with pytest.raises(RunError, match=r"ONNX Runtime failed with 'x' \[1, 1\]: Invalid input shape"):
        run_ort(Session(), {"x": np.zeros((1, 1))})
