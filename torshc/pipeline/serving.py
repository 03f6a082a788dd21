"""The bundle beside a training step that runs the model, with weights that the step hands over."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from ..base.errors import ConfigError
from ..base.manifest import SERVE
from ..base.options import CompileOptions
from ..base.safetensors import OWN
from ..bundle.weight_names import Array, draw_numbers
from ..targets import find_target
from .compilation import Compilation

_PREFIX = 58  # letters of a prefix that leave room for what is added


def serving_options(options: CompileOptions) -> CompileOptions:
    """How a model is compiled that takes all its weights by name: none of them is folded into others.

    Raises:
        ConfigError: libraries of the target take no weights by name.
    """
    if "named_weights" not in find_target(options.target).options:
        raise ConfigError(
            f"--serve-while-training with --target {options.target}, whose libraries take no weights by name",
            "leave it out, and give the weights to a bundle of their own with torshc weights",
        )
    return dataclasses.replace(
        options,
        train=None,
        train_memory=0,
        serve_while_training=False,
        named_weights=True,
        weights_dtype="f32",
        passes={**options.passes, **({"fold_constants": False} if options.opt_level else {})},
        prefix=f"{options.prefix[:_PREFIX]}_{SERVE}",
    )


def first_weights(step: Compilation) -> dict[str, Array]:
    """What the model's weights that a step changes are at first, by name."""
    found = {s.name: s.first.const for s in step.graph.states if s.first is not None and not s.name.startswith(OWN)}
    return {name: array for name, array in found.items() if array is not None}


def other_weights(given: Mapping[str, Array]) -> dict[str, Array]:
    """Numbers in place of weights, no two alike."""
    rng = np.random.default_rng(0)
    return {name: draw_numbers(rng, array.shape, array.dtype) for name, array in given.items()}


def require_given(names: Collection[str], served: Compilation) -> None:
    """Refuse weights that training changes and the other library could not take.

    Raises:
        ConfigError: naming all of them.
    """
    known = {w.name: w.why for w in served.named}
    if fixed := [n for n in names if known.get(n, "missing")]:
        why = known.get(fixed[0]) or "it is no weight of it"
        raise ConfigError(
            f"--serve-while-training: a library that runs the model cannot take {', '.join(map(repr, fixed))}: {why}",
            "leave these weights out of the step, or compile with -O0",
        )
