"""What a step trains, and how much memory it needs for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..base.safetensors import OWN
from ..training import LossScale, name_of
from .memory import lives
from .sizes import Evaluator

if TYPE_CHECKING:
    from ..pipeline.compilation import Compilation


@dataclass(frozen=True)
class TrainingInfo:
    """A training step: its loss and optimizer, the weights that it trains, and bytes.

    ``state_bytes`` are of the trained weights and what the optimizer keeps; ``moving`` are the statistics that batches
    move; ``loss_scale`` is what the loss is multiplied by, "" for nothing; ``kept`` counts the values that the forward
    pass stores for the backward pass, of ``kept_bytes``; ``again`` names what is computed again instead, of
    ``again_bytes``; ``peak_bytes`` is the memory of the open model in a step. Where ranks share what the optimizer
    keeps, others have ``shared_bytes`` of it; ``whole`` are the weights of which each has all.
    """

    loss: str
    optimizer: str
    loss_scale: str
    weights: tuple[str, ...]
    weights_bytes: int
    state_bytes: int
    moving: tuple[str, ...]
    kept: int
    kept_bytes: int
    again: tuple[str, ...]
    again_bytes: int
    peak_bytes: int
    shared_bytes: int = 0
    whole: tuple[str, ...] = ()


def training_info(compilation: Compilation, sizes: Evaluator) -> TrainingInfo | None:
    """The training step of a compilation, None where it runs the model."""
    if compilation.trained is None:
        return None
    training, states = compilation.trained.training, compilation.program.states
    spans = lives(compilation)
    storage, (loss, *_) = compilation.plan.storage, compilation.graph.returned
    made = storage[loss].root if loss in storage else loss
    forward = next(k for k, u in enumerate(compilation.units) if made in u.group.outputs)
    kept = [v for v, (first, last) in spans.items() if first <= forward < last]
    again = [r for r in compilation.graph.recomputations if r.chosen]
    names = dict.fromkeys(v.producer.name or v.name for r in again for v in r.values if v.producer is not None)
    state_bytes = sum(s.bytes for s in states)
    shared = {s.name.partition("/")[2] for s in states if s.parts > 1}
    return TrainingInfo(
        training.loss.kind,
        name_of(training.optimizer),
        _scale_text(training.loss_scale),
        tuple(s.name for s in states if s.trained),
        sum(s.bytes for s in states if s.trained),
        state_bytes,
        tuple(s.name for s in states if not s.trained and not s.name.startswith(OWN)),
        len(kept),
        sizes.total([v.type.nbytes for v in kept]),
        tuple(names),
        sum(r.bytes for r in again),
        state_bytes + compilation.held_weights_bytes + sizes.total([compilation.arena_bytes]),
        sum(s.bytes * (s.parts - 1) for s in states),
        tuple(s.name for s in states if s.trained and s.name not in shared) if training.shard_states else (),
    )


def _scale_text(scale: LossScale | None) -> str:
    if scale is None:
        return ""
    first = f"{scale.initial:.10g}"
    return (
        first if scale.growth_interval is None else f"{first} at first, doubled after {scale.growth_interval} updates"
    )
