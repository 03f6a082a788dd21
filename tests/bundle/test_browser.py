"""Models in a browser: what a page runs is right, and says clearly what is wrong with what it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import torshc
from torshc.base.errors import ConfigError, UnsupportedError
from torshc.base.resources import find_template
from torshc.bundle.browser import literal, require_device_only
from torshc.bundle.browser_sizes import javascript
from torshc.bundle.host import HostProgram, Launch
from torshc.bundle.package import BROWSER, is_bundle
from torshc.expr import F32, F64, I32, I64, Expr, as_int, call, cast, const, dim, select, substitute
from torshc.targets.gpu.webgpu.functions import functions

from ..support.browser import WEBGPU, Browser, find
from ..support.serve import serving
from ..training.networks import ADAM, Reference, batches, convolutional, write_step

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
HOSTILE = '</script><img src=x onerror="bad=1">`${bad=1}\u2028*/'
TWO = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, m] x, int64[n] rows, float16[m] scale) => (float[n, m] y, int64[n] more, bool[n] odd)
<int64 one = {1}, int64 two = {2}> {
    wide = Cast <to = 1> (scale)
    twice = Add(x, x)
    y = Mul(twice, wide)
    more = Add(rows, one)
    rest = Mod(rows, two)
    odd = Cast <to = 9> (rest)
}"""
ROWS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 1030] x) => (float[1] y) <int64[1] one = {1}> { y = ReduceSum <keepdims = 0> (x, one) }"""
PLANES = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 3, 2, 4] x, float[1, 2, 4, 3] z) => (float[1, 3, 2, 4] y, float[1, 2, 4, 3] w) { y = Neg(x) w = Neg(z) }"""
DENSE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x, float[m, 2] z) => (float[k, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
    p = MatMul(x, w)
    y = Add(p, z)
}"""
needs_browser = pytest.mark.skipif(find() is None, reason="no Chromium here")


def hostile() -> onnx.ModelProto:
    """A model of which every name is markup and script."""
    names = [f"{kind}{HOSTILE}" for kind in ("x", "y")]
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [f"d{HOSTILE}", 3]) for n in names)
    node = onnx.helper.make_node("Neg", [names[0]], [names[1]], name=HOSTILE)
    graph = onnx.helper.make_graph([node], HOSTILE, [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def page(model: Any, folder: Path, **options: Any) -> None:
    torshc.compile(model, folder, target="webgpu", emit="page", **options)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of models and of a training step, and one of which the weights are cut off."""
    folder = tmp_path_factory.mktemp("site")
    page(SAMPLES / "digits.onnx", folder / "digits")
    page(SAMPLES / "digits.onnx", folder / "short")
    page(onnx.parser.parse_model(TWO).SerializeToString(), folder / "two")
    page(hostile().SerializeToString(), folder / "hostile")
    for name, text in (("rows", ROWS), ("planes", PLANES), ("dense", DENSE)):
        sizes = ("n=4",) if name == "dense" else ()
        page(onnx.parser.parse_model(text).SerializeToString(), folder / name, specialize=sizes)
    page(convolutional(batch=8), folder / "steps", train=write_step(folder, ADAM))
    weights = folder / "short" / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return folder


@pytest.fixture(scope="module")
def browser(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find()
    assert program is not None
    with serving(site) as address, Browser(program, tmp_path_factory.mktemp("profile"), WEBGPU) as found:
        found.open(f"{address}/digits/index.html")
        yield found


def script(browser: Browser, body: str, folder: str = "digits") -> Any:
    """What a script of a page returns, with ``m`` the module of a model, and ``fault(work)`` what some work says."""
    return browser.run(f"""(async () => {{
        const m = await import("/{folder}/model.js");
        const fault = (work) => work().then(() => "", (e) => `${{e.name}} ${{e.code}}: ${{e.message}}`);
        {body} }})()""")


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).random((count, 1, 8, 8), np.float32)


def test_what_no_page_can_launch_is_refused() -> None:
    steps = Launch("k0", (), (1,) * 64, threads=64), Launch("k1", (), tasks=2**31, threads=64)
    with pytest.raises(UnsupportedError) as refused:
        require_device_only(HostProgram((), (), steps=steps), ())
    for says in ("step 0 is given 64 sizes", "step 1 has 2147483648 blocks"):
        assert says in str(refused.value)
    assert "--shapes" in refused.value.remedy
    with pytest.raises(UnsupportedError) as refused:
        require_device_only(HostProgram((), ()), ("node 'boxes' (NonMaxSuppression)",))
    assert "NonMaxSuppression" in str(refused.value) and refused.value.remedy == "compile a library"
    fine = Launch("k0", (), (1,) * 63, threads=64), Launch("k1", (), tasks=2**31 - 1, threads=64)
    require_device_only(HostProgram((), (), steps=fine), ())


@needs_browser
def test_digits_as_onnx_runtime_says(browser: Browser) -> None:
    session = onnxruntime.InferenceSession(SAMPLES / "digits.onnx", providers=["CPUExecutionProvider"])
    given = [images(n) for n in (1, 3, 0)]
    found = script(browser, f"""
        const model = await m.load("/digits");
        const all = [];
        for (const list of {json.dumps([x.reshape(-1).tolist() for x in given])}) {{
            const {{ probability }} = await model.run({{ image: new Float32Array(list) }});
            all.push([Array.from(probability.data), probability.dims, probability.dtype]);
        }}
        return [all, model.stats()];""")  # fmt: skip
    for x, (data, dims, dtype) in zip(given, found[0], strict=True):
        expected = session.run(None, {"image": x})[0]
        assert dims == [*expected.shape] and dtype == "f32"
        # sums of at most 288 products, each rounded in f32: 288 / 2^24 of the sum of magnitudes
        np.testing.assert_allclose(np.reshape(data, dims), expected, rtol=2e-5, atol=2e-5)
    assert found[1]["runs"] == 3 and found[1]["weightsBytes"] > 60_000


@needs_browser
def test_steps_are_those_of_f64_and_go_on_from_a_file(browser: Browser) -> None:
    reference, given = Reference(), batches(6)
    lists = [[b["x"].reshape(-1).tolist(), b["target"].tolist()] for b in given]
    first, again, kept, refused = script(browser, f"""
        const [model, other] = [await m.load("/steps"), await m.load("/steps")];
        const m2 = await (await import("/digits/model.js")).load("/digits");
        const found = [], again = [];
        const batches = {json.dumps(lists)}.map(
            ([x, y]) => ({{ x: new Float32Array(x), target: BigInt64Array.from(y, BigInt) }}));
        for (const batch of batches.slice(0, 3)) found.push((await model.step(batch)).loss.data[0]);
        const file = await model.states.save();
        const before = await model.states.read("conv.weight");
        await model.profile(batches[0], 1);
        const after = await model.states.read("conv.weight");
        await other.states.load(file);
        for (const batch of batches.slice(3)) {{
            found.push((await model.step(batch)).loss.data[0]);
            again.push((await other.step(batch)).loss.data[0]);
        }}
        const damaged = file.slice();
        damaged[file.length - 1] ^= 1;
        return [found, again, before.every((w, k) => w === after[k]), await Promise.all([
            model.run(batches[0]), m2.step({{}}), model.states.read("none"),
            model.states.write("conv.bias", new Float32Array(3)), model.states.load(damaged),
            model.states.load(file.slice(8)), model.states.load(file.slice(0, -4)),
        ].map((work) => work.then(() => "", String)))];""", "steps")  # fmt: skip
    for k, (loss, batch) in enumerate(zip(first, given, strict=True)):
        # each step is some hundred roundings of f32, of 6e-8 each, and begins with the errors of those before
        assert loss == pytest.approx(reference.step(**batch), rel=1e-5 * (k + 1), abs=1e-6 * (k + 1)), k
    assert again == first[3:] and kept
    says = ("call step", "call run", 'no state "none"', "Float32Array of 4", "damaged", "not of this model", "expected")
    assert all(text in fault for text, fault in zip(says, refused, strict=True)), refused


@needs_browser
def test_other_types_and_buffers_of_the_device(browser: Browser) -> None:
    found = script(browser, """
        const adapter = await navigator.gpu.requestAdapter();
        const device = await adapter.requestDevice();
        const model = await m.load("/two/", { device });
        const given = { x: { data: new Float32Array([1, 2, 3, 4, 5, 6]), dims: [2, 3] },
            rows: new BigInt64Array([-7n, 2n ** 40n]), scale: new Uint16Array([0x3c00, 0x4000, 0xc000]) };
        const first = await model.run(given);
        const { y } = await model.run(given, { gpu: true });
        const again = await model.run({ ...given, x: { data: y.data, dims: y.dims } });
        const times = await model.profile(given, 2);
        const plain = (t) => [Array.from(t.data, String), t.dims, t.dtype];
        const positive = times.map((t) => t.milliseconds > 0);
        return [Object.values(first).map(plain), plain(again.y), model.device === device, positive];
        """, "two")  # fmt: skip
    y, more, odd = found[0]
    assert y == [["2", "8", "-12", "8", "20", "-24"], [2, 3], "f32"]
    assert more == [["-6", str(2**40 + 1)], [2], "i64"] and odd == [["1", "0"], [2], "bool"]
    assert found[1][0] == ["4", "32", "48", "16", "80", "96"] and found[2]
    assert found[3] and all(found[3])


@needs_browser
def test_runs_take_the_form_that_their_sizes_fit(browser: Browser) -> None:
    """Their steps are numbered through: of the fast form, of its variant for 4 rows, and of the loose one."""
    found = script(browser, """
        const model = await m.load("/dense/");
        const numbers = (rows, columns) => Float32Array.from({ length: rows * columns }, (_, k) => k);
        const inputs = (n, m) => ({ x: numbers(n, 3), z: numbers(m, 2) });
        const all = [];
        for (const [n, m] of [[4, 4], [4, 1], [1, 4], [4, 1], [1, 1], [3, 3]]) {
            const { y } = await model.run(inputs(n, m));
            all.push([n, m, Array.from(y.data), y.dims]);
        }
        const steps = async (n, m) => (await model.profile(inputs(n, m), 1)).map((x) => x.step);
        const taken = [await steps(3, 3), await steps(4, 4), await steps(4, 1)];
        return [all, ...taken, await fault(() => model.run(inputs(4, 3)))];
        """, "dense")  # fmt: skip
    for n, m, data, dims in found[0]:
        x, z = (np.arange(rows * columns).reshape(rows, columns) for rows, columns in ((n, 3), (m, 2)))
        np.testing.assert_array_equal(np.reshape(data, dims), x @ [[1, 2], [3, 4], [5, 6]] + z)
    assert found[1][0] == 0 and found[2][0] == found[1][-1] + 1 and found[3][0] == found[2][-1] + 1
    assert found[4] == "ModelError input: sizes do not fit: x.dims[0] == z.dims[0], but these are 4 and 3"


@needs_browser
@pytest.mark.parametrize(
    "given, says",
    [
        ("{}", 'input "x" is missing; the inputs are "x", "rows", "scale"'),
        ("{ ...good, z: 1 }", 'there is no input "z"'),
        ("null", "give an object with the inputs"),
        ("{ ...good, rows: new Float32Array(2) }", "is i64: give a BigInt64Array or a GPUBuffer, not Float32Array"),
        ("{ ...good, rows: null }", "not nothing"),
        ("{ ...good, x: new Float32Array(6) }", 'input "x" is [n, m]: give { data, dims }'),
        ("{ ...good, x: { data: new Float32Array(6), dims: [2, 2] } }", "has 6 elements, and dimensions [2, 2]"),
        ("{ ...good, x: { data: new Float32Array(6), dims: [6] } }", "has dimensions [6]; expected [n, m]"),
        ("{ ...good, rows: new BigInt64Array(3) }", 'input "rows" has dimensions [3]; expected [2]'),
        ("{ ...good, x: { data: new Float32Array(2), dims: [2, 1.5] } }", "has dimensions [2, 1.5]"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_named(browser: Browser, given: str, says: str) -> None:
    found = script(browser, f"""
        globalThis.two ??= m.load("/two/");
        const model = await globalThis.two;
        const good = {{ x: {{ data: new Float32Array(6), dims: [2, 3] }}, rows: new BigInt64Array(2),
            scale: new Uint16Array(3) }};
        return fault(() => model.run({given}));""", "two")  # fmt: skip
    assert found.startswith("ModelError input: ") and says in found


@needs_browser
def test_weights_that_are_not_the_models(browser: Browser, site: Path) -> None:
    found = script(browser, """
        return Promise.all(["/short/", "/nowhere/", "/two/"].map((url) => fault(() => m.load(url))));
        """)  # fmt: skip
    size = (site / "digits" / "weights.bin").stat().st_size
    assert found[0].startswith("ModelError weights: ") and f"is truncated: {size - 1000} of {size} bytes" in found[0]
    assert "cannot fetch" in found[1] and "404" in found[1]
    assert found[2].startswith("ModelError weights: ")


@needs_browser
def test_weights_are_fetched_once(browser: Browser) -> None:
    found = script(browser, """
        await caches.delete("torshc");
        const steps = [];
        await m.load("/digits/", { onProgress: (p) => p.stage === "weights" && steps.push([p.loaded, p.total]) });
        const all = () => performance.getEntriesByType("resource");
        const fetched = () => all().filter((e) => e.name.includes("digits/weights")).length;
        const before = fetched();
        await m.load("/digits/");
        return [steps.at(-1), before === fetched(), before];""")  # fmt: skip
    assert found[0][0] == found[0][1] and found[1] and found[2] > 0


@needs_browser
def test_what_the_browser_lacks_is_said(browser: Browser) -> None:
    found = script(browser, """
        const set = (gpu) => Object.defineProperty(navigator, "gpu", { value: gpu, configurable: true });
        const real = navigator.gpu, said = [];
        const adapter = await real.requestAdapter();
        const small = { limits: { maxBufferSize: 1000 }, requestDevice: async () => small };
        for (const gpu of [undefined, { requestAdapter: async () => null }, { requestAdapter: async () => small }]) {
            set(gpu);
            said.push(await fault(() => m.load()));
        }
        set(real);
        const device = await adapter.requestDevice();
        const model = await m.load(undefined, { device });
        device.destroy();
        said.push(await fault(() => model.run({ image: new Float32Array(64) })));
        return said;""")  # fmt: skip
    none, adapter, limit, lost = found
    assert none.startswith("ModelError no-webgpu: there is no WebGPU here")
    assert adapter.startswith("ModelError no-adapter:")
    assert re.match(
        r"ModelError limit: the buffer of the weights, .* needs \d+, and this device has 1000 \(maxBuf", limit
    )
    assert lost.startswith("ModelError lost: the device was lost")


@needs_browser
def test_the_browser_accepts_all_functions_of_kernels(browser: Browser) -> None:
    """Its compiler is another than that of the native library, and the stricter one."""
    main = "@compute @workgroup_size(64) fn main() {}"
    table = functions(64).values()
    without = "\n".join([*(f.text for f in table), main])
    shared = "\n".join(["enable subgroups;", *(f.subgroups or f.text for f in table), main])
    assert browser.run(f"""(async () => {{
        const adapter = await navigator.gpu.requestAdapter();
        const said = [];
        for (const [text, requiredFeatures] of [[{json.dumps(without)}, []], [{json.dumps(shared)}, ["subgroups"]]]) {{
            if (!requiredFeatures.every((name) => adapter.features.has(name))) continue;
            const device = await (await navigator.gpu.requestAdapter()).requestDevice({{ requiredFeatures }});
            const {{ messages }} = await device.createShaderModule({{ code: text }}).getCompilationInfo();
            said.push(...messages.map((m) => `${{m.lineNum}}: ${{m.message}}`));
        }}
        return said; }})()""") == []  # fmt: skip


@needs_browser
def test_rows_with_and_without_subgroups(browser: Browser) -> None:
    """The page's own device has them or not; sums of rows are the same."""
    found = script(browser, """
        const adapter = await navigator.gpu.requestAdapter();
        const had = adapter.features.has("subgroups"), all = [];
        for (const requiredFeatures of had ? [[], ["subgroups"]] : [[]]) {
            const own = await navigator.gpu.requestAdapter();
            const device = await own.requestDevice({ requiredFeatures });
            const model = await m.load("/rows/", { device });
            all.push((await model.run({ x: Float32Array.from({ length: 1030 }, (_, k) => k) })).y.data[0]);
        }
        return [all, had, (await m.load("/rows/")).device.features.has("subgroups")];""", "rows")  # fmt: skip
    assert found[0] == [1030 * 1029 / 2] * len(found[0]) and found[1] == found[2]


@needs_browser
def test_the_page_shows_names_as_text(browser: Browser, site: Path) -> None:
    address = browser.run("location.origin")
    browser.open(f"{address}/hostile/index.html")
    assert browser.run("document.querySelectorAll('img').length + (globalThis.bad ?? 0)") == 0
    assert browser.run("document.title").startswith("</script>")
    assert browser.run("document.getElementById('status').textContent") == "Done."
    assert browser.run("document.getElementById('outputs').textContent.includes('</script>')")
    browser.open(f"{address}/digits/index.html")
    assert browser.run("document.querySelectorAll('#outputs .tensor').length") == 1
    browser.run("document.getElementById('times').click()")
    browser.run("""new Promise((done) => {
        const look = () => document.querySelector("#launches tr") ? done() : setTimeout(look, 10); look(); })""")
    assert "conv" in browser.run("document.getElementById('launches').textContent")
    assert not browser.errors


@needs_browser
def test_arrays_are_given_to_the_page_as_files(browser: Browser, site: Path) -> None:
    """A file of NumPy is what the next run takes; one of another type is refused beside the field."""
    address, x = browser.run("location.origin"), images(2)
    np.save(site / "right.npy", x)
    np.save(site / "wrong.npy", x.astype(np.float64))
    browser.open(f"{address}/digits/index.html")
    found = browser.run("""(async () => {
        const field = document.querySelector("input[type=file]");
        const note = field.closest(".tensor").querySelector(".soft");
        const idle = async () => { do await new Promise((next) => setTimeout(next, 20)); while (run.disabled); };
        const said = [];
        for (const name of ["wrong.npy", "right.npy"]) {
            const files = new DataTransfer();
            files.items.add(new File([await (await fetch(`/${name}`)).blob()], name));
            field.files = files.files;
            field.dispatchEvent(new Event("change"));
            await idle();
            said.push(note.textContent);
        }
        document.getElementById("run").click();
        await idle();
        return [...said, document.getElementById("outputs").textContent];
    })()""")  # fmt: skip
    assert found[0] == "the file holds <f8; the input is <f4" and found[1] == ""
    session = onnxruntime.InferenceSession(SAMPLES / "digits.onnx", providers=["CPUExecutionProvider"])
    first = session.run(None, {"image": x})[0].reshape(-1)[0]
    shown = re.search(r"f32 \[2, 10\] ([\d.e+-]+),", found[2])
    assert shown and float(shown[1]) == pytest.approx(first, rel=1e-4)  # shown with 5 digits


@needs_browser
def test_images_are_given_to_the_page(browser: Browser) -> None:
    """Channels go to the axis that has three, scaled as chosen; a picture shows once there is one."""
    browser.open(f"{browser.run('location.origin')}/planes/index.html")
    found = browser.run("""(async () => {
        const idle = async () => { do await new Promise((next) => setTimeout(next, 20)); while (run.disabled); };
        const shown = () => Array.from(document.querySelectorAll("canvas"), (c) => getComputedStyle(c).display);
        const before = shown();
        const picture = new OffscreenCanvas(4, 2);
        const context = picture.getContext("2d");
        const left = context.createImageData(4, 2);
        left.data.set(Array.from({ length: 32 }, (_, k) => (k % 4 === 3 ? 255 : 8 * k)));
        context.putImageData(left, 0, 0);
        const file = new File([await picture.convertToBlob()], "image.png", { type: "image/png" });
        for (const field of document.querySelectorAll("input[type=file]")) {
            const files = new DataTransfer();
            files.items.add(file);
            field.files = files.files;
            field.dispatchEvent(new Event("change"));
            await idle();
        }
        for (const scale of document.querySelectorAll("select")) scale.value = "-1 .. 1";
        document.getElementById("run").click();
        await idle();
        const values = Array.from(document.querySelectorAll("#outputs .values"), (node) => node.textContent);
        return [before, shown(), values];
    })()""")  # fmt: skip
    assert found[:2] == [["none", "none"], ["block", "block"]]
    pixels = 8 * np.arange(32).reshape(2, 4, 4)[..., :3]
    wanted = 1 - 2 * pixels / 255.0
    for text, values in zip(found[2], (wanted.transpose(2, 0, 1), wanted), strict=True):
        first = [float(x) for x in text.split(",")[:12]]
        np.testing.assert_allclose(first, values.reshape(-1)[:12], atol=1e-4)  # shown with 5 digits


SIZES: tuple[Expr, ...] = (
    (dim("a") * 7 - dim("b")) // 3,
    call("mod", dim("a") - dim("b") * 5, const(4)),
    call("div", dim("b") - dim("a") * 9, const(2)),
    call("max", dim("a"), call("min", dim("b") * 3, const(11))) + call("abs", dim("a") - dim("b")),
    select(call("lt", dim("a"), dim("b")), dim("a"), call("neg", dim("b"))),
    cast(cast(dim("a") * 2_000_000_000, I32), I64),
    cast(call("floor", call("mul", cast(dim("a"), F32), const(1.7, F32))), I64),
    cast(call("round", call("div", cast(dim("a"), F64), const(2.0, F64))), I64),
    cast(call("mul", call("sqrt", cast(dim("b"), F32)), const(1000.0, F32)), I64),
    cast(call("ceil", call("div", cast(dim("b"), F64), const(0.7, F64))), I64),
    dim("a") * dim("a") * dim("b") * 123_456_789_012,
)  # fmt: skip


@needs_browser
def test_sizes_are_computed_as_when_the_model_was_compiled(browser: Browser) -> None:
    names = {"a": "s0", "b": "s1"}
    texts = [javascript(e, names) for e in SIZES]
    functions = find_template(("webgpu",), "t_sizes.js").read_text()
    for a, b in ((0, 0), (1, 5), (7, 2), (5, 7), (1023, 63)):
        found = browser.run(f"{{ {functions}; const s0 = {a}n, s1 = {b}n; [{', '.join(texts)}].map(String) }}")
        wanted = [as_int(substitute(e, {dim("a"): const(a), dim("b"): const(b)})) for e in SIZES]
        assert found == [str(w) for w in wanted], (a, b)


def test_what_a_page_holds(site: Path) -> None:
    folder = site / "digits"
    assert {p.name for p in folder.iterdir()} == {*BROWSER, "weights.bin", "manifest.json"} and is_bundle(folder)
    for file in (*BROWSER, "manifest.json"):
        assert not re.search(r"https?://(?!127)", (folder / file).read_text()), file
    text = (site / "hostile" / "model.js").read_text() + (site / "hostile" / "model.d.ts").read_text()
    assert "<img" not in text and "</script" not in text and "\u2028" not in text
    assert json.loads(literal(HOSTILE)) == HOSTILE


def test_what_no_browser_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no browser runs what the target c makes"):
        torshc.compile(SAMPLES / "digits.onnx", tmp_path / "a", emit="page")
    with pytest.raises(ConfigError, match="no library to embed"):
        page(SAMPLES / "digits.onnx", tmp_path / "a", embed_weights=True)
    found = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n] x) => (int64[1, m] y) { places = NonZero(x) y = Neg(places) }""")
    with pytest.raises(UnsupportedError, match=r"NonZero.*a page cannot do"):
        page(found.SerializeToString(), tmp_path / "a")
    assert not [*tmp_path.iterdir()]
