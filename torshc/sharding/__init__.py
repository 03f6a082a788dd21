"""A model over several processes: the file that says how (`config.py`), and the graph of each rank."""

from .annotations import cut_as_annotated
from .automatic import choose_splits
from .config import Sharding, Stages, TensorParallel, read_sharding
from .cost import Machine, compute_seconds, exchange_seconds, link_bytes, machine_of
from .cut import Cut, Transfer
from .stages import cut_stages
from .tensors import Layouts, layouts_of, split_tensors

__all__ = [
    "Cut",
    "Layouts",
    "Machine",
    "Sharding",
    "Stages",
    "TensorParallel",
    "Transfer",
    "choose_splits",
    "compute_seconds",
    "cut_as_annotated",
    "cut_stages",
    "exchange_seconds",
    "layouts_of",
    "link_bytes",
    "machine_of",
    "read_sharding",
    "split_tensors",
]
