"""What a wheel holds: every package, the templates and the rules."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from torshc import resources

ROOT = Path(__file__).parent.parent


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {p.parent for p in (ROOT / "torshc").rglob("*.py") if "_data" not in p.parts}
    there = {".".join(f.relative_to(ROOT).parts) for f in folders}
    assert there == {p for p in listed if not p.startswith("torshc._data")}


def test_resources_are_found_in_a_checkout() -> None:
    assert (resources.rules("pipelines") / "O3.yaml").is_file()
    assert resources.find_template(["cuda", "c"], "t_vec.h").is_file()
    assert resources.rule_files("rewrites")


def tracked() -> list[str]:
    """Paths that git tracks in this checkout; none in an unpacked archive."""
    done = subprocess.run(["git", "ls-files", "-z", "--stage"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [entry for entry in done.stdout.split("\0") if entry]


def test_no_links() -> None:
    assert [entry for entry in tracked() if entry.startswith("120000")] == []


def test_windows_can_check_out_every_name() -> None:
    """No reserved character or device name, no trailing dot or space, no two names that differ in case only."""
    paths = [entry.partition("\t")[2] for entry in tracked()]
    reserved = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
    assert [p for p in paths if any(reserved.search(part) for part in p.split("/"))] == []
    assert len({p.lower() for p in paths}) == len(paths)
