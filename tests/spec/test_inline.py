"""Inputs that a query gives inline: each is a pipeline of `kind: table`, which `FILE#INPUT` names. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli import main
from fk_pipeline.definitions import definitions
from fk_pipeline.engine.fingerprints import fingerprints
from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.described import description_of_output
from fk_pipeline.spec.edited import as_it_is_now
from fk_pipeline.spec.load import file_and_line, with_settings
from fk_pipeline.spec.places import landing_path
from fk_pipeline.spec.project import pipeline_files, project_of, results_read, with_inline

REVENUE = """\
name: revenue
kind: query
warehouse: lake
on_bad_record: fail
owners: team:shop
settings: {automation: on, max_failures: 3, strategy: {result: full}, statistics_columns: [amount]}
inputs:
  orders:
    path: landing/orders
    format: debezium
    table: shop.orders
    schema: "id BIGINT, customer BIGINT, amount INT, card STRING"
    key: id
    where: amount > 0
    sensitive: card
    descriptions: {amount: in cents}
  customers: {path: landing/customers, format: csv, schema: "id BIGINT, name STRING", key: id}
  regions: {pipeline: regions.yaml}
query: |
  SELECT c.name, o.amount, o.card, r.region
  FROM orders o JOIN customers c ON c.id = o.customer JOIN regions r ON r.id = c.id
"""
REGIONS = """\
name: regions
kind: table
warehouse: lake
input: {path: landing/regions, format: csv, schema: "id BIGINT, region STRING", key: id}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "revenue.yaml").write_text(REVENUE)
    (tmp_path / "regions.yaml").write_text(REGIONS)
    return tmp_path


def edit(folder: Path, old: str, new: str) -> Path:
    file = folder / "revenue.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    return file


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(main.app, [str(a) for a in args])


def test_an_inline_input_is_a_table_pipeline_with_the_settings_of_the_query(folder: Path) -> None:
    orders, query = load_spec(folder / "revenue.yaml#orders"), load_spec(folder / "revenue.yaml")
    assert (orders.name, orders.kind, orders.home) == ("revenue_orders", "table", f"{folder}/lake/revenue_orders")
    assert landing_path(orders, orders.sides[0]) == f"{folder}/landing/orders"
    assert (orders.on_bad_record, orders.owners, orders.group) == ("fail", ("team:shop",), "revenue")
    assert (orders.settings.automation, orders.settings.max_failures) == ("on", 3)
    assert orders.settings.strategy_of("table") == "auto", "what is said of a stage of the query is not of the table"
    assert orders.settings.statistics_columns is None, "nor of a column of its result"
    side = query.side(query.sides[0])
    assert (side.pipeline, side.format, side.key) == ("revenue.yaml#orders", "delta", ("id",))
    assert landing_path(query, query.sides[0]) == f"{orders.home}/table"
    assert (side.where, side.table, side.sensitive) == (None, None, ("card",)), "the table has what passes"
    assert query.sensitive_outputs == {"card"}
    [amount] = [one for one in query.outputs if one.name == "amount"]
    assert description_of_output(query, amount) == "in cents"
    names = ["revenue.yaml#orders", "revenue.yaml#customers", "regions.yaml"]
    assert [file.name for file in results_read(query)] == names
    assert load_spec(folder / "sub" / ".." / "revenue.yaml#orders").home == orders.home
    own = with_settings(query, max_failures=7)
    assert [one.settings.max_failures for one in with_inline([own])] == [7, 7, 7]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    key: id\n", "    kee: id\n", ["revenue.yaml:8: 'inputs.orders.key' is missing"]),
        ("    key: id\n", "    kee: id\n", ["revenue.yaml:13: unknown key 'inputs.orders.kee'; did you mean 'key'?"]),
        ("amount > 0", "amounts > 0", ["revenue.yaml:14: inputs.orders.where: 'amounts > 0' reads column 'amounts'"]),
        ("format: csv", "format: cvs", ["revenue.yaml:17: inputs.customers.format: 'cvs' is not a format"]),
        ("  orders:\n", "  Orders:\n", ["revenue.yaml:8: inputs.Orders: 'Orders' must start with a letter a-z"]),
        ("format: csv", "format: csv, table: x", ["revenue.yaml:17: inputs.customers.table: table goes with formats"]),
        ("path: landing/customers", "pipeline: x.yaml", ["customers: 'format' is given by the result of x.yaml"]),
        ("path: landing/customers, ", "", ["revenue.yaml:17: 'inputs.customers.path' is missing"]),
        ("max_failures", "max_failure", ["revenue.yaml:6: unknown key 'settings.max_failure'; did you mean"]),
    ],
)
def test_a_mistake_in_an_inline_input_is_told_with_its_place(folder: Path, old: str, new: str, said: list[str]) -> None:
    refused = invoke("run", edit(folder, old, new))
    assert isinstance(refused.exception, PipelineFileError), refused.output
    for text in said:
        assert text in str(refused.exception)
    assert not (folder / "lake").exists(), "nothing ran"


def test_what_is_no_inline_input_is_refused_with_those_that_are(folder: Path) -> None:
    for name, fix in (("regions", "one of revenue.yaml#orders, revenue.yaml#customers"), ("x", "one of revenue.yaml#")):
        with pytest.raises(PipelineFileError) as refused:
            load_spec(folder / f"revenue.yaml#{name}")
        assert refused.value.fix.startswith(fix)
    assert refused.value.where == f"{folder}/revenue.yaml:7"
    with pytest.raises(PipelineFileError) as refused:
        load_spec(folder / "regions.yaml#input")
    assert refused.value.what == "regions.yaml has no inline input 'input'"
    file = folder / "a#b.yaml"
    file.write_text(REGIONS)
    assert load_spec(file).name == "regions", "the name of a file may have the sign"


def test_a_query_brings_the_pipelines_of_its_inline_inputs_along(folder: Path) -> None:
    file = folder / "revenue.yaml"
    inline = [folder / f"revenue.yaml#{name}" for name in ("orders", "customers")]
    assert pipeline_files([folder]) == [folder / "regions.yaml", *inline, file]
    assert pipeline_files([inline[0], file]) == [*inline, file], "none comes twice"
    assert pipeline_files([file], inline=False) == [file]
    project = project_of([file, *inline, folder / "regions.yaml"])
    assert project.files[-1] == file
    assert set(project.reads[file]) == {*inline, folder / "regions.yaml"}
    edit(folder, "name STRING", "name STRIN(G")
    project = project_of(pipeline_files([folder]))
    assert project.wrong.keys() == {inline[1], file}
    assert project.reads[file] == (inline[1],), "it waits for what is wrong"
    assert project.names[inline[1]] == "revenue_customers"


def test_a_file_beside_it_may_not_have_its_tables(folder: Path) -> None:
    copy = folder / "copy.yaml"
    copy.write_text(REVENUE)
    for given in (copy, folder / "revenue.yaml#orders"):
        refused = invoke("status", given)
        assert isinstance(refused.exception, PipelineFileError), refused.output
        assert "two pipelines are called 'revenue'" in refused.exception.what
    copy.write_text(REGIONS.replace("name: regions", "name: revenue_orders"))
    with pytest.raises(PipelineFileError, match=r"called 'revenue_orders': .*copy.yaml and .*revenue.yaml#orders"):
        project_of(pipeline_files([folder]))


def test_an_edit_of_the_section_is_one_of_its_pipeline(folder: Path) -> None:
    orders, query = load_spec(folder / "revenue.yaml#orders"), load_spec(folder / "revenue.yaml")
    customers = load_spec(folder / "revenue.yaml#customers")
    before = [fingerprints(one) for one in (orders, customers, query)]
    file = edit(folder, "amount > 0", "amount > 1")
    after = [fingerprints(load_spec(one.file)) for one in (orders, customers, query)]
    assert [was == new for was, new in zip(before, after, strict=True)] == [False, True, True]
    with pytest.raises(PipelineFileError, match=r"edited after Dagster had loaded it: input\.where"):
        as_it_is_now(orders)
    for one in (customers, query):
        assert as_it_is_now(one).file == one.file
    assert file_and_line(orders.file, "input.where", "amount > 1") == f"{file}:14"


def test_the_definitions_of_a_query_have_the_pipelines_of_its_inline_inputs(folder: Path) -> None:
    defs = definitions([folder / "revenue.yaml", folder / "regions.yaml"])
    names = {f"{name}_new_batches" for name in ("regions", "revenue", "revenue_customers", "revenue_orders")}
    assert {one.name for one in defs.sensors or ()} == names
    jobs = {one.name for one in defs.jobs or ()}
    assert {"revenue_after_its_inputs", "revenue_orders_and_its_readers", "regions_and_its_readers"} <= jobs
    graph = defs.get_repository_def().asset_graph
    for key in (["revenue_orders"], ["revenue_orders", "changelog"], ["revenue"]):
        [node] = [node for node in graph.asset_nodes if node.key.path == key]
        assert node.group_name == "revenue"
    same = definitions([folder / "revenue.yaml", folder / "revenue.yaml#orders", folder / "regions.yaml"])
    assert len(list(same.sensors or ())) == 4


def test_a_query_names_the_quarantines_of_its_inline_inputs(folder: Path) -> None:
    edit(folder, ", card STRING", "")
    edit(folder, "    sensitive: card\n", "")
    edit(folder, "o.card, ", "")
    refused = invoke("quarantine", folder / "revenue.yaml")
    assert isinstance(refused.exception, UsageError), refused.output
    assert f"fk-pipeline quarantine {folder}/revenue.yaml#orders, " in refused.exception.fix


def test_a_name_of_the_catalog_is_no_place_of_a_table(folder: Path) -> None:
    for table, fix in (
        ("sales.regions", "; of a table of Spark's catalog: DESCRIBE DETAIL sales.regions"),
        ("lake/x", ""),
    ):
        text = REVENUE.replace("{pipeline: regions.yaml}", f"{{table: {table}, key: id}}")
        (folder / "revenue.yaml").write_text(text)
        with pytest.raises(PipelineFileError) as refused:
            load_spec(folder / "revenue.yaml")
        assert refused.value.fix == f"give the path or URI of the folder that has _delta_log{fix}"
