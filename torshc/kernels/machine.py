"""What the choice of templates and tiles depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The processor that is compiled for.

    Attributes:
        lanes: f32 elements of a vector register (16, 8, 4 or 1).
        compiler: "clang" or "gcc": they allocate registers differently, so tiles differ.
        threads: threads to spread tasks over at the least.
        winograd: whether 3x3 convolutions may be computed by Winograd's method, with errors of about 1e-5.
        archs: of the devices that are compiled for, as their tools call them ("sm_90a"); empty where nothing is known.
    """

    lanes: int = 8
    compiler: str = "clang"
    threads: int = 8
    winograd: bool = False
    archs: tuple[str, ...] = ()
