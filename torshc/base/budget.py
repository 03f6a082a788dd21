"""How much a model may ask for: a small file can ask for endless work, and is refused by the budget it exceeds.

A compilation has one budget, which everything under it asks (:func:`spending`). What merely chooses a method, such as
unrolling a loop, asks it too, and refuses nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from .errors import ConfigError, UnsupportedError, did_you_mean


@dataclass(frozen=True)
class Budget:
    """Limits of a compilation and of what it makes.

    Attributes:
        outputs: outputs of one node.
        nodes: nodes, with all that passes make of them.
        expanded: nodes that functions and bodies of loops and branches expand to.
        unrolled: nodes of a loop, steps of a network that is differentiated, or phases of a kernel, that are written
            one after the other; more are a loop.
        search: elements times what each looks through, in operators that search; 2^30 take about a second of one core.
        steps: what the loops of one kernel come to, where that is known; 2^50 take days.
        folding: bytes of a constant that is computed when compiling; a larger one is computed at run time.
        memory: bytes of a value that is stored.
        matching: steps of finding a rule in a graph, beside 100 for each node; a million take a second or two.
        compiling: seconds that a compiler may take for one source.
        variants: variants of a model for some sizes, in one library.
        observed: variants that are made for what profiles saw; fewer are, where fewer sizes have a part of the time.
        copies: bytes of weights that variants have in an order of their own, beside those of the model itself.
    """

    outputs: int = 1 << 12
    nodes: int = 1 << 22
    expanded: int = 1 << 17
    unrolled: int = 1 << 8
    search: int = 1 << 30
    steps: int = 1 << 50
    folding: int = 1 << 28
    memory: int = 1 << 40
    matching: int = 1 << 20
    compiling: int = 1200
    variants: int = 32
    observed: int = 8
    copies: int = 1 << 29


class OverBudget(UnsupportedError):
    """A model asks for more than a budget; the message still lacks the place."""


_USUAL = Budget()
_CURRENT: ContextVar[Budget] = ContextVar("budget", default=_USUAL)


def budget() -> Budget:
    """The budget of the compilation that is going on; outside of one, the usual."""
    return _CURRENT.get()


@contextmanager
def spending(limits: Mapping[str, int]) -> Iterator[None]:
    """What is compiled here has the usual budget with some other limits."""
    token = _CURRENT.set(Budget(**limits))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def afford(name: str, asked: int, what: str) -> None:
    """Refuse what exceeds a budget.

    Args:
        what: who asks for how much, as the beginning of the message.

    Raises:
        OverBudget: naming the budget, its limit and how to raise it.
    """
    most = getattr(budget(), name)
    if asked > most:
        raise OverBudget([f"{what}, more than the budget {name!r} of {most}"], remedy(name))


def remedy(name: str) -> str:
    """How to raise a budget."""
    return f"check the sizes in the model; if they are meant, raise the budget with --budget {name}=NUMBER"


def check_limits(limits: Mapping[str, int]) -> None:
    """Check limits that a person gives.

    Raises:
        ConfigError: for an unknown budget, or what is no whole number from 1 to 2^63 - 1.
    """
    known = [f.name for f in dataclasses.fields(Budget)]
    for name, most in limits.items():
        if name not in known:
            raise ConfigError(f"there is no budget {name!r}{did_you_mean(name, known)}", f"known: {', '.join(known)}")
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most < 1 << 63:
            raise ConfigError(f"the budget {name!r} is {most!r}, but must be a whole number from 1 to 2^63 - 1")


def parse_budget(text: str) -> tuple[str, int]:
    """A budget's name and its limit, from ``name=number``.

    Raises:
        ConfigError: when the text is not of this form.

    >>> parse_budget("nodes=100000")
    ('nodes', 100000)
    """
    name, _, number = text.partition("=")
    if not name or not (number.isdecimal() and number.isascii()) or len(number) > 19:
        raise ConfigError(f"{text!r} is not a budget", "write NAME=NUMBER")
    check_limits({name: int(number)})
    return name, int(number)
