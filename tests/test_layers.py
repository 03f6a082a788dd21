"""The layers hold: a module imports only from layers before its own, and third-party packages only where they belong.

The map stands in ``torshc/README.md``; this file is what enforces it. Imports inside functions count. Imports for type
checking only do not: they name a type, and nothing is loaded.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "torshc"

# From the bottom up. Parts of one line stand side by side and see only each other's package, not what is inside.
LAYERS = (
    ("errors", "_version"),
    ("options", "expr", "resources"),
    ("graph",),
    ("ops",),
    ("formats", "passes"),
    ("plan",),
    ("kernels",),
    ("targets",),
    ("bundle",),
    ("tune",),
    ("compiler",),
    ("feeds",),
    ("explain", "verify", "bench", "depfile", "backend"),
    ("cli",),
    ("__main__",),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
# Beside the layers: loading a bundle loads no compiler. Whoever is above the compiler may use it.
RUNTIME = "runtime"
RUNTIME_SEES = {"errors", RUNTIME}
ABOVE_COMPILER = {part for part, rank in RANK.items() if rank > RANK["compiler"]}
# The package itself imports late, so that everything may import it.
ROOT = "torshc"

OWNERS = {
    "onnx": {"formats", "verify", "backend"},
    "google": {"formats", "backend"},
    "onnxruntime": {"verify"},
    "click": {"cli"},
    "jinja2": {"targets"},
    "yaml": {"passes", "plan", "kernels"},
    "llvmlite": {"targets"},
    "ml_dtypes": {"expr", "runtime", "formats"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The layer's name of a file: its folder, or its own name at the top."""
    first = path.relative_to(PACKAGE).parts[0]
    return ROOT if first == "__init__.py" else first.removesuffix(".py")


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from nodes(child)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that a file imports, absolute, with their lines."""
    home = ("torshc", *path.relative_to(PACKAGE).parent.parts)
    for node in nodes(ast.parse(path.read_text())):
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
        return other in RUNTIME_SEES
    if part in (ROOT, other) or (other == RUNTIME and part in ABOVE_COMPILER):
        return True
    if other not in RANK or RANK[other] > RANK[part]:
        return False
    return RANK[other] < RANK[part] or len(target) == 1


def test_every_part_has_a_layer() -> None:
    assert {part_of(path) for path in MODULES} <= {*RANK, RUNTIME, ROOT}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    part = part_of(path)
    wrong = [
        f"line {line}: {name}"
        for name, line in imports(path)
        if name.startswith("torshc.") and not allowed(part, name.split(".")[1:])
    ]
    assert not wrong, f"{part} may not import from a layer above or beside it"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_packages_are_used_where_they_belong(path: Path) -> None:
    part = part_of(path)
    free = {"numpy", "torshc", "__future__"} | sys.stdlib_module_names
    wrong = [
        f"line {line}: {name}"
        for name, line in imports(path)
        if (package := name.partition(".")[0]) not in free and part not in OWNERS.get(package, set())
    ]
    assert not wrong, f"{part} uses a package that belongs elsewhere"


def loaded_after(statement: str) -> set[str]:
    """Modules that are loaded after a statement in a fresh process."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_loads_nothing_heavy() -> None:
    loaded = loaded_after("import torshc.cli")
    assert not loaded & {"onnx", "numpy", "llvmlite", "jinja2", "yaml", "torshc.compiler", "torshc.runtime"}


def test_the_runtime_loads_no_compiler() -> None:
    loaded = loaded_after("import torshc.runtime")
    assert not loaded & {"onnx", "llvmlite", "jinja2", "yaml", "click"}
    inside = {name.split(".")[1] for name in loaded if name.startswith("torshc.")}
    assert inside <= {"runtime", "errors", "_version"}
