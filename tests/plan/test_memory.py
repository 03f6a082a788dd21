"""Arena planning: what lives at once never overlaps, what does not shares."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from torshc.expr import Expr, as_int, const, dim, select, substitute
from torshc.plan.memory import ALIGN, Item, place

ITEMS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 5)), max_size=30)


@given(ITEMS)
def test_live_items_never_overlap(sizes: list[tuple[int, int, int]]) -> None:
    items = [Item(k, const(n), first, first + more) for k, (n, first, more) in enumerate(sizes)]
    offsets, total = place(items)
    end = as_int(total)
    assert end is not None
    for a in items:
        low = as_int(offsets[a.key])
        assert low is not None and low % ALIGN == 0 and low + (as_int(a.nbytes) or 0) <= end
        for b in items:
            if a.key != b.key and not (a.last < b.first or b.last < a.first):
                other = as_int(offsets[b.key])
                assert other is not None
                assert low + (as_int(a.nbytes) or 0) <= other or other + (as_int(b.nbytes) or 0) <= low


def test_memory_of_the_dead_is_used_again() -> None:
    items = [Item(k, const(1000), k, k + 1) for k in range(10)]
    assert as_int(place(items)[1]) == 2 * 1024


def test_symbolic_sizes_share_slots_of_the_same_size() -> None:
    n = dim("n") * 4
    offsets, total = place([Item("a", n, 0, 1), Item("b", n, 1, 2), Item("c", n, 2, 3)])
    assert offsets["a"] is offsets["c"] and offsets["a"] is not offsets["b"]
    assert total is offsets["b"] + offsets["b"]


def test_symbolic_sizes_share_slots_of_the_largest() -> None:
    n = dim("n") * 1024
    offsets, total = place([Item("a", n, 0, 1), Item("b", n * 4, 1, 2), Item("c", n * 3, 2, 3), Item("d", n * 2, 3, 4)])
    assert offsets["d"] is offsets["b"] and offsets["a"] is offsets["c"]
    assert total is n * 7


@settings(deadline=None)
@given(ITEMS, st.integers(0, 70))
def test_live_items_of_symbolic_sizes_never_overlap(sizes: list[tuple[int, int, int]], count: int) -> None:
    n = dim("n")
    few = [select(n <= k, n * (k * 300), const(0)) for k in range(0, 70, 10)]
    items = [
        Item(k, n * (number % 7) + few[number % len(few)], first, first + more)
        for k, (number, first, more) in enumerate(sizes)
    ]
    offsets, total = place(items)

    def known(e: Expr) -> int:
        value = as_int(substitute(e, {n: const(count)}))
        assert value is not None
        return value

    spans = {i.key: (known(offsets[i.key]), known(offsets[i.key]) + known(i.nbytes)) for i in items}
    for a in items:
        low, high = spans[a.key]
        assert low % ALIGN == 0 and high <= known(total)
        for b in items:
            if a.key != b.key and a.first <= b.last and b.first <= a.last:
                assert high <= spans[b.key][0] or spans[b.key][1] <= low
