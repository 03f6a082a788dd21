"""Weights that a library takes by the model's names: found in a compilation, and proven by compiling other values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from ..base.budget import afford
from ..base.errors import ConfigError, TorshcError
from ..bundle.copies import Copy
from ..bundle.host import NamedWeight
from ..bundle.layout import weights_layout
from ..bundle.program import Program
from ..bundle.shared_weights import move_named, share_weights
from ..bundle.weight_names import named_weights, proven
from .compilation import Compilation, put_forms

_FOLDS = "fold_batch_norm"
_REMEDY = "leave it out, and exchange weights with torshc weights"


def named_in(
    whole: Compilation, compiled: Callable[[Mapping[str, npt.NDArray[Any]]], Compilation] | None
) -> Compilation:
    """A compilation with the model's weights and their places, those where other values make the same library.

    Args:
        compiled: compiles the model with other values of some weights; None where it is no file.

    Raises:
        ConfigError: the bundle cannot take weights by name.
    """
    if whole.script is not None:
        raise ConfigError("--named-weights: the model's sizes or steps are known only at run time", _REMEDY)
    if compiled is None:
        raise ConfigError("--named-weights: a Graph is compiled once, and changed by that", "give the model's file")
    layout = weights_layout(whole.program)

    def other(weights: Mapping[str, npt.NDArray[Any]]) -> Program | None:
        try:
            made = compiled(weights)
        except TorshcError:  # these values are none that it takes
            return None
        same = made.sources == whole.sources and made.program.steps == whole.program.steps
        return made.program if same and weights_layout(made.program) == layout else None

    found = named_weights(whole.graph, whole.program, whole.options.weights_dtype)
    named = proven(found, whole.graph, whole.program, other)
    return dataclasses.replace(whole, named=named, warnings=(*whole.warnings, *_hint(whole, named)))


def with_shared_weights(versions: Sequence[Compilation]) -> list[Compilation]:
    """Versions of a model for several processors, all forms of each, over one list of weights.

    A weight is taken by name where all of them take it; what is given for it goes to its places in all forms.
    """
    why = {w.name: w.why for c in reversed(versions) for form in c.forms for w in form.named if w.why}
    shared = iter(share_weights([form.program for c in versions for form in c.forms]))
    done = []
    for c in versions:
        programs, named = zip(
            *((p, move_named(form.named, to)) for form, (p, to) in zip(c.forms, shared, strict=False)), strict=True
        )
        known = tuple(
            dataclasses.replace(ws[0], copies=() if ws[0].name in why else _copies(ws), why=why.get(ws[0].name, ""))
            for ws in zip(*named, strict=True)
        )
        forms = [dataclasses.replace(form, program=p) for form, p in zip(c.forms, programs, strict=True)]
        done.append(dataclasses.replace(put_forms(c, forms), named=known))
    _afford_copies(done)
    return done


def _afford_copies(versions: Sequence[Compilation]) -> None:
    """Refuse variants that read more weights in an order of their own than the budget lets them."""
    read = {at for c in versions for f in c.forms if not f.program.is_variant for at in f.program.weights_read}
    own = {at for c in versions for v in c.variants if v.form for at in v.form.program.weights_read} - read
    p = versions[0].program
    more = sum(w.nbytes for w, at in zip(p.weights, p.offsets, strict=True) if at in own)
    afford("copies", more, f"--specialize: {more} bytes of weights are there in another order")


def _copies(weights: Sequence[NamedWeight]) -> tuple[Copy, ...]:
    """Each of the copies of one weight in several forms once."""
    return tuple(dict.fromkeys(copy for w in weights for copy in w.copies))


def _hint(whole: Compilation, named: Sequence[NamedWeight]) -> list[str]:
    """How more weights could be given by name, where that is known."""
    fixed = sum(w.why != "" and w.dims != () for w in named)
    if not fixed or not any(r.name == _FOLDS and r.changed for r in whole.records):
        return []
    return [
        f"--named-weights: {fixed} of {len(named)} weights cannot be given by name, some of them because {_FOLDS} puts "
        f"them together; --pass {_FOLDS}=off keeps those of convolutions and products apart"
    ]
