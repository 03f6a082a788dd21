"""Nanoseconds an element of functions that kernels in C hold, in vectors of 16, 8 and 4 lanes.

``exp_f64`` is a NAME, and so are conversions of narrow types, ``decode_f8e5m2``, whose elements come from memory.

    python -m tests.speed.functions [--beside FOLDER] [--rounds N] [NAME ...]

With ``--beside`` each is measured in turns with the same function of other headers, such as those of a checkout of an
earlier commit, and what differs is said.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import compilers
from torshc.base.resources import templates
from torshc.expr import FUNCTIONS
from torshc.expr.formulas import ELEMENTARY, EXACT, PRINTED, arguments_of, find_formula, operands_of
from torshc.expr.formulas_narrow import CONVERSIONS
from torshc.targets.cpu.vector_functions import library
from torshc.targets.toolchain import BASE_FLAGS

WIDTHS = {16: ["-march=x86-64-v4", "-mprefer-vector-width=512"], 8: ["-march=x86-64-v3"], 4: ["-march=x86-64"]}
# Where arguments lie; elsewhere within 4 of 0.
RANGES = {
    **dict.fromkeys(("log", "log1p", "pow"), (0.1, 4.0)), "acosh": (1.1, 9.0), "exp_low": (-9.0, 0.0),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.99, 0.99)),
}  # fmt: skip
PROGRAM = """\
#include <stdio.h>
#include <time.h>
#if __has_include("t_narrow.h") /* before kernels held their conversions */
#include "t_narrow.h"
#endif
#include "t_kernel.h"
%(functions)s
enum { N = 2048, TIMES = 8 };
float in_f32[N], out_f32[N]; /* which might be read elsewhere */
double in_f64[N], out_f64[N];
uint8_t in_u8[N], in_i8[N], out_u8[N], out_i8[N];
uint16_t in_u16[N], out_u16[N];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
%(loops)s
static const struct { void (*run)(void); float low, high; } entries[] = {%(entries)s};

int main(void) {
    for (size_t k = 0; k < sizeof entries / sizeof *entries; k++) {
        double best = 1e30;
        const float low = entries[k].low, high = entries[k].high;
        for (int i = 0; i < N; i++) {
            in_f64[i] = in_f32[i] = low + (high - low) * (float)(i * 37 %% N) / N;
            in_i8[i] = in_u8[i] = (uint8_t)i, in_u16[i] = (uint16_t)(i * 37);
        }
        for (int round = 0; round < 40; round++) {
            const double start = now();
            for (int t = 0; t < TIMES; t++) entries[k].run();
            const double took = (now() - start) / N / TIMES;
            if (took < best) best = took;
        }
        printf("%%.4f\\n", best);
    }
}
"""
LOOP = """
static __attribute__((noinline)) void run_%(name)s(void) {
    for (int i = 0; i < N; i += TORSHC_LANES) t_store_%(to)s(out_%(to)s + i, t_%(name)s(%(call)s));
}"""


def program(names: Sequence[str], functions: str) -> str:
    """The text of a program that prints what each function takes."""
    loops, entries = "", []
    for name in names:
        op, _, dtype = name.rpartition("_")
        count, to = len(arguments_of(FUNCTIONS[op])) if name in ELEMENTARY else 1, dtype
        if (formula := find_formula(name, EXACT)) is not None:
            (dtype, *_), to = (t.name for t in operands_of(formula).values()), formula.dtype.name
        call = ", ".join([f"t_load_{dtype}(in_{dtype} + i)"] * count)
        loops += LOOP % {"name": name, "to": to, "call": call}
        low, high = RANGES.get(op, (-4.0, 4.0))
        entries.append(f"{{run_{name}, {low}f, {high}f}}")
    return PROGRAM % {"functions": functions, "loops": loops, "entries": ", ".join(entries)}


def measured(programs: Sequence[Path], rounds: int) -> Iterator[tuple[float, ...]]:
    """The least time of each function in each program, which take turns."""
    found = [[1e30] * 1000 for _ in programs]
    for _ in range(rounds):
        for best, p in zip(found, programs, strict=True):
            times = subprocess.run([p], capture_output=True, text=True, check=True).stdout.split()
            best[:] = [min(b, float(t)) for b, t in zip(best, times, strict=False)]
    yield from zip(*found, strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="functions; all unless given")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="a folder with another t_kernel.h")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs")
    parser.add_argument("--lanes", type=int, nargs="*", default=[*WIDTHS], choices=[*WIDTHS])
    options = parser.parse_args()
    names = options.names or sorted(n for n in ELEMENTARY if n.endswith("_f32")) + list(CONVERSIONS)
    names = [n if n in PRINTED else f"{n}_f32" for n in names]
    sides = [templates("c") / "prelude", *([options.beside] if options.beside else [])]
    with TemporaryDirectory() as folder:
        for kind in ("clang", "gcc"):
            for lanes in options.lanes:
                made = []
                for k, include in enumerate(sides):
                    source, binary = Path(folder) / f"{k}.c", Path(folder) / f"{kind}-{lanes}-{k}"
                    source.write_text(program(names, "" if k else library(lanes)))
                    flags = [*BASE_FLAGS, "-O3", *WIDTHS[lanes], f"-DTORSHC_LANES={lanes}", f"-I{include}"]
                    compilers.build([compilers.needed(kind).cc, *flags, source, "-o", binary, "-lm"])
                    made.append(binary)
                for name, times in zip(names, measured(made, options.rounds), strict=False):
                    text = f"{kind:5} {lanes:2} lanes  {name:17} {times[0]:7.3f} ns"
                    print(text + (f" {times[1]:7.3f} ns  {times[0] / times[1] - 1:+6.1%}" if len(times) > 1 else ""))


if __name__ == "__main__":
    main()
