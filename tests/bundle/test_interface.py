"""NAME.h and the functions behind a prefix: names of any kind, from C and C++, and several models in one program."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.support import compilers
from tests.support.models import parsed
from torshc.base.errors import ConfigError
from torshc.base.manifest import TensorSpec
from torshc.base.resources import find_template
from torshc.bundle.host import HostProgram, HostState, Port, Symbol
from torshc.bundle.interface import Interface
from torshc.expr import dim
from torshc.targets.cpu.c import CTarget

HOSTILE = ('x"; abort(); //', "a/b", "a.b", "int", "", "\n#error", "device", "x" * 300, "*/ int y; /*")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SEVERAL = ("x86-64-v3", "x86-64-v2")


def scaled(folder: Path, name: str, factor: int, **options: object) -> Path:
    """A bundle of y = factor * x."""
    body = f"c = Constant<value_float={factor}.0>() y = Mul(x, c)"
    text = f'<ir_version: 8, opset_import: ["": 18]> g (float[n,2] x) => (float[n,2] y) {{ {body} }}'
    onnx.save(parsed(text), folder / f"{name}.onnx")
    torshc.compile(folder / f"{name}.onnx", folder / f"{name}.tsc", **options)
    return folder / f"{name}.tsc"


def hostile() -> Interface:
    """An interface all of whose names are as bad as can be."""
    ports = tuple(Port("f32", (dim("s0"), 2 * dim("s0"), 3)) for _ in HOSTILE)
    program = HostProgram(ports, ports, (Symbol(0, 0),), ("s0",))
    infos = [TensorSpec(name, "f32", ("n", "2*n", 3)) for name in HOSTILE]
    return Interface("bad", program, infos, infos)


# Those of cppreference.com for C23 and C++23, types and macros of the headers that NAME.h includes, and its own.
WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename typeof typeof_unqual union
    unsigned using virtual void volatile wchar_t while xor xor_eq size_t int64_t uint8_t uint16_t int32_t
    torshc_tensor torshc_device torshc_dtype torshc_model TORSHC_API TORSHC_CPU TORSHC_OK TORSHC_ABI_VERSION
    INT64_MAX UINT8_C SIZE_MAX PTRDIFF_MIN NULL offsetof linux unix device model t status inputs outputs linked
    x x_dim1 x_dim1_ word_tensors word_inputs index rank dims
"""
KEYWORDS = WORDS.split()
STANDARDS = ["c11", "c2x", "c++11", "c++17", "c++20", "c++2b"]


@pytest.mark.parametrize("language", STANDARDS)
def test_keywords_as_names_compile(tmp_path: Path, language: str) -> None:
    """As names of inputs, of outputs and of dimensions."""
    compiler = compilers.needed_cxx() if "+" in language else compilers.needed().cc
    (tmp_path / "model.h").write_text(CTarget.host.text("model.h"))
    every = [dim("s0"), 2 * dim("s0"), 3]
    ports = tuple(Port("f32", tuple(every)) for _ in KEYWORDS)
    infos = [TensorSpec(name, "f32", ("n", "2*n", 3)) for name in KEYWORDS]
    as_tensors = Interface("word", HostProgram(ports, ports, (Symbol(0, 0),), ("s0",)), infos, infos)
    ports = tuple(Port("f32", (dim(name), 3)) for name in KEYWORDS)
    symbols = tuple(Symbol(k, 0) for k in range(len(KEYWORDS)))
    infos = [TensorSpec(f"x{k}", "f32", (name, 3)) for k, name in enumerate(KEYWORDS)]
    as_dims = Interface("size", HostProgram(ports, ports, symbols, tuple(KEYWORDS)), infos, infos)
    for name, interface in (("word", as_tensors), ("size", as_dims)):
        (tmp_path / f"{name}.h").write_text(interface.header(CTarget.host))
    source = tmp_path / f"use.{'cc' if '+' in language else 'c'}"
    source.write_text(
        '#include "word.h"\n#include "size.h"\n'
        "int main(void) { word_tensors t; size_tensors s; t.s0 = s.char8_t_ = 1; return (int)(t.s0 - s.char8_t_); }\n"
    )
    compilers.build([compiler, f"-std={language}", *STRICT, "-c", source, "-o", tmp_path / "use.o"])


@pytest.mark.parametrize("language", ["c11", "c++11"])
def test_hostile_names_compile(tmp_path: Path, language: str) -> None:
    compiler = compilers.needed_cxx() if "+" in language else compilers.needed().cc
    (tmp_path / "bad.h").write_text(hostile().header(CTarget.host))
    (tmp_path / "model.h").write_text(CTarget.host.text("model.h"))
    (tmp_path / f"use.{'cc' if '+' in language else 'c'}").write_text(
        '#include "bad.h"\n#include <errno.h>\n'
        "int main(void) { bad_tensors t; t.s0 = t.input0_dim1 = t.a_b_2_dim1 = 1;\n"
        "t.device.type = 0; t.int_ = t.device_2 = NULL; return (int)t.s0 * 0 * bad_input0_index; }\n"
    )
    source = next(tmp_path.glob("use.c*"))
    compilers.build([compiler, f"-std={language}", *STRICT, "-c", source, "-o", tmp_path / "use.o"])


def test_a_header_names_what_the_model_names() -> None:
    ports = (Port("f32", (dim("n"), 4)),), (Port("i64", (dim("n"),)),)
    infos = [TensorSpec("tokens.in", "f32", ("n", 4))], [TensorSpec("scores", "i64", ("n",))]
    program = HostProgram(*ports, (Symbol(0, 0),), ("n",))
    text = Interface("net", program, *infos).header(CTarget.host)
    assert "const float *tokens_in; /* f32 [n, 4] */" in text and "int64_t *scores; /* i64 [n] */" in text
    assert "static const int64_t net_tokens_in_dims[] = {-1, 4};" in text and "int64_t n; /* a dimension */" in text
    assert "net_output_shape(model, inputs" not in text  # nothing here needs to be asked


def test_each_function_of_the_header_has_a_prefixed_one() -> None:
    declared = set(re.findall(r"TORSHC_API [\w *]*?torshc_(\w+)\(", find_template(["c"], "model.h").read_text()))
    declared.remove(
        "local_ranks"
    )  # which only libraries of a model that several processes share have, and by this name
    training = {name for name in declared if name == "train" or name.startswith("state_")}
    assert len(training) == 7
    plain = hostile()
    trains = replace(plain, program=replace(plain.program, states=(HostState("w", "f32", (2,), 0, 8),)))
    for interface, names in ((plain, declared - training), (trains, declared)):
        header = interface.header(CTarget.host)
        assert {f"bad_{name}" for name in names} == set(re.findall(r"TORSHC_API [\w *]*?(bad_\w+)\(", header))
        source, nothing = interface.source(CTarget.host), {"close", "context_free", "last_fault"}
        assert all(f"return torshc_{n}(" in source for n in names - nothing)
        assert ("static inline int bad_step(" in header) == (interface is trains) != ("int bad_call(" in header)


PROGRAM = r"""
#include <one.h>
#include <two.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    const float x[] = {1, 2, 3, 4};
    float a[4], b[4];
    one_model *first;
    two_model *second;
    one_tensors s;
    two_tensors t;
    if (one_open(NULL, &first) || two_open(NULL, &second))
        return printf("%s%s\n", one_last_error(), two_last_error());
    memset(&s, 0, sizeof s);
    memset(&t, 0, sizeof t);
    s.n = t.n = 2;
    s.x = t.x = x;
    s.y = a;
    t.y = b;
    if (one_call(first, &s) || two_call(second, &t))
        return printf("%s%s\n", one_last_error(), two_last_error());
    printf("%g %g %s %s %s %d\n", a[3], b[3], one_input_name(0), two_output_name(0), one_input_dim_name(0, 0),
           one_input_dim_name(0, 1) == NULL && one_input_name(1) == NULL && one_output_dim_name(0, 2) == NULL);
    one_close(first);
    two_close(second);
    return 0;
}
"""


def test_two_models_in_one_program(tmp_path: Path) -> None:
    bundles = [scaled(tmp_path, "one", 2), scaled(tmp_path, "two", 3)]
    (tmp_path / "main.c").write_text(PROGRAM)
    links = [word for b in bundles for word in (f"-I{b}", f"-L{b}", f"-Wl,-rpath,{b}")]
    for host in compilers.hosts():
        command = [host.cc, "-std=c11", *STRICT, "main.c", *links, "-lone", "-ltwo", "-o", f"main-{host.kind}"]
        compilers.build(command, tmp_path)
        done = subprocess.run([tmp_path / f"main-{host.kind}"], capture_output=True, text=True, check=False)
        assert done.stdout == "8 12 x y n 1\n"


def test_models_of_one_prefix_have_equal_functions_behind_it_and_another_identity(tmp_path: Path) -> None:
    """So that the functions are compiled once, and a program still needs the model that it was compiled for."""
    sources = []
    for columns in (2, 3):
        body = f"g (float[n,{columns}] x) => (float[n,{columns}] y) {{ y = Neg(x) }}"
        onnx.save(parsed(f'<ir_version: 8, opset_import: ["": 18]> {body}'), tmp_path / "one.onnx")
        torshc.compile(tmp_path / "one.onnx", tmp_path / f"{columns}", emit="source", prefix="one", isa=SEVERAL)
        sources.append({p.name: p.read_text() for p in (tmp_path / f"{columns}" / "src").glob("*.c")})
    first, second = sources
    assert first["t_named.c"] == second["t_named.c"] and "one_open(" in first["t_named.c"]
    identities = [re.findall(r"^const char (one_is_\w+) = 0;", "".join(s.values()), re.MULTILINE) for s in sources]
    assert [len(found) for found in identities] == [1, 1] and identities[0] != identities[1]


def test_the_prefix(tmp_path: Path) -> None:
    bundle = scaled(tmp_path, "one", 2, prefix="other")
    names = {"libmodel.so", "libother.so", "manifest.json", "model.h", "other.h", "other.pc", "otherConfig.cmake"}
    assert {p.name for p in bundle.iterdir()} == names
    assert json.loads((bundle / "manifest.json").read_text())["prefix"] == "other"
    assert {p.name for p in scaled(tmp_path, "one", 4).iterdir()} == {n.replace("other", "one") for n in names}
    with torshc.load(bundle) as model:
        assert model(np.ones((1, 2), np.float32))[0].tolist() == [[4, 4]]
    for bad in ("a b", "1a", "_a", "ü", "a" * 65, "torshc", "m"):
        why = "of the system" if bad in ("torshc", "m") else "cannot begin names"
        with pytest.raises(ConfigError, match=why):
            scaled(tmp_path, "one", 2, prefix=bad)
