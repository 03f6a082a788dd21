"""The scale of the loss, which keeps small gradients from vanishing in halves, and updates that it leaves out.

As PyTorch's GradScaler: gradients are those of the loss times the scale; they are divided by it before anything reads
them, and where one is not finite nothing is updated. A dynamic scale is halved then, and doubled after so many updates
in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..base.safetensors import OWN
from ..expr import F32, F64, I64
from ..graph import Builder, TensorType, Value
from ..ops.core.functions import abs as magnitude
from ..ops.core.functions import max as maximum
from ..ops.core.functions import where
from ..ops.core.tensor import Tensor
from .config import LossScale

SCALE, GOOD, SKIPPED = (f"{OWN}{name}" for name in ("loss_scale", "good_steps", "skipped_steps"))
RESULTS = ("loss_scale", "skipped")  # what a step gives of it
_LEAST = 2.0**-126  # a scale; 1 / scale is finite


class Scaling:
    """The scale of one step; without one it scales nothing, and each update is made.

    Args:
        builder: builder of the step's graph.
        scale: what the step's file says; None for nothing.

    Attributes:
        skipped: the state that counts updates that were left out; None without a scale.
        pairs: the states: what holds each, and what takes its place.
        first: what those begin with that do not begin with zeros.
        results: what a step gives of it: the scale that its gradients had, and whether the update was left out.
    """

    def __init__(self, builder: Builder, scale: LossScale | None) -> None:
        self.skipped: Value | None = None
        self.pairs: dict[str, tuple[Value, Value]] = {}
        self.first: dict[str, Value] = {}
        self.results: dict[str, Value] = {}
        self._builder, self._scale = builder, scale
        self._finite: Tensor | None = None
        if scale is None:
            return
        self.skipped = builder.graph.new_value(TensorType(I64, ()), SKIPPED)
        self._now = Tensor(builder, builder.constant(np.array(scale.initial, np.float32)))
        if scale.growth_interval is not None:
            self.first[SCALE] = self._now.value
            self._now = Tensor(builder, builder.graph.new_value(TensorType(F32, ()), SCALE))

    def scaled(self, loss: Value) -> Value:
        """The loss that gradients are computed of; wider than halves, which the scale itself may exceed."""
        if self._scale is None:
            return loss
        wide = Tensor(self._builder, loss).cast(F64 if loss.dtype is F64 else F32)
        return (wide * self._now.cast(wide.dtype)).value

    def unscaled(self, gradients: Sequence[Value]) -> list[Value]:
        """Those of the loss itself."""
        if self._scale is None:
            return [*gradients]
        inverse = 1.0 / self._now
        return [(g * inverse.cast(g.dtype)).value for g in (Tensor(self._builder, v) for v in gradients)]

    def judge(self, gradients: Sequence[Tensor], last: Tensor | None, over: Callable[[Tensor], Tensor]) -> None:
        """Look for gradients that are not finite, and decide what becomes of the scale.

        Args:
            last: whether this step has the last part of a batch, so that it makes an update; None where each has.
            over: the sum over ranks, each of which may have parts of gradients only.
        """
        if self._scale is None or self.skipped is None:
            return
        faults = [(~(magnitude(g) < math.inf)).cast(F32).max(range(g.rank), keep=False) for g in gradients]
        while len(faults) > 1:
            faults = [
                maximum(*faults[k : k + 2]) if k + 1 < len(faults) else faults[k] for k in range(0, len(faults), 2)
            ]
        self._finite = over(faults[0]) < 0.5
        omitted = ~self._finite if last is None else last & ~self._finite
        skipped = Tensor(self._builder, self.skipped)
        self.pairs[SKIPPED] = self.skipped, where(omitted, skipped + 1, skipped).value
        self.results = dict(zip(RESULTS, (self._now.value, omitted.value), strict=True))
        if self._scale.growth_interval is not None:
            self._move(self._scale.growth_interval, self._finite, last)

    def gated(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Gradients that wait for the verdict: zeros where an update is left out.

        Else kernels that make gradients would compute new weights and moments, to be stored until it is known whether
        they are taken.
        """
        return [g if self._finite is None else where(self._finite, g, 0.0) for g in gradients]

    def _move(self, interval: int, finite: Tensor, last: Tensor | None) -> None:
        """A dynamic scale, and the number of updates since it last changed."""
        good, scale = Tensor(self._builder, self._builder.graph.new_value(TensorType(I64, ()), GOOD)), self._now
        grows = good + 1 >= interval
        double = where(scale * 2.0 < math.inf, scale * 2.0, scale)
        new = where(finite, where(grows, double, scale), maximum(scale * 0.5, _LEAST))
        count = where(finite, where(grows, 0, good + 1), 0)
        if last is not None:
            new, count = where(last, new, scale), where(last, count, good)
        self.pairs |= {SCALE: (scale.value, new.value), GOOD: (good.value, count.value)}

    def settle(self, last: Tensor | None, new: Tensor, old: Value) -> Tensor:
        """What a state becomes: new where this step makes an update."""
        for condition in (self._finite, last):
            new = new if condition is None else where(condition, new, Tensor(self._builder, old))
        return new
