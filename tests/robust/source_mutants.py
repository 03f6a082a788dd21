"""Changes one expression of torshc at a time and runs the tests that compute it: what they do not notice.

``python -m tests.robust.source_mutants --seed 0 --count 60``, or ``make mutate``, works on a copy of the checkout that
holds all changes of a run at once, each behind a switch (:mod:`.mutant_switch`). The tests of NOTED run once with none
in force, which tells which of them compute which expression and how long they take. Then each change is put in force
for tests that compute it: of each test function the quickest case first, up to SECONDS. A mutant survives when all of
these pass; a run that does not end counts as noticed. What no test computes is said to be met by none, and survives.
Survivors are to be read: some mean the same as what they replace.

``--notes FILE`` keeps what the run without changes told, for another one of the same seed, count and sources.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("ops", "expr", "plan")
NOTED = ("expr", "graph", "ops", "plan", "passes", "gradient", "kernels", "formats", "pipeline", "golden")
SECONDS = 40  # of the tests of one mutant, as long as they took without it
TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "sitecustomize", "--no-header", "--tb=no")
COPIED = ("torshc", "tests", "rules", "templates", "samples", "pyproject.toml", "README.md", "Makefile")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A file with one expression, from byte `begin` to byte `end`, in place of another."""

    file: Path
    line: int
    begin: int
    end: int
    before: str
    after: str


def mutants(file: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    data = file.read_bytes()
    starts = [0, *itertools.accumulate(len(line) for line in data.splitlines(keepends=True))]
    for node in _expressions(ast.parse(data)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        for other in _changed(node):
            yield Mutant(file, node.lineno, begin, end, data[begin:end].decode(), ast.unparse(other))


def draw(every: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """As many mutants, no two of which are parts of one expression."""
    chosen: list[Mutant] = []
    for m in random.Random(seed).sample(every, len(every)):
        apart = all(m.file != c.file or m.end <= c.begin or c.end <= m.begin for c in chosen)
        if len(chosen) < count and apart and _compiles(m):
            chosen.append(m)
    return chosen


def _compiles(m: Mutant) -> bool:
    """Whether there may be a choice in the expression's place, as in most patterns of a match there may not."""
    try:
        compile(with_switches(m.file.read_bytes(), [(0, m)]), str(m.file), "exec")
    except SyntaxError:
        return False
    return True


def with_switches(source: bytes, numbered: Sequence[tuple[int, Mutant]]) -> bytes:
    """The text of a file with a choice in place of each expression."""
    for k, m in sorted(numbered, key=lambda pair: -pair[1].begin):
        choice = f"(({m.after}) if torshc_mutant({k}) else ({m.before}))"  # the name is one of builtins
        source = source[: m.begin] + choice.encode() + source[m.end :]
    return source


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions that compute: none of annotations, messages, decorators, texts, or what only type checkers read."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.expr):
            yield node
        skipped: set[int] = set()
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or _is_typing(node):
            continue
        for name in ("annotation", "returns", "decorator_list", "bases"):
            found = getattr(node, name, None)
            skipped |= {id(x) for x in (found if isinstance(found, list) else [found])}
        pending.extend(x for x in ast.iter_child_nodes(node) if id(x) not in skipped)


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _changed(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [op], [right]):
            yield ast.Compare(left, [_COMPARISONS[type(op)]()], [right])
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
            yield values[0]
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, other):
            yield ast.IfExp(test, other, body)
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(op)](), right)
            if isinstance(op, ast.Sub | ast.FloorDiv | ast.Mod):
                yield ast.BinOp(right, op, left)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)


def mirror_of(file: Path) -> str:
    """The tests that mirror a file, or else those of its folder, or of the folder above."""
    inner = file.relative_to(ROOT / "torshc")
    own = ROOT / "tests" / inner.parent / f"test_{inner.name}"
    folder = own if own.exists() else own.parent
    while not folder.exists():
        folder = folder.parent
    return str(folder.relative_to(ROOT))


@dataclass(frozen=True)
class Place:
    """A copy of the checkout, with a cache of its own."""

    folder: Path

    def fill(self, chosen: Sequence[Mutant]) -> None:
        """Copy the checkout and write all mutants into it."""
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, self.folder / name)
        shutil.copy(Path(__file__).with_name("mutant_switch.py"), self.folder / "sitecustomize.py")
        by_file: defaultdict[Path, list[tuple[int, Mutant]]] = defaultdict(list)
        for k, m in enumerate(chosen):
            by_file[m.file].append((k, m))
        for file, numbered in by_file.items():
            (self.folder / file.relative_to(ROOT)).write_bytes(with_switches(file.read_bytes(), numbered))

    def test(self, tests: Sequence[str], seconds: float | None = None, **environment: str) -> bool:
        """Whether tests pass, and end in time."""
        own = {"PYTHONPATH": str(self.folder), "TORSHC_CACHE_DIR": str(self.folder / "cache")}
        process = subprocess.Popen(  # a group of its own, since tests start processes
            [sys.executable, *TESTS, *tests],
            cwd=self.folder,
            env={**os.environ, **own, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with process:
            try:
                return process.wait(seconds) == 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return False


@dataclass
class Notes:
    """What the run without changes told.

    Attributes:
        seconds: how long each test takes.
        met: the tests that met each mutant, without those met by imports.
        imported: the mutants that imports met.
    """

    seconds: dict[str, float]
    met: defaultdict[int, set[str]]
    imported: set[int]

    @classmethod
    def read(cls, file: Path) -> Notes:
        """Notes as the switch writes them."""
        notes = cls({}, defaultdict(set), set())
        for line in map(json.loads, file.read_text().splitlines()):
            if not line["test"]:
                notes.imported.update(line["met"])
                continue
            notes.seconds[line["test"]] = line["seconds"]
            for k in line["met"]:
                notes.met[k].add(line["test"])
        return notes

    def choose(self, k: int, mutant: Mutant) -> list[str]:
        """The tests that are to notice a mutant: of each function the quickest case first, the mirror's before others.

        What only imports compute, as the default of a field, has those of its mirror.
        """
        mirror = mirror_of(mutant.file)
        found = self.met[k] or {t for t in self.seconds if t.startswith(mirror) and k in self.imported}
        cases: defaultdict[str, int] = defaultdict(int)  # of a test function, those that are quicker
        order = []
        for test in sorted(found, key=self.seconds.__getitem__):
            function = test.partition("[")[0]
            order.append((cases[function], not test.startswith(mirror), self.seconds[test], test))
            cases[function] += 1
        chosen, total = list[str](), 0.0
        for *_, seconds, test in sorted(order):
            if not chosen or total + seconds <= SECONDS:
                chosen.append(test)
                total += seconds
        return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1, help="of the run without changes")
    parser.add_argument("--notes", type=Path, help="what the run without changes told; written where it is not there")
    parser.add_argument("parts", nargs="*", default=PARTS, help="folders or files of torshc/")
    given = parser.parse_args()
    places = [ROOT / "torshc" / part for part in given.parts]
    files = sorted(f for p in places for f in ([p] if p.is_file() else p.rglob("*.py")))
    every = [m for f in files for m in mutants(f)]
    chosen = draw(every, given.count, given.seed)
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="torshc-mutants-") as folder:
        place = Place(Path(folder))
        place.fill(chosen)
        file = (given.notes or place.folder / "notes.jsonl").absolute()
        if not file.exists():
            began = time.monotonic()
            place.test(["-n", str(given.jobs), *(f"tests/{name}" for name in NOTED)], TORSHC_MUTANT_NOTES=str(file))
            print(f"tests without changes took {time.monotonic() - began:.0f} s", flush=True)
        notes = Notes.read(file)
        for k, m in enumerate(chosen):
            tests = notes.choose(k, m)
            seconds = sum(notes.seconds[t] for t in tests)
            seen = bool(tests) and not place.test(["-n", "0", "-x", *tests], 60 + 5 * seconds, TORSHC_MUTANT=str(k))
            survivors += not seen
            word = "noticed" if seen else "SURVIVES" if tests else "met by none"
            where = f"{m.file.relative_to(ROOT)}:{m.line}"
            print(f"{word:11} {where}: {m.before!r} -> {m.after!r}, {len(tests)} tests of {seconds:.0f} s", flush=True)
    print(f"{survivors} of {len(chosen)} mutants survive, of {len(every)} in {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
