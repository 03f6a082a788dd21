"""Measuring: systems alternate, a round at a time, so that the machine's drift affects all alike.

A system's figure is the median over rounds of each round's median call; percentiles are over the calls of all rounds.
A ratio is the median of the rounds' own ratios, so that a slow moment, which affects both of a pair, cancels.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import ConfigError
from ..base.folders import scratch_folder
from ..base.options import CompileOptions
from ..explain import Evaluator
from ..kernels.base import Kernel
from ..pipeline.compilation import Compilation
from ..pipeline.tolerance import Tolerance
from ..runtime import Model, load
from ..runtime.stats import StepStats
from ..targets import target_of
from .feeds import Arrays, checked_dims, make_inputs
from .onnx_runtime import ort_session, run_ort
from .roofline import Roof, meter_of, require_flush, unit_of
from .torch_baseline import PYTORCH, torch_calls
from .verify import compare, tolerances_by_name

WARM_SECONDS = 0.05  # of a round, not counted: caches fill, and another system's threads stop spinning
LEAST_CALLS = 3
PERCENTILES = (50, 90, 99)
SYSTEMS = ("ort", *PYTORCH)

Call = Callable[[], Any]


@dataclass(frozen=True)
class Figure:
    """A system's latency.

    Attributes:
        system: such as "torshc -O3".
        ms: median over rounds, milliseconds a call.
        rounds: each round's median, milliseconds.
        ratio: how many times as long as the first system it takes, paired by round.
        percentiles: the 50th, 90th and 99th of all calls, milliseconds.
    """

    system: str
    ms: float
    rounds: tuple[float, ...]
    ratio: float
    percentiles: Mapping[str, float]


@dataclass(frozen=True)
class Step(StepStats):
    """A step with its work in a run; None for what only a run knows.

    Attributes:
        bytes, flops: moved and computed at the least.
        share: the least time that this may take, by the roof, as part of the time that it took.
        bound: what decides the least time, "bytes" or "flops".
    """

    bytes: int | None = None
    flops: int | None = None
    share: float | None = None
    bound: str = ""


@dataclass(frozen=True)
class Result:
    """Figures of all systems, the first being what the others are compared with; profiled steps of the first.

    Attributes:
        steps, roof: of a model with profiling; no roof where the target has none.
        flushed: whether a card's second cache was written before each call.
        differing: what other systems answer otherwise than the first does, a line each.
    """

    model: str
    threads: int
    dims: Mapping[str, int]
    figures: tuple[Figure, ...]
    steps: tuple[Step, ...] = ()
    roof: Roof | None = None
    flushed: bool = False
    differing: tuple[str, ...] = ()


def bench_model(
    path: str | Path,
    options: CompileOptions,
    *,
    levels: Sequence[int] = (3,),
    against: Sequence[str] = (),
    torch_module: str = "",
    threads: int = 1,
    rounds: int = 7,
    seconds: float = 0.3,
    dims: Mapping[str, int] | None = None,
    inputs: Sequence[str] = (),
    seed: int = 0,
    flush: bool = False,
    observer: Callable[[str, float], None] | None = None,
) -> Result:
    """Compiles a model at some optimisation levels and times it, on request next to other systems.

    Args:
        levels: optimisation levels; the last is what all others are compared with.
        against: other systems, of :data:`SYSTEMS`.
        torch_module: where PyTorch's module is: FILE.pt2 or FILE.py:NAME; by default a .pt2 beside the model.
        rounds, seconds: number of measurements of each system, and seconds of each.
        dims, inputs, seed: as :func:`torshc.workbench.verify.verify_bundle`; dimensions left out are 1, or what
            the model can take.
        flush: write a card's second cache before each call.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    theirs = _torch_of(against, torch_module)
    if flush:
        require_flush(target_of(options))
    say = observer or (lambda stage, seconds: None)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        models: dict[str, Model] = {}
        built: list[Compilation] = []
        for level in dict.fromkeys(reversed(levels)):
            say(f"-O{level}", 0.0)
            model, done = _build_at_level(path, options, level, folder, threads, stack, observer, dims)
            models[f"torshc -O{level}"] = model
            built.append(done)
        first = next(iter(models.values()))
        meter = meter_of(built[0]) if flush or options.profile else None
        made = make_inputs(first.inputs, inputs, dims, seed, needs=first.needs)
        feeds = made.arrays
        calls: dict[str, Call] = {name: _caller(model, feeds) for name, model in models.items()}
        if "ort" in against:
            session = ort_session(Path(path), threads)
            calls["ONNX Runtime"] = lambda: run_ort(session, feeds)
        if theirs:
            expected = list(first.run(feeds).values())
            device = target_of(options).device
            calls |= torch_calls(theirs, Path(path), torch_module, feeds, expected, threads, device)
        differing = tuple(differences(calls, tolerances_by_name(first)))
        times = paired(calls, rounds, seconds, say, meter.flush if meter and flush else _nothing)
        roof = meter.roof(threads) if meter and options.profile else None
        steps = profiled(first.stats().steps, built[0], made.dims, roof)
        return Result(str(path), threads, made.dims, figures(times), steps, roof, flush, differing)


def differences(calls: Mapping[str, Call], tolerances: Mapping[str, Tolerance]) -> Iterator[str]:
    """What systems answer otherwise than the first one does, beyond what rounding explains.

    >>> answers = {"a": lambda: {"y": np.ones(2)}, "b": lambda: [np.ones(2)], "c": lambda: [np.array([1, 1.5])]}
    >>> list(differences(answers, {"y": Tolerance(1e-4)}))
    ["c: 'y' differs from a's: by 5e-01, of which rounding explains 1e-04"]
    """
    (base, first), *others = calls.items()
    usual = first() if others else {}
    for system, call in others:
        found = call()
        answers = found.values() if isinstance(found, dict) else found
        for (name, mine), other in zip(usual.items(), answers, strict=False):
            check = compare(name, other, mine, tolerances[name])
            if not check.ok:
                by = f"by {check.error:.0e}, of which rounding explains {check.allowed:.0e}"
                yield f"{system}: {name!r} differs from {base}'s: {check.problem or by}"


def _torch_of(against: Sequence[str], torch_module: str) -> list[str]:
    """The systems of PyTorch among some.

    Raises:
        ConfigError: one is unknown, or a module is given for none of them.
    """
    if unknown := [name for name in against if name not in SYSTEMS]:
        raise ConfigError(f"--against {unknown[0]!r}", f"systems to compare with are {', '.join(SYSTEMS)}")
    theirs = [name for name in PYTORCH if name in against]
    if torch_module and not theirs:
        raise ConfigError("--torch-module goes with --against torch", "leave it out, or add --against torch")
    return theirs


def _build_at_level(
    path: str | Path,
    options: CompileOptions,
    level: int,
    folder: Path,
    threads: int,
    stack: ExitStack,
    observer: Callable[[str, float], None] | None,
    dims: Mapping[str, int] | None,
) -> tuple[Model, Compilation]:
    """A model compiled at a level and opened."""
    from ..pipeline.compiler import compile_model  # start-up: bundles are measured without the compiler

    bundle = folder / f"O{level}.tsc"
    done = compile_model(
        path, bundle, dataclasses.replace(options, opt_level=level), observer, check=checked_dims(dims)
    )
    return stack.enter_context(load(bundle, threads or None)), done


def profiled(
    steps: Sequence[StepStats], compilation: Compilation, dims: Mapping[str, int], roof: Roof | None
) -> tuple[Step, ...]:
    """Steps of the form of the model that ran, with the work of their kernels."""
    ran = next((step.form for step in reversed(steps) if step.calls), 0)
    units = compilation.forms[ran].units
    kernels = [pair for u in units for pair in zip(u.symbols, u.kernels, strict=True)]
    sizes = Evaluator(dims)
    found = []
    for number, step in enumerate(s for s in steps if s.form == ran):
        symbol, kernel = kernels[number] if number < len(kernels) else ("", None)
        known = kernel if symbol == step.kernel else None  # of another version of the library, it is not known
        found.append(_profile_step(step, known, sizes, roof))
    return tuple(found)


def _profile_step(step: StepStats, kernel: Kernel | None, sizes: Evaluator, roof: Roof | None) -> Step:
    named = {f.name: getattr(step, f.name) for f in dataclasses.fields(step)}
    if kernel is None:
        return Step(**named)
    flops, nbytes = sizes.integer(kernel.flops), sizes.integer(kernel.nbytes)
    if flops is None or nbytes is None or roof is None or not step.calls or not step.seconds:
        return Step(**named, bytes=nbytes, flops=flops)
    least, bound = roof.least(flops, nbytes, unit_of(kernel))
    return Step(**named, bytes=nbytes, flops=flops, share=least * step.calls / step.seconds, bound=bound)


def _caller(model: Model, feeds: Arrays) -> Call:
    return lambda: model.run(feeds)


def _nothing() -> None:
    pass


def paired(
    calls: Mapping[str, Call],
    rounds: int,
    seconds: float,
    say: Callable[[str, float], None],
    before: Callable[[], None] = _nothing,
) -> dict[str, list[list[float]]]:
    """Seconds of all calls of each system, for each round; `before` is called before each, and takes no time."""
    times: dict[str, list[list[float]]] = {name: [] for name in calls}
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}", 0.0)
        for name, call in calls.items():
            _repeat(call, WARM_SECONDS, 1, before)
            times[name].append(_repeat(call, seconds, LEAST_CALLS, before))
    return times


def _repeat(call: Call, seconds: float, least: int, before: Callable[[], None]) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        before()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def figures(times: Mapping[str, Sequence[Sequence[float]]]) -> tuple[Figure, ...]:
    """Figures from the calls of each system's rounds, the first being the base of the ratios.

    >>> [round(f.ratio, 2) for f in figures({"a": [[1.0, 1.0, 9.0], [2.0]], "b": [[2.0], [5.0]]})]
    [1.0, 2.25]
    """
    medians = {name: [statistics.median(calls) for calls in rounds] for name, rounds in times.items()}
    base = next(iter(medians.values()))
    return tuple(
        Figure(
            name,
            statistics.median(rounds) * 1e3,
            tuple(t * 1e3 for t in rounds),
            statistics.median(t / b for t, b in zip(rounds, base, strict=True)),
            {f"p{q}": float(np.percentile(np.concatenate(times[name]), q)) * 1e3 for q in PERCENTILES},
        )
        for name, rounds in medians.items()
    )
