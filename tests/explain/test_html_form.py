"""The page for a browser: what is in it, and that it opens, is clicked and searched in one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from onnx import helper

from torshc import explain as explain_package
from torshc.base.digest import file_sha256
from torshc.base.errors import ConfigError
from torshc.cli import cli
from torshc.explain import Explanation, Shown, read_measured, read_roof, to_html
from torshc.explain.data import GroupInfo, NodeInfo, Tensor

from ..support.browser import Browser, find
from ..support.cli_models import CACHED
from ..support.cli_models import CHAIN as GATED
from ..support.models import save
from .test_explain import CHAIN, CROSSED, HOSTILE, explained, hostile

MANY = 20_000


def shown(explanation: Explanation, title: str = "model.onnx", **more: Any) -> Shown:
    return Shown(
        title, explanation, {k.symbol: f"source of {k.symbol}" for g in explanation.groups for k in g.kernels}, **more
    )


def chain_of(explanation: Explanation, count: int) -> Explanation:
    """An explanation with as many groups, each of which reads the one before."""
    whole = explanation.groups[0]

    def group(k: int) -> GroupInfo:
        node = NodeInfo(k, "Relu", f"relu_{k}", "f32[4]", (k - 1,) if k else ())
        reads = (Tensor(f"t{k - 1}", "f32[4]", "value", (k - 1,)),) if k else ()
        return replace(whole, id=k, operators="Relu", nodes=(node,), folded=(), reads=reads, stops=())

    return replace(explanation, groups=tuple(map(group, range(count))), live=(16,) * count)


@cache
def many() -> str:
    return to_html([shown(chain_of(explained(CHAIN), MANY))])


def test_the_page_needs_no_network_and_is_small() -> None:
    page = to_html([shown(explained(CHAIN))])
    assert re.search(r"<(script|link|img|iframe)[^>]* (src|href)=", page) is None
    assert "default-src 'none'" in page and "Permission is hereby granted" in page
    assert len(many()) < 3 << 20


def test_names_of_a_model_are_no_markup() -> None:
    page = to_html([shown(explained(hostile()), f"{HOSTILE}</script><b>")])
    assert "<b>" not in page and page.count("</script>") == 4


def test_measured_times(tmp_path: Path) -> None:
    explanation, file = explained(CHAIN), tmp_path / "m.json"
    steps = [{"kernel": k.symbol, "calls": 4, "seconds": 2.0} for g in explanation.groups for k in g.kernels]
    file.write_text(json.dumps({"steps": steps}))
    assert read_measured(file, explanation) == [0.5] * len(steps)
    for text, message in (
        ("{", "is not what bench printed"), ("[" * 5000, "is not what bench printed"),
        (json.dumps({"steps": [{**steps[0], "seconds": 10**400}]}), "is not what bench printed"),
        (json.dumps({"steps": [{**s, "seconds": float("nan")} for s in steps]}), "its times are no numbers"),
        ('{"steps": []}', "has no profile"),
        ('{"steps": [{"kernel": "k0", "calls": 1, "seconds": 1}]}', "is of another compilation"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_measured(file, explanation)
    with pytest.raises(ConfigError, match=r"m\.json/none cannot be read: Not a directory"):
        read_measured(file / "none", explanation)


def test_the_command_writes_pages(tmp_path: Path) -> None:
    one, other = save(GATED, tmp_path / "one.onnx"), save(CACHED, tmp_path / "other.onnx")
    page = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["explain", str(one), "--against", str(other), "--dims", "batch=2", "-o", str(page)])
    assert done.exit_code == 0 and "<title>one.onnx and other.onnx - torshc</title>" in page.read_text()
    refused = CliRunner().invoke(cli, ["explain", str(one), "--format", "json", "--open"])
    assert refused.exit_code == 2 and "are for --format html" in refused.stderr


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if (program := find()) is None:
        pytest.skip("no Chromium is installed")
    with Browser(program, tmp_path_factory.mktemp("browser")) as found:
        yield found


def opened(browser: Browser, folder: Path, page: str) -> None:
    (folder / "page.html").write_text(page)
    browser.open(folder / "page.html")


def click(browser: Browser, box: str) -> None:
    """Click the middle of a box of the graph."""
    place = browser.run(
        f"""(() => {{ const graph = torshc.graphs[0], at = graph.cy.getElementById("{box}").renderedPosition(),
            around = graph.cy.container().getBoundingClientRect();
            return [at.x + around.left, at.y + around.top]; }})()"""
    )
    browser.click(*place)


def test_the_console_stays_empty(browser: Browser, tmp_path: Path) -> None:
    told = "<script>window.told = [];"
    told += "for (const k of ['warn', 'error']) console[k] = (...a) => told.push(a.join(' '));</script>"
    page = to_html([shown(explained(CROSSED))])
    opened(browser, tmp_path, page.replace("<head>", f"<head>{told}", 1))
    for tab in ("Groups", "Passes", "Boundaries", "Memory", "Roofline", "Graph"):
        browser.run(f"[...document.querySelectorAll('#tabs button')].find((b) => b.textContent === '{tab}').click()")
    click(browser, "g1")
    assert "<head>" in page and browser.run("told") == []


def test_an_operator_that_passes_replaced_is_found(browser: Browser, tmp_path: Path) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Softmax", ["x"], ["y"], name="weights", axis=0)], "g",
            [helper.make_tensor_value_info("x", 1, [4, 5])], [helper.make_tensor_value_info("y", 1, [4, 5])],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
    )  # fmt: skip
    e = explained(model)
    assert {n.origin for g in e.groups for n in g.nodes} == {"Softmax"}
    opened(browser, tmp_path, to_html([shown(e)]))
    browser.run("torshc.graphs[0].search('softmax')")
    assert "weights" in browser.run("torshc.graphs[0].found.textContent")


def boxes(browser: Browser) -> list[str]:
    found: list[str] = browser.run("torshc.graphs[0].cy.nodes().map((n) => n.id())")
    return found


def detail(browser: Browser) -> str:
    return str(browser.run("document.getElementById('detail').textContent"))


def test_a_click_shows_a_group_and_another_opens_it(browser: Browser, tmp_path: Path) -> None:
    opened(browser, tmp_path, to_html([shown(explained(CROSSED))]))
    assert boxes(browser) == ["g0", "g1"]
    click(browser, "g1")
    text = detail(browser)
    assert "Group 1: " in text and "source of k" in text and "flop/byte" in text and "Where fusion stopped" in text
    click(browser, "g1")
    assert len([b for b in boxes(browser) if b.startswith("n1:")]) == len(explained(CROSSED).groups[1].nodes)
    assert browser.run("torshc.graphs[0].cy.edges().length") > 3 and browser.errors == []


def test_every_pane_is_drawn_for_one_and_for_two(browser: Browser, tmp_path: Path) -> None:
    one = explained(hostile())
    opened(browser, tmp_path, to_html([shown(one, measured=[1e-6] * one.launches), shown(explained(CROSSED))]))
    for tab, wanted in (
        ("Groups", "MFLOP"), ("Passes", "imported"), ("Boundaries", "Fusion rules"), ("Memory", "arena"),
        ("Roofline", "measured us"),
    ):  # fmt: skip
        browser.run(f"[...document.querySelectorAll('#tabs button')].find((b) => b.textContent === '{tab}').click()")
        assert browser.run("document.querySelectorAll('.pane').length") == 2
        assert wanted in browser.run("document.getElementById('view').textContent")
    assert browser.run("document.querySelectorAll('.dot.measured').length") >= 1 and browser.errors == []


def test_many_groups_are_folded_and_found(browser: Browser, tmp_path: Path) -> None:
    opened(browser, tmp_path, many())
    folded = boxes(browser)
    assert len(folded) <= 120 and all(b.startswith("b") for b in folded)
    click(browser, folded[0])
    assert len(folded) < len(boxes(browser)) <= 120 + len(folded)
    browser.run("torshc.graphs[0].search('relu_19998')")
    browser.run("document.querySelector('.found button').click()")
    assert "g19998" in boxes(browser) and "relu_19998" in detail(browser) and browser.errors == []


def test_the_roof_that_was_measured(tmp_path: Path) -> None:
    """Where there is none, or one that is no rate, the page assumes one."""
    file = tmp_path / "m.json"
    for roof, expected in (
        ({"bytes": 3e12, "flops": {"f32": 5e13, "f16": 9e14}, "how": "measured"}, {"bytes": 3e12, "flops": 5e13}),
        (None, {}), ({"bytes": 3e12, "flops": {}}, {}), ({"bytes": 0, "flops": {"f32": 1}}, {}), ([1], {}),
        ({"bytes": 10**400, "flops": {"f32": 1}}, {}),
    ):  # fmt: skip
        file.write_text(json.dumps({"steps": [], "roof": roof}))
        assert read_roof(file) == expected


def test_vendored_files_are_those_that_their_readme_names() -> None:
    """Each is a package's file of a stated version, so that who audits torshc can fetch it and compare."""
    folder = Path(explain_package.__file__).parent / "page" / "vendor"
    rows = [line.split("|") for line in (folder / "README.md").read_text().splitlines() if line.startswith("| `")]
    named = {row[1].strip(" `"): row[4].strip(" `") for row in rows}
    assert named == {f.name: file_sha256(f) for f in folder.glob("*.js")} and len(named) == 2
