#!/usr/bin/env python3
"""What ``make demo-web`` runs: the digits model in the browser, by WebGPU, with nothing but its own files.

Compiles ``digits.onnx`` to a page, puts the drawing page of ``web/`` beside it and serves both until it is interrupted.

    demo_web.py [FOLDER [PORT]]        where they go, build/web/ if not given; the port, any that is free
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torshc

SAMPLES = Path(__file__).resolve().parent


def build(folder: Path) -> None:
    """Writes the drawing page and, in ``model/``, the compiled model."""
    shutil.copytree(SAMPLES / "web", folder, dirs_exist_ok=True)
    torshc.compile(SAMPLES / "digits.onnx", folder / "model", target="webgpu", emit="page")


def main(folder: str = "build/web", port: str = "0") -> None:
    """The demo."""
    build(Path(folder))
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
