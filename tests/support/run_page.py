"""Runs models in a headless Chromium and compares with ONNX Runtime: ``make browser MODELS="a.onnx b.onnx"``.

WebGPU is Chromium's own, on the processor, so that no card is needed. With ``--peer FOLDER``, the ``dist`` folder of
the npm package onnxruntime-web, that runs the same models in the same browser: its latency and its bytes stand beside.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import torshc
from torshc.base.manifest import TensorSpec
from torshc.pipeline.tolerance import Tolerance
from torshc.runtime.manifest import read_manifest
from torshc.workbench.feeds import make_inputs
from torshc.workbench.verify import compare, reference_outputs

from .browser import WEBGPU, Browser, find
from .serve import serving

PATIENCE = 600
LEVEL = 3
COMMON = """
    const read = async (k, x) => {
        const bytes = await (await fetch(`/in${k}.bin`)).arrayBuffer();
        return { data: new globalThis[x.array](bytes), dims: x.dims };
    };
    const text = ({ buffer, byteOffset, byteLength }) => {
        const bytes = new Uint8Array(buffer, byteOffset, byteLength);
        let found = "";
        for (let k = 0; k < bytes.length; k += 4096) found += String.fromCharCode(...bytes.subarray(k, k + 4096));
        return btoa(found);
    };
    const timed = async (run) => {
        const began = performance.now();
        const first = await run();
        const times = [performance.now() - began];
        while (times.length < 20 && performance.now() - began < 8000) {
            const from = performance.now();
            await run();
            times.push(performance.now() - from);
        }
        return [first, times];
    };
    const fed = {};
    for (const [k, x] of given.entries()) fed[x.name] = await read(k, x);
"""
OURS = """
    const began = performance.now();
    const model = await (await import("/model/model.js")).load();
    const opened = performance.now() - began;
    const [first, times] = await timed(() => model.run(fed));
    const entries = Object.entries(first).map(([name, t]) => [name, [text(t.data), t.dims]]);
    const outputs = Object.fromEntries(entries);
    return { outputs, times, opened };
"""
PEER = """
    performance.clearResourceTimings();
    const ort = await import(provider === "webgpu" ? "/ort/ort.webgpu.min.mjs" : "/ort/ort.wasm.min.mjs");
    ort.env.wasm.wasmPaths = "/ort/";
    ort.env.wasm.numThreads = 1;
    ort.env.logLevel = "error";
    const began = performance.now();
    const session = await ort.InferenceSession.create("/model.onnx", { executionProviders: [provider] });
    const opened = performance.now() - began;
    const of = Object.fromEntries(given.map((x) => [x.name, new ort.Tensor(x.ort, fed[x.name].data, x.dims)]));
    const [, times] = await timed(() => session.run(of));
    const bytes = performance.getEntriesByType("resource").filter((e) => e.name.includes("/ort/"))
        .reduce((sum, e) => sum + e.decodedBodySize, 0);
    return { times, opened, bytes };
"""
ARRAYS = {
    "f32": ("Float32Array", "float32"), "i64": ("BigInt64Array", "int64"), "i32": ("Int32Array", "int32"),
    "bool": ("Uint8Array", "bool"), "u8": ("Uint8Array", "uint8"), "f16": ("Uint16Array", "float16"),
}  # fmt: skip


def prepare(model: Path, folder: Path, level: int) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Tolerance]]:
    """Compiles a model and draws inputs: what the scripts are given, what ONNX Runtime answers, and how nearly."""
    done: Any = torshc.compile(model, folder / "model", target="webgpu", emit="page", opt_level=level)
    body = json.loads((folder / "model" / "manifest.json").read_text())
    specs = [TensorSpec(t["name"], t["dtype"], tuple(t["dims"])) for t in body["inputs"]]
    feeds = make_inputs(specs, defaults=(1, 16), needs=read_manifest(folder / "model").needs).arrays
    for k, spec in enumerate(specs):
        feeds[spec.name].tofile(folder / f"in{k}.bin")
    given = [
        {"name": s.name, "dims": [*feeds[s.name].shape], "array": ARRAYS[s.dtype][0], "ort": ARRAYS[s.dtype][1]}
        for s in specs
    ]
    names = [t["name"] for t in body["outputs"]]
    return given, reference_outputs(model, "ort", names, feeds), dict(zip(names, done.tolerances, strict=True))


def run(browser: Browser, body: str, **given: Any) -> Any:
    """What a script returns, with these as its variables."""
    names = ", ".join(given)
    return browser.run(f"(async ({{ {names} }}) => {{ {COMMON} {body} }})({json.dumps(given)})")


def figures(found: dict[str, Any], size: int) -> str:
    """Latency and bytes, for people."""
    first, *rest = found["times"]
    median = np.median(rest or [first])
    opened = f"{found['opened']:7.0f} ms to open, {size / 1e6:8.2f} MB fetched"
    return f"{median:9.1f} ms a run, {first:8.1f} the first, {opened}"


def check(browser: Browser, model: Path, folder: Path, options: argparse.Namespace) -> bool:
    """Runs one model; whether its answers are right."""
    given, wanted, allowed = prepare(model, folder, options.level)
    found = run(browser, OURS, given=given)
    right = True
    for name, (data, dims) in found["outputs"].items():
        got = np.frombuffer(base64.b64decode(data), wanted[name].dtype).reshape(dims)
        result = compare(name, got, wanted[name], allowed[name])
        right &= result.ok
        figure = f"{result.error:.1e} of {result.allowed:.0e}"
        print(f"{model.name}: {name!a:.60} max|a-b|/max|b| {figure} {result.problem}", flush=True)
    files = [folder / "model" / name for name in ("model.js", "weights.bin")]
    print(f"  torshc        {figures(found, sum(f.stat().st_size for f in files if f.exists()))}", flush=True)
    for provider in ("webgpu", "wasm") if options.peer else ():
        shutil.copy(model, folder / "model.onnx")
        try:
            theirs = run(browser, PEER, given=given, provider=provider)
            print(f"  ort {provider:8}  {figures(theirs, theirs['bytes'] + model.stat().st_size)}", flush=True)
        except AssertionError as error:
            print(f"  ort {provider:8}  {str(error)[:300]}", flush=True)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--level", type=int, default=LEVEL)
    parser.add_argument("--peer", type=Path)
    options = parser.parse_args()
    program = find()
    assert program is not None, "no Chromium here"
    right = True
    for model in options.models:
        with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as profile:
            folder = Path(name)
            (folder / "blank.html").write_text("<body data-ready=yes>")
            if options.peer:
                (folder / "ort").symlink_to(options.peer.absolute())
            with serving(folder) as address, Browser(program, Path(profile), WEBGPU, PATIENCE) as browser:
                browser.open(f"{address}/blank.html")
                right &= check(browser, model, folder, options)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
