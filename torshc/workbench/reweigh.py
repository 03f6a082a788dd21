"""Other weights for a bundle, packed as compilation packs them; the library stays as it is, and no compiler runs."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.arrays import Archive
from ..base.errors import BundleError, ConfigError, OutputError, RunError
from ..base.manifest import FILE, InputValue, PaddedInput, SizeRange, manifest_hash, sizes_text
from ..base.options import CompileOptions
from ..base.safetensors import Safetensors
from ..bundle.layout import weights_layout
from ..bundle.manifest import SCHEMA
from ..bundle.package import WEIGHTS, BundleWriter
from ..bundle.stored import stored_parts
from ..bundle.weights import read_identity
from ..formats.files import with_weights
from ..formats.json_schema import require
from ..formats.model import Misfit
from ..pipeline.compilation import Compilation, manifest_of
from ..pipeline.compiler import prepare_versions
from ..pipeline.job import jobs_of
from ..runtime.manifest import read_manifest
from ..targets import find_target

REMEDY = "compile the model with the new weights"


def set_weights(
    bundle: Path, model: Path, options: CompileOptions, new: Path | None = None, out: Path | None = None
) -> Path:
    """Gives a bundle other weights.

    Args:
        bundle: its folder.
        model: the model that it was compiled from, or one that differs from it in weights only.
        options: those of the compilation; target, level, processor and compiler are those of the bundle.
        new: a file of weights by the model's names, .npz or .safetensors; those that it lacks stay as they are in
            `model`.
        out: the folder to write; `bundle` itself when None.

    Returns:
        The folder that was written.

    Raises:
        BundleError: the bundle cannot be used, or has its weights inside the library.
        ConfigError: a weight does not fit the model, or is part of what was compiled.
    """
    manifest = read_manifest(bundle)  # checks what a run needs of it
    body = _whole(bundle / FILE)
    if manifest.dynamic:
        raise BundleError(f"the sizes in {bundle} are known only at run time, and its weights are fixed", REMEDY)
    if body["weights"] is None or body["weights"]["embedded"]:
        where = "has no weights" if body["weights"] is None else "has its weights inside the library"
        raise BundleError(f"{bundle} {where}", REMEDY)
    options = _as_compiled(options, body)
    done = prepare_versions(with_file(model, new) if new is not None else model, jobs_of(options))
    _check(done, body, bundle)
    with BundleWriter(out or bundle) as writer:
        writer.copy(bundle)
        info = writer.write_weights(
            (stored_parts(w, options.weights_dtype) for w in done[0].program.weights),
            identity=read_identity(bundle / WEIGHTS),
        )
        body["weights"]["sha256"] = info.sha256
        del body["sha256"]
        body["sha256"] = manifest_hash(body)
        return writer.commit(json.dumps(body, indent=1, ensure_ascii=True, allow_nan=False) + "\n")


def _whole(file: Path) -> dict[str, Any]:
    """All of a manifest, whose fields are of the right types.

    Raises:
        BundleError: one is not.
    """
    body: dict[str, Any] = json.loads(file.read_bytes())
    try:
        require(body, json.loads(SCHEMA.read_text(encoding="utf-8")))
    except Misfit as error:
        raise BundleError(f"{file}: {error.message}", "compile the model again") from error
    return body


def _as_compiled(options: CompileOptions, body: Mapping[str, Any]) -> CompileOptions:
    """The options with what the bundle knows of its compilation."""
    isa = body["isa"]
    processor = "+".join((isa["mcpu"], *isa["features"])) if isa["mcpu"] else ""
    known: dict[str, Any] = {
        "target": body["target"], "opt_level": body["opt_level"], "mcpu": processor,
        "profile": body["profile"], "threads": body["threads"],
    }  # fmt: skip
    known["weights_dtype"] = body["weights"].get("dtype", "f32")
    known["loose"] = "auto" if (body.get("loose") or {}).get("form") else "none"
    variants = body.get("variants", ())
    known["observed"] = ()
    known["specialize"] = tuple(map(_case_of, variants))
    stated = (p["name"] for v in variants for p in v.get("padded", ()) if p["stated"])
    known["drop_padding"] = next(stated, "")
    if others := body.get("other_versions"):
        known |= {"mcpu": "native", "isa": tuple(v["isa"]["mcpu"] for v in (body, *others))}
    if "cc" in find_target(body["target"]).options and body["tools"]:
        known["cc"] = body["tools"][0]["name"]
    return dataclasses.replace(options, **known)


def _case_of(variant: Mapping[str, Any]) -> str:
    """What a variant was asked for, by the manifest."""
    guards = (InputValue(**g) for g in variant.get("guards", ()))
    padded = (PaddedInput(**p) for p in variant.get("padded", ()))
    return sizes_text([*(SizeRange(**r) for r in variant["sizes"]), *guards, *padded])


def with_file(model: Path, new: Path) -> bytes:
    """An ONNX model with the weights in a file, .npz or .safetensors, as a model that trains saves it.

    Raises:
        ConfigError: weights that the model does not have, or of another type or shape.
        RunError: the file cannot be read.
    """
    kind = Safetensors if new.suffix == ".safetensors" else Archive
    try:
        with kind(new) as archive:
            return with_weights(model, archive)
    except OSError as error:
        raise RunError(f"{new} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(f"{new} cannot be read as {new.suffix}: {error}") from error


def write_model(model: Path, new: Path, out: Path) -> None:
    """Writes an ONNX model with the weights in a file.

    Raises:
        ConfigError, RunError: as of :func:`with_file`.
        OutputError: it cannot be written.
    """
    data = with_file(model, new)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"cannot write {out}: {error.strerror or error}", "name another file with -o") from error


def _steps(body: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """The steps of all versions in all forms: the kernel's name, and the nodes."""
    forms = [body, *(v["form"] for v in body.get("variants", ())), (body.get("loose") or {}).get("form")]
    for version in body.get("other_versions", ()):
        forms += [version, *(v["form"] for v in version.get("variants", ())), version.get("loose")]
    return [(f["kernels"][s["kernel"]]["symbol"], tuple(s["nodes"])) for f in forms if f for s in f["steps"]]


def _check(done: Sequence[Compilation], body: Mapping[str, Any], bundle: Path) -> None:
    """Whether the library of the bundle reads these weights as it read the old ones.

    Raises:
        ConfigError: it would not; says where it differs.
    """
    made = json.loads(manifest_of(*done).to_json())
    symbols, had = _steps(made), _steps(body)
    first = next((k for k, (a, b) in enumerate(zip(symbols, had, strict=False)) if a[0] != b[0]), None)
    if first is not None:
        names = ", ".join(map(repr, filter(None, symbols[first][1])))
        why = f"the kernel of {names} is another: a weight is part of its source, or the options are others"
    elif len(symbols) != len(had) or made["inputs"] != body["inputs"] or made["outputs"] != body["outputs"]:
        why = "it has other steps, inputs or outputs"
    elif weights_layout(*(form.program for c in done for form in c.forms)) != body["weights"].get("layout"):
        why = "its weights lie otherwise (equal weights are stored once)"
    else:
        return
    raise ConfigError(f"the weights do not fit {bundle}: {why}", f"{REMEDY}, or give the options of the compilation")
