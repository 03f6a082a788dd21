"""Builds what a release holds, and tries it: ``python -m tests.release [FOLDER]``, which `make dist` runs.

An archive of the sources and a wheel are built from the commit that is checked out, so that nothing else gets in. The
wheel is made from the archive, installed in an environment of its own, and tried outside of the checkout: it compiles
the sample model, verifies it and classifies images.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = ROOT / "torshc" / "_version.py"
TRIAL = """
import sys, numpy, torshc
assert torshc.__file__.startswith(sys.prefix), torshc.__file__
with numpy.load("digits_test.npz") as data:
    images, labels = data["images"], data["labels"]
answers = torshc.load("digits.tsc").run({"image": images})["probability"].argmax(axis=1)
right = (answers == labels).mean()
print(f"{right:.1%} of {len(labels)} images")
assert right > 0.95
"""


class ReleaseError(Exception):
    """Why this commit cannot be released."""


def version_of(next_version: str, described: str | None, changelog: str) -> str:
    """The version of a commit.

    Args:
        next_version: what `torshc/_version.py` says: the version of this release or of the next one.
        described: `git describe --tags --long`, such as "v0.1.0-3-gabc", a hash where no tag is, None without git.
        changelog: the text of CHANGELOG.md.

    Returns:
        The tag's version where the commit is tagged; else one before the next version, with the commit's hash.

    Raises:
        ReleaseError: the tag is another version than the file says, or the changelog lacks it.
    """
    if described is None:
        return next_version
    tagged = re.fullmatch(r"v(\S+)-(\d+)-g([0-9a-f]+)", described)
    if tagged is None or tagged[2] != "0":
        count, commit = (tagged[2], tagged[3]) if tagged else ("0", described)
        return f"{next_version}.dev{count}+g{commit}"
    if tagged[1] != next_version:
        raise ReleaseError(f"the tag is v{tagged[1]}, and torshc/_version.py says {next_version}")
    if not section(changelog, next_version):
        raise ReleaseError(f"CHANGELOG.md has no section '## {next_version}': give Unreleased that name")
    return next_version


def section(changelog: str, version: str) -> str:
    """What the changelog says of a version; empty when it says nothing."""
    found = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def stated_version(text: str) -> str:
    """The version in the text of `_version.py`."""
    (value,) = (node.value for node in ast.parse(text).body if isinstance(node, ast.Assign))
    return str(ast.literal_eval(value))


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command; its output, and the end of this program where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def sources(folder: Path) -> Path:
    """The commit's files in a new folder, with their version."""
    if not (ROOT / ".git").exists():
        return ROOT
    if run("git", "status", "--porcelain").strip():
        raise ReleaseError("there are changes that are not committed: commit them first, or stash them")
    described = run("git", "describe", "--tags", "--long", "--always", "--match", "v[0-9]*").strip()
    stated = stated_version(VERSION.read_text())
    version = version_of(stated, described, (ROOT / "CHANGELOG.md").read_text())
    run("git", "archive", "-o", folder / "commit.tar", "HEAD")
    with tarfile.open(folder / "commit.tar") as archive:
        archive.extractall(folder / "source", filter="data")
    file = folder / "source" / VERSION.relative_to(ROOT)
    file.write_text(file.read_text().replace(stated, version))
    return folder / "source"


def build(source: Path, out: Path) -> list[Path]:
    """An archive of the sources, and the wheel that is made of it."""
    run(sys.executable, "-m", "build", "--outdir", out, source)
    made = sorted(
        p for p in out.iterdir() if f"-{stated_version((source / 'torshc/_version.py').read_text())}" in p.name
    )
    run(sys.executable, "-m", "twine", "check", "--strict", *made)
    return made


def try_wheel(wheel: Path, version: str, folder: Path) -> str:
    """Installs the wheel where nothing else is, and uses it outside of the checkout; what it printed."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    run(sys.executable, "-m", "pip", "--quiet", "--python", folder / "env", "install", f"{wheel}[toolchain]")
    torshc, python = folder / "env" / "bin" / "torshc", folder / "env" / "bin" / "python"
    for name in ("digits.onnx", "digits_test.npz"):
        (folder / name).write_bytes((ROOT / "samples" / name).read_bytes())
    told = run(torshc, "--version", cwd=folder)
    if version not in told:
        raise ReleaseError(f"the wheel of {version} says that it is {told}")
    run(torshc, "explain", "digits.onnx", "--format", "html", "-o", "page.html", cwd=folder)
    shown = run(torshc, "compile", "digits.onnx", "-o", "digits.tsc", "--no-cache", cwd=folder)
    shown += run(torshc, "verify", "digits.onnx", "--bundle", "digits.tsc", cwd=folder)
    return told + shown + run(python, "-c", TRIAL, cwd=folder)


def main(out: str = "dist") -> int:
    """Builds and tries; 1 where something is wrong."""
    with tempfile.TemporaryDirectory(prefix="torshc-release-") as name:
        folder = Path(name)
        try:
            source = sources(folder)
            made = build(source, Path(out).resolve())
            version = stated_version((source / "torshc" / "_version.py").read_text())
            print(try_wheel(next(p for p in made if p.suffix == ".whl"), version, folder), end="")
        except ReleaseError as error:
            print(f"make dist: {error}", file=sys.stderr)
            return 1
    for file in made:
        print(f"{file.stat().st_size / 1024:8.0f} KiB  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
