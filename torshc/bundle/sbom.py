"""A bill of materials for a bundle, in CycloneDX 1.6: what went into the library, with versions, hashes and licences.

The same bundle has the same text: no time, and a serial number made of the library's hash.
https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base.digest import file_sha256
from ..base.manifest import Manifest
from ..targets.toolchain import LIBRARY
from .package import SBOM, WEIGHTS

_OURS = "MIT OR Apache-2.0"
_LLVM, _GCC = "Apache-2.0 WITH LLVM-exception", "GPL-3.0-or-later WITH GCC-exception-3.1"
_SPACE = uuid.UUID("2f9cbd25-7d52-5b0b-9a34-6f3a6a1d8c11")  # of our serial numbers


def sbom_text(manifest: Manifest, sources: Mapping[str, str], folder: Path) -> str:
    """The bill of materials of a bundle.

    Args:
        manifest: what the bundle is.
        sources: names and SHA-256 of the files that the model was read from; none of a graph.
        folder: the bundle, whose other files are there already.
    """
    name = manifest.prefix or "model"
    library = _component("library", name, hashes=manifest.library_sha256, reference="library")
    parts = [
        _component("library", "torshc-generated", manifest.torshc, _OURS, reference="generated",
                   about="kernels, host program and threads that torshc generated, and its own C that they call"),
        *(_component("machine-learning-model", file, hashes=digest, reference=f"model-{k}",
                     about="read when the bundle was compiled") for k, (file, digest) in enumerate(sources.items())),
        *(_component("file", file.name, hashes=file_sha256(file), reference=f"file-{file.name}")
          for file in _files(folder)),
    ]  # fmt: skip
    if manifest.glibc:
        about = "the oldest C library that the bundle can be loaded with; it is not part of the bundle"
        parts.append(
            _component("library", "glibc", manifest.glibc, "LGPL-2.1-or-later", reference="glibc", about=about)
        )
    tools = [_component("application", "torshc", manifest.torshc, _OURS)]
    tools += [_component("application", tool.name, tool.version, _licence(tool.name)) for tool in manifest.tools]
    serial = uuid.uuid5(_SPACE, manifest.library_sha256 or hashlib.sha256(manifest.to_json().encode()).hexdigest())
    body = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"tools": {"components": tools}, "component": library},
        "components": parts,
        "dependencies": [
            {"ref": "library", "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }
    return json.dumps(body, indent=1, ensure_ascii=True) + "\n"


def _files(folder: Path) -> Iterable[Path]:
    """What a bundle holds beside its library; the manifest is written last, and names the hashes itself."""
    names = (WEIGHTS, *sorted(p.name for p in folder.glob("*.h")), *sorted(p.name for p in folder.glob("*.a")))
    return [folder / name for name in names if (folder / name).is_file() and name not in (LIBRARY, SBOM)]


def _component(
    kind: str, name: str, version: str = "", licence: str = "", hashes: str = "", reference: str = "", about: str = ""
) -> dict[str, Any]:
    found: dict[str, Any] = {"type": kind}
    if reference:
        found["bom-ref"] = reference
    found["name"] = name
    if version:
        found["version"] = version
    if about:
        found["description"] = about
    if hashes:
        found["hashes"] = [{"alg": "SHA-256", "content": hashes}]
    if licence:
        found["licenses"] = [{"expression": licence}]
    return found


def _licence(tool: str) -> str:
    known = {"clang": _LLVM, "zig": _LLVM, "llvmlite": _LLVM, "gcc": _GCC}
    return next((licence for name, licence in known.items() if name in tool), "")
