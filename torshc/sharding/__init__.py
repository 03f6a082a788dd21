"""A model over several processes: the file that says how (`config.py`), and the graph of each rank."""

from .config import Sharding, read_sharding
from .cut import Cut, Transfer
from .stages import cut_stages
from .tensors import split_tensors

__all__ = ["Cut", "Sharding", "Transfer", "cut_stages", "read_sharding", "split_tensors"]
