"""Names under ``torshc/`` that nothing uses, tests apart: ``python -m tests.support.dead_code`` lists them.

What a template asks of a kernel or a printer counts as used. What is read or called by name from outside is listed
here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import vulture

ROOT = Path(__file__).resolve().parents[2]
DECORATORS = [
    "@implements",
    "@ufunc",
    "@operator",
    "@composite",
    "@pointwise",
    "@gradient_of",
    "@parts_of",
    "@slopes_of",
    "@register",
    "@graph_pass",
    "@*.lowers",
    "@*.command",
    "@*.group",
    "@_predicate",
    "@elementary",
    "@aten",
    "@_rule",
]
KEPT = {
    # called or read by name: onnx's Backend, click, Jinja, ctypes, ONNX Runtime's options, dict's own; what is kept
    # until its user is collected: a folder, a tensor
    "outputs_info", "list_commands", "windows_expand_args", "trace", "deleter", "intra_op_num_threads",
    "log_severity_level", "popitem", "load_bytecode", "dump_bytecode", "_folder", "_owner",
    "__init_subclass__", "__getattr__",
    # read by inspect
    "__signature__",
    # set for llvmlite; what stats() tells its callers
    "data_layout", "compile_seconds", "traces",
    # read by string.Template
    "braceidpattern",
    # what programs of PyTorch have, ATen's operators are given, AOTAutograd reads
    "graph_signature", "bias_sizes", "half_to_float", "_boxed_call",
    # what NumPy's arrays have
    "mT", "flatten", "subok", "casting",
    # fields of what is written as JSON as a whole
    "source_sha256", "torshc", "arena_text", "live", "model_sha256", "exchanges",
    # what callers of a model that trains call
    "state_dict", "save_state", "load_state", "serve", "publish",
    # read by tests: the manifest's schema, weights inside the library
    "SCHEMA", "weights_embedded",
}  # fmt: skip


def template_names() -> set[str]:
    """Every attribute that a template reads."""
    text = "".join(p.read_text() for p in (ROOT / "templates").rglob("*.j2"))
    return set(re.findall(r"[.\"]([A-Za-z_]\w*)", text))


def dead() -> list[str]:
    """Unused names, a line each."""
    scan = vulture.Vulture(ignore_decorators=DECORATORS)
    scan.scavenge([str(ROOT / "torshc")])
    used = KEPT | template_names()  # as ignore_names of Vulture they would be patterns, tried with each name
    found = scan.get_unused_code(min_confidence=60)
    return [
        f"{Path(x.filename).relative_to(ROOT)}:{x.first_lineno}: {x.typ} {x.name}"
        for x in found
        if x.name not in used
        and not (x.typ == "variable" and "ops/" in str(x.filename))  # fields of an operator are its attributes
    ]


if __name__ == "__main__":
    lines = dead()
    print("\n".join(lines) or "no dead code")
    sys.exit(bool(lines))
