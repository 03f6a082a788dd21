"""The layers hold: a module imports only from layers before its own, and third-party packages only where they belong.

The map stands in ``torshc/README.md``; this file is what enforces it. Imports inside functions count. Imports for type
checking only do not: they name a type, and nothing is loaded.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "torshc"

# From the bottom up. Parts of one line stand side by side and see only each other's package, not what is inside.
LAYERS = (
    ("base", "_version"),
    ("expr",),
    ("graph",),
    ("ops",),
    ("gradient",),
    ("formats", "passes"),
    ("training", "sharding"),
    ("plan",),
    ("kernels",),
    ("targets",),
    ("bundle",),
    ("pipeline",),
    ("explain",),
    ("workbench", "entry"),
    ("backend", "cli"),
    ("__main__",),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
# Beside the layers: loading a bundle loads no compiler. Whoever is above the compiler may use it.
RUNTIME = "runtime"
RUNTIME_SEES = ("errors", "manifest", "webgpu")  # of base
ABOVE_COMPILER = {part for part, rank in RANK.items() if rank >= RANK["pipeline"]}
# The package itself imports late, so that everything may import it.
ROOT = "torshc"

OWNERS = {
    "distributed": {"bundle"},
    "onnx": {"formats", "workbench", "backend"},
    "google": {"formats", "backend"},
    "onnxruntime": {"workbench"},
    "click": {"cli"},
    "jinja2": {"cli", "explain", "targets"},
    "yaml": {"passes", "targets"},
    "llvmlite": {"targets"},
    "torch": {"entry", "formats", "workbench"},
    "ml_dtypes": {"base", "expr", "formats"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The layer's name of a file: its folder, or its own name at the top."""
    first = path.relative_to(PACKAGE).parts[0]
    return ROOT if first == "__init__.py" else first.removesuffix(".py")


def checks_types(node: ast.AST) -> bool:
    """Whether a node is ``if TYPE_CHECKING``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(tree: ast.AST, types: bool = False, inside: bool = True) -> Iterator[ast.AST]:
    """All statements but those under ``if TYPE_CHECKING``, unless `types`, and in functions, unless `inside`."""
    pending = [tree]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if isinstance(child, ast.expr) or (checks_types(child) and not types):
                continue
            yield child
            if inside or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                pending.append(child)


@cache  # several tests read each file
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path, types: bool = False) -> Sequence[tuple[str, int]]:
    """Dotted names that a file imports, absolute, with their lines; `types` as of :func:`statements`."""
    return [*_imports(path, types)]


def _imports(path: Path, types: bool) -> Iterator[tuple[str, int]]:
    home = ("torshc", *path.relative_to(PACKAGE).parent.parts)
    for node in statements(parsed(path), types):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + 1] if node.level else ()
            name = ".".join((*base, *((node.module,) if node.module else ())))
            # "from . import x" names a module or something in the package; only the file system tells.
            for alias in node.names:
                inner = PACKAGE.parent.joinpath(*name.split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").is_file()
                yield (f"{name}.{alias.name}" if is_module and name.startswith("torshc") else name), node.lineno


def allowed(part: str, target: list[str]) -> bool:
    """Whether a module of a part may import ``torshc.<target...>``."""
    other = target[0]
    if part == RUNTIME:
        return other == RUNTIME or (other == "base" and target[1] in RUNTIME_SEES)
    if part in (ROOT, other) or (other == RUNTIME and part in ABOVE_COMPILER):
        return True
    if other not in RANK or RANK[other] > RANK[part]:
        return False
    return RANK[other] < RANK[part] or len(target) == 1


def test_the_map_has_the_layers() -> None:
    """The table of ``torshc/README.md`` names them in the same order."""
    table = (PACKAGE / "README.md").read_text().partition("| place | holds |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)(?:\.py|/)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    assert [set(row) for row in rows] == [set(parts) for parts in LAYERS]


FILES = re.compile(r"`([\w/]+\.(?:py|h|c|yaml|md|toml)|[\w/]+/)`")


def test_the_files_that_the_map_names_exist() -> None:
    places = [PACKAGE, PACKAGE.parent, PACKAGE / "targets", *sorted((PACKAGE.parent / "templates").glob("*/*/"))]
    named = {name for page in ("README.md", "DECISIONS.md") for name in FILES.findall((PACKAGE / page).read_text())}
    assert len(named) > 40 and not {name for name in named if not any((place / name).exists() for place in places)}


def test_every_part_has_a_layer() -> None:
    assert {part_of(path) for path in MODULES} <= {*RANK, RUNTIME, ROOT}


def test_imports_go_down_only() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in MODULES
        for name, line in imports(path)
        if name.startswith("torshc.") and not allowed(part_of(path), name.split(".")[1:])
    ]
    assert not wrong, "a part may not import from a layer above or beside it"


def test_packages_are_used_where_they_belong() -> None:
    free = {"numpy", "torshc", "__future__"} | sys.stdlib_module_names
    wrong = [
        f"{path}:{line}: {name}"
        for path in MODULES
        for name, line in imports(path)
        if (package := name.partition(".")[0]) not in free and part_of(path) not in OWNERS.get(package, set())
    ]
    assert not wrong, "a package belongs elsewhere"


FAMILIES = {path.parent.name for path in (PACKAGE / "targets").glob("*/__init__.py")}


def family_of(name: str) -> str:
    """The family of targets that a dotted name lies in, or empty."""
    found = re.match(r"torshc\.targets\.(\w+)", name)
    return found[1] if found and found[1] in FAMILIES else ""


def test_families_of_targets_are_apart() -> None:
    """Nobody imports from inside a family but the family itself."""
    wrong = [
        f"{path}:{line}: {name}"
        for path in MODULES
        for name, line in imports(path, types=True)
        if family_of(name) not in ("", family_of(module_of(path)))
    ]
    assert {"cpu", "gpu"} <= FAMILIES and not wrong


# ---- circles ----

# A node holds an operator, and an operator is asked about nodes: their types name each other, whatever the files.
OF_TYPES = re.compile(r"torshc\.(graph(\.\w+)?|ops\.core\.(base|source))")


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Sets of modules that reach each other, by Kosaraju's method."""
    order: list[str] = []

    def visit(start: str, edges: Mapping[str, set[str]], seen: set[str]) -> list[str]:
        """What is reached from a module and was not seen, each behind what it reaches."""
        done, stack = [], [(start, iter(sorted(edges[start])))]
        seen.add(start)
        while stack:
            rest = stack[-1][1]
            following = next((m for m in rest if m not in seen), None)
            if following is None:
                done.append(stack.pop()[0])
                continue
            seen.add(following)
            stack.append((following, iter(sorted(edges[following]))))
        return done

    seen: set[str] = set()
    for module in sorted(graph):
        order += [] if module in seen else visit(module, graph, seen)
    back = {m: {other for other in graph if m in graph[other]} for m in graph}
    seen = set()
    found = [set(visit(m, back, seen)) for m in reversed(order) if m not in seen]
    return [group for group in found if len(group) > 1]


def import_graph(types: bool) -> dict[str, set[str]]:
    """What each module imports of torshc."""
    known = {module_of(path) for path in MODULES}
    found = {module_of(path): {n for n, _ in imports(path, types) if n in known} for path in MODULES}
    return {module: names - {module} for module, names in found.items() if module != ROOT} | {ROOT: set()}


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


def test_no_circle_of_imports() -> None:
    """Imports inside functions count; the package itself imports late, for whoever stands above it."""
    assert circles(import_graph(types=False)) == []


def test_no_circle_of_types_but_nodes_and_operators() -> None:
    found = circles(import_graph(types=True))
    assert len(found) == 1 and all(map(OF_TYPES.fullmatch, found[0]))


def test_imports_in_functions_say_why() -> None:
    """Only for optional packages and a quick start; the commands of the command line all do, as their package says."""
    assert [line for path in MODULES if part_of(path) != "cli" for line in silent_imports(path)] == []


def silent_imports(path: Path) -> list[str]:
    """Lines of a file with imports inside functions that no comment explains."""
    lines, tree = path.read_text().splitlines(), parsed(path)
    outer = set(statements(tree, types=True, inside=False))
    late = [n for n in statements(tree) if isinstance(n, ast.Import | ast.ImportFrom) and n not in outer]
    reason = re.compile(r"# (start-up: |optional package)")
    said = [n.lineno for n in late if any(map(reason.search, lines[n.lineno - 2 : n.lineno]))]
    # One comment serves the imports right below it.
    return [f"{path}:{n.lineno}" for n in late if n.lineno not in said and n.lineno - 1 not in said]


def loaded_after(statement: str) -> set[str]:
    """Modules that are loaded after a statement in a fresh process."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_loads_nothing_heavy() -> None:
    loaded = loaded_after("import torshc.cli")
    assert not loaded & {"onnx", "numpy", "llvmlite", "jinja2", "yaml", "torshc.pipeline", "torshc.runtime"}


def test_the_runtime_loads_no_compiler() -> None:
    loaded = loaded_after("import torshc.runtime")
    assert not loaded & {"onnx", "llvmlite", "jinja2", "yaml", "click"}
    inside = {name for name in loaded if name.startswith("torshc.") and not name.startswith("torshc.runtime")}
    assert inside == {"torshc._version", "torshc.base", *(f"torshc.base.{name}" for name in RUNTIME_SEES)}


def test_a_target_loads_its_own_family_alone() -> None:
    loaded = loaded_after("from torshc.targets import find_target; find_target('c')")
    assert "torshc.targets.cpu.gemm" in loaded and not any(m.startswith("torshc.targets.gpu") for m in loaded)
    assert loaded_after("from torshc.targets import TARGETS; TARGETS['c']") >= {"torshc.targets.gpu.cuda.target"}
