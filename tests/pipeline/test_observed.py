"""Profiles of what runs saw: written by bundles, added up, and turned into variants."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from itertools import permutations
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import torshc
from tests.pipeline.test_forms_guards import attention, feeds
from tests.pipeline.test_forms_loose import model
from tests.support.nodes import numbers
from torshc.base.budget import spending
from torshc.base.digest import file_sha256
from torshc.base.errors import ConfigError, RunError
from torshc.base.options import CompileOptions
from torshc.explain import explain, to_text
from torshc.pipeline.compiler import prepare
from torshc.pipeline.observed import Profile, observed_cases, read_profiles, recorded_runs
from torshc.runtime import Model

MODEL = model(
    [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "z"], ["y"])],
    {"x": ["n", "seq", 8], "z": ["b", 1, 6]},
    {"w": numbers(8, 6, seed=3)},
)
DATA = MODEL.SerializeToString()
DIGEST = hashlib.sha256(DATA).hexdigest()
HEAD = f"torshc-profile 1\nmodel {DIGEST}\nsizes 0.0 0.1 1.0\nothers 0\n"


def write(path: Path, rows: str, head: str = HEAD) -> Path:
    path.write_text(f"{head}{rows}end\n")
    return path


def test_files_add_up_in_any_order(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a", "3 100 1 5 1\n1 50 2 5 2\n"),
        write(tmp_path / "p.12-ab", "4 10 1 5 1\n"),
        write(tmp_path / "p.13-ab", "2 7 2 5 2\n"),
    ]
    found = [read_profiles(order, DIGEST) for order in permutations(files)]
    assert all(p.runs == found[0].runs and p.time == found[0].time for p in found)
    assert sorted(found[0].runs.values()) == [3, 7] and sorted(found[0].time.values()) == [57, 110]
    beside = read_profiles([tmp_path / "p", files[1]], DIGEST)  # a file that is meant twice counts once
    assert sorted(beside.runs.values()) == [2, 4]


def test_files_of_other_models_and_versions_are_ignored_with_a_line(tmp_path: Path) -> None:
    other = write(tmp_path / "other", "1 1 1 5 1\n", HEAD.replace(DIGEST, "0" * 64))
    newer = write(tmp_path / "newer", "1 1 1 5 1\n", HEAD.replace("profile 1", "profile 4"))
    onnx.save(MODEL, tmp_path / "m.onnx")
    done = prepare(tmp_path / "m.onnx", CompileOptions(observed=(other, newer)))
    assert [w.partition(": ")[2] for w in done.warnings] == [
        "it is of another model, and ignored", "it is no profile of this version, and ignored"
    ]  # fmt: skip
    assert done.variants == ()


@pytest.mark.parametrize(
    "rows", ["1 1 1 5\n", "1 1 1 5 1 9\n", "0 1 1 5 1\n", "1 -1 1 5 1\n", "1 1 1 x 1\n", "1 1 1 5 1", "1  1 1 5 1\n"]
)
def test_damaged_files_are_named(rows: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is damaged"):
        read_profiles([write(tmp_path / "p", rows)], DIGEST)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for head in (HEAD.replace("0.0", "0-0"), HEAD.replace("others", "rest")):
        with pytest.raises(ConfigError, match="it is damaged"):
            read_profiles([write(tmp_path / "p", "1 1 1 5 1\n", head)], DIGEST)
    for name in ("none", "none/none"):
        with pytest.raises(ConfigError, match="there is no such file"):
            read_profiles([tmp_path / name], DIGEST)
    (tmp_path / "p").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_profiles([tmp_path / "p"], DIGEST)


def test_sizes_with_most_time_come_first_and_rare_ones_not(tmp_path: Path) -> None:
    rows = "9 20 1 5 1\n5 900 2 5 2\n50 5 3 3 3\n4 85 4 4 4\n7 800 0 5 0\n8 700 3 5 1\n"  # the last two: none, loose
    path = write(tmp_path / "p", rows)
    fast = prepare(DATA, CompileOptions())
    found = observed_cases(fast, read_profiles([path], DIGEST))
    assert [(" ".join(map(str, case)), seen) for case, seen in found] == [
        ("n=2 seq=5 b=2", "5 of 83 runs seen, 89 % of their time"),
        ("n=4 seq=4 b=4", "4 of 83 runs seen, 9 % of their time"),
        ("n=1 seq=5 b=1", "9 of 83 runs seen, 2 % of their time"),
    ]
    untimed = read_profiles([write(tmp_path / "q", "9 0 1 5 1\n1 0 2 5 2\n")], DIGEST)
    seen = [seen for _, seen in observed_cases(fast, untimed)]
    assert [text.split(",")[0] for text in seen] == ["9 of 10 runs seen", "1 of 10 runs seen"]
    assert all(text.endswith("% of their operations") for text in seen)
    pinned = prepare(DATA, CompileOptions(shapes={"x": (2, "seq", 8)}))
    assert [" ".join(map(str, case)) for case, _ in observed_cases(pinned, read_profiles([path], DIGEST))] == ["seq=5"]


def test_what_runs_saw_becomes_variants(tmp_path: Path) -> None:
    """Of threads with contexts, of a child that forked, and of a process that ends with its model open."""
    onnx.save(MODEL, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    prefix = tmp_path / "seen"

    def run(at: Model, n: int, times: int) -> None:
        for _ in range(times):
            at.run({"x": numbers(n, 5, 8), "z": numbers(n, 1, 6)})

    with torshc.load(tmp_path / "m.tsc", profile=prefix) as found:
        threads = [threading.Thread(target=run, args=(found.context(), n, 50)) for n in (3, 3, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if (child := os.fork()) == 0:
            with torshc.load(tmp_path / "m.tsc", profile=prefix) as own:
                run(own, 2, 4)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    code = f"""
import numpy as np, torshc
m = torshc.load({str(tmp_path / "m.tsc")!r})
for n in range(1, 3000):
    m.run({{"x": np.ones((n % 2900 + 1, 1, 8), np.float32), "z": np.ones((n % 2900 + 1, 1, 6), np.float32)}})
"""
    env = {**os.environ, "TORSHC_PROFILE": str(prefix)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    files = sorted(tmp_path.glob("seen.*"))
    assert len(files) == 3 and not [*tmp_path.glob("*.partial")]
    seen = read_profiles([prefix], file_sha256(tmp_path / "m.onnx"))
    by_n = {(sizes[0][1], sizes[1][1]): runs for sizes, runs in seen.runs.items()}
    assert (by_n[3, 5], by_n[7, 5], by_n[2, 5]) == (100, 50, 4) and len(by_n) == 3 + 2048
    done = torshc.compile(tmp_path / "m.onnx", tmp_path / "n.tsc", observed=[prefix], budget={"observed": 1})
    assert len(done.variants) == 1
    assert "of their time)" in to_text(explain(done))
    (case,) = [" ".join(map(str, v.sizes)) for v in done.variants]
    n, seq = (r.least for r in done.variants[0].sizes[:2])
    with torshc.load(tmp_path / "n.tsc", profile="") as found:
        found.run({"x": np.ones((n, seq, 8), np.float32), "z": np.ones((n, 1, 6), np.float32)})
        assert [(f.sizes, f.runs) for f in found.stats().forms][1] == (case, 1)
    assert sorted(tmp_path.glob("seen.*")) == files
    with pytest.raises(RunError, match="no folder for the profile"):
        torshc.load(tmp_path / "m.tsc", profile=tmp_path / "none" / "seen")


def test_a_profile_that_cannot_be_written_fails_no_run(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    (tmp_path / "folder").mkdir()
    with torshc.load(tmp_path / "m.tsc", profile=tmp_path / "folder" / "seen") as found:
        (tmp_path / "folder").rmdir()
        assert found.run({"x": numbers(1, 5, 8), "z": numbers(1, 1, 6)})["y"].shape == (1, 5, 6)
    assert not [*tmp_path.glob("*seen*")]


ENCODER = attention()
ENCODER_DIGEST = hashlib.sha256(ENCODER.SerializeToString()).hexdigest()
SEEN = f"torshc-profile 2\nmodel {ENCODER_DIGEST}\nsizes 0.0 0.1\ninputs 1 2\nothers 0\n"


def test_values_that_inputs_had_in_most_runs_become_guards(tmp_path: Path) -> None:
    """Those of one size, what the rest has in common, and files of both versions."""
    files = [
        write(tmp_path / "a", "60 5900 1 64 10 1 10 0 10\n20 900 1 80 8 1 6 0 8\n", SEEN),
        write(tmp_path / "b", "40 3900 1 64 10 1 9 1 1\n9 800 1 96 8 1 8 0 8\n1 0 0 3 1 1 1 0 1\n", SEEN),
        write(tmp_path / "c", "10 900 1 64\n", SEEN.replace("profile 2", "profile 1").replace("inputs 1 2\n", "")),
    ]
    fast = prepare(ENCODER.SerializeToString(), CompileOptions())
    for order in permutations(files):
        found = observed_cases(fast, read_profiles(order, ENCODER_DIGEST))
        assert [(" ".join(map(str, case)), seen) for case, seen in found] == [
            ("n=1 seq=64 mask=1", "110 of 140 runs seen, 86 % of their time; 19 of 20 looked at had these values"),
            ("n=1 seq=80 kinds=0", "20 of 140 runs seen, 7 % of their time; 8 of 8 looked at had these values"),
            ("n=1 seq=96 mask=1 kinds=0", "9 of 140 runs seen, 7 % of their time; 8 of 8 looked at had these values"),
        ]
    with spending({"observed": 1}):  # one is for the rest: what all sizes have in common
        found = observed_cases(fast, read_profiles(files, ENCODER_DIGEST))
    assert [" ".join(map(str, case)) for case, _ in found] == ["n=1 mask=1"]


def test_inputs_that_take_long_to_look_at_have_no_guard(tmp_path: Path) -> None:
    made = model([helper.make_node("Add", ["x", "z"], ["y"])], {"x": ["n", 8], "z": ["n", 8]})
    for given in made.graph.input:
        given.type.tensor_type.elem_type = onnx.TensorProto.INT64
    made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    digest = hashlib.sha256(made.SerializeToString()).hexdigest()
    rows = f"torshc-profile 2\nmodel {digest}\nsizes 0.0\ninputs 0 1\nothers 0\n9 90 64 8 0 8 5 0\n"
    profile = read_profiles([write(tmp_path / "p", "", rows)], digest)
    found = observed_cases(prepare(made.SerializeToString(), CompileOptions()), profile)
    assert [" ".join(map(str, case)) for case, _ in found] == ["n=64"]


def test_damaged_counts_of_zeros_are_named(tmp_path: Path) -> None:
    for rows in ("9 1 1 5 8 1 8 0 0 8\n", "9 1 1 5 8 1 8 -1 0 8 40\n"):
        with pytest.raises(ConfigError, match="it is damaged"):
            read_profiles([write(tmp_path / "p", rows, SEEN.replace("profile 2", "profile 3"))], ENCODER_DIGEST)


@pytest.mark.parametrize(
    "rows",
    [
        "9 1 1 5 8 1 8 0\n",
        "9 1 1 5 10 1 8 0 8\n",
        "9 1 1 5 8 1 9 0 8\n",
        "9 1 1 5 8 1 -1 0 8\n",
        "9 1 1 5\n",
        "9 1 1 5 8 1 x 0 8\n",
    ],
)
def test_damaged_counts_of_values_are_named(rows: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is damaged"):
        read_profiles([write(tmp_path / "p", rows, SEEN)], ENCODER_DIGEST)


def test_what_inputs_were_becomes_guarded_variants(tmp_path: Path) -> None:
    """Inputs are looked at in the first eight runs of some sizes, and then in each 128th."""
    onnx.save(ENCODER, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    with torshc.load(tmp_path / "m.tsc", profile=tmp_path / "seen") as found:
        for k in range(140):
            mask = 0 if k in (2, 9) else 1
            found.run(feeds(2, 48, mask, [0] * 47 + [1]))
    (path,) = tmp_path.glob("seen.*")
    words = path.read_text().splitlines()
    assert words[0] == "torshc-profile 3" and words[2:5] == ["sizes 0.0 0.1", "inputs 1 2", "others 0"]
    runs, time, *rest = map(int, words[5].split())
    assert runs == 140 and time > 0 and rest == [2, 48, 9, 1, 8, 96, 0, 0, 9 * 94]
    done = torshc.compile(tmp_path / "m.onnx", tmp_path / "n.tsc", observed=[tmp_path / "seen"], budget={"observed": 2})
    # 8 of 9 are less than nine tenths, but enough zeros to look for padding, which is in this model's output.
    assert [(" ".join(map(str, v.case)), not v.why) for v in done.variants] == [
        ("mask=padded", False), ("n=2 seq=48", True)
    ]  # fmt: skip
    profile = read_profiles([path], hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest())
    assert recorded_runs(profile) == 0


def test_a_card_records_the_sizes_that_came_again() -> None:
    profile = Profile()
    for seq in range(100):
        profile.runs[(((0, 0), seq),)] = 1 + seq % 2
    assert recorded_runs(profile) == 58
