"""Models that run while another trains: when they get its weights, from Python and from C."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import torshc
from tests.support import compilers, sanitize
from tests.training.networks import DIGITS, Array, affine, convolutional, model, write_step
from torshc.base.errors import ConfigError, RunError
from torshc.base.options import CompileOptions
from torshc.targets.cc import find_compiler

HERE = Path(__file__).parent
STEP = "weights: '*'\nloss: {}\noptimizer: {{adam: {{learning_rate: 0.01}}}}\n"
RNG_SEED = 31


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compilers.needed()
    folder = tmp_path_factory.mktemp("serve")
    step = write_step(folder, STEP.format("cross_entropy"))
    torshc.compile(DIGITS, folder / "digits.tsc", train=step, serve_while_training=True)
    return folder / "digits.tsc"


def test_contexts_have_the_weights_of_one_step_at_a_time(digits: Path) -> None:
    """Batch normalisation's statistics too: each result is that of one set of weights, and sets come in their order."""
    rng = np.random.default_rng(RNG_SEED)
    image, seen, stop = rng.uniform(0, 1, (3, 1, 8, 8)).astype(np.float32), list[bytes](), threading.Event()
    batches = [
        {"image": rng.uniform(0, 1, (8, 1, 8, 8)).astype(np.float32), "target": rng.integers(0, 10, 8)}
        for _ in range(12)
    ]
    with torshc.load(digits, threads=1) as trained, trained.serve(1) as served:

        def answer(context: torshc.runtime.Model) -> None:
            while not stop.is_set():
                found = context(image)[0].tobytes()
                if not seen or seen[-1] != found:
                    seen.append(found)

        expected = [served(image)[0].tobytes()]
        worker = threading.Thread(target=answer, args=(served.context(),))
        worker.start()
        try:
            for k, batch in enumerate(batches):
                trained.step(batch)
                assert served(image)[0].tobytes() == expected[-1]  # a step alone changes nothing
                assert trained.publish() == k + 1
                expected.append(served(image)[0].tobytes())
        finally:
            stop.set()
            worker.join()
        assert len({*expected}) == len(expected)
        places = [expected.index(found) for found in seen]
        assert places == sorted(places)
        trained.save_state(digits.parent / "state")
        last = served(image)[0]
        with trained.serve() as another:
            assert another(image)[0].tobytes() == last.tobytes()
        served.close()
        trained.step(batches[0])
        assert trained.publish() == 13  # to those that are still open
    learned = onnx.load(DIGITS)
    state = {n: a for n, a in torshc_state(digits).items() if not n.startswith("torshc.")}
    for k, w in enumerate(learned.graph.initializer):
        if w.name in state:
            learned.graph.initializer[k].CopyFrom(numpy_helper.from_array(state[w.name], w.name))
    torshc.compile(learned, digits.parent / "learned.tsc")
    with torshc.load(digits.parent / "learned.tsc") as wanted:
        # The same weights, of which normalisations were folded into convolutions: some roundings of f32.
        np.testing.assert_allclose(last, wanted(image)[0], rtol=1e-4, atol=1e-6)


def test_weights_that_are_alike_at_first_are_served(tmp_path: Path) -> None:
    """Scales of ones and biases of zeros, as of a network that is new, are no operations of the second library."""
    compilers.needed()
    rng, ones = np.random.default_rng(RNG_SEED), np.ones(4)
    weights = {"w": rng.standard_normal((4, 2, 3, 3)), "scale": ones, "bias": 0 * ones, "mean": 0 * ones, "var": ones}
    weights |= {"s": ones[:, None, None], "t": np.zeros((4, 1, 1))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"], "norm"),
        helper.make_node("Mul", ["n", "s"], ["m"]), helper.make_node("Add", ["m", "t"], ["y"]),
    ]  # fmt: skip
    source = model(nodes, {"x": [2, 2, 5, 5]}, {"y": [2, 4, 5, 5]}, weights, np.float32)
    torshc.compile(
        source, tmp_path / "m.tsc", train=write_step(tmp_path, STEP.format("mse")), serve_while_training=True
    )
    torshc.compile(source, tmp_path / "plain.tsc")
    x = rng.standard_normal((2, 2, 5, 5)).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc" / "serve") as served, torshc.load(tmp_path / "plain.tsc") as plain:
        np.testing.assert_allclose(served(x)[0], plain(x)[0], rtol=1e-5, atol=1e-6)  # some roundings of f32
    with torshc.load(tmp_path / "m.tsc") as trained, trained.serve() as served:
        before = served(x)[0]
        trained.step({"x": x, "target": np.zeros((2, 4, 5, 5), np.float32)})
        trained.publish()
        assert not np.array_equal(before, served(x)[0])


def torshc_state(digits: Path) -> dict[str, Array]:
    with torshc.load(digits) as model:
        model.load_state(digits.parent / "state")
        return model.state_dict()


def test_a_bundle_without_a_second_one_says_so(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "alone.tsc", ignore=shutil.ignore_patterns("serve"))
    with torshc.load(tmp_path / "alone.tsc") as trained:
        with pytest.raises(RunError, match="nothing that runs the model") as caught:
            trained.serve()
        assert "--serve-while-training" in caught.value.remedy
        assert trained.publish() == 0  # to nobody
    with torshc.load(digits / "serve") as plain, pytest.raises(RunError, match="does not train"):
        plain.publish()


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    step = write_step(tmp_path, STEP.format("cross_entropy"))
    with pytest.raises(ConfigError, match="--serve-while-training without --train"):
        CompileOptions(serve_while_training=True)
    with pytest.raises(ConfigError, match="--serve-while-training with --emit source"):
        CompileOptions(train=step, serve_while_training=True, emit="source")
    with pytest.raises(ConfigError, match="whose libraries take no weights by name"):
        torshc.compile(convolutional(), tmp_path / "m.tsc", train=step, serve_while_training=True, target="llvm")
    assert not (tmp_path / "m.tsc").exists()


@pytest.mark.parametrize("how", ["plain", "thread"])
def test_a_program_trains_and_runs_by_two_headers(how: str, tmp_path: Path) -> None:
    """Under the thread sanitizer too."""
    cc, flags = compilers.needed().cc, list[str]()
    step, bundle = write_step(tmp_path, STEP.format("mse")), tmp_path / "net.tsc"
    torshc.compile(affine(np.float32), bundle, train=step, serve_while_training=True, keep_intermediates=True)
    if how == "thread":
        flags = ["-fsanitize=thread"]
        host = next((h for h in reversed(compilers.hosts()) if h.kind != "zig" and compilers.links(h.cc, *flags)), None)
        if host is None:
            pytest.skip("no compiler with this sanitizer is here")
        for k, each in enumerate((bundle, bundle / "serve")):
            sanitize.rebuild(each, tmp_path / f"work{k}", find_compiler(host.name), (how,))
        cc = host.cc
    headers, libraries = (
        [f"-I{bundle}", f"-I{bundle / 'serve'}"],
        [bundle / "libmodel.so", bundle / "serve/libmodel.so"],
    )
    for library, name in zip(libraries, ("libnet.so", "libnet_serve.so"), strict=True):
        shutil.copy(library, tmp_path / name)
    linked: list[str | Path] = [f"-L{tmp_path}", "-lnet", "-lnet_serve", f"-Wl,-rpath,{tmp_path}", "-lpthread"]
    command: list[str | Path] = [
        cc,
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        *headers,
        HERE / "serve_test.c",
        *flags,
        *linked,
    ]
    compilers.build([*command, "-o", tmp_path / "serve_test"])
    words = [tmp_path / "serve_test", bundle / "weights.bin", bundle / "serve" / "weights.bin"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout == "ok\n", done.stdout + done.stderr
