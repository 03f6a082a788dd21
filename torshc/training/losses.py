"""Losses as formulas over tensors, each a mean as PyTorch's.

The cross entropy and kl of a softmax, and bce of a sigmoid, are computed from the values before it, which does not
overflow or cancel.
"""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import ConfigError, did_you_mean
from ..expr import I64, as_int
from ..graph import Builder, Graph, TensorType, Value
from ..ops.core.base import axis_of
from ..ops.core.bounds import OutOfRange
from ..ops.core.functions import abs as magnitude
from ..ops.core.functions import equal, log, log_softmax, softplus, where
from ..ops.core.functions import max as maximum
from ..ops.core.gradient import as_shape
from ..ops.core.tensor import Tensor
from .config import LOSSES, OUTPUT, Loss

LEAST_LOG = -100.0  # of a probability of 0, as in PyTorch


def cross_entropy(y: Tensor, target: Tensor) -> Tensor:
    """The mean of -log softmax(y)[target], of classes along axis 1; of a Softmax, y is what goes into it.

    A run is refused whose target is no class.
    """
    classes = y.shape[1]
    fault = y.builder.one(OutOfRange((classes,), False), target.value)
    y.builder.graph.demand(fault, "cross_entropy")
    number = target.range(0, classes).reshape(classes, *(1,) * (y.rank - 2))
    hit = equal(target.reshape(target.shape[0], 1, *target.shape[1:]), number)
    each = where(hit, -log_softmax(y, axis=1), 0.0).sum(1, keep=False)
    return _mean(each)


def mse(y: Tensor, target: Tensor) -> Tensor:
    """The mean of (y - target)^2."""
    apart = y - target
    return _mean(apart * apart)


def l1(y: Tensor, target: Tensor) -> Tensor:
    """The mean of |y - target|."""
    return _mean(magnitude(y - target))


def bce(y: Tensor, target: Tensor) -> Tensor:
    """The mean of -(target log y + (1 - target) log(1 - y)), with logarithms of at least -100."""
    return _mean(-(target * maximum(log(y), LEAST_LOG) + (1.0 - target) * maximum(log(1.0 - y), LEAST_LOG)))


def bce_of_logits(z: Tensor, target: Tensor) -> Tensor:
    """The same of y = sigmoid(z): the mean of softplus(z) - z target."""
    return _mean(softplus(z) - z * target)


def kl(logs: Tensor, target: Tensor) -> Tensor:
    """The mean of sum(target (log target - logs)) over classes along axis 1, of logarithms of probabilities."""
    return _mean(where(target > 0.0, target * (log(target) - logs), 0.0).sum(1, keep=False))


def _logs(y: Tensor) -> Tensor:
    """Logarithms of probabilities along axis 1: of a Softmax from what goes into it, and a LogSoftmax as it is."""
    maker = y.value.producer
    if maker is not None and maker.op.name == "LogSoftmax":
        return y
    if maker is not None and maker.op.name == "Softmax":
        return log_softmax(Tensor(y.builder, maker.operands[0]), axis=1)
    return maximum(log(y), LEAST_LOG)


def _mean(x: Tensor) -> Tensor:
    return x.mean(range(x.rank), keep=False) if x.rank else x


def add_loss(builder: Builder, loss: Loss) -> tuple[Value, Value | None]:
    """Adds a loss to its graph: the loss, and the input that it compares with, if any.

    Raises:
        ConfigError: the model has no such output, or the loss is not of one of its type and shape.
    """
    graph = builder.graph
    y = _output(graph, loss)
    if not y.dtype.is_float:
        raise ConfigError(f"{loss.where}: {loss.kind} of {y.name!r}, which is {y.type!r}", "name an output of floats")
    if loss.kind == OUTPUT:
        if as_int(y.type.size) != 1:
            remedy = "a loss is one number: name such an output, or one of " + ", ".join(LOSSES)
            raise ConfigError(f"{loss.where}: the loss {loss.of!r} is {y.type!r}", remedy)
        return as_shape(Tensor(builder, y), ()).value, None
    maker = y.producer
    formula, dtype, shape = FORMULAS[loss.kind], y.dtype, y.shape
    if loss.kind in ("cross_entropy", "kl"):
        _require_classes(y, loss)
    if loss.kind == "cross_entropy":
        y = maker.operands[0] if maker is not None and maker.op.name == "Softmax" else y
        dtype, shape = I64, (shape[0], *shape[2:])
    elif loss.kind == "kl":
        y = _logs(Tensor(builder, y)).value
    elif loss.kind == "bce" and maker is not None and maker.op.name == "Sigmoid":
        formula, y = bce_of_logits, maker.operands[0]
    if loss.target in {v.name for v in graph.inputs}:
        remedy = f"give it another name: {{{loss.kind}: {{target: NAME}}}}"
        raise ConfigError(f"{loss.where}: the model has an input {loss.target!r} already", remedy)
    target = graph.new_value(TensorType(dtype, shape), loss.target)
    return formula(Tensor(builder, y), Tensor(builder, target)).value, target


def _require_classes(y: Value, loss: Loss) -> None:
    """Refuse an output without classes along axis 1.

    Raises:
        ConfigError: it is one.
    """
    if y.type.rank < 2:
        remedy = "name an output of the form [batch, classes, ...]"
        raise ConfigError(f"{loss.where}: {loss.kind} of {y.name!r}, which is {y.type!r}", remedy)
    maker = y.producer
    if maker is None or maker.op.name not in ("Softmax", "LogSoftmax"):
        return
    if axis_of(maker.op.attributes()["axis"], y.type.rank) != 1:
        remedy = "name an output whose classes are axis 1"
        raise ConfigError(f"{loss.where}: {loss.kind} of {maker.describe()}, which is not along axis 1", remedy)


def _output(graph: Graph, loss: Loss) -> Value:
    known = dict(zip(graph.output_names, graph.results, strict=False))
    if not loss.of and len(known) == 1:
        return next(iter(known.values()))
    if loss.of not in known:
        names = ", ".join(map(repr, known))
        if not loss.of:
            remedy = f"say which of them: {{{loss.kind}: {{of: NAME}}}}"
            raise ConfigError(f"{loss.where}: the model has the outputs {names}", remedy)
        hint = did_you_mean(loss.of, [*known])
        raise ConfigError(f"{loss.where}: the model has no output {loss.of!r}{hint}", f"it has {names}")
    return known[loss.of]


FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": cross_entropy, "mse": mse, "l1": l1, "bce": bce, "kl": kl,
}  # fmt: skip
