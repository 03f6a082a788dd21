"""What all kernels of CUDA keep to."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.resources import templates

KERNELS = sorted(p for part in ("cuda", "gpu") for p in (templates(part) / "kernels").glob("*.j2"))


@pytest.mark.parametrize("path", [p for p in KERNELS if "{{ open(" in p.read_text()], ids=lambda p: p.stem)
def test_kernels_wait_for_those_before_them(path: Path) -> None:
    """When they open, or later where they say so; what a kernel of early blocks read before would not be there yet."""
    text = path.read_text()
    assert text.count("t_wait_for_earlier();") == ("early=true" in text)
