"""Loading and running a bundle; imports nothing of the compiler.

model = torshc.runtime.load("out.tsc", threads=2)
outputs = model.run({"x": array})
"""

from torshc.base.manifest import ConditionSpec, Needs, SymbolSpec, TensorSpec, UseSpec

from .device import DeviceArray
from .model import Model
from .opening import load
from .stats import FormStats, Stats, StepStats

__all__ = [
    "ConditionSpec",
    "DeviceArray",
    "FormStats",
    "Model",
    "Needs",
    "Stats",
    "StepStats",
    "SymbolSpec",
    "TensorSpec",
    "UseSpec",
    "load",
]
