"""Reading manifests: the schema's classes say what each field is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torshc.base.errors import BundleError
from torshc.base.manifest import manifest_hash
from torshc.bundle.weights import WeightsInfo
from torshc.runtime.manifest import read_manifest

from ..bundle import tiny

OPTIONAL = {
    "other_versions",
    "loose",
    "glibc",
    "preferences",
    "uses",
    "custom",
    "tolerances",
    "training",
    "variants",
    "model_sha256",
    "shared",
}


def body() -> dict[str, Any]:
    made = tiny.manifest_of(None, WeightsInfo(64, 1, "0" * 64, (0,)), False, "0" * 64, True)
    found: dict[str, Any] = json.loads(made.to_json())
    return found


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Containers and the keys of what they hold that is none."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            yield from leaves(item)
        else:
            yield value, key


def write(folder: Path, manifest: dict[str, Any]) -> None:
    manifest = {name: value for name, value in manifest.items() if name != "sha256"}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"sha256": manifest_hash(manifest)}))


def test_fields_of_other_types_are_refused(tmp_path: Path) -> None:
    count = sum(1 for _ in leaves(body()))
    assert count > 50
    for number in range(count):
        manifest = body()
        container, key = [*leaves(manifest)][number]
        if (was := container[key]) is None or (container is manifest and key == "sha256"):
            continue
        container[key] = {"of": "another type"}
        write(tmp_path, manifest)
        with pytest.raises(BundleError):
            read_manifest(tmp_path)
            pytest.fail(f"{key}: {was!r}")


def test_fields_that_older_manifests_lack(tmp_path: Path) -> None:
    for name in body().keys() - {"sha256"}:
        manifest = body()
        del manifest[name]
        write(tmp_path, manifest)
        if name in OPTIONAL:
            assert read_manifest(tmp_path).model == manifest["model"]
        else:
            with pytest.raises(BundleError):
                read_manifest(tmp_path)
