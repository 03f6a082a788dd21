"""Comparing a bundle with a reference: onnx's own evaluator, ONNX Runtime, or given outputs.

The error of an output is max|a-b| / max|b|, b being the reference: one figure that is the same for all of a tensor's
elements and does not blow up where b passes through 0. NaN and infinities must stand at the same places. How large it
may be says :mod:`.tolerance`; the bundle's manifest has it for each output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import ConfigError, RunError, TorshcError
from ..base.folders import scratch_folder
from ..base.manifest import InputValue, PaddedInput, SizeRange
from ..base.options import CompileOptions
from ..pipeline.tolerance import LEAST, UNIT, Tolerance
from ..runtime import Model, TensorSpec, load
from .content import content_of
from .edited import require_survival
from .feeds import (
    Array,
    Arrays,
    Feeds,
    checked_dims,
    make_inputs,
    plain,
    read_inputs,
    require_interface,
    shape_at,
)
from .onnx_runtime import ort_outputs

if TYPE_CHECKING:
    from ..pipeline.compilation import Compilation

PLAIN = Tolerance(LEAST["f32"])  # of f32 with few roundings, and of bundles that say none
REFERENCES = ("reference", "ort")
# Sizes for symbolic dimensions without a given size: different, so that mixed-up dimensions are noticed.
SIZES = (2, 3, 5, 7, 11, 13)
_NOT_FINITE = ("NaNs are at different positions", "infinities are at different positions")


@dataclass(frozen=True)
class OutputCheck:
    """An output: its error, or in ``problem`` why it cannot be compared; ``ok`` when that is at most ``allowed``.

    ``note`` says what explains an error above what f32 may have, and what weakens the comparison, such as one value in
    all elements. Where random inputs left nothing to compare, such as NaN throughout, the output is not ``checked``,
    and not ``ok``.
    """

    name: str
    shape: tuple[int, ...]
    error: float
    problem: str
    ok: bool
    note: str = ""
    checked: bool = True
    allowed: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """The outcome: what it was compared with, at which sizes, and each output; ``why`` it may differ, where known.

    ``rtol`` is the largest of what the outputs were allowed. ``form`` is what ran: the sizes that a variant is for, or
    nothing; ``variants`` are the outcomes of the model's variants, each at sizes of its own.
    """

    against: str
    rtol: float
    dims: Mapping[str, int]
    outputs: tuple[OutputCheck, ...]
    why: str = ""
    form: str = ""
    variants: tuple[Verdict, ...] = ()

    @property
    def ok(self) -> bool:
        return all(o.ok for o in self.outputs) and all(v.ok for v in self.variants)

    @property
    def differing(self) -> list[OutputCheck]:
        """The outputs that differ; what was not checked is none of them."""
        whole = (self, *self.variants)
        return [o for verdict in whole for o in verdict.outputs if not o.ok and o.checked]


def verify_model(
    path: str | Path, options: CompileOptions, against: str = "reference", observer: Any = None, **how: Any
) -> Verdict:
    """Compiles a model to a temporary bundle and compares it; further arguments as :func:`verify_bundle`."""
    from ..pipeline.compiler import compile_model  # start-up: a bundle is compared without the compiler

    _check_reference(against)
    with scratch_folder() as folder:
        bundle = folder / "model.tsc"
        done = compile_model(path, bundle, options, observer, check=checked_dims(how.get("dims")))
        verdict = verify_bundle(path, bundle, against, **how, ops=options.ops)
    return with_cause(verdict, path, done, observer, **how)


def verify_bundle(
    path: str | Path,
    bundle: str | Path,
    against: str = "reference",
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Sequence[str] = (),
    seed: int = 0,
    rtol: float | None = None,
    threads: int = 1,
    ops: Sequence[Path] = (),
) -> Verdict:
    """Compares a bundle with a reference on random inputs, and each variant in it at sizes that it is for.

    Args:
        path: the model that it was made from.
        bundle: its folder.
        against: "reference", "ort", or a .npz file of outputs by name.
        dims: sizes of symbolic dimensions; small different ones where left out.
        inputs: files of inputs, as :func:`torshc.workbench.feeds.make_inputs` takes them; the rest is random.
        rtol: largest error; what the bundle's manifest says where left out.
        ops: files that declare operators of the model.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    _check_reference(against)
    with load(bundle, max(threads, 1)) as model:
        ranges = [r for case in model.variants for r in case if isinstance(r, SizeRange)]
        of_variants = {size for r in ranges for size in SIZES if r.least <= size <= r.most}
        usual = tuple(size for size in SIZES if size not in of_variants) or SIZES
        found: list[Verdict] = []
        variants = _at_variants(model, dims or {})
        for at, values, defaults in ((dims or {}, (), usual), *((at, values, SIZES) for at, values in variants)):
            if found and (inputs or against not in REFERENCES):
                break  # what is given is for one run
            made = make_inputs(model.inputs, inputs, at, seed, defaults, model.needs)
            same = {v.name: _as_asked(made.arrays[v.name], v) for v in values}
            made = replace(made, arrays={**made.arrays, **same})
            require_survival(Path(bundle), made.arrays, threads)
            before = model.stats().forms
            got = model.run(made.arrays)
            ran = [new.sizes for old, new in zip(before, model.stats().forms, strict=True) if new.runs > old.runs]
            allowed = tolerances_by_name(model, rtol)
            if against in REFERENCES:
                names = [spec.name for spec in model.outputs]
                wanted = reference_outputs(Path(path), against, names, made.arrays, ops)
                for mask in (same[v.name] for v in values if isinstance(v, PaddedInput) and v.stated):
                    wanted = {name: _without_padding(x, mask) for name, x in wanted.items()}
            else:
                wanted = dict(read_inputs([against], model.outputs, "output"))
            checks = [compare(name, array, wanted.get(name), allowed[name]) for name, array in got.items()]
            noted = note_contents(checks, got, model.outputs, made)
            most = max((c.allowed for c in checks), default=0.0)
            found.append(Verdict(against, most, made.dims, noted, form="".join(ran)))
    return replace(found[0], variants=tuple(found[1:]))


def _as_asked(array: Array, value: InputValue | PaddedInput) -> Array:
    """An input that is one number throughout; or a mask of some ones and zeros behind them in each row."""
    if isinstance(value, InputValue):
        return np.full_like(array, value.value)
    rows, columns = array.shape
    seen: Array = np.arange(columns) < 1 + np.arange(rows)[:, None] % max(columns - 1, 1)
    return seen.astype(array.dtype)


def _without_padding(output: Array, mask: Array) -> Array:
    """An output with zeros where rows of it are padding."""
    if output.shape[:2] != mask.shape:
        return output
    seen = mask.astype(bool).reshape(*mask.shape, *(1,) * (output.ndim - 2))
    masked: Array = np.where(seen, output, np.zeros((), output.dtype))
    return masked


def _at_variants(
    model: Model, dims: Mapping[str, int]
) -> list[tuple[dict[str, int], tuple[InputValue | PaddedInput, ...]]]:
    """Sizes, and values of inputs, at which a run takes each variant, of those that have the sizes asked for."""
    found: list[tuple[dict[str, int], tuple[InputValue | PaddedInput, ...]]] = []
    for case in model.variants:
        sizes = [r for r in case if isinstance(r, SizeRange)]
        at = {r.name: dims.get(r.name, r.most) for r in sizes}
        if all(r.least <= at[r.name] <= r.most for r in sizes):
            found.append(({**dims, **at}, tuple(v for v in case if not isinstance(v, SizeRange))))
    return found


def _check_reference(against: str) -> None:
    if against not in REFERENCES and not against.endswith(".npz"):
        raise ConfigError(
            f"--against {against!r} is no reference", "name one of reference, ort, or a .npz file of outputs"
        )


def tolerances_by_name(model: Model, rtol: float | None = None) -> dict[str, Tolerance]:
    """How far each output of a bundle may be from a reference's: what its manifest says, or `rtol` for all."""
    names = [spec.name for spec in model.outputs]
    if rtol is not None:
        return dict.fromkeys(names, Tolerance(rtol))
    known = [Tolerance(**asdict(spec)) for spec in model.tolerances]
    return dict(zip(names, known or [PLAIN] * len(names), strict=True))


def with_cause(
    verdict: Verdict, path: str | Path, compilation: Compilation, observer: Any = None, **how: Any
) -> Verdict:
    """A verdict on what differs, with what a compilation in f32 says of the cause where this one has fewer bits.

    Args:
        compilation: what was compared; further arguments as :func:`verify_bundle`.
    """
    options = compilation.options
    narrow = max(options.precision, options.weights_dtype, key=lambda t: UNIT[t])
    if not verdict.differing or narrow == "f32" or verdict.against not in REFERENCES:
        return verdict
    from ..pipeline.compiler import compile_model  # start-up: as above

    with scratch_folder() as folder:
        bundle = folder / "f32.tsc"
        wide = replace(options, precision="f32", weights_dtype="f32", kernels=None, dump=None)
        compile_model(path, bundle, wide, observer)
        plain = verify_bundle(path, bundle, verdict.against, **how, ops=options.ops)
        error = max((o.error for o in plain.outputs), default=0.0)
        if plain.differing:
            return replace(verdict, why=f"in f32 it differs too, by {error:.0e}, so {narrow} is not all of the cause")
        moved = _measure_moves(bundle, UNIT[narrow], **how)
    roundings = {o.name: t.roundings for o, t in zip(verdict.outputs, compilation.tolerances, strict=True)}
    unexplained = [
        o.name
        for o in verdict.differing
        if o.problem or o.error > 2 * moved[o.name] * math.sqrt(roundings[o.name].get(narrow, 0))
    ]
    why = f"in f32 it agrees to {error:.0e}, and "
    why += f"{narrow} explains no more than {max(moved.values()):.0e} a rounding: bisect finds where it goes wrong"
    out_of_range = (f"--precision {narrow}: ", f"--weights-dtype {narrow}: ")
    if lost := [w for w in compilation.warnings if w.startswith(out_of_range)]:
        why = f"in f32 it agrees to {error:.0e}; {'; '.join(lost)}"
    elif narrow == "f16" and any(o.problem in _NOT_FINITE for o in verdict.differing):
        why += ", unless a number beyond 65504 became infinite: --precision bf16 has the range of f32"
    if not unexplained:
        why = f"rounding of {narrow}, which this model amplifies: in f32 it agrees to {error:.0e}"
    return replace(verdict, why=why)


def _measure_moves(
    bundle: Path,
    unit: float,
    *,
    inputs: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    threads: int = 1,
    **_: Any,
) -> dict[str, float]:
    """How far each output moves when all floats of the inputs move by up to `unit` of themselves, as one rounding does.

    n roundings that are amplified as those of the inputs, which go the whole way, move it sqrt(n) times as far.
    """
    random = np.random.default_rng(seed)
    with load(bundle, max(threads, 1)) as model:
        arrays = make_inputs(model.inputs, inputs, dims, seed, SIZES, model.needs).arrays
        usual = model.run(arrays)
        near = {n: (a * (1 + random.uniform(-unit, unit, a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a
                for n, a in arrays.items()}  # fmt: skip
        found = model.run(near)
    return {n: compare(n, found[n], usual[n]).error for n in usual}


def compare(name: str, got: Any, wanted: Any, tolerance: Tolerance = PLAIN) -> OutputCheck:
    """Compares an output with the reference's. Strings must be equal.

    In sequences and maps all tensors are compared, and the worst counts.
    """
    if isinstance(got, np.ndarray) and (wanted is None or isinstance(wanted, np.ndarray)):
        return _compare(name, got, wanted, tolerance)
    ours, theirs = _tensors(got), _tensors(wanted)
    shape = (len(got),) if isinstance(got, Sized) else ()
    if type(got) is not type(wanted) or len(ours) != len(theirs):
        return OutputCheck(name, shape, math.inf, "it does not hold as many tensors as the reference's", False)
    checks = [_compare(name, a, b, tolerance) for a, b in zip(ours, theirs, strict=True)]
    worst = max(checks, key=lambda c: (not c.ok, c.error), default=OutputCheck(name, shape, 0.0, "", True))
    return replace(worst, shape=shape)


def note_contents(
    checks: Sequence[OutputCheck], got: Mapping[str, Any], specs: Sequence[TensorSpec], made: Feeds
) -> tuple[OutputCheck, ...]:
    """The outcomes, with a note where an output that agrees holds nothing, NaN throughout, or one value.

    What has no number in it shows nothing of the bundle, unless the model has to give it: because all inputs were
    given, or because sizes alone leave an output without elements.
    """
    found = []
    for check, spec in zip(checks, specs, strict=True):
        content = content_of(_tensors(got[spec.name]))
        asked = not made.random or _is_empty_by_size(spec, made)
        checked = not (check.ok and content.blank) or asked
        note = "; ".join(filter(None, (check.note, content.note)))
        found.append(replace(check, note=note, checked=checked, ok=check.ok and checked))
    return tuple(found)


def _is_empty_by_size(spec: TensorSpec, made: Feeds) -> bool:
    try:
        return 0 in shape_at(spec, made.dims)
    except RunError:  # only a run shows its sizes
        return False


def _tensors(value: Any) -> list[Array]:
    """The tensors of an output in order; of a map its keys, ascending, and their values."""
    if isinstance(value, dict):
        return [np.array(sorted(value)), np.array([value[k] for k in sorted(value)])]
    if isinstance(value, list):
        return [t for item in value for t in _tensors(item)]
    return [] if value is None else [np.asarray(value)]


def _compare(name: str, got: Array, wanted: Array | None, tolerance: Tolerance) -> OutputCheck:
    def problem(text: str) -> OutputCheck:
        return OutputCheck(name, got.shape, math.inf, text, False, allowed=tolerance.relative)

    if wanted is None:
        return problem("the reference has no such output")
    if got.shape != wanted.shape:
        return problem(f"its shape is {list(got.shape)}, the reference's {list(wanted.shape)}")
    if got.dtype.kind in "OUT" and wanted.dtype.kind in "OUT":
        differ = int(np.sum(got.astype(np.object_) != wanted.astype(np.object_)))
        return problem(f"{differ} strings differ") if differ else OutputCheck(name, got.shape, 0.0, "", True)
    if got.dtype != wanted.dtype:
        return problem(f"its type is {got.dtype}, the reference's {wanted.dtype}")
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return problem(_NOT_FINITE[0])
    infinite = np.isinf(b)
    if not np.array_equal(infinite, np.isinf(a)) or not np.array_equal(a[infinite], b[infinite]):
        return problem(_NOT_FINITE[1])
    finite = np.isfinite(b)
    whole = got.dtype.kind in "iu"
    error, top = relative_error(*((got, wanted) if whole else (a[finite], b[finite]))), _largest(b[finite])
    allowed = tolerance.relative + tolerance.quantum / top
    ok = error <= allowed
    note = _note(error * top, top, tolerance) if ok else ""
    return OutputCheck(name, got.shape, error, "", ok, note, allowed=allowed)


def _note(most: float, top: float, tolerance: Tolerance) -> str:
    """What explains the largest difference of an output whose largest element is `top`, where f32 would not."""
    least = PLAIN.relative * top
    if most <= least or not tolerance.coarsest:
        return ""
    if tolerance.quantum:
        quanta = math.ceil((most - least) / tolerance.quantum)
        return "within one quantum" if quanta <= 1 else f"within {quanta} quanta"
    return f"rounding to {tolerance.coarsest}"


def relative_error(a: Array, b: Array) -> float:
    """max|a-b| / max|b|, and max|a-b| where b is all 0; 0 for empty arrays.

    Of integers the difference is exact: above 2^53 not each of them is a float.

    >>> relative_error(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    0.25
    >>> relative_error(np.array([2**60 + 1]), np.array([2**60])) == 2.0**-60
    True
    """
    if not a.size:
        return 0.0
    if a.dtype.kind in "iu":
        most, least = (e.astype(np.uint64) for e in (np.maximum(a, b), np.minimum(a, b)))
        apart, b = most - least, b.astype(np.float64)
    else:
        apart = np.abs(a - b)
    return float(np.max(apart) / _largest(b))


def _largest(b: Array) -> float:
    """max|b|, what errors are relative to; 1 where that is 0 or there is none."""
    return float(np.max(np.abs(b), initial=0.0)) or 1.0


def reference_outputs(
    path: Path, against: str, names: Sequence[str], feeds: Arrays, ops: Sequence[Path] = ()
) -> dict[str, Any]:
    """What "reference" (onnx's evaluator) or "ort" (ONNX Runtime) computes: outputs by name.

    Args:
        ops: files that declare operators of the model, for onnx's evaluator.

    Raises:
        RunError: it fails.
        ConfigError, UnsupportedError: ONNX Runtime is not there, or cannot open the model.
        ModelError: the model names a file that cannot be used.
    """
    return ort_outputs(path, names, feeds) if against == "ort" else _reference(path, names, feeds, ops)


def _reference(path: Path, names: Sequence[str], feeds: Arrays, ops: Sequence[Path]) -> dict[str, Any]:
    """onnx's reference evaluator; a JSON graph is evaluated operator by operator, from their definitions."""
    # start-up: other references need no front end
    from ..formats import load_graph
    from ..formats.files import onnx_proto
    from ..ops import CustomOperators  # start-up: as above

    proto, custom = onnx_proto(path), CustomOperators(ops)
    if proto is None:
        from ..passes.interpret import run_graph  # start-up: only a JSON graph needs it
        from .evaluated import run_judged  # start-up: as above

        graph = load_graph(path, {name: array.shape for name, array in feeds.items()}, custom=custom)
        require_interface(path, [v.name for v in graph.inputs], graph.output_names, names, feeds)
        found = run_graph(graph, {v: feeds[v.name] for v in graph.inputs}, run_judged)
        return dict(zip(graph.output_names, found, strict=True))
    from onnx.reference import ReferenceEvaluator  # start-up: as above

    from .corrected import corrected_operators  # start-up: as above
    from .evaluated import evaluator_operators

    constant = {w.name for w in proto.graph.initializer}
    inputs = [v.name for v in proto.graph.input if v.name not in constant]
    require_interface(path, inputs, [v.name for v in proto.graph.output], names, feeds)
    declared = evaluator_operators(proto, custom)
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(proto, new_ops=[*corrected_operators(proto), *declared])
            return dict(zip(names, map(plain, evaluator.run(names, feeds)), strict=True))
    except TorshcError:  # of a user's operator
        raise
    except NotImplementedError as error:
        missing = str(error).partition("\n")[0].removesuffix(" in")  # a list of all that it has follows
        raise RunError(
            f"onnx's reference evaluator cannot run this model: {missing}", "compare with --against ort"
        ) from error
    except Exception as error:  # onnx raises what comes; a fault of the reference is not one of the bundle
        raise RunError(
            f"onnx's reference evaluator failed: {type(error).__name__}: {error}",
            "compare with --against ort, or give other sizes with --dims",
        ) from error
