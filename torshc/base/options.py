"""What a compilation is asked for: one frozen dataclass, checked when it is made."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .budget import check_limits
from .errors import ConfigError, did_you_mean

FUSION_MODES = ("none", "conservative", "default", "aggressive")
PRECISIONS = ("f32", "tf32", "f16", "bf16")
ACCURACIES = ("exact", "rounding", "1e-5", "2e-5", "1e-3", "1e-2")
USUAL_ACCURACY = "2e-5"  # of -O3
LOOSE_FORMS = ("auto", "none")
WEIGHT_DTYPES = ("f32", "f16", "bf16", "f8")
LARGE = 4096  # elements of a weight that is stored so; fewer save little, and are often scales and biases of channels
# Options that were, and what there is instead.
REMOVED = {"winograd": "-O3 takes Winograd's method by itself where accuracy lets it: 'exact', 'rounding', '1e-5', ..."}
HALVES = ("f16", "bf16")  # those that operands are stored in
# Fields that not all targets use; of each of them a target says that it does.
OF_SOME_TARGETS = frozenset(
    {
        "arch", "cc", "exact_batches", "isa", "mcpu", "named_weights", "scheduler", "train", "triple", "tuning_records",
        "weights_dtype",
    }
)  # fmt: skip
EMIT_KINDS = ("source", "objects", "bundle", "archive", "page")
# What every bundle has (model.h, torshc_run, t_pool_run), and what systems call libraries of their own (libm.so).
_WORDS = """
    model torshc t anl c c_nonshared crypt crypto cuda cudart dl gcc gcc_s ld m mvec ncurses nsl omp pthread resolv rt
    ssl stdc System thread_db util z zstd
"""
PREFIX_WORDS = frozenset(_WORDS.split())
_BYTES = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{i}b": base**k for i, base in (("", 1000), ("i", 1024)) for k, letter in enumerate("kmgt", 1)
}
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")
_SCHEDULER = re.compile(r"(tcp|tls)://[A-Za-z0-9.\-\[\]:_]{1,255}\Z")
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,=")


@dataclass(frozen=True)
class CompileOptions:
    """Options of a compilation.

    Attributes:
        target: name of the target: "c", "llvm", "cuda", "metal" or "webgpu".
        opt_level: 0 (each node a kernel of its own) to 3.
        mcpu: processor to compile for, a name that the compiler knows, or "native".
        triple: machine to compile for where it is another than this, as in "aarch64-linux-gnu"; empty for this one.
        isa: levels of x86-64 ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "x86-64-v4-fp16",
            "x86-64-v4-amx") or of AArch64 ("armv8-a", "armv8.2-a-dotprod", "armv8.2-a-bf16"), for each of which the
            library has a version, chosen when it is opened; empty for ``mcpu`` alone.
        arch: architecture where a target has several (a GPU's), empty for the default.
        shapes: input name to its dimensions, which pin symbolic ones; a string gives a symbol another name, None leaves
            one as it is.
        fusion: how far nodes are joined into kernels: "none", "conservative", "default", "aggressive"; empty for what
            the pipeline says.
        max_fusion_size: largest number of nodes in one kernel; None for what the rules say.
        pipeline: a pipeline file in place of that of the optimisation level.
        rules: further files of rewrites and fusion rules.
        ops: files of Python that declare operators (``from torshc import ops``), which are run.
        kernels: folder of edited kernels, as ``torshc eject`` writes them, to use in place of the generated ones.
        tuning_records: file of choices that ``torshc tune`` measured, for kernels of this target and machine.
        passes: pass name to True (on) or False (off), overriding the pipeline.
        jobs: compilers that run at once; 0 means one a processor.
        scheduler: address of a Dask scheduler, as "tcp://host:8786", whose workers compile; this machine when empty.
        cache: use the kernel cache.
        workdir: folder for intermediate files; a temporary one when None.
        keep_intermediates: leave the sources in the bundle, and all intermediate files where a build failed.
        dump: folder for the graph's text after each pass that changed it.
        embed_weights: put the weights inside the library.
        loose: "auto" gives a model whose sizes may be 1 and broadcast a second, loose form for runs in which they are;
            "none" leaves it out, and such runs are refused.
        specialize: sizes, and values of inputs, that the library has a variant of the model for, as texts such as
            "batch=1,8 seq=64..128 mask=1": all combinations of a text, which runs with these sizes and values take;
            "@FILE" stands for a file's lines.
        drop_padding: an input of two dimensions whose zeros say which rows of others are padding: the library has a
            variant that leaves these out. They mean nothing, so that outputs are 0 there. Empty for none.
        observed: files of what runs saw (``TORSHC_PROFILE``), or what their names begin with: the library has variants
            for the sizes in which most time goes, with the values that inputs have in most of these runs.
        accuracy: bounds what may be chosen of kernels whose results round otherwise than the model's products and sums
            do. "exact": none; "rounding": those whose expected error is no larger than that of plain sums in their
            type; a number: all with which the model's expected error is at most this part of its largest output. Empty
            for what the level has: "2e-5" of -O3, "exact" of others, at which there is no other kernel whatever this
            says. One that is given and that the model cannot keep with this ``precision`` and ``weights_dtype`` is
            refused.
        exact_batches: let the bits of a row not depend on how many rows there are, either, where that costs time:
            attention of one query, whose scores then take twice the time, and variants (``specialize``) for few rows,
            whose products then sum as those for many do.
        precision: element type of the operands of products, convolutions and attention where the model has f32: "f32"
            as it says, or "f16" or "bf16", which are summed in f32; all else stays f32. On a processor without
            instructions for bf16 weights alone are. "tf32" leaves f32 in memory, and lets tensor cores round factors of
            products and convolutions to 2^-11 of each (CUDA, sm_80 and newer; what has no such units computes in f32).
        weights_dtype: what large weights of f32 (two or more dimensions, 4,096 elements) are in the bundle: "f32",
            or "f16", "bf16" or "f8", f32 again when it is opened. Error class: 2^-11 (f16), 2^-8 (bf16) or 2^-4 (f8) of
            each weight; f8 also 2^-17 of the largest of 32 that share a scale.
        sbom: write a bill of materials (CycloneDX) into the bundle.
        train: file of a training step (YAML): the library trains the model's weights instead of running it.
        train_memory: most bytes of memory that an open model which trains has in a step: its states, weights and
            intermediate values, without threads' scratch; 0 for any. What does not fit is computed again.
        serve_while_training: write a second bundle into the first, in ``serve/``, which runs the model with the weights
            that training hands over.
        shard: file that cuts the model into ranks, processes that share it (YAML); "auto:4" for as a cost model
            chooses, "model" (or "model:NAME") for as ONNX's annotations in it say; the whole model when None.
        named_weights: let the library take other weights by the model's names (``torshc_set_tensors``).
        profile: let the library time its kernels.
        cc: the C compiler to use; found by itself when empty.
        emit: "source", "objects", "bundle", "archive", a bundle with a static library too, or "page",
            what a browser runs, without a library.
        fallback: allow a target to hand kernels that it lacks to the C target.
        threads: threads that the library uses unless its caller says otherwise; 0 means one a processor.
        prefix: what the names of the library's functions and its header begin with; made from the bundle's name when
            empty.
        budget: limits in place of the usual, by the names of :class:`torshc.base.budget.Budget`.

    Raises:
        ConfigError: when a field has a value that it cannot have.
    """

    target: str = "c"
    opt_level: int = 3
    mcpu: str = "native"
    triple: str = ""
    isa: tuple[str, ...] = ()
    arch: str = ""
    shapes: Mapping[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    fusion: str = ""
    max_fusion_size: int | None = None
    pipeline: Path | None = None
    rules: tuple[Path, ...] = ()
    ops: tuple[Path, ...] = ()
    kernels: Path | None = None
    tuning_records: Path | None = None
    passes: Mapping[str, bool] = field(default_factory=dict)
    jobs: int = 0
    scheduler: str = ""
    cache: bool = True
    workdir: Path | None = None
    keep_intermediates: bool = False
    dump: Path | None = None
    embed_weights: bool = False
    loose: str = "auto"
    specialize: tuple[str, ...] = ()
    drop_padding: str = ""
    observed: tuple[Path, ...] = ()
    accuracy: str = ""
    exact_batches: bool = False
    precision: str = "f32"
    weights_dtype: str = "f32"
    sbom: bool = False
    train: Path | None = None
    train_memory: int = 0
    serve_while_training: bool = False
    shard: Path | None = None
    named_weights: bool = False
    profile: bool = False
    cc: str = ""
    emit: str = "bundle"
    fallback: bool = True
    threads: int = 1
    prefix: str = ""
    budget: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_kinds(self)
        if self.fusion:
            _choice("fusion", self.fusion, FUSION_MODES)
        if self.accuracy:
            _choice("accuracy", self.accuracy, ACCURACIES)
        _choice("precision", self.precision, PRECISIONS)
        _choice("weights_dtype", self.weights_dtype, WEIGHT_DTYPES)
        _choice("loose", self.loose, LOOSE_FORMS)
        _choice("emit", self.emit, EMIT_KINDS)
        _between("opt_level", self.opt_level, 0, 3)
        if self.train is not None and (self.specialize or self.observed or self.drop_padding):
            what = "--train with --specialize, --observed or --drop-padding"
            raise ConfigError(what, "leave it out: a step has one form")
        if not all(isinstance(text, str) for text in self.specialize):
            raise ConfigError(f"specialize is {self.specialize!r}", "give texts such as 'batch=1,8 seq=64..128'")
        if self.train_memory:
            _between("train_memory", self.train_memory, 1, 2**63 - 1)
            if self.train is None:
                raise ConfigError("--train-memory without --train", "leave it out, or name a training step")
        if self.serve_while_training:
            if self.train is None:
                raise ConfigError("--serve-while-training without --train", "leave it out, or name a training step")
            if self.emit != "bundle" or self.shard is not None:
                other = "--shard" if self.shard is not None else f"--emit {self.emit}"
                raise ConfigError(f"--serve-while-training with {other}", "leave it out: it is for whole bundles")
        if self.train is not None and self.named_weights:
            remedy = "leave --named-weights out: a library that trains loads its weights from state files"
            raise ConfigError("--train with --named-weights", remedy)
        if self.max_fusion_size is not None:
            _between("max_fusion_size", self.max_fusion_size, 1, 4096)
        _between("jobs", self.jobs, 0, 1024)
        _between("threads", self.threads, 0, 1024)
        for name in ("target", "mcpu", "triple", "arch"):
            # These become words of a compiler's command line and parts of file names.
            value = getattr(self, name)
            if not isinstance(value, str) or value.startswith("-") or not _SAFE.issuperset(value):
                raise ConfigError(f"{name} {value!r} holds characters that are not allowed")
        if self.scheduler and not _SCHEDULER.match(self.scheduler):
            raise ConfigError(
                f"scheduler {self.scheduler[:80]!r} is no address", "write tcp://host:8786, or tls:// with certificates"
            )
        if self.prefix and (not is_prefix(self.prefix) or self.prefix in PREFIX_WORDS):
            why = "is a library's of the system, or torshc's" if is_prefix(self.prefix) else "cannot begin names in C"
            raise ConfigError(
                f"prefix {self.prefix!r} {why}", "take a letter, then letters, digits and _, at most 64 of them"
            )
        for name, shape in self.shapes.items():
            _check_shape(name, shape)
        check_limits(self.budget)

    @classmethod
    def create(cls, **fields: Any) -> CompileOptions:
        """Options from keywords; paths may be strings.

        Raises:
            ConfigError: for an unknown keyword, with what was meant.
        """
        known = [f.name for f in dataclasses.fields(cls)]
        for name in fields:
            if name in REMOVED:
                raise ConfigError(f"there is no option {name!r} any more", REMOVED[name])
            if name not in known:
                raise ConfigError(
                    f"there is no option {name!r}{did_you_mean(name, known)}", f"known: {', '.join(known)}"
                )
        for name in ("pipeline", "kernels", "tuning_records", "train", "shard", "workdir", "dump"):
            if fields.get(name) is not None:
                fields[name] = _path(name, fields[name])
        for name in {"rules", "ops", "observed"} & fields.keys():
            given = fields[name]
            several = isinstance(given, Iterable) and not isinstance(given, str)
            fields[name] = tuple(_path(name, p) for p in (given if several else [given] if given else ()))
        if "specialize" in fields:
            given = fields["specialize"] or ()
            fields["specialize"] = (given,) if isinstance(given, str) else tuple(given)
        if "isa" in fields:
            given = fields["isa"] or ()
            if not isinstance(given, Iterable) or not all(isinstance(level, str) for level in given):
                raise ConfigError(f"isa is {given!r}", "give levels such as 'x86-64-v2,x86-64-v3'")
            fields["isa"] = tuple(given.split(",") if isinstance(given, str) else given)
        if "shapes" in fields:
            given = fields["shapes"] or {}
            if not isinstance(given, Mapping) or not all(isinstance(s, Sequence) for s in given.values()):
                raise ConfigError(f"shapes is {given!r}", "give a dictionary, such as {'x': (1, 3, 224, 224)}")
            fields["shapes"] = {n: tuple(s) for n, s in given.items()}
        return cls(**fields)

    @property
    def workers(self) -> int:
        """Number of compilers to run at once."""
        return self.jobs or os.cpu_count() or 1


def is_prefix(text: str) -> bool:
    """Whether names in C may begin with it."""
    return bool(_PREFIX.match(text))


def parse_bytes(text: str) -> int:
    """A number of bytes, with a unit or without.

    Raises:
        ConfigError: when the text is something else.

    >>> [parse_bytes(t) for t in ("4GiB", "1.5MB", "800")]
    [4294967296, 1500000, 800]
    """
    found = _BYTES.fullmatch(text)
    scale = _UNITS.get(found[2].lower()) if found else None
    if found is None or scale is None or float(found[1]) * scale >= 2**63:
        raise ConfigError(f"{text!r} is no number of bytes", "write one such as 4GiB, 800MB or 1000000")
    return int(float(found[1]) * scale)


def parse_shape(text: str) -> tuple[str, tuple[int | str | None, ...]]:
    """An input's name and dimensions from ``name:1x3x224x224``; ``?`` leaves a dimension as it is.

    The last colon divides, as names may hold colons. An empty list of dimensions is a scalar.

    Raises:
        ConfigError: when the text is not of this form.

    >>> parse_shape("x:1x3xheight")
    ('x', (1, 3, 'height'))
    """
    name, colon, dims = text.rpartition(":")
    if not colon or not name:
        raise ConfigError(f"{text!r} is not a shape", "write name:1x3x224x224")
    parts = dims.split("x") if dims else []
    if any(not p or len(p) > 1000 for p in parts):
        raise ConfigError(f"{text[:80]!r} has an empty dimension, or an endless one", "write name:1x3x224x224")
    shape = tuple(int(p) if p.isdecimal() and p.isascii() else None if p == "?" else p for p in parts)
    _check_shape(name, shape)
    return name, shape


def parse_switch(text: str) -> tuple[str, bool]:
    """A pass's name and whether it runs, from ``name=on`` or ``name=off``.

    Raises:
        ConfigError: when the text is not of this form.

    >>> parse_switch("fold_constants=off")
    ('fold_constants', False)
    """
    name, _, state = text.partition("=")
    if state not in ("on", "off") or not name:
        raise ConfigError(f"{text!r} is not a switch", "write NAME=on or NAME=off")
    return name, state == "on"


def _check_shape(name: str, shape: Sequence[int | str | None]) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"shapes has {name!r}, which is no input's name")
    for d in shape:
        if isinstance(d, bool) or not isinstance(d, int | str | None):
            raise ConfigError(f"the shape of {name!r} holds {d!r}, which is not a dimension")
        if isinstance(d, int) and not 0 <= d < 2**48:
            raise ConfigError(f"the shape of {name!r} holds {d}, which is out of range")
        if isinstance(d, str) and not d.isidentifier():
            raise ConfigError(f"the shape of {name!r} holds {d!r}, which is neither a size nor a name")


_KINDS: Mapping[str, tuple[type, str]] = {"bool": (bool, "True or False"), "str": (str, "text")}


def _check_kinds(options: CompileOptions) -> None:
    """Raises ConfigError for a value of another type, which would be taken for true or fail somewhere else."""
    for f in dataclasses.fields(options):
        value = getattr(options, f.name)
        kind, words = _KINDS.get(str(f.type), (object, ""))
        if not isinstance(value, kind):
            raise ConfigError(f"{f.name} is {value!r}, but must be {words}")
        if str(f.type).startswith("Mapping") and not isinstance(value, Mapping):
            raise ConfigError(f"{f.name} is {value!r}, but must be a dictionary")


def _path(name: str, value: Any) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{name} is {value!r}, which is no path")
    return Path(value)


def _choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{name} cannot be {value!r}{did_you_mean(str(value), known)}", f"one of: {', '.join(known)}")


def _between(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}, but must be a whole number from {low} to {high}")
