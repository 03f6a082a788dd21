"""The fenced blocks of a README, and what happens when a reader does as they say.

A block of JSON, C or Python that follows a file's name in backticks is that file. Other Python is run where it
stands, with the names of the blocks before it. In a console block, lines after ``$`` are run by a shell, and the
lines that follow are what they print; ``...`` stands for any number of lines, and at a line's end for its rest. A block
is left out when the paragraph before or after it says "Not run by the test".
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from torshc.cli import cli

FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([\w.]+\.(?:json|c|py))`(?: is|:)$")
SHELL = set("|&;<>$`\\*~")  # quotes need none
UNTESTED = "Not run by the test"
TOOLS = re.compile(
    r"`(?:make|pip|python|chromium|optimum-cli) [^`]*`|^(?:\$ cmake|\$ python samples/|    dask).*", re.MULTILINE
)  # whose options are not torshc's

# What differs from one run or machine to another: measurements, sizes and kernels that follow from the width of a
# vector, hashes of kernels, how much was found in the cache, and progress.
VARIES = (
    (re.compile(r"^torshc: .* \(\d+ s\)\n", re.MULTILINE), ""),  # progress, where a step takes seconds
    (re.compile(r"(target\s+c), \S+ \S+( \+\S+)*, \d+ f32 lanes"), r"\1, here"),
    (re.compile(r"\bk[0-9a-f]{12}\b"), "kernel"),
    (re.compile(r"\b\d+ launches, \d+ kernels"), "# launches, # kernels"),
    (re.compile(r"<?\b\d+\.\d+(e[-+]\d+)?|\b\d+e[-+]\d+"), "#"),
    (re.compile(r"\b\d+( compiled| kB\b| B\b)"), r"#\1"),
    (re.compile(r"(?<= )-(?=#)"), ""),
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the file that it is, and whether it can be run here."""

    language: str
    text: str
    file: str | None
    runs: bool


@dataclass(frozen=True)
class Step:
    """A command of a console block, and the lines that it prints."""

    command: str
    prints: str


def blocks(page: str) -> Iterator[Block]:
    for found in FENCE.finditer(page):
        before, after = page[: found.start()].rstrip().rpartition("\n\n")[2], page[found.end() :].lstrip()
        after = after.partition("\n\n")[0]
        name = NAMED.search(before)
        yield Block(
            found[1],
            found[2],
            name[1] if name else None,
            UNTESTED not in before and UNTESTED not in after.split("```")[0],
        )


def steps(block: Block) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, prints = part.partition("\n")
        yield Step(command, prints)


def lines(text: str) -> list[str]:
    """Lines without what varies; columns are as wide as their figures, so blanks count as one."""
    for pattern, replacement in VARIES:
        text = pattern.sub(replacement, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def agree(expected: str, printed: str) -> bool:
    """Whether a command printed what the page says."""
    parts = [_pattern(line) for line in lines(expected)]
    here = printed.replace(f"{Path.cwd()}/", "")
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in lines(here))) is not None


def _pattern(line: str) -> str:
    if line == "...":
        return r"(?:.*\n)*"
    return re.escape(line.removesuffix("...")) + (r".*\n" if line.endswith("...") else r"\n")


def run(command: str) -> str:
    """What a command prints, in the current folder; torshc runs in this process where no shell is needed."""
    if command.startswith("torshc ") and not SHELL.intersection(command):
        done = CliRunner().invoke(cli, shlex.split(command)[1:], prog_name="torshc")
        return done.output
    shell = subprocess.run(
        command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return shell.stdout


def follow(page: str, unless: Collection[str] = ()) -> list[str]:
    """Does what the blocks of a page say, in the current folder.

    Args:
        unless: words of commands that cannot be run here.

    Returns:
        What differs, one text a command.
    """
    names: dict[str, Any] = {"__name__": "page"}
    wrong = []
    for block in (b for b in blocks(page) if b.runs):
        if block.file is not None:
            Path(block.file).write_text(block.text)
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(_compiled(block.text), names)
        elif block.language == "console":
            here = [s for s in steps(block) if not any(word in s.command for word in unless)]
            wrong += [f"$ {s.command}\n{out}" for s in here if not agree(s.prints, out := run(s.command))]
    return wrong


def _compiled(text: str) -> Any:
    """Code of a file, since a traced function is read from its source."""
    file = Path(f"block{len(list(Path().glob('block*.py')))}.py")
    file.write_text(text)
    return compile(text, str(file.absolute()), "exec")
