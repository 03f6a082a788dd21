"""Tables of 80 columns, and the same figures as lines of JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .case import Case

WIDTH = 80
_NAME = 29


@dataclass
class Report:
    """Prints a slice's table.

    Attributes:
        slice: what is measured.
        card: where.
        file: a file of lines of JSON, or none.
        faults: lines without figures so far.
        low: figures below what is asked so far.
    """

    slice: str
    card: str
    file: Path | None = None
    faults: int = 0
    low: int = 0

    def compiled(self, count: int, seconds: float, longest: float) -> None:
        """Says what compilation took."""
        print(f"\n{self.slice}: {count} cases compiled in {seconds:.0f} s, the longest in {longest:.0f} s", flush=True)

    def head(self, rate: float) -> None:
        """The table's head; ``rate``: bytes a microsecond of a copy."""
        print(f"on {self.card}; a copy of 1 GiB moves {rate / 1e6:.2f} TB/s (bw); below what is asked: <")
        print(f"{'case':{_NAME}}{'torch us':>10}{'ours us':>10}{'ratio':>7}{'':>9}{'errors':>14}", flush=True)
        self.write(case="copy of 1 GiB", rate=rate)

    def line(
        self,
        case: Case,
        theirs: Mapping[str, float],
        ours: float,
        rate: float,
        worst: Mapping[str, float],
        error: float,
        sets: int,
        faults: Mapping[str, str],
    ) -> None:
        """A case's figures: microseconds of PyTorch's ways and of ours, and errors as norms."""
        best = min(theirs, key=lambda n: theirs[n]) if theirs else ""
        ratio = theirs[best] / ours if best else 0.0
        share = case.moved / rate / ours
        figure = share if case.moved else ratio
        low = figure < case.asked
        wrong = not error <= max([1e-5, *(4 * w for w in worst.values())])  # a NaN is wrong
        self.low += low or wrong
        beside = f"{share:.0%} bw" if case.moved else f"{case.flops / ours / 1e6:.0f} TF" if case.flops else ""
        print(
            f"{case.name[:_NAME]:{_NAME}}"
            + (f"{theirs[best]:10.1f}" if best else f"{'-':>10}")
            + f"{ours:10.1f}"
            + (f"{ratio:7.2f}" if best else f"{'-':>7}")
            + f"{beside:>8}{'<' if low else ' '}"
            + (f"{worst[best]:7.0e}" if best else f"{'-':>7}")
            + f"{error:7.0e}{'!' if wrong else ''}",
            flush=True,
        )
        self.write(
            case=case.name,
            torch_us=dict(theirs),
            ours_us=ours,
            ratio=ratio,
            share=share,
            asked=case.asked,
            low=low,
            wrong=wrong,
            torch_error=dict(worst),
            error=error,
            sets=sets,
            missing=dict(faults),
        )

    def fault(self, case: Case, why: str) -> None:
        """A case without figures."""
        self.faults += 1
        print(f"{case.name[:_NAME]:{_NAME}}  none:")
        print(textwrap.fill(why[:1000], WIDTH - 4, initial_indent="    ", subsequent_indent="    "), flush=True)
        self.write(case=case.name, fault=why)

    def figure(self, name: str, value: float, unit: str, asked: float = float("inf")) -> None:
        """A figure by itself, of which less is better."""
        low = value > asked
        self.low += low
        limit = "" if asked == float("inf") else f"at most {asked:g}"
        print(f"{name:{WIDTH - 30}}{value:12.1f} {unit:2}{'<' if low else ' '}{limit:>13}".rstrip(), flush=True)
        self.write(case=name, value=value, unit=unit, asked=None if asked == float("inf") else asked, low=low)

    def told(self, name: str, why: str) -> None:
        """Figures that are missing."""
        self.faults += 1
        print(textwrap.fill(f"{name}: {why[:1000]}", WIDTH, subsequent_indent="    "), flush=True)
        self.write(case=name, fault=why)

    def write(self, **fields: Any) -> None:
        """A line of JSON."""
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"slice": self.slice, "card": self.card, **fields}) + "\n")
