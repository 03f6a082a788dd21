"""torshc compile: bundles, depfiles, options, and models that are hostile or broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import torshc as package
from torshc.base.errors import ConfigError
from torshc.cli import cli, flags
from torshc.workbench.depfile import rule

from ..support.cli_models import CHAIN, HOSTILE, UNKNOWN, hostile
from ..support.models import parsed, save
from .conftest import Torshc


def test_compile_writes_a_bundle_and_says_so(torshc: Torshc, chain: Path) -> None:
    text = torshc("compile", chain, "-O3", "-o", "out.tsc").stdout
    assert text.startswith("out.tsc: ") and "launch" in text and len(text.splitlines()) == 1
    assert {p.name for p in Path("out.tsc").iterdir()} >= {"libmodel.so", "model.h", "manifest.json"}


def test_the_default_place_is_the_models_name_here(torshc: Torshc, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    torshc("compile", save(CHAIN, tmp_path / "models" / "m.onnx"))
    assert (tmp_path / "m.tsc" / "manifest.json").is_file()


def test_several_models_have_a_bundle_each(torshc: Torshc, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(CHAIN, tmp_path / f"{name}.onnx")
    lines = torshc("compile", "a.onnx", "b.onnx").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["a.tsc", "b.tsc"]
    body = json.loads(torshc("compile", "a.onnx", "b.onnx", "-o", "out", "--json").stdout)
    assert [done["bundle"] for done in body] == ["out/a.tsc", "out/b.tsc"]
    for name in ("a", "b"):  # the same as alone
        assert Path(f"out/{name}.tsc/libmodel.so").read_bytes() == Path(f"{name}.tsc/libmodel.so").read_bytes()
    save(UNKNOWN, tmp_path / "c.onnx")
    told = torshc("compile", "c.onnx", "a.onnx", "-o", "more", code=3).stderr
    assert "while compiling c.onnx" in told and not any(Path("more").iterdir())
    for arguments, said in (
        (["a.onnx", "out/../a.onnx"], "two MODELs have one name"),
        (["a.onnx", "b.onnx", "--prefix", "p"], "--prefix goes with one MODEL"),
        (["a.onnx", "b.onnx", "-o", "a.tsc"], "is a bundle"),
    ):
        assert said in torshc("compile", *arguments, code=2).stderr


def test_quiet_says_nothing_and_verbose_each_command(torshc: Torshc, chain: Path) -> None:
    assert torshc("compile", chain, "--quiet").output == ""
    told = torshc("compile", chain, "-v", "--no-cache").stderr.splitlines()
    assert any(" -shared " in line and "-o " in line for line in told)


def test_a_name_that_c_cannot_have_is_told(torshc: Torshc, chain: Path) -> None:
    assert "called my_model, as 'größe'" in torshc("compile", chain, "-o", "größe.tsc").stderr
    assert "my_model" not in torshc("compile", chain, "-o", "größe.tsc", "--prefix", "size").stderr


def test_json_and_times(torshc: Torshc, chain: Path) -> None:
    result = torshc("compile", chain, "--json", "--time", "-o", "out.tsc")
    found = json.loads(result.stdout)
    assert found["bundle"] == "out.tsc" and found["kernels"] >= 1
    assert found["launches"] == json.loads(torshc("explain", chain, "--format", "json").stdout)["launches"]
    assert "compile" in found["stages"] and "import" in result.stderr


def test_a_second_compile_runs_no_compiler(
    torshc: Torshc, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torshc("compile", chain, "-o", "a.tsc")
    assert json.loads(torshc("compile", chain, "-o", "b.tsc", "--prefix", "a", "--json").stdout)["compiled"] == 0
    assert json.loads(torshc("compile", chain, "-o", "b.tsc", "--json", "--no-cache").stdout)["compiled"] > 0
    monkeypatch.setenv("TORSHC_CACHE_DIR", str(tmp_path))  # others could plant objects here
    tmp_path.chmod(0o777)
    result = torshc("compile", chain, "-o", "b.tsc", "--json")
    found = json.loads(result.stdout)
    assert found["compiled"] > 0 and "is not used: its mode is 0777" in found["warnings"][0]


def test_options_reach_the_compilation(torshc: Torshc, chain: Path) -> None:
    torshc(
        "compile", chain, "-O1", "--mcpu", "x86-64-v2" if os.uname().machine == "x86_64" else "native",
        "--shapes", "x:3x64", "--fusion", "none", "--max-fusion-size", "4", "--pass", "common_subexpressions=off",
        "-j", "1", "--embed-weights", "--profile", "--threads", "2", "--dump", "dump", "-o", "out.tsc",
    )  # fmt: skip
    manifest = json.loads(Path("out.tsc/manifest.json").read_text())
    assert manifest["opt_level"] == 1 and manifest["profile"]
    assert manifest["inputs"][0]["dims"] == [3, 64] and manifest["symbols"] == []
    assert len(manifest["steps"]) >= 5
    assert (Path("dump") / "000-start.txt").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--shapes", "x"], 4, "name:1x3x224x224"),
        (["--shapes", "z:1x64"], 4, "no input 'z'"),
        (["--shapes", "x:1x65"], 4, "cannot be 65"),
        (["--pass", "dead_cod=on"], 4, "did you mean 'dead_code'"),
        (["--pass", "dead_code"], 4, "NAME=on or NAME=off"),
        (["--target", "cc"], 4, "did you mean 'c'"),
        (["--mcpu", "-mfoo"], 4, "mcpu"),
        (["--pipeline", "none.yaml"], 4, "none.yaml"),
        (["--cc", "no-such-compiler"], 5, "no-such-compiler"),
        (["-O", "9"], 2, "-O"),
        (["--fusion", "all"], 2, "aggressive"),
    ],
)
def test_wrong_options(torshc: Torshc, chain: Path, arguments: list[str], code: int, says: str) -> None:
    assert says in torshc("compile", chain, *arguments, "-o", "out.tsc", code=code).output
    assert not Path("out.tsc").exists()


@pytest.mark.parametrize("content", [b"", b"\x08", b"not a model", b"{", b"\xff" * 100])
def test_what_is_no_model(torshc: Torshc, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    assert "bad.onnx" in torshc("compile", "bad.onnx", code=2).output
    assert not Path("bad.tsc").exists()


def test_all_that_is_unsupported_is_listed(torshc: Torshc, tmp_path: Path) -> None:
    text = torshc("compile", save(UNKNOWN, tmp_path / "u.onnx"), code=3).output
    assert "Mystery" in text and "Riddle" in text


def test_what_is_no_bundle_is_not_replaced(torshc: Torshc, chain: Path) -> None:
    Path("precious").mkdir()
    Path("precious/thesis.txt").write_text("years of work")
    torshc("compile", chain, "-o", "precious", code=8)
    assert Path("precious/thesis.txt").read_text() == "years of work"


def test_verify_after_compile(torshc: Torshc, chain: Path) -> None:
    assert "agrees with reference" in torshc("compile", chain, "--verify", "-o", "out.tsc").output


# -- depfiles --------------------------------------------------------------------------------------------------------


def test_a_depfile_names_target_as_given_and_all_files(torshc: Torshc, tmp_path: Path) -> None:
    m = parsed(CHAIN)
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(64, np.float32), "scale"))
    (tmp_path / "in").mkdir()
    onnx.save(m, tmp_path / "in" / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    (tmp_path / "p.yaml").write_text("name: p\npasses: [propagate, dead_code, decompose, settle_outputs]\n")
    torshc("compile", "in/m.onnx", "--MD", "--pipeline", "p.yaml", "-o", "./out dir.tsc/")
    text = (tmp_path / "out dir.tsc.d").read_text()
    assert text.startswith("./out\\ dir.tsc: \\\n")
    assert [f for f in ("in/m.onnx", "in/m.bin", "p.yaml") if f"\n{f}:\n" not in text] == []


def test_a_depfile_of_a_json_graph_names_its_weights(torshc: Torshc, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones(4, np.float32))
    graph = {
        "torshc": 1,
        "inputs": {"x": {"dtype": "f32", "shape": ["batch", 4]}},
        "weights": {"w": {"dtype": "f32", "shape": [4], "file": "w.npy"}},
        "nodes": [{"op": "Mul", "inputs": ["x", "w"], "outputs": ["y"]}],
        "outputs": ["y"],
    }
    (tmp_path / "m.json").write_text(json.dumps(graph))
    torshc("compile", "m.json", "--MD", "-o", "m.tsc")
    assert "\nw.npy:\n" in Path("m.tsc.d").read_text()


def test_names_in_a_depfile_are_escaped() -> None:
    assert rule(["a$b#c.tsc"], ["d e.onnx"]) == "a$$b\\#c.tsc: \\\n  d\\ e.onnx\nd\\ e.onnx:\n"
    with pytest.raises(ConfigError, match="makefile"):
        rule("a\nall: evil", ["m.onnx"])


# -- hostile names ---------------------------------------------------------------------------------------------------


def test_hostile_names_reach_the_manifest_only(torshc: Torshc, tmp_path: Path) -> None:
    """Beside it the library has those of its inputs and outputs, as data."""
    path = save(hostile(), tmp_path / "h.onnx")
    torshc("compile", path, "--keep-intermediates", "-o", "h.tsc")
    inside = [p for p in Path("h.tsc").rglob("*") if p.is_file() and p.suffix not in (".json", ".so")]
    needles = [HOSTILE.encode(), b"7*7", b"pwned", b"</script>"]
    assert [p for p in inside for n in needles if n in p.read_bytes() or n.decode() in p.name] == []
    manifest = json.loads(Path("h.tsc/manifest.json").read_text())
    assert manifest["inputs"][0]["name"] == HOSTILE + "0" and manifest["model"] == "h"
    found = package.load("h.tsc").run(
        {HOSTILE + "0": np.ones((2, 64), np.float32), HOSTILE + "1": np.ones(64, np.float32)}
    )
    assert set(found) == {HOSTILE + "4", HOSTILE + "5"}
    assert not Path("pwned").exists()


@pytest.mark.parametrize("arguments", [("explain",), ("check",), ("verify",), ("bench", "--rounds", "1")])
def test_hostile_names_do_not_steer_the_terminal(torshc: Torshc, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    output = torshc(*arguments, save(hostile(), tmp_path / "h.onnx")).output
    assert "\x1b" not in output


def test_an_option_that_the_target_does_not_use_is_refused(torshc: Torshc, chain: Path) -> None:
    refused = torshc("compile", chain, "--arch", "sm_90", "--emit", "source", code=ConfigError.exit_code)
    assert "the target c does not use --arch" in refused.stderr and "(--arch: cuda)" in refused.stderr
    refused = torshc("compile", chain, "--precision", "tf32", code=ConfigError.exit_code)
    assert "the target c has no --precision tf32" in refused.stderr and "--target cuda" in refused.stderr
    refused = torshc(
        "compile",
        chain,
        "--target",
        "cuda",
        "--exact-batches",
        "--cc",
        "gcc",
        "--emit",
        "source",
        code=ConfigError.exit_code,
    )
    assert "the target cuda does not use --cc and --exact-batches" in refused.stderr
    torshc("compile", chain, "--target", "cuda", "--arch", "sm_90", "--mcpu", "native", "--emit", "source")


def test_an_option_that_is_gone_names_the_new_one(torshc: Torshc, chain: Path) -> None:
    refused = torshc("compile", chain, "--winograd", "--emit", "source", code=ConfigError.exit_code)
    assert "no option --winograd any more" in refused.stderr and "accuracy" in refused.stderr


def test_verify_needs_a_library(torshc: Torshc, chain: Path, tmp_path: Path) -> None:
    refused = torshc("compile", chain, "-o", tmp_path / "o.tsc", "--emit", "source", "--verify", code=2)
    assert "--emit source does not make" in refused.stderr and not (tmp_path / "o.tsc").exists()


def test_a_model_from_standard_input(chain: Path) -> None:
    ran = CliRunner().invoke(cli, ["compile", "-", "--emit", "source"], input=chain.read_bytes())
    assert ran.exit_code == 0 and ran.stdout.startswith("stdin.tsc: ")
    damaged = CliRunner().invoke(cli, ["check", "-"], input=b"\x08")
    assert damaged.exit_code == 2 and "stdin: " in damaged.stderr
    empty = CliRunner().invoke(cli, ["check", "-"], input=b"")
    assert empty.exit_code == 2 and "standard input is empty" in empty.stderr


def test_standard_input_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "STDIN_MAX", 3 << 20)
    refused = CliRunner().invoke(cli, ["check", "-"], input=bytes((3 << 20) + 1))
    assert refused.exit_code == 2 and "standard input has more than 3145728 bytes" in refused.stderr


def test_the_environment_names_the_work_folder(torshc: Torshc, chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORSHC_WORKDIR", "work")
    monkeypatch.setenv("TORSHC_KEEP_INTERMEDIATES", "1")
    torshc("compile", chain, "-o", "out.tsc")
    assert Path("work/src/host.c").is_file() and Path("out.tsc/src/host.c").is_file()


def test_a_depfile_needs_a_file(chain: Path) -> None:
    refused = CliRunner().invoke(cli, ["compile", "-", "--MD"], input=chain.read_bytes())
    assert refused.exit_code == 2 and "--MD needs a model file" in refused.stderr and not Path("stdin.tsc").exists()
