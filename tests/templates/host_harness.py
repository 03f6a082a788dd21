"""Runs operators of the host alone, in a process under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from tests.support import compilers

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "templates" / "c"
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"]

OPERATORS = [
    "t_op_text_case", "t_op_text_concat", "t_op_text_equal", "t_op_text_find", "t_op_text_from", "t_op_text_keep",
    "t_op_text_match", "t_op_text_pick", "t_op_text_split", "t_op_text_to", "t_op_text_view",
    "t_op_compress", "t_op_non_max_suppression", "t_op_nonzero", "t_op_unique",
    "t_op_concat_from_sequence", "t_op_optional", "t_op_optional_get", "t_op_optional_has", "t_op_sequence_at",
    "t_op_sequence_construct", "t_op_sequence_erase", "t_op_sequence_insert", "t_op_sequence_length",
    "t_op_split_to_sequence", "t_op_couple", "t_op_zip_map", "t_op_text_tokens",
]  # fmt: skip
STRING, SEQUENCE, OPTIONAL, MAP, BOOL = 100, 101, 102, 103, 6
BFLOAT = np.dtype(ml_dtypes.bfloat16)
CODES = {"i": 0, "u": 1, "f": 2, "b": BOOL}

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Held:
    """An optional with a value in it, or None."""

    value: Operand = None


Operand = Array | list[Any] | Held | None  # a tensor, a sequence, an optional, or nothing


class Failed(Exception):
    """An operator returned a status: its arguments are that and the message."""


class Harness:
    """The operators of some sources, in a process that lives until it is closed."""

    def __init__(self, compiler: str = "", sanitize: bool = True) -> None:
        """By the compiler that torshc finds, or one of a kind ("gcc"); under the sanitizers, unless told."""
        cc = compilers.needed(compiler).cc
        flags = compilers.sanitizing(cc, "address", "undefined") if sanitize else []
        sources = [
            HERE / "host_harness.c",
            SOURCES / "host" / "t_pool.c",
            *sorted((SOURCES / "values").glob("t_op_*.c")),
        ]
        program = compilers.program([cc, *STRICT, *flags], sources, [SOURCES / "host", SOURCES / "values"])
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> int:
        """Ends the process; its exit status, which sanitizers make other than 0."""
        self.process.communicate(timeout=60)
        return self.process.returncode

    def __call__(self, name: str, inputs: Sequence[Operand], n: Sequence[int] = (), outputs: int = 1) -> list[Any]:
        """The outputs of an operator.

        Raises:
            Failed: with status and message.
        """
        request = struct.pack(f"<{len(n) + 3}q", OPERATORS.index(name), len(n), *n, len(inputs))
        request += b"".join(map(_packed, inputs)) + struct.pack("<q", outputs)
        to, answer = self.process.stdin, self.process.stdout
        assert to is not None and answer is not None
        to.write(request)
        to.flush()
        status = _numbers(answer, 1)[0]
        if status:
            raise Failed(status, answer.read(_numbers(answer, 1)[0]).decode())
        return [_unpacked(answer) for _ in range(outputs)]


def _packed(x: Operand) -> bytes:
    if x is None:
        return struct.pack("<q", -1)
    if isinstance(x, Held):
        full = x.value is not None
        return struct.pack("<4q", OPTIONAL, 128, 1, int(full)) + (_packed(x.value) if full else b"")
    if isinstance(x, list):
        return struct.pack("<4q", SEQUENCE, 128, 1, len(x)) + b"".join(map(_packed, x))
    if x.dtype == BFLOAT:
        return struct.pack(f"<{3 + x.ndim}q", 4, 16, x.ndim, *x.shape) + np.ascontiguousarray(x).tobytes()
    if x.dtype.kind != "O":
        head = struct.pack(f"<{3 + x.ndim}q", CODES[x.dtype.kind], 8 * x.dtype.itemsize, x.ndim, *x.shape)
        return head + np.ascontiguousarray(x).tobytes()
    out = io.BytesIO()
    out.write(struct.pack(f"<{3 + x.ndim}q", STRING, 128, x.ndim, *x.shape))
    for text in x.reshape(-1):
        data = text if isinstance(text, bytes) else text.encode()
        out.write(struct.pack("<q", len(data)) + data)
    return out.getvalue()


def _numbers(answer: IO[bytes], count: int) -> tuple[int, ...]:
    data = answer.read(8 * count)
    assert len(data) == 8 * count, "the process died"
    return struct.unpack(f"<{count}q", data)


def _unpacked(answer: IO[bytes]) -> Operand:
    code = _numbers(answer, 1)[0]
    if code < 0:
        return None
    bits, rank = _numbers(answer, 2)
    shape = _numbers(answer, rank)
    count = int(np.prod(shape, dtype=object))
    if code == STRING:
        texts = [answer.read(_numbers(answer, 1)[0]).decode() for _ in range(count)]
        return np.array([*texts, None], object)[:-1].reshape(shape)
    if code in (SEQUENCE, MAP):
        return [_unpacked(answer) for _ in range(count)]
    if code == OPTIONAL:
        return Held(_unpacked(answer) if count else None)
    kind: Any = "bool" if code == BOOL else BFLOAT if code == 4 else f"{'iuf'[code]}{bits // 8}"
    return np.frombuffer(answer.read(count * np.dtype(kind).itemsize), kind).reshape(shape)
