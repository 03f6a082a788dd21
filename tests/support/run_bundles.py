"""Runs bundles on inputs from files, in a process that has a sanitizer's runtime preloaded.

Each line of stdin is JSON: a bundle, then pairs of a file of inputs and one to write outputs to, arrays by number. A
line of stdout follows for each: empty, or what the run was refused for.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import torshc
from torshc.base.errors import RunError


def ran(bundle: str, files: list[list[str]]) -> str:
    with torshc.load(bundle, threads=2, verify=False) as model:
        for inputs, outputs in files:
            with np.load(inputs) as stored:
                # Copies: each input ends where its allocation ends.
                feeds = {spec.name: stored[f"i{k}"].copy() for k, spec in enumerate(model.inputs)}
            try:
                found = model.run(feeds)
            except RunError as error:
                return " ".join(str(error).split())
            np.savez(outputs, **{f"o{k}": array for k, array in enumerate(found.values())})
    return ""


def main() -> None:
    for line in sys.stdin:
        print(ran(*json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
