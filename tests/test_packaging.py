"""What a wheel holds: every package, the templates and the rules."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import release
from torshc._version import __version__
from torshc.base import resources

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
    if not shutil.which("git"):
        pytest.skip("needs git")
    done = subprocess.run(["git", "ls-files", "-z", "--stage"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [entry for entry in done.stdout.split("\0") if entry]


def test_nothing_else_lies_in_the_root() -> None:
    allowed = (
        "pyproject.toml torshc templates rules tests samples Makefile README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT"
    )
    there = {entry.partition("\t")[2].split("/")[0] for entry in tracked()}
    assert {name for name in there if not name.startswith(".")} <= set(allowed.split())


def test_no_links() -> None:
    assert [entry for entry in tracked() if entry.startswith("120000")] == []


def test_windows_can_check_out_every_name() -> None:
    """No reserved character or device name, no trailing dot or space, no two names that differ in case only."""
    paths = [entry.partition("\t")[2] for entry in tracked()]
    reserved = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
    assert [p for p in paths if any(reserved.search(part) for part in p.split("/"))] == []
    assert len({p.lower() for p in paths}) == len(paths)


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "torshc._version.__version__"}
    assert release.stated_version(release.VERSION.read_text()) == __version__


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v0.2.0-0-gabc1", "0.2.0"),
        ("v0.1.0-3-gabc1", "0.2.0.dev3+gabc1"),
        ("abc1", "0.2.0.dev0+gabc1"),
        (None, "0.2.0"),
    ],
)
def test_the_version_follows_the_tag(described: str | None, version: str) -> None:
    assert (
        release.version_of("0.2.0", described, "# Changelog\n\n## 0.2.0, of May\n\n- this\n\n## 0.1.0\n- that\n")
        == version
    )


@pytest.mark.parametrize("changelog", ["## Unreleased\n\n- this\n", "## 0.2.0\n\n## 0.1.0\n\n- that\n"])
def test_a_release_has_its_section(changelog: str) -> None:
    with pytest.raises(release.ReleaseError, match=r"no section '## 0\.2\.0'"):
        release.version_of("0.2.0", "v0.2.0-0-gabc1", changelog)


def test_a_tag_of_another_version_is_refused() -> None:
    with pytest.raises(release.ReleaseError, match=r"the tag is v0\.3\.0, and torshc/_version\.py says 0\.2\.0"):
        release.version_of("0.2.0", "v0.3.0-0-gabc1", "## 0.3.0\n\n- this\n")


def test_the_changelog_says_something_of_the_next_release() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert release.section(changelog, "Unreleased") or release.section(changelog, __version__)
