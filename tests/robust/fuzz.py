"""Varies files by what of torshc they make run, as Atheris and libFuzzer do it: https://github.com/google/atheris.

    make fuzz WHAT=model SECONDS=600

Models are varied as models half of the time (:mod:`tests.support.mutate`), since most changes of bytes make files that
end at the first look. What is worth going on with is kept in ``build/fuzz/WHAT``, and what fails is written to
``build/fuzz`` with the name that libFuzzer gives it; a file that showed a fault belongs into ``tests/robust/corpus``.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["torshc"]):
    from tests.robust.readers import READERS, ROOT, seeds

from google.protobuf.message import DecodeError
from onnx import ModelProto

from tests.support import mutate

FOLDER = ROOT / "build" / "fuzz"
SECONDS, MEMORY = 20, 4096  # of one file, which is read and compiled in several ways; MiB


def varied(data: bytes, most: int, seed: int) -> bytes:
    """A model with one change of its fields."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return bytes(atheris.Mutate(data, most))
    try:
        model = ModelProto.FromString(data)
        rng.choice(mutate.CHANGES)(model, rng)
        found = model.SerializeToString()
    except (DecodeError, ValueError, TypeError, OverflowError, LookupError, NotImplementedError):  # nothing to change
        return bytes(atheris.Mutate(data, most))
    return bytes(found) if len(found) <= most else bytes(atheris.Mutate(data, most))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzzes what torshc reads, led by coverage.")
    parser.add_argument("what", choices=READERS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    corpus = FOLDER / given.what
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(given.what)):
        (corpus / f"seed{number}").write_bytes(data)
    kept = ROOT / "tests" / "robust" / "corpus" / given.what
    folder = Path(tempfile.mkdtemp(prefix="fuzz", dir=os.environ.get("TMPDIR")))
    path = folder / "file"
    read = READERS[given.what]

    def one(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    flags = [
        f"-max_total_time={given.seconds}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEMORY}", "-max_len=20000",
        f"-artifact_prefix={FOLDER}/{given.what}-", f"-seed={given.seed}", "-print_final_stats=1",
    ]  # fmt: skip
    places = [str(corpus), *([str(kept)] if kept.is_dir() else [])]
    custom = {"custom_mutator": varied} if given.what == "model" else {}
    atheris.Setup([sys.argv[0], *flags, *places], one, **custom)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
