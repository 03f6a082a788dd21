from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from torshc.expr import BF16, as_int, const
from torshc.kernels.machine import Machine
from torshc.targets.cpu import winograd
from torshc.targets.cpu.bf16 import AmxKernel, Bf16GemmKernel, DotKernel
from torshc.targets.cpu.conv_shape import geometry
from torshc.targets.cpu.winograd import FORMS, Form, ResultsKernel, WinogradKernel
from torshc.targets.isa import resolve

from ...support.kernels import Maker, random
from ...support.run_kernel import Array, Program, compilers, kind_of, native_lanes

LAST = (0, 2, 3, 1)
UNIT = 2.0**-24
ALL = 1_000_000  # roundings with which every form is allowed
WIDE = 400  # filters of 16 channels that no cache of a core holds, transformed for F(4)


def program(
    channels: int,
    filters: Array,
    size: int,
    slack: int | None,
    images: int = 1,
    compiler: str = "",
    known: bool = True,
    stride: int = 1,
    pad: int = 1,
    groups: int = 1,
    brought: bool = False,
) -> Program:
    """A convolution of images of size x size.

    Args:
        known: whether the compiler knows how many.
        brought: whether a run brings the filters.
    """
    m = Maker()
    compiler = compiler or compilers()[0]
    x = m.input(images if known else "images", channels, size, size, layout=LAST)
    plain = {"strides": (stride,) * 2, "dilations": (1, 1), "group": groups, "pads": (const(pad),) * 4}
    w = m.input(*filters.shape) if brought else m.constant(filters)
    y = m.add("Conv", x, w, layout=LAST, **plain)
    return Program(m.output(y), {"images": images}, Machine(native_lanes(), kind_of(compiler), slack=slack), compiler)


def convolved(x: Array, filters: Array, stride: int = 1, pad: int = 1) -> Array:
    """The same in double precision."""
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    taps = filters.astype(np.float64)
    side = taps.shape[-1]
    ends = [i + padded.shape[-1] - side + 1 for i in range(side)]
    found: Array = sum(
        np.einsum("oc,nchw->nohw", taps[:, :, i, j], padded[:, :, i : ends[i] : stride, j : ends[j] : stride])
        for i in range(side)
        for j in range(side)
    )
    return found


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_transforms_are_exact(form: Form) -> None:
    """Of whole numbers, in exact arithmetic, a tile is the plain sums."""
    rng = np.random.default_rng(3)
    d = [Fraction(int(n)) for n in rng.integers(-9, 9, form.points)]
    w = [Fraction(int(n)) for n in rng.integers(-9, 9, 3)]
    products = [
        sum(b * x for b, x in zip(bs, d, strict=True)) * sum(g * x for g, x in zip(gs, w, strict=True))
        for bs, gs in zip(form.inputs, form.weights, strict=True)
    ]
    found = [sum(a * p for a, p in zip(row, products, strict=True)) for row in form.results]
    assert found == [sum(d[k + i] * w[i] for i in range(3)) for k in range(form.outputs)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_weights_are_transformed_in_double_precision(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "FILTERS", 24)
    filters = random(np.random.default_rng(4), (10, 5, 3, 3))
    g = np.array(form.weights, np.float64)
    expected = np.einsum("ia,ocab,jb->ijco", g, filters.astype(np.float64), g).astype(np.float32)
    packed = winograd._transform(form, filters, 8)
    assert packed.shape == (form.points, form.points, 2, 5, 8)
    found = packed.swapaxes(2, 3).reshape(form.points, form.points, 5, 16)
    np.testing.assert_array_max_ulp(found[..., :10], expected, 1)  # sums of three terms in another order
    assert not found[..., 10:].any()


@pytest.mark.parametrize(
    ("taps", "stride", "pad", "groups", "count", "size"),
    [
        (5, 1, 2, 1, 48, 13),
        (5, 2, 1, 1, WIDE, 19),
        (4, 2, 0, 1, 48, 25),
        (6, 1, 3, 1, 48, 13),
        (5, 1, 1, 2, 96, 15),
        (3, 1, 1, 2, 384, 9),
        (3, 1, 1, 3, 144, 13),
    ],
)
def test_larger_kernels_and_groups(taps: int, stride: int, pad: int, groups: int, count: int, size: int) -> None:
    """Also where inputs are not finite, which no output reads by the zeros that fill a part up."""
    rng = np.random.default_rng(17)
    filters, x = random(rng, (count, 64, taps, taps)) / np.float32(8 * taps), random(rng, (2, 64 * groups, size, size))
    filters[:, 3] = 1
    x[1, 3, 5, 6] = np.inf
    made = program(64 * groups, filters, size, ALL, 2, stride=stride, pad=pad, groups=groups)
    assert isinstance(made.kernels[-1], ResultsKernel) or native_lanes() < 8
    found = made.run(x)[0]
    parts = zip(np.split(x, groups, axis=1), np.split(filters, groups), strict=True)
    expected = np.concatenate([convolved(some, own, stride, pad) for some, own in parts], axis=1)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], np.inf)
    assert not finite.all() and finite[1].any()
    np.testing.assert_allclose(found[finite], expected[finite], rtol=0, atol=1e-5 * np.abs(expected[finite]).max())


def test_gains() -> None:
    assert [round(form.gain, 2) for form in FORMS] == [1.67, 4.78]
    assert round(Form((Fraction(1), Fraction(2))).gain, 2) == 10.77
    assert FORMS[0].roundings(64) < 9 * 64 < FORMS[1].roundings(64)


@pytest.mark.parametrize("slack", [0, ALL], ids=["F(2)", "F(4)"])
@pytest.mark.parametrize("positive", [False, True], ids=["normal", "relu"])
def test_errors_over_channels_are_at_most_what_is_stated(slack: int, positive: bool) -> None:
    """Mean to mean and largest to largest, against double precision."""
    rng = np.random.default_rng(5)
    for channels in (16, 64, 256, 512):
        filters = random(rng, (32, channels, 3, 3)) / np.float32((9 * channels) ** 0.5)
        x = random(rng, (1, channels, 16, 16))
        x = np.maximum(x, 0) if positive else x
        made = program(channels, filters, 16, slack)
        kernel = made.kernels[-1]
        if not isinstance(kernel, ResultsKernel):
            assert native_lanes() < 8
            return
        assert kernel.form is FORMS[slack == ALL]
        expected = convolved(x, filters)
        off = made.run(x)[0] - expected
        stated = 0.42 * UNIT * kernel.roundings**0.5
        assert np.sqrt((off**2).mean()) <= stated * np.sqrt((expected**2).mean())
        # The last output of a tile of F(4) has a gain of 8.2 where their mean is 4.8, so the largest errors are there.
        assert np.abs(off).max() <= 8.2 / 4.8 * stated * np.abs(expected).max()


@pytest.mark.parametrize("count", [16, WIDE], ids=["one kernel", "three"])
@pytest.mark.parametrize("compiler", compilers())
def test_what_is_not_finite_stays_where_it_is(count: int, compiler: str) -> None:
    """Transforms would spread infinities over a tile as NaN, and make them of numbers that are large."""
    rng = np.random.default_rng(7)
    filters, x = random(rng, (count, 16, 3, 3)), random(rng, (1, 16, 19, 19))
    filters[3, 2] = 0
    x[0, 2, 5, 6], x[0, 1, 9, 12], x[0, 4, 18, 18], x[0, 5, 14, 2] = np.inf, np.nan, -np.inf, 3e38
    filters[:, 5] /= 64
    found = program(16, filters, 19, ALL, compiler=compiler).run(x)[0]
    plain = program(16, filters, 19, None, compiler=compiler).run(x)[0]
    finite = np.isfinite(plain)
    assert not finite.all() and (finite[0, 0, 12:15, 1:3]).any()
    np.testing.assert_array_equal(found[~finite], plain[~finite])
    near = np.abs(plain) < 1e30
    np.testing.assert_allclose(found[near & finite], plain[near & finite], rtol=0, atol=2e-4)
    np.testing.assert_allclose(found[finite & ~near], plain[finite & ~near], rtol=1e-5)


@pytest.mark.parametrize("form", [DotKernel, AmxKernel])
def test_halves_have_fewer_products_where_pairs_are_their_best(form: type[Bf16GemmKernel]) -> None:
    """Of floats, which takes less time than pairs in spite of twice their rate, but more than tiles."""
    rng = np.random.default_rng(11)
    x, filters = (random(rng, shape).astype(BF16.numpy) for shape in ((2, 64, 16, 16), (64, 64, 3, 3)))
    plain = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": (const(1),) * 4, "out": "f32"}
    expected = convolved(x.astype(np.float32), filters.astype(np.float32))
    compiler = compilers()[0]
    for slack in (None, ALL):
        m = Maker()
        y = m.add("Conv", m.input(*x.shape, dtype=BF16, layout=LAST), m.constant(filters), layout=LAST, **plain)
        machine = Machine(native_lanes(), kind_of(compiler), extras=form.needs, slack=slack)
        made = Program(m.output(y), {}, machine, compiler)
        fewer = any(isinstance(k, ResultsKernel) for k in made.kernels)
        assert fewer == (form is DotKernel and slack is not None) or native_lanes() < 8
        np.testing.assert_allclose(made.run(x)[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_an_images_bits_do_not_depend_on_its_place() -> None:
    """Of one library; one for another number of images is compiled anew, and may fuse other products and sums."""
    rng = np.random.default_rng(9)
    filters, x = random(rng, (32, 32, 3, 3)), random(rng, (1, 32, 13, 13))
    for slack in (0, ALL):
        together = program(32, filters, 13, slack, images=5).run(np.repeat(x, 5, axis=0))[0]
        alone = program(32, filters, 13, slack).run(x)[0]
        for each in together:
            np.testing.assert_array_equal(each, together[0])
        # Fusing leaves out roundings of 2^-24 of a term; some 36 behind each other come to 2e-6 of the largest.
        np.testing.assert_allclose(together[0], alone[0], rtol=0, atol=2e-6 * np.abs(alone).max())


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize(("channels", "count", "size"), [(16, 24, 45), (16, WIDE, 19), (64, 144, 26)])
def test_bits_do_not_depend_on_how_tasks_are_shared(channels: int, count: int, size: int, compiler: str) -> None:
    """One thread gets all tasks of a kernel together, several get some of them each."""
    rng = np.random.default_rng(11)
    filters, x = random(rng, (count, channels, 3, 3)), random(rng, (1, channels, size, size))
    for slack in (0, ALL):
        made = program(channels, filters, size, slack, compiler=compiler)
        made.run(x)
        alone = made.read(made.graph.results[0])
        assert len(made.launches) == 1 or [k.kind for k in made.kernels][::2] == ["winograd_inputs", "winograd_outputs"]
        for parts in (1, 2, 3, 5):
            for launch in made.launches:
                assert launch.tasks > 1
                for cut in range(parts):
                    launch.run(launch.tasks * cut // parts, launch.tasks * (cut + 1) // parts)
            np.testing.assert_array_equal(made.read(made.graph.results[0]), alone)


@pytest.mark.skipif(native_lanes() < 8, reason="plain sums are faster")
def test_layers_of_many_weights_and_few_tiles_have_tasks_for_many_threads() -> None:
    """Of ResNet-50: blocks of tiles, of which there are one or two, read all weights each."""
    rng = np.random.default_rng(13)
    for channels, size in ((128, 28), (256, 14)):
        made = program(channels, random(rng, (channels, channels, 3, 3)), size, ALL)
        assert [k.kind for k in made.kernels] == ["winograd_inputs", "gemm", "winograd_outputs"]
        assert min(launch.tasks for launch in made.launches) >= 16
    few = program(128, random(rng, (32, 128, 3, 3)), 14, ALL)  # of DenseNet: every core has its weights
    (kernel,) = few.kernels
    assert isinstance(kernel, WinogradKernel) and kernel.block == 16 and as_int(kernel.strips) == 2


def test_forms_of_more_weights_are_taken_where_a_processor_reads_them_fast() -> None:
    """A layer of VGG-19, by 16 tiles of 4x4, whose weights take 38 MB."""
    m = Maker()
    w = m.constant(np.ones((512, 512, 3, 3), np.float32))
    plain = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": (const(1),) * 4}
    m.add("Conv", m.input(1, 512, 14, 14, layout=LAST), w, layout=LAST, **plain)
    size = geometry(m.graph.nodes[-1], 512, 512)
    assert size is not None
    machine = Machine(16, slack=ALL)
    for name, outputs in (("x86-64-v4", 2), ("sapphirerapids", 2), ("znver4", 4), ("x86-64-v4-bf16", 4)):
        (choice,) = winograd.choose_forms(size, w, replace(machine, extras=resolve(name).extras))
        assert choice.form is not None and choice.form.outputs == outputs


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize(
    ("channels", "count", "size"),
    [(16, 24, 45), (16, WIDE, 19), (128, 32, 7), pytest.param(64, WIDE, 9, marks=pytest.mark.slow)],
)
def test_numbers_of_images_that_a_run_knows_take_the_kernels_of_known_ones(
    channels: int, count: int, size: int, compiler: str
) -> None:
    rng = np.random.default_rng(15)
    filters = random(rng, (count, channels, 3, 3))
    taken = set()
    for images in (0, 1, 4, 32) if compiler == compilers()[0] else (3,):
        x = random(rng, (images, channels, size, size))
        for slack in (0, ALL):
            made = program(channels, filters, size, slack, images, compiler, known=False)
            found, expected = made.run(x)[0], convolved(x, filters)
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max(initial=0))
            launched = [launch.kernel for launch in made.launches if launch.tasks]
            if images:
                wanted = program(channels, filters, size, slack, images, compiler).kernels
                assert [(k.kind, getattr(k, "form", None)) for k in launched] == [
                    (k.kind, getattr(k, "form", None)) for k in wanted
                ]
            taken.add(tuple(k.kind for k in launched))
    assert len(taken) > 1 or compiler != compilers()[0] or native_lanes() < 8


def test_weights_that_a_transform_may_overflow_are_summed_plainly() -> None:
    """Where a run brings them, what they make infinite or NaN is computed again."""
    filters, x = np.ones((32, 32, 3, 3), np.float32), random(np.random.default_rng(19), (1, 32, 20, 20))
    brought = program(32, filters, 20, ALL, brought=True)
    for value, kind in ((2.0, "winograd"), (1e30, "conv"), (np.inf, "conv"), (np.nan, "conv")):
        filters[0, 0, 0, 0] = value
        (kernel,) = program(32, filters, 20, ALL).kernels
        assert kernel.kind == (kind if native_lanes() >= 8 else "conv") or native_lanes() < 8
        last = brought.kernels[-1]
        assert (isinstance(last, WinogradKernel) and last.form is FORMS[0]) or native_lanes() < 8
        with np.errstate(invalid="ignore"):
            expected = convolved(x, filters)[0]
        for found, wanted in zip(brought.run(x, filters)[0][0], expected, strict=True):
            np.testing.assert_allclose(
                found, wanted, rtol=0, atol=2e-5 * np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
            )
