"""Training: a model, a loss and an optimizer as one graph that makes a step."""

from .config import Loss, LossScale, Training, read_training
from .optimizers import Optimizer, name_of
from .step import make_training_graph, require_straight

__all__ = [
    "Loss",
    "LossScale",
    "Optimizer",
    "Training",
    "make_training_graph",
    "name_of",
    "read_training",
    "require_straight",
]
