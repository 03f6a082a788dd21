"""What the choice of templates and tiles depends on."""

from __future__ import annotations

from dataclasses import dataclass

Choice = tuple[int, ...]  # a value of a parameter of a template: 96, or 6 x 4


@dataclass(frozen=True)
class Device:
    """What a device of blocks of threads has; by default what any of them has.

    Attributes:
        units: multiprocessors.
        shared: bytes of shared memory of a block.
        tensor: whether there are tensor cores for f16 and bf16, and asynchronous copies to feed them.
        tensor_f32: whether three products of tf32 on tensor cores take less time than one of f32 elsewhere.
        groups: whether groups of four warps multiply what lies in shared memory (wgmma).
        clusters: whether blocks that run at the same time read each other's shared memory.
        counters: whether threads of a block may add to a number in shared memory at the same time.
        stages: tiles of a product in shared memory at a time: with two, one is read while the other is multiplied.
        together: blocks of 512 threads that surely run at the same time, so that they may wait for each other.
    """

    units: int = 32
    shared: int = 32 * 1024
    tensor: bool = False
    tensor_f32: bool = False
    groups: bool = False
    clusters: bool = False
    counters: bool = False
    stages: int = 2
    together: int = 0


@dataclass(frozen=True)
class Machine:
    """The processor that is compiled for, and the device beside it.

    Attributes:
        lanes: f32 elements of a vector register (16, 8, 4 or 1).
        compiler: "clang" or "gcc": they allocate registers differently, so tiles differ.
        threads: threads to spread tasks over at the least.
        slack: roundings behind each other whose error a kernel may have that takes fewer products than a plain sum;
            with 0 it may have that of the plain sum, and with None there are plain sums only.
        exact_batches: whether the bits of a row may not depend on how many rows there are, where that costs time.
        tf32: whether devices may round factors of f32 products to tf32, to 2^-11 of each.
        archs: architectures of the devices that are compiled for, in the names of their tools ("sm_90a"); may be empty.
        device: what these devices have in common.
        version: what tells kernels for this processor from those for others in one library.
        by_size: whether run-time sizes may choose among several kernels, which take longer to compile.
        choices: values of parameters of templates in place of those that lowerings choose (``torshc tune``).
        extras: instruction sets beyond those that ``lanes`` implies, as compilers call them ("avx512bf16").
    """

    lanes: int = 8
    compiler: str = "clang"
    threads: int = 16
    slack: int | None = None
    exact_batches: bool = False
    tf32: bool = False
    archs: tuple[str, ...] = ()
    device: Device = Device()
    version: str = ""
    by_size: bool = True
    choices: tuple[tuple[str, Choice], ...] = ()
    extras: tuple[str, ...] = ()

    def choice(self, name: str) -> Choice | None:
        """The value that is given for a parameter, if there is one."""
        return dict(self.choices).get(name)

    def number(self, name: str, usual: int) -> int:
        """The number that is given for a parameter, else the usual one."""
        return (self.choice(name) or (usual,))[0]
