"""Operators that do in training something else than in inference: batch normalisation and dropout."""

from __future__ import annotations

import numpy as np

from ..base.errors import UnsupportedError
from ..expr import F32, F64, as_int, const, product, select
from ..graph import Builder, Graph, Node, Value
from ..ops.nn.norm import BatchNormalization, BatchNormalizationTraining
from ..ops.tensor.random import Draw, Dropout, DropoutTraining, stream
from .config import BATCH, Training

REMEDY = "say `batch_norm: running`, so that the statistics stay as they are"


class Mode:
    """Makes nodes of a model do what a step's file says.

    Attributes:
        running: the running statistics that batches move, by name: what holds each, and what takes its place.
        draws: whether what is left draws random numbers.
    """

    def __init__(self, graph: Graph, training: Training) -> None:
        self.graph, self.training = graph, training
        self.running: dict[str, tuple[Value, Value]] = {}
        self.draws = False
        self._names = {v: name for name, v in graph.weights.items()}
        self._problems: list[str] = []

    def replaced(self, builder: Builder, node: Node) -> list[Value] | None:
        """The results of what takes a node's place; None where it stays. Builds at the node's place."""
        op = node.op
        if isinstance(op, BatchNormalization | BatchNormalizationTraining):
            return self._train_batch_norm(builder, node, op)
        if isinstance(op, Dropout | DropoutTraining):
            return self._train_dropout(builder, node, op)
        self.draws |= isinstance(op, Draw)
        return None

    def settle(self) -> None:
        """Refuse what could not be replaced.

        Raises:
            UnsupportedError: naming all of it.
        """
        if self._problems:
            raise UnsupportedError(self._problems, REMEDY)

    def _train_dropout(self, builder: Builder, node: Node, op: Dropout | DropoutTraining) -> list[Value] | None:
        if not self.training.dropout or op.ratio == 0:
            return None if isinstance(op, Dropout) else builder.add(Dropout(op.ratio), node.inputs[:1])
        self.draws = True
        if isinstance(op, DropoutTraining):
            return None
        return builder.add(DropoutTraining(op.ratio, stream(builder)), node.inputs)

    def _train_batch_norm(
        self, builder: Builder, node: Node, op: BatchNormalization | BatchNormalizationTraining
    ) -> list[Value] | None:
        if self.training.batch_norm != BATCH:
            if isinstance(op, BatchNormalization):
                return None
            return [*builder.add(BatchNormalization(op.epsilon, op.momentum), node.inputs), *node.operands[3:]]
        names = [self._names.get(v, "") for v in node.operands[3:]]
        count = product(d for k, d in enumerate(node.operands[0].shape) if k != 1)
        if problem := self._problem(node, names, as_int(count)):
            self._problems.append(f"{node.describe()}: {problem}")
            return None
        if as_int(count) is None:  # as the unbiased variance of one element is 0 / 0
            self.graph.constraints.append((select(count >= 2, const(1), const(0)), const(1)))
        held = [self.graph.new_value(v.type, name) for v, name in zip(node.operands[3:], names, strict=True)]
        # ONNX has the momentum as f32; what the exporter had written is the shortest number that is read as that
        trains = BatchNormalizationTraining(op.epsilon, float(str(np.float32(op.momentum))), unbiased=True)
        found = builder.add(trains, [*node.inputs[:3], *held])
        self.running |= dict(zip(names, zip(held, found[1:3], strict=True), strict=True))
        return found

    def _problem(self, node: Node, names: list[str], count: int | None) -> str:
        if not all(names):
            return "its running statistics are no weights of the model, so that no state can hold them"
        if shared := [n for n in names if n in self.running] or names[:1] * (names[0] == names[1]):
            who = f"its running statistic {shared[0]!r} is that of another normalisation too"
            return who + ", as exporters write equal weights once; export the model in training mode, or trained"
        if any(v.dtype not in (F32, F64) for v in node.operands[3:]):
            return "its running statistics are neither f32 nor f64"
        return "it has one element a channel, of which there is no variance" if count == 1 else ""
