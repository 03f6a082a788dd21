"""Random numbers: PyTorch draws them before a run, so that they are those of its generator and its seed."""

from __future__ import annotations

from ...expr import BOOL
from ...ops.core.tensor import Tensor
from .call import Call, Results, aten

# Of these only the shapes of operands count, but of an operand of chances.
_DRAWN = (
    "rand.default", "randn.default", "rand_like.default", "randn_like.default", "randint.default", "randint.low",
    "randint_like.default", "randint_like.low_dtype", "randperm.default", "bernoulli.p", "uniform.default",
    "normal_functional.default", "exponential.default",
)  # fmt: skip


def is_drawn(name: str) -> bool:
    """Whether a result of an operator is an input of the graph, which PyTorch draws."""
    return name in _DRAWN or name == "native_dropout.default"


@aten("native_dropout.default")
def dropout(call: Call, x: Tensor, p: float, train: bool | None, drawn: Tensor | None = None) -> Results:
    """What is kept, divided by its share; `drawn` says what that is."""
    if drawn is None:
        return [x, call.constant(True, BOOL).expand(*call.shape)]
    share = 0.0 if p >= 1 else 1 / (1 - p)
    return [x * drawn.cast(x.dtype) * share, drawn]


__all__ = ["is_drawn"]
