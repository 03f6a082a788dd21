"""The READMEs tell the truth: options, commands and exit codes exist, programs run, commands print what they show."""

from __future__ import annotations

import os
import re
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest

from tests.support import compilers, pages
from torshc.base import errors
from torshc.cli import cli
from torshc.kernels.machine import Machine
from torshc.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "torshc" / "cli" / "README.md").read_text()
PAGES = sorted(
    p for p in ROOT.glob("**/README.md") if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)
)
RUN = [p for p in PAGES if any(block.runs for block in pages.blocks(p.read_text()))]


def options_of(command: click.Command) -> set[str]:
    own = {word for p in command.params if not getattr(p, "hidden", False) for word in p.opts}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*(options_of(c) for c in inner))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples, and the programs that a reader has: `cc`, `python` and `torshc`."""
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    found = {"cc": compilers.needed().cc, "python": sys.executable, "torshc": f"{sys.executable} -m torshc"}
    (tmp_path / "bin").mkdir()
    for name, command in found.items():
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # For an ejected kernel's program, for which Zig by itself would compile its runtime libraries, 17 s of them.
    monkeypatch.setenv("MAKEFLAGS", f"CC={compilers.needed().cc}")
    # More processes than cores, and whoever runs the tests.
    for name in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe"):
        monkeypatch.setenv(f"OMPI_{name}", "1")


def test_every_option_is_in_it() -> None:
    assert {o for o in options_of(cli) if o.startswith("--")} - {"--version", "--help", "--seed", "--seconds"} <= set(
        re.findall(r"--[A-Za-z][A-Za-z0-9-]*", README)
    )


def test_every_command_is_in_it() -> None:
    assert [name for name in cli.commands if not re.search(rf"^\| `{name}\b", README, re.MULTILINE)] == []


@pytest.mark.parametrize("error", errors.TorshcError.__subclasses__(), ids=lambda e: e.__name__)
def test_every_exit_code_is_in_it(error: type[errors.TorshcError]) -> None:
    assert re.search(rf"^\| {error.exit_code} \|", README, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT).parent))
def test_every_option_of_a_page_exists(page: Path) -> None:
    mentioned = set(re.findall(r"(?<![\w,-])--[A-Za-z][A-Za-z0-9-]*", pages.TOOLS.sub("", page.read_text())))
    assert mentioned <= options_of(cli) | {"--version", "--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT).parent))
def test_links_lead_somewhere(page: Path) -> None:
    """Files exist, and a heading is there for each anchor."""
    for target in re.findall(r"\]\(([^):]*)\)", re.sub(r"`[^`\n]*`(?!\])", "", page.read_text())):
        file, _, anchor = target.partition("#")
        other = page.parent / file if file else page
        assert other.exists(), target
        assert not anchor or anchor in {slug(h) for h in re.findall(r"^#+ (.*)", other.read_text(), re.MULTILINE)}, (
            target
        )


@pytest.mark.parametrize("page", RUN, ids=lambda p: str(p.relative_to(ROOT).parent))
def test_a_page_does_what_it_says(page: Path, tools: None) -> None:
    """Its programs run, and its commands print what stands below them."""
    unless = ["build.sh"] if compilers.needed().kind == "zig" else []  # it is for clang and gcc
    unless += [] if shutil.which("mpirun") and shutil.which("mpicc") else ["mpirun"]
    assert pages.follow(page.read_text(), unless) == []


def test_few_blocks_are_not_run() -> None:
    left = [block.text for page in PAGES for block in pages.blocks(page.read_text()) if not block.runs]
    assert len(left) <= 4
    assert all(re.search("cuda|cmake|generate.py", text) for text in left)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT).parent))
def test_transcripts_are_in_console_blocks(page: Path) -> None:
    assert re.findall(r"^    \$ .*", page.read_text(), re.MULTILINE) == []
    assert {block.language for block in pages.blocks(page.read_text())} <= {"console", "python", "c", "json"}


def test_only_figures_may_differ() -> None:
    assert pages.agree("a: 3 nodes,  1.25 s\n...\nend\n", "a: 3 nodes, 12.5 s\nb\nc\nend\n")
    assert not pages.agree("a: 3 nodes, 1.25 s\n", "a: 4 nodes, 1.25 s\n")
    assert not pages.agree("a\n", "a\nb\n")
    assert pages.agree("a: 0 compiled\n", "torshc: compile 5/16 (2 s)\na: 16 compiled\n")


MAPS = [ROOT / name / "README.md" for name in ("templates", "rules", "torshc")]
NAME = re.compile(r"`([\w.*/-]+(?:/|\.(?:py|md|j2|h|c|cu|mm|ll|S|js|css|html|yaml|json|toml)))`")


def files_named(page: Path) -> list[str]:
    return NAME.findall(page.read_text())


@pytest.mark.parametrize("page", MAPS[:2], ids=lambda page: page.parent.name)
def test_every_file_of_a_folder_is_in_its_map(page: Path) -> None:
    """By its name, or with a * in it: a file is found by its name alone."""
    names = {name.rpartition("/")[2] for name in files_named(page)} | set(
        re.findall(r"`([\w.]+\.\*)`", page.read_text())
    )
    files = [f for f in page.parent.rglob("*") if f.is_file() and f != page and "__pycache__" not in f.parts]
    assert [f for f in files if not any(fnmatch(f.name, name) for name in names if name)] == []


def test_every_package_is_in_the_map() -> None:
    page = MAPS[2]
    packages = [f.parent.name for f in page.parent.glob("*/__init__.py")]
    modules = [f.name for f in page.parent.glob("*.py") if f.name != "__init__.py"]
    text = page.read_text()
    assert [name for name in packages if f"`{name}/`" not in text] + [m for m in modules if f"`{m}`" not in text] == []


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.parent.name)
def test_what_a_map_names_exists(page: Path) -> None:
    """From the page's folder, the root, a package or the tests of targets; a file of the folder by its name alone."""
    packages = [f.parent for f in (ROOT / "torshc").glob("*/__init__.py")]
    places = [page.parent, ROOT, ROOT / "torshc", *packages, ROOT / "tests" / "targets"]
    known = {f.name for f in page.parent.rglob("*")} | {
        n for t in TARGETS.values() for n in t(Machine()).header_texts()
    }
    names = [name for name in files_named(page) if Path(name).name not in known]
    assert [name for name in names if not any(next(place.glob(name), None) for place in places)] == []
