"""All that torshc reads from files, a function for each form: what is wrong with them ends in an error of the family.

The fuzzer (:mod:`tests.robust.fuzz`) calls these with bytes that it varies, and the tests with a kept corpus.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

import torshc
from tests.support.zoo import zoo
from torshc.base.arrays import Archive, load_array
from torshc.base.budget import parse_budget
from torshc.base.errors import InternalError, TorshcError
from torshc.base.manifest import manifest_hash
from torshc.base.options import CompileOptions, parse_shape, parse_switch
from torshc.base.safetensors import Safetensors
from torshc.explain.data import explain
from torshc.explain.html_form import read_measured, read_roof
from torshc.formats.cut import Cuttable
from torshc.formats.files import model_files, onnx_proto, with_weights
from torshc.passes.manager import read_pipeline
from torshc.passes.rules import read_rules, rules_of
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import check, prepare
from torshc.pipeline.contract import EDITED, FILE, contracts_of
from torshc.pipeline.pinned import with_pinned
from torshc.pipeline.records import HEAD, read_records, tuning_key
from torshc.runtime.manifest import read_manifest
from torshc.training import read_training
from torshc.workbench.feeds import parse_dims, read_inputs
from torshc.workbench.reweigh import set_weights, with_file

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = CompileOptions(mcpu="x86-64-v3", cache=False)
LEVELS = (3, 0, 1, 2)
ADAMW = b"""weights: [linear.*]
loss: {cross_entropy: {target: digit}}
optimizer:
  adamw: {learning_rate: input, beta1: 0.8}
weight_decay: 0.01
clip_norm: 1
"""
Reader = Callable[[Path], object]


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """What is not there, or not right, may be refused; an internal error is a failure, as is any other exception."""
    try:
        yield
    except InternalError:
        raise
    except TorshcError as error:
        assert str(error).strip()


def model(path: Path) -> None:
    """A model of any form: as far as the sources, and what verify, bisect, weights and depfiles read of it."""
    size = path.stat().st_size
    with refused():
        prepare(path, dataclasses.replace(OPTIONS, opt_level=LEVELS[size % 4]))
    for read in (model_files, onnx_proto, check_again):
        with refused():
            read(path)
    with refused():
        parts = Cuttable(path)
        made = [*parts.made][:2]
        for name in made:
            parts.part_bytes(parts.part([name]))
            parts.border(name, 2)
    with refused(), Archive(_weights()) as archive:
        with_weights(path, archive)


def check_again(path: Path) -> None:
    assert check(path, OPTIONS) is not None


def rules(path: Path) -> None:
    with refused():
        read_rules(path)
    with refused():
        rules_of((path,))


def pipeline(path: Path) -> None:
    with refused():
        read_pipeline(path)


def records(path: Path) -> None:
    with refused():
        read_records(path, _sample().target, tuning_key(_sample().target, _sample().isa))


def arrays(path: Path) -> None:
    """A .npy or .npz file, by itself and as an input."""
    with contextlib.suppress(ValueError, OSError):
        load_array(path)
    with contextlib.suppress(ValueError, OSError), Archive(path) as archive:
        for name in archive.names:
            with contextlib.suppress(ValueError):
                archive.array(name)
    with refused():
        read_inputs([str(path)], read_manifest(_bundle()).inputs)


def training(path: Path) -> None:
    """A training step, and the model with it."""
    with refused():
        read_training(path)
    with refused():
        prepare(_model(), dataclasses.replace(OPTIONS, train=path))


def states(path: Path) -> None:
    """A .safetensors file, by itself and as a model's new weights."""
    with contextlib.suppress(ValueError, OSError), Safetensors(path) as found:
        for name in found.names:
            with contextlib.suppress(ValueError):
                found.array(name)
    named = path.with_suffix(".safetensors")
    named.write_bytes(path.read_bytes())
    with refused():
        with_file(_model(), named)


def kernel(path: Path) -> None:
    """The contract beside an edited kernel."""
    place = path.parent / "pins" / "k"
    place.mkdir(parents=True, exist_ok=True)
    (place / FILE).write_bytes(path.read_bytes())
    (place / f"{EDITED}.c").write_text("int k;\n")
    with refused():
        with_pinned(_sample(), place.parent)


def measured(path: Path) -> None:
    """What bench printed, which explain takes."""
    with refused():
        read_measured(path, explain(_sample()))
        read_roof(path)


def manifest(path: Path) -> None:
    """A bundle's manifest, whose hash is made right, as whoever alters one can; no library is loaded."""
    folder = path.parent / "bundle"
    if not folder.exists():
        folder.mkdir()
        for file in _bundle().iterdir():
            if file.is_file():
                (folder / file.name).hardlink_to(file)
        (folder / "manifest.json").unlink()
    data = path.read_bytes()
    with contextlib.suppress(ValueError, RecursionError, AttributeError, TypeError, KeyError):
        body = json.loads(data)
        body.pop("sha256", None)
        data = json.dumps({**body, "sha256": manifest_hash(body)}).encode()
    (folder / "manifest.json").write_bytes(data)
    with refused():
        read_manifest(folder)
    with refused():
        set_weights(folder, _model(), OPTIONS, _weights(), path.parent / "new")


def words(path: Path) -> None:
    """Options of the command line."""
    text = path.read_bytes().decode("utf-8", "replace")
    for parse in (parse_shape, parse_switch, parse_budget):
        with refused():
            parse(text)
    with refused():
        parse_dims([text])


READERS: dict[str, Reader] = {
    "model": model, "rules": rules, "pipeline": pipeline, "records": records, "arrays": arrays, "states": states,
    "training": training, "kernel": kernel, "measured": measured, "manifest": manifest, "words": words,
}  # fmt: skip


# -- what they begin with ----------------------------------------------------------------------------------------------


@cache
def _model() -> Path:
    return ROOT / "samples" / "digits.onnx"


@cache
def _sample() -> Compilation:
    return prepare(_model(), OPTIONS)


def _home() -> Path:
    folder = ROOT / "build" / "fuzz" / "sample"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def _bundle() -> Path:
    torshc.compile(_model(), _home() / "digits.tsc")
    return _home() / "digits.tsc"


@cache
def _weights() -> Path:
    path = _home() / "weights.npz"
    proto = onnx_proto(_model())
    assert proto is not None
    np.savez(path, **{proto.graph.initializer[0].name: np.ones([*proto.graph.initializer[0].dims], np.float32)})
    return path


def seeds(name: str) -> list[bytes]:
    """Good files of a form, to begin with."""
    match name:
        case "model":
            samples = [(ROOT / "samples" / "mlp.json").read_bytes()]
            return samples + [s.model.SerializeToString() for s in zoo().values() if s.model.ByteSize() < 20_000]
        case "rules":
            return [f.read_bytes() for f in sorted((ROOT / "rules").glob("[rf]*/*.yaml"))]
        case "pipeline":
            return [f.read_bytes() for f in sorted((ROOT / "rules" / "pipelines").glob("*.yaml"))]
        case "manifest":
            return [(_bundle() / "manifest.json").read_bytes()]
        case "records":
            line = f"{HEAD}\n[c {torshc.__version__} x86-64-v3 clang-14]\nk0: tile=4,8 # 1.0 us of 2.0\n"
            return [line.encode()]
        case "arrays":
            found = []
            for save in (np.save, np.savez, np.savez_compressed):
                file = io.BytesIO()
                save(file, np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8))
                found.append(file.getvalue())
            return found
        case "states":
            header = b'{"linear.bias":{"dtype":"F32","shape":[10],"data_offsets":[0,40]}}'
            return [len(header).to_bytes(8, "little") + header + bytes(40)]
        case "training":
            return [(ROOT / "samples" / "train_digits.yaml").read_bytes(), ADAMW]
        case "kernel":
            _, contract = next(contracts_of(_sample(), _sample().units[0]))
            return [contract.to_json().encode()]
        case "measured":
            steps = [{"kernel": s, "seconds": 1e-6, "calls": 1} for u in _sample().units for s in u.symbols]
            return [json.dumps({"steps": steps, "roof": {"bytes": 1e9, "flops": {"f32": 1e9}}}).encode()]
        case "words":
            return [b"x:1x3x?x*", b"x:1xseq", b"dead_code=off", b"nodes=100", b"batch=2,seq=64"]
    return []
