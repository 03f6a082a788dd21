"""The pass manager: pipelines from files, switches, records, dumps, and checks after each pass."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from torshc.base.errors import ConfigError, InternalError
from torshc.base.options import CompileOptions
from torshc.passes import PASSES, optimise, pipeline_of, read_pipeline, run_pipeline
from torshc.passes.manager import PassStep, Pipeline, Repeat, graph_pass

from ..support.pass_graphs import FEATURES, OPTIONS, Model, names


def model() -> Model:
    m = Model()
    x = m.input(2, 3)
    m("Exp", x)
    m.done(m("Add", x, m("Neg", m.const([1.0, 2.0, 3.0]))))
    return m


def test_records_say_what_each_pass_did() -> None:
    pipeline = Pipeline("test", (PassStep("dead_code"), PassStep("fold_constants"), PassStep("dead_code")))
    graph = model().graph
    records = run_pipeline(graph, pipeline, OPTIONS, FEATURES)
    assert [(r.name, r.changed, r.before, r.after) for r in records] == [
        ("dead_code", True, 3, 2),
        ("fold_constants", True, 2, 1),
        ("dead_code", False, 1, 1),
    ]
    assert names(graph) == ["Add"]


def test_a_repeated_group_ends_when_nothing_changes() -> None:
    pipeline = Pipeline("test", (Repeat((PassStep("dead_code"), PassStep("fold_constants")), 10),))
    assert len(run_pipeline(model().graph, pipeline, OPTIONS, FEATURES)) == 4


def test_a_pass_switched_off_does_not_run() -> None:
    options = dataclasses.replace(OPTIONS, opt_level=0, passes={"dead_code": False})
    graph = model().graph
    assert "dead_code" not in [r.name for r in optimise(graph, options, FEATURES)]
    assert len(graph.nodes) == 3


def test_a_pass_disabled_in_the_pipeline_can_be_switched_on(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("passes:\n  - fold_constants: {enabled: false}\n")
    options = dataclasses.replace(OPTIONS, pipeline=file)
    assert optimise(model().graph, options, FEATURES) == []
    assert len(optimise(model().graph, dataclasses.replace(options, passes={"fold_constants": True}), FEATURES)) == 1


@pytest.mark.parametrize("level", range(4))
def test_every_level_has_a_pipeline(level: int) -> None:
    assert pipeline_of(CompileOptions(opt_level=level)).name == f"O{level}"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("passes:\n  - dead_cod\n", 2, "did you mean 'dead_code'?"),
        ("passes:\n  - dead_code\npases: 1\n", 3, "did you mean 'passes'?"),
        ("about: none\n", 1, "'passes' is missing"),
        ("passes:\n  - fold_constants:\n      bugdet_mib: 1\n", 3, "did you mean 'budget_mib'?"),
        ("passes:\n  - fold_constants: {budget_mib: big}\n", 2, "whole number"),
        ("passes:\n  - integer_products: {targets: c}\n", 2, "asks the target what it can do"),
        ("passes: 3\n", 1, "expected a list"),
        ("passes:\n  - [\n", 3, "not YAML: expected the node content"),
        ("passes:\n  - repeat: {at_most: 0, passes: []}\n", 2, "from 1 to 100"),
        ("a: &x [1]\nb: *x\n", 1, "aliases"),
        ("a: 1\na: 2\n", 2, "twice"),
    ],
)
def test_a_wrong_pipeline_names_file_and_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")) as e:
        read_pipeline(file)
    assert f"{file}:{line}:" in str(e.value)


def test_a_missing_pipeline_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_pipeline(tmp_path / "none.yaml")


def test_all_mistakes_of_a_pipeline_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "fusion: agressive\npasses:\n  - dead_cod\n  - repeat:\n      at_most: 2\n      passes: [fold, rewrit]\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_pipeline(file)
    text = str(caught.value)
    assert "4 mistakes" in text and all(f"{file}:{line}:" in text for line in (1, 3, 6))
    assert all(f"did you mean '{name}'" in text for name in ("aggressive", "dead_code", "rewrite"))


@pytest.mark.parametrize(("name", "message"), [("dead_cod", "did you mean"), ("fold_constants", "not in the pipeline")])
def test_a_wrong_switch_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        optimise(model().graph, CompileOptions(opt_level=0, passes={name: True}), FEATURES)


def test_the_dump_holds_only_steps_that_changed_something(tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, dump=tmp_path / "dump")
    steps = (PassStep("decompose"), PassStep("fold_constants"), PassStep("dead_code"), PassStep("dead_code"))
    run_pipeline(model().graph, Pipeline("test", steps), options, FEATURES)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == [
        "000-start.txt",
        "001-fold_constants.txt",
        "002-dead_code.txt",
    ]


def test_a_pass_that_breaks_the_graph_is_named() -> None:
    @graph_pass("break_it")
    def break_it(graph, options):  # type: ignore[no-untyped-def]
        graph.nodes.pop(0)
        return True

    try:
        m = Model()
        m.done(m("Exp", m("Neg", m.input(2))))
        with pytest.raises(InternalError, match=r"pass break_it.*Exp"):
            run_pipeline(m.graph, Pipeline("test", (PassStep("break_it"),)), OPTIONS, FEATURES)
    finally:
        del PASSES["break_it"]
