"""A model that several processes share: cut into ranks, of which each becomes a bundle of its own in one."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .._version import __version__
from ..base.budget import spending
from ..base.clock import Observer
from ..base.digest import file_sha256
from ..base.errors import ConfigError, UnsupportedError
from ..base.features import Feature
from ..base.manifest import FILE, ExchangeInfo, RankInfo, RanksManifest
from ..base.options import CompileOptions
from ..bundle.names import prefix_of
from ..bundle.package import BundleWriter
from ..bundle.ranks import add_mpi, rank_folder
from ..expr import Expr, as_int, to_text
from ..formats import load_graph
from ..formats.devices import ModelDevices, read_devices
from ..graph import Graph
from ..ops import CustomOperators
from ..ops.ranks.collectives import Collective
from ..plan.partition import drop_unneeded, is_plain
from ..sharding import (
    Cut,
    Layouts,
    Sharding,
    Stages,
    choose_splits,
    cut_as_annotated,
    cut_stages,
    layouts_of,
    machine_of,
    read_sharding,
    split_tensors,
)
from ..sharding.config import RANKS_MOST
from ..sharding.cut import Transfer, name_of
from ..targets import TARGETS, find_target
from ..training import Training, read_training
from ..training.optimizers import name_of as name_of_optimizer
from .compilation import Compilation
from .compiler import compile_model, prepare

_AUTOMATIC = re.compile("auto:([0-9]{1,9})")  # in place of a file
_ANNOTATED = re.compile("model(?::(.+))?", re.DOTALL)
_ALONE = ("specialize", "observed", "drop_padding", "named_weights", "kernels", "isa")  # options that ranks do not have


@dataclass(frozen=True)
class Ranks:
    """A model that several processes share.

    Attributes:
        compilations: of each rank.
        cut: the graphs that they were made of, and what ranks exchange.
        warnings: what is amiss with the bundle.
    """

    compilations: tuple[Compilation, ...]
    cut: Cut
    warnings: tuple[str, ...] = ()

    @property
    def on_cards(self) -> bool:
        """Whether each rank has a card, and cards exchange tensors."""
        return _on_cards(self.compilations[0].options)


def prepare_ranks(
    source: str | Path | bytes | Graph, options: CompileOptions, observer: Observer | None = None
) -> Ranks:
    """As :func:`prepare`, for each rank.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    if options.train is not None:
        each, steps = _replicas(options)
        made = [prepare(source, each, observer, training=step) for step in steps]
        return Ranks(tuple(made), _exchanged(made[0].graph))
    cut = cut_model(source, options)
    each = _of_a_rank(options)
    return Ranks(tuple(prepare(graph, each, observer) for graph in cut.graphs), cut)


def compile_ranks(
    source: str | Path | bytes | Graph,
    out: str | os.PathLike[str],
    options: CompileOptions,
    observer: Observer | None = None,
) -> Ranks:
    """Compile a model for several processes and write a bundle with a bundle for each.

    Args:
        source: path or bytes of an ONNX or JSON model, or a graph.
        out: the bundle folder; replaced as a whole when it is one already.

    Raises:
        TorshcError: a member of the family, by cause; nothing is left half-written then.
    """
    if options.emit != "bundle":
        raise ConfigError(f"--shard with --emit {options.emit}", "leave --emit out: a bundle of bundles is written")
    parts: list[tuple[str | Path | bytes | Graph, Training | None]]
    if options.train is not None:
        each, steps = _replicas(options)
        cut, parts = None, [(source, step) for step in steps]
    else:
        each, cut = _of_a_rank(options), cut_model(source, options)
        parts = [(graph, None) for graph in cut.graphs]
    each = dataclasses.replace(each, prefix=options.prefix or prefix_of(Path(out)))
    done, infos = list[Compilation](), list[RankInfo]()
    with BundleWriter(Path(out)) as bundle:
        for k, (part, step) in enumerate(parts):
            folder = bundle.folder / rank_folder(k)
            done.append(compile_model(part, folder, each, observer, training=step))
            infos.append(RankInfo(rank_folder(k), done[-1].weights_bytes, file_sha256(folder / FILE)))
        lacking = add_mpi(bundle)
        cut = cut or _exchanged(done[0].graph)
        bundle.commit(RanksManifest(__version__, done[0].name, each.prefix, tuple(infos), exchanges_of(cut)).to_json())
    warnings = (
        [
            f"{lacking}, so nothing starts MPI: install it (libopenmpi-dev), then sh {Path(out) / 'mpi' / 'build.sh'}; "
            "or start the processes with TORSHC_RANK, TORSHC_WORLD and TORSHC_MEET"
        ]
        if lacking
        else []
    )
    return Ranks(tuple(done), cut, tuple(warnings))


def cut_model(source: str | Path | bytes | Graph, options: CompileOptions) -> Cut:
    """The graphs of the ranks of a model, as the file that is named in the options says.

    Raises:
        ConfigError: the file is wrong, or names what the model does not have; or options do not go with it.
        UnsupportedError: the model's sizes or steps are known only in a run.
    """
    _require_ranks(options)
    automatic = _AUTOMATIC.fullmatch(str(options.shard))
    annotated = _ANNOTATED.fullmatch(str(options.shard))
    sharding = Sharding() if automatic or annotated else read_sharding(_shard_of(options))
    if sharding.replicas:
        raise ConfigError(
            f"{sharding.file}: replicas without --train", "name a training step, or cut into stages or tensors"
        )
    devices = read_devices(source) if annotated and not isinstance(source, Graph) else ModelDevices({}, ())
    with spending(options.budget):
        graph = source
        if not isinstance(graph, Graph):
            graph = load_graph(graph, options.shapes or None, None, frozenset(), CustomOperators(options.ops))
        drop_unneeded(graph)
        if not is_plain(graph):
            found = [n.describe() for n in graph.nodes if n.op.family == "host"] or ["the model"]
            why = "sizes or contents are known only in a run, which no rank can have"
            raise UnsupportedError([f"{who}: {why}" for who in found], "pin the inputs' shapes with --shapes")
        if automatic:
            return _choose(graph, int(automatic[1]), options)
        if annotated:
            asked = cut_as_annotated(graph, devices, annotated[1] or "")
            return cut_stages(graph, asked) if isinstance(asked, Stages) else _split(graph, asked, options)
        return _cut(graph, sharding, options)


def _shard_of(options: CompileOptions) -> Path:
    """The file that says how a model is cut."""
    assert options.shard is not None
    if str(options.shard).startswith("auto:"):
        raise ConfigError(f"--shard {options.shard} names no number of ranks", "write --shard auto:2")
    return options.shard


def _require_ranks(options: CompileOptions) -> None:
    """Refuse targets that have no ranks, and options that do not go with them.

    Raises:
        ConfigError: one of them is there.
    """
    if Feature.RANKS not in find_target(options.target).features:
        able = " or ".join(name for name in sorted(TARGETS) if Feature.RANKS in find_target(name).features)
        raise ConfigError(f"--shard with --target {options.target}", f"ranks are processes: use --target {able}")
    for name in _ALONE:
        if getattr(options, name):
            raise ConfigError(f"--shard with --{name.replace('_', '-')}", "leave one of them out")


def _replicas(options: CompileOptions) -> tuple[CompileOptions, list[Training]]:
    """How each rank of a training step is compiled, and its step.

    Raises:
        ConfigError: the file says another thing than how many there are.
    """
    _require_ranks(options)
    assert options.train is not None
    if _AUTOMATIC.fullmatch(str(options.shard)) or _ANNOTATED.fullmatch(str(options.shard)):
        raise ConfigError(f"--shard {options.shard} with --train", "name a file that says replicas: 2, or as many")
    sharding, training = read_sharding(_shard_of(options)), read_training(options.train)
    count, shared = sharding.replicas, sharding.shard_states
    if not count:
        raise ConfigError(f"--train with stages or parts of tensors in {options.shard}", "ranks train as replicas: 2")
    if training.refuse_nan:
        raise ConfigError(f"{training.file}: refuse_nan with --shard", "leave it out, and look at the loss")
    if shared and not training.optimizer.states and training.accumulate == 1:
        raise ConfigError(
            f"{sharding.file}: optimizer_states: sharded, and {name_of_optimizer(training.optimizer)} keeps none",
            "leave it out",
        )
    steps = [dataclasses.replace(training, rank=rank, ranks=count, shard_states=shared) for rank in range(count)]
    return dataclasses.replace(options, shard=None), steps


def _exchanged(graph: Graph) -> Cut:
    """What the ranks of a training step exchange."""
    found = [n for n in graph.nodes if isinstance(n.op, Collective)]
    return Cut((), tuple(Transfer(-1, -1, n.op.name, name_of(n.operands[0]), n.operands[0].type) for n in found))


def _on_cards(options: CompileOptions) -> bool:
    return Feature.RANKS_ON_CARDS in find_target(options.target).features


def _choose(graph: Graph, ranks: int, options: CompileOptions) -> Cut:
    """The cut that the cost model chooses: with parts of weights where that makes a run shorter, else stages."""
    if not 2 <= ranks <= RANKS_MOST:
        raise ConfigError(
            f"--shard auto:{ranks}: torshc cuts a model for 2 to {RANKS_MOST} ranks", "write --shard auto:2"
        )
    found = choose_splits(graph, ranks, machine_of(_on_cards(options), options.precision))
    if found is None:
        return dataclasses.replace(cut_stages(graph, Stages(ranks, where="--shard auto")), chosen=f"stages: {ranks}\n")
    return dataclasses.replace(_split(graph, layouts_of(graph, found), options), chosen=found.text)


def _cut(graph: Graph, sharding: Sharding, options: CompileOptions) -> Cut:
    if sharding.stages is not None:
        return cut_stages(graph, sharding.stages)
    assert sharding.tensors is not None
    return _split(graph, layouts_of(graph, sharding.tensors), options)


def _split(graph: Graph, layouts: Layouts, options: CompileOptions) -> Cut:
    return split_tensors(graph, layouts, _on_cards(options))


def exchanges_of(cut: Cut) -> tuple[ExchangeInfo, ...]:
    """What ranks exchange, for the manifest."""
    return tuple(
        ExchangeInfo(t.kind, t.source, t.target, t.name, t.type.dtype.name, tuple(map(_size, t.type.shape)))
        for t in cut.transfers
    )


def _size(e: Expr) -> int | str:
    known = as_int(e)
    return to_text(e) if known is None else known


def _of_a_rank(options: CompileOptions) -> CompileOptions:
    return dataclasses.replace(options, shard=None, ops=(), shapes={})
