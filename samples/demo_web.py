#!/usr/bin/env python3
"""What ``make demo-web`` runs: the digits model in the browser, by WebGPU, with nothing but its own files.

Compiles ``digits.onnx``, and a training step of it, to pages, puts those of ``web/`` beside them, on which digits are
drawn and learned, and serves all until it is interrupted.

    demo_web.py [FOLDER [PORT]]        where they go, build/web/ if not given; the port, any that is free
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx

import torshc

SAMPLES = Path(__file__).resolve().parent
MODEL = SAMPLES / "digits.onnx"
BATCH = 32  # pictures of a training step
GREYS = 16  # of a pixel


def build(folder: Path) -> None:
    """Writes the pages, and in ``model/`` the compiled model that the one for drawing loads."""
    shutil.copytree(SAMPLES / "web", folder, dirs_exist_ok=True)
    torshc.compile(MODEL, folder / "model", target="webgpu", emit="page")


def build_learning(folder: Path) -> None:
    """Writes what the page for learning loads: a training step, the model to run with its weights, and pictures."""
    torshc.compile(
        MODEL, folder / "train", target="webgpu", emit="page", train=SAMPLES / "learn_digits.yaml",
        shapes={"image": (BATCH, 1, 8, 8)},
    )  # fmt: skip
    torshc.compile(open_weights(MODEL), folder / "open", target="webgpu", emit="page")
    for name in ("train", "test"):
        (folder / f"{name}.bin").write_bytes(picture_bytes(SAMPLES / f"digits_{name}.npz"))


def open_weights(file: Path) -> bytes:
    """The model with its weights as inputs, so that a page can run it with those that it has trained."""
    model = onnx.load(file)
    for weight in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    del model.graph.initializer[:]
    return model.SerializeToString()


def picture_bytes(file: Path) -> bytes:
    """A byte for what a picture shows and one for each of its pixels, picture by picture."""
    found = np.load(file)
    pixels = np.rint(found["images"].reshape(len(found["labels"]), -1) * GREYS)
    return np.column_stack([found["labels"], pixels]).astype(np.uint8).tobytes()


def main(folder: str = "build/web", port: str = "0") -> None:
    """The demo."""
    print("Compiling the model, and a training step of it ...", flush=True)
    build(Path(folder))
    build_learning(Path(folder))
    files = [file for file in sorted(Path(folder).rglob("*")) if file.is_file()]
    for file in files:
        print(f"  {file.stat().st_size / 1024:8.1f} KiB  {file}")
    with ThreadingHTTPServer(("127.0.0.1", int(port)), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        print(f"\nOpen http://127.0.0.1:{server.server_address[1]}/ in a browser with WebGPU; Ctrl-C ends.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main(*sys.argv[1:3])
