"""Where an answer goes wrong: the first pass, node and kernel, and the smallest model that shows it.

Three searches, each by halves. Passes are switched on one after the other, in the order of their pipeline, and fusion
last: the first that makes an output leave its error class is the step. With all of them on, the model is cut behind its
nodes: the first that is wrong is the node. Then as little as possible is kept above it, with the reference's values as
inputs, so that `verify` shows the fault with the same options.

Edited kernels come before all that: where the model is right without them, the step is the one that makes it wrong. A
part of the model has those of them that it has a place for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError, OutputError, RunError, UnsupportedError
from ..base.folders import scratch_folder
from ..base.options import CompileOptions
from ..formats.cut import Cuttable, is_array
from ..passes import pipeline_of
from ..passes.policy import policy_of
from ..pipeline.compilation import Compilation
from ..pipeline.compiler import compile_model, prepare
from ..pipeline.pinned import fitting_places, places_of
from ..pipeline.tolerance import Tolerance
from ..runtime import load
from .edited import require_survival
from .feeds import Arrays, checked_dims, make_inputs, write_outputs
from .verify import SIZES, OutputCheck, compare, note_contents, reference_outputs, tolerances_by_name

AGAINST = ("reference", "ort", "O0")
FUSION = "fusion"  # the step behind all passes
KERNELS = "kernels"  # the step of edited kernels
_WIDEST = 16  # steps above a node that a part may have; behind that it is all that the node needs
Judge = Callable[[str, Any, Any], OutputCheck]


@dataclass(frozen=True)
class Kernel:
    """A kernel of the smallest model: its symbol, its template, the nodes that it computes, its file if edited."""

    symbol: str
    template: str
    nodes: tuple[str, ...]
    edited: str = ""


@dataclass(frozen=True)
class Place:
    """Where an answer goes wrong.

    Attributes:
        step: the first pass with which it is wrong, "fusion", "kernels" for edited ones, or empty when it is wrong with
            none of them.
        without: the option that leaves out that step alone, where it gives the right answer; else empty.
        node: the first node whose value is wrong, as the model names it.
        check: how wrong that value is in the smallest model.
        kernels: those of the smallest model that compute the value.
        model: the smallest model's file; its inputs lie beside it, as .npz.
        nodes: how many nodes it has.
    """

    step: str
    without: str
    node: str
    check: OutputCheck
    kernels: tuple[Kernel, ...]
    model: str
    nodes: int


@dataclass(frozen=True)
class Bisection:
    """The outcome: what it was compared with, each output, and where the first wrong one goes wrong."""

    against: str
    rtol: float
    dims: Mapping[str, int]
    outputs: tuple[OutputCheck, ...]
    place: Place | None

    @property
    def ok(self) -> bool:
        return all(o.ok for o in self.outputs)


def bisect_model(
    path: str | Path,
    options: CompileOptions,
    out: str | Path,
    against: str = "reference",
    observer: Any = None,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Sequence[str] = (),
    seed: int = 0,
    rtol: float | None = None,
    threads: int = 1,
    judge: Judge | None = None,
) -> Bisection:
    """Compares a compiled model with a reference, and finds where an answer leaves its error class.

    Args:
        path: an ONNX model.
        out: where the smallest model that shows it goes (.onnx); nothing is written when all is well.
        against: "reference" (onnx's evaluator), "ort", or "O0" for torshc itself without passes.
        dims, inputs, seed, rtol, threads: as :func:`torshc.workbench.verify.verify_bundle` takes them.
        judge: whether a value, by name, is the wanted one; by its tolerance, or by `rtol`, where left out.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    if against not in AGAINST:
        raise ConfigError(f"--against {against!r}", f"one of {', '.join(AGAINST)}")
    if Path(out).suffix != ".onnx":
        raise ConfigError(f"-o {str(out)!r} is not the name of a model", "end it in .onnx")
    with scratch_folder() as folder:
        search = _Search(Cuttable(Path(path)), options, folder, judge, rtol, max(threads, 1), observer)
        compile_model(path, folder / "model.tsc", options, observer, check=checked_dims(dims))
        with load(folder / "model.tsc", threads=search.threads) as model:
            made = make_inputs(model.inputs, inputs, dims, seed, SIZES, model.needs)
            require_survival(folder / "model.tsc", made.arrays, search.threads)
            got, allowed = model.run(made.arrays), tolerances_by_name(model, rtol)
        search.learn(made.arrays, against, list(got))
        outputs = note_contents(list(search.checks(got, allowed)), got, model.outputs, made)
        wrong = [o.name for o in outputs if not o.ok and o.checked]
        place = search.place(wrong, Path(out)) if wrong else None
    return Bisection(against, max((o.allowed for o in outputs), default=0.0), made.dims, outputs, place)


@dataclass(frozen=True)
class _Run:
    """A part of a model, compiled; what it gives, and how far that may be from the reference's values, by name."""

    compilation: Compilation
    found: Mapping[str, Any]
    allowed: Mapping[str, Tolerance]


class _Search:
    """A model with the reference's values, of which parts are compiled and compared.

    Attributes:
        wanted: the reference's values by name, of inputs too.
    """

    def __init__(
        self,
        model: Cuttable,
        options: CompileOptions,
        folder: Path,
        judge: Judge | None,
        rtol: float | None,
        threads: int,
        observer: Any,
    ) -> None:
        self.model, self.options, self.folder = model, options, folder
        self.judge, self.rtol, self.threads, self.observer = judge, rtol, threads, observer
        self.wanted: dict[str, Any] = {}
        self.feeds: Arrays = {}

    def learn(self, feeds: Arrays, against: str, outputs: Sequence[str]) -> None:
        """Compute the reference's values for some inputs."""
        self.feeds = feeds
        names = [*dict.fromkeys((*self.model.behind(outputs), *outputs))]
        self.wanted = dict(feeds)
        part = self._save_part(names)
        if against == "O0":
            plain = replace(self.options, opt_level=0, fusion="", passes={}, pipeline=None, rules=(), kernels=None)
            self.wanted |= self._run(part, plain, feeds).found
        else:
            self.wanted |= reference_outputs(part, against, names, feeds, self.options.ops)

    def place(self, wrong: Sequence[str], out: Path) -> Place:
        """Where the outputs go wrong; writes the smallest model."""
        step = KERNELS if self._is_edited_wrong(wrong) else self._pass(wrong)
        value = self._value(wrong)
        given = self._border(value)
        check, kernels = self._show_value(value, given)
        self._write(value, given, out)
        node = self.model.describe(self.model.made[value])
        nodes = len(self.model.needed([value], given))
        return Place(step, self._without(step, wrong), node, check, kernels, str(out), nodes)

    def checks(self, found: Mapping[str, Any], allowed: Mapping[str, Tolerance]) -> Iterator[OutputCheck]:
        """Each of some values against the reference's."""
        for name, value in found.items():
            wanted = self.wanted.get(name)
            yield self.judge(name, value, wanted) if self.judge else compare(name, value, wanted, allowed[name])

    def _is_edited_wrong(self, wrong: Sequence[str]) -> bool:
        """Whether an edited kernel is wrong: the first that is alone, or all. Others are left out from now on."""
        if self.options.kernels is None:
            return False
        given, plain = self.options.kernels, replace(self.options, kernels=None)
        self.options = plain
        if self._wrong(wrong, plain):
            return False
        for place in places_of(given):
            alone = self.folder / "alone" / place.name
            shutil.copytree(place, alone / place.name)
            self.options = replace(plain, kernels=alone)
            if self._wrong(wrong, self.options):
                return True
        self.options = replace(plain, kernels=given)
        return True

    def _pass(self, wrong: Sequence[str]) -> str:
        """The first step with which the outputs are wrong; empty when they are without any."""
        steps = _steps(self.options)
        count = _first(len(steps), lambda k: self._wrong(wrong, _with(self.options, steps, k)))
        return steps[count - 1] if count else ""

    def _without(self, step: str, wrong: Sequence[str]) -> str:
        """The option that leaves out a step and nothing else, when the outputs are right then."""
        if step in ("", KERNELS):
            return ""
        fewer = {"fusion": "none"} if step == FUSION else {"passes": {**self.options.passes, step: False}}
        option = "--fusion none" if step == FUSION else f"--pass {step}=off"
        return "" if self._wrong(wrong, replace(self.options, **fewer)) else option

    def _value(self, wrong: Sequence[str]) -> str:
        """The first value, in the nodes' order, that is wrong when the model is cut behind it.

        What these outputs do not depend on says nothing of them, such as a mask that no one reads.
        """
        names = [v for v in self.model.behind(wrong) if is_array(self.wanted.get(v))]
        last = next((k for k, name in enumerate(names) if name in wrong), len(names) - 1)
        return names[_first(last, lambda k: self._wrong([names[k]], self.options))]

    def _border(self, value: str) -> Arrays:
        """The inputs of the smallest part above a value that is still wrong."""
        for steps in range(_WIDEST):
            names = sorted(self.model.border(value, steps))
            given = {n: self.wanted[n] for n in names if is_array(self.wanted.get(n))}
            if not given:
                break
            if len(given) == len(names) and self._wrong([value], self.options, given):
                return given
        return {}

    def _wrong(self, names: Sequence[str], options: CompileOptions, given: Arrays | None = None) -> bool:
        """Whether one of some values is wrong; a part that cannot be computed says nothing."""
        try:
            run = self._run(self._save_part(names, given), options, {**self.feeds, **(given or {})})
        except (RunError, UnsupportedError):
            return False
        return not all(check.ok for check in self.checks(run.found, run.allowed) if check.name in names)

    def _save_part(self, names: Sequence[str], given: Arrays | None = None) -> Path:
        path = self.folder / "part.onnx"
        path.write_bytes(self.model.part_bytes(self.model.part(names, given)))
        return path

    def _run(self, path: Path, options: CompileOptions, feeds: Arrays) -> _Run:
        if options.kernels is not None:
            options = replace(options, kernels=self._fitting(path, options, options.kernels))
        done = compile_model(path, self.folder / "part.tsc", options, self.observer)
        with load(self.folder / "part.tsc", threads=self.threads) as model:
            found = model.run({spec.name: feeds[spec.name] for spec in model.inputs})
            return _Run(done, found, tolerances_by_name(model, self.rtol))

    def _fitting(self, path: Path, options: CompileOptions, kernels: Path) -> Path | None:
        """A folder of those edited kernels that fit a part, or None."""
        fitting = self.folder / "fitting"
        shutil.rmtree(fitting, ignore_errors=True)
        for place in fitting_places(prepare(path, replace(options, kernels=None)), kernels):
            shutil.copytree(place, fitting / place.name)
        return fitting if fitting.exists() else None

    def _show_value(self, value: str, given: Arrays) -> tuple[OutputCheck, tuple[Kernel, ...]]:
        """How wrong a value is in a part, and the kernels that write it."""
        run = self._run(self._save_part([value], given), self.options, {**self.feeds, **given})
        done = run.compilation
        check = next(c for c in self.checks(run.found, run.allowed) if c.name == value)
        writers = [u for u in done.units if any(r in u.group.outputs for r in done.graph.results)] or done.units[-1:]
        return check, tuple(
            Kernel(symbol, kernel.template, tuple(n.describe() for n in unit.group.nodes), _edit(done.pinned.get(file)))
            for unit in writers
            for kernel, symbol, file in zip(unit.kernels, unit.symbols, unit.files, strict=True)
        )

    def _write(self, value: str, given: Arrays, out: Path) -> None:
        part = self.model.part([value], given)
        feeds = {**self.feeds, **given}
        try:
            out.write_bytes(self.model.part_bytes(part))
        except OSError as error:
            raise OutputError(f"cannot write {out}: {error.strerror or error}", "name another place with -o") from error
        write_outputs(
            str(out.with_suffix(".npz")), {v.name: feeds[v.name] for v in part.graph.input if v.name in feeds}
        )


def _edit(place: str | None) -> str:
    """An edited kernel's file as the user's folder has it, which a part's is a copy of."""
    return "/".join(Path(place).parts[-2:]) if place else ""


def _steps(options: CompileOptions) -> list[str]:
    """What can be switched on, in order: the passes that -O0 does not have, and fusion."""
    pipeline = pipeline_of(options)
    always = pipeline_of(CompileOptions(opt_level=0)).names()
    names = [n for n in pipeline.running(options.passes) if n not in always]
    return [*names, FUSION] if policy_of(options, pipeline).strategy != "none" else names


def _with(options: CompileOptions, steps: Sequence[str], count: int) -> CompileOptions:
    """Only the first steps on."""
    off = {name: False for name in steps[count:] if name != FUSION}
    fusion = "none" if FUSION in steps[count:] else options.fusion
    return replace(options, passes={**options.passes, **off}, fusion=fusion)


def _first(last: int, wrong: Callable[[int], bool]) -> int:
    """The first number that is wrong, of those from 0 to the last one, which is; by halves."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if wrong(middle) else (middle + 1, high)
    return low
