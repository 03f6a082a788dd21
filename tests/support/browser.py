"""A headless Chromium for tests of pages, spoken to in its DevTools protocol through pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe")
NO_GPU = ("--disable-gpu",)
WEBGPU = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-unsafe-swiftshader",
    # SwiftShader writes out the zeroing of workgroup memory element by element: compiling a kernel with all of it takes
    # 2 s instead of 0.01, and a run twice as long. No kernel of ours needs the zeros.
    "--enable-dawn-features=disable_workgroup_init",
)  # no card is needed
PATIENCE = 60  # seconds


def find() -> str | None:
    """The browser's program, if there is one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """A browser with one page.

    Args:
        program: from :func:`find`.
        profile: an empty folder for its files.
        flags: more flags; with :data:`WEBGPU` pages have that, on the processor.
        patience: seconds that it may take to answer.
    """

    def __init__(self, program: str, profile: Path, flags: Sequence[str] = NO_GPU, patience: float = PATIENCE) -> None:
        self.patience = patience
        there, self.out = os.pipe()
        self.inside, here = os.pipe()

        def place() -> None:  # the browser reads from handle 3 and writes to 4; of new handles, `there` is the lowest
            os.dup2(there, 3)
            os.dup2(here, 4)
            os.set_inheritable(3, True)

        self.process = subprocess.Popen(
            [program, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4), preexec_fn=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(here)
        self.count, self.session, self.rest = 0, "", b""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1500, height=950, deviceScaleFactor=1, mobile=False)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.inside)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A method of the protocol; what it answers."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"])[:2000])
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.inside], [], [], self.patience)
            got = os.read(self.inside, 1 << 20) if ready else b""
            assert got, "the browser has ended" if ready else "the browser does not answer"
            self.rest += got
        message, _, self.rest = self.rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def run(self, script: str) -> Any:
        """The value of an expression in the page, waited for if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def open(self, page: Path | str) -> None:
        """Opens a page, by its file or its address, that says by ``data-ready`` of its body that it is done."""
        self.call("Page.navigate", url=page if isinstance(page, str) else page.absolute().as_uri())
        self.run("""new Promise((done) => {
            const look = () => document.body?.dataset.ready ? done(true) : setTimeout(look, 10); look(); })""")

    def click(self, x: float, y: float) -> None:
        """A click with the mouse, in pixels of the page."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, points: Sequence[tuple[float, float]], steps: int = 5) -> None:
        """Moves the mouse along points of the page, its button held."""
        ways = [(p, q, k / steps) for p, q in pairwise(points) for k in range(1, steps + 1)]
        moves = [(p[0] + (q[0] - p[0]) * part, p[1] + (q[1] - p[1]) * part) for p, q, part in ways]
        kinds = ["mousePressed", *["mouseMoved"] * len(moves), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [points[0], *moves, points[-1]], strict=True):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def picture(self, file: Path) -> None:
        """A screenshot."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
