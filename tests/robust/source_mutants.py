"""Changes one expression of torshc at a time and runs the tests that mirror its file: what they do not notice.

``python -m tests.robust.source_mutants --seed 0 --count 60``, or ``make mutate``, works on a copy of the checkout. A
mutant survives when the tests of its file pass, and then those of WIDER; a run that does not end counts as noticed.
Survivors are to be read: some mean the same as what they replace.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("ops", "expr", "plan")
WIDER = {"ops": ["tests/ops/test_onnx_cases.py"], "expr": ["tests/expr"], "plan": ["tests/plan", "tests/golden"]}
SECONDS = 180  # of the tests of one mutant
TESTS = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "--tb=no")
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
    """A file with one expression in place of another."""

    file: Path
    line: int
    before: str
    after: str
    text: str


def mutants(file: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    source = file.read_text()
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()
    for node in _expressions(tree):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        for other in _changed(node):
            after = f"({ast.unparse(other)})"
            text = data[:begin] + after.encode() + data[end:]
            yield Mutant(file, node.lineno, data[begin:end].decode(), after, text.decode())


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


def tests_of(file: Path) -> list[str]:
    """The tests that mirror a file, or else those of its folder, or of the folder above."""
    inner = file.relative_to(ROOT / "torshc")
    own = ROOT / "tests" / inner.parent / f"test_{inner.name}"
    folder = own if own.exists() else own.parent
    while not folder.exists():
        folder = folder.parent
    return [str(folder.relative_to(ROOT))]


def notice(place: Path, tests: list[str]) -> bool:
    """Whether tests fail, or do not end."""
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *TESTS, *tests]
    with subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:  # fmt: skip
        try:
            return process.wait(SECONDS) != 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("parts", nargs="*", default=PARTS, help="folders or files of torshc/")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    places = [ROOT / "torshc" / part for part in given.parts]
    files = sorted(f for p in places for f in ([p] if p.is_file() else p.rglob("*.py")))
    every = [m for f in files for m in mutants(f)]
    chosen = draw.sample(every, min(given.count, len(every)))
    sound: dict[str, bool] = {}
    survivors = tried = 0
    with tempfile.TemporaryDirectory(prefix="torshc-mutants-") as folder:
        place = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, place / name)
        for mutant in chosen:
            inner = mutant.file.relative_to(ROOT)
            steps = [tests_of(mutant.file), WIDER.get(inner.parts[1], [])]
            for tests in steps:
                if tests and (key := " ".join(tests)) not in sound:
                    sound[key] = not notice(place, tests)
            (place / inner).write_text(mutant.text)
            usable = [tests for tests in steps if tests and sound[" ".join(tests)]]
            seen = any(notice(place, tests) for tests in usable)
            (place / inner).write_text(mutant.file.read_text())
            tried += bool(usable)
            survivors += bool(usable) and not seen
            word = "noticed" if seen else "SURVIVES" if usable else "its tests fail as they are"
            print(f"{word:9} {inner}:{mutant.line}: {mutant.before!r} -> {mutant.after!r}", flush=True)
    print(f"{survivors} of {tried} mutants survive, of {len(every)} in {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
