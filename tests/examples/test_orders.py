"""examples/orders, run by examples/python/nightly.py, and read by the project of examples/project."""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance

import fk_pipeline as fk

EXAMPLES = Path(__file__).parents[2] / "examples"

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def ran(example: Any, loaded: Any, spark: Any) -> tuple[fk.Pipeline, dict[int, dict[str, int]]]:
    """The example after `nightly`, and what that returned."""
    folder = example("orders")
    pipeline = fk.Pipeline(fk.load(folder / "orders.yaml").spec, spark)
    return pipeline, loaded(EXAMPLES / "python" / "nightly.py").nightly(pipeline)


def landed(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every change, in order, with its side: read without the engine."""
    for number in range(5):
        orders, customers = folder / f"orders/{number:08d}.jsonl.gz", folder / f"customers/{number:08d}.csv"
        if orders.exists():
            yield from (("orders", json.loads(line)) for line in gzip.decompress(orders.read_bytes()).splitlines())
        if customers.exists():
            with customers.open(newline="") as file:
                yield from (("customers", row) for row in csv.DictReader(file))


def joined_by_hand(folder: Path) -> set[Row]:
    """The join of the last rows, in plain Python."""
    orders: dict[int, dict[str, Any]] = {}
    customers: dict[str, dict[str, Any]] = {}
    for side, row in landed(folder):
        table: Any = orders if side == "orders" else customers
        key = row["order_key"] if side == "orders" else f"{row['nation']}/{row['account']}"
        if row["op"] == "d":
            table.pop(key, None)
        elif row.get("customer_ref") != "GERMANY/?":  # such a line goes to the quarantine: the order stays as it was
            table[key] = row
    nobody = {"nation": None, "name": None, "segment": None}
    return {
        (
            *(row["order_key"], row["status"], row["priority"], Decimal(row["total"]), int(row["ordered"][:4])),
            *(customers.get(row["customer_ref"], nobody)[name] for name in nobody),
        )
        for row in orders.values()
    }


@pytest.mark.docs
@pytest.mark.spark
def test_the_result_is_the_join_of_the_last_rows(ran: Any) -> None:
    pipeline, _ = ran
    names = ["order_key", "status", "priority", "total", "year", "nation", "name", "segment"]
    rows = [tuple(row) for row in pipeline.table("resolved_join").select(names).collect()]
    expected = joined_by_hand(pipeline.spec.file.parent / "landing")
    assert len(rows) == len(expected) == 2980
    assert set(rows) == expected
    alone = [row for row in rows if row[6] is None]
    assert len(alone) > 50  # of customers that are gone, and of nobody


@pytest.mark.docs
@pytest.mark.spark
def test_references_that_cannot_be_parsed_are_in_the_quarantine(ran: Any) -> None:
    pipeline, _ = ran
    bad = pipeline.quarantined().collect()
    places = [(row["batch"], row["file"], row["line"]) for row in bad]
    assert places == [(3, "landing/orders/00000003.jsonl.gz", line) for line in range(51, 56)]
    assert all(row["reason"].startswith("foreign_key CAST(SPLIT_PART(customer_ref, '/', 2) AS INT)") for row in bad)


@pytest.mark.docs
@pytest.mark.spark
def test_a_batch_tells_what_it_changed(ran: Any) -> None:
    pipeline, changed = ran
    assert sorted(changed) == [0, 1, 2, 3, 4]
    # One pass over all batches: each row of the result was inserted once, on behalf of one of them.
    assert sum(found.get("insert", 0) for found in changed.values()) == 2980
    assert not [found for found in changed.values() if {*found} - {"insert"}]
    verdicts = Counter(row["_fk_batch"] for row in pipeline.table("verdicts").select("_fk_batch").collect())
    assert sorted(verdicts) == [0, 1, 2, 3, 4]
    assert pipeline.verify().ok


@pytest.mark.skipif(
    not (Path(sys.executable).parent / "tpchgen-cli").exists(),
    reason="no tpchgen-cli: benchmarks/requirements.txt brings it",
)
def test_the_data_are_what_the_script_makes(loaded: Any) -> None:
    def content(name: str, data: bytes) -> bytes:
        return gzip.decompress(data) if name.endswith(".gz") else data

    landing = EXAMPLES / "orders" / "landing"
    made = loaded(EXAMPLES / "orders" / "make_data.py").files()
    assert {*made} == {str(file.relative_to(landing)) for file in landing.rglob("*") if file.is_file()}
    for name, data in made.items():
        assert content(name, data) == content(name, (landing / name).read_bytes()), name


@pytest.mark.docs
@pytest.mark.spark
def test_a_project_of_its_own_reports_the_join(
    ran: Any, loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, _ = ran
    monkeypatch.setenv("SHOP_ORDERS", str(pipeline.spec.file.parent))
    monkeypatch.setenv("SHOP_REPORTS", str(tmp_path))
    shop = loaded(EXAMPLES / "project" / "shop" / "definitions.py")
    keys = {key.to_user_string() for key in shop.defs.get_repository_def().asset_graph.get_all_asset_keys()}
    assert {"sales_targets", "revenue_by_segment", "orders/left_changelog", "orders"} <= keys
    with DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("orders_batches", ["b00000004"])
        joins = shop.defs.resolve_job_def("orders_all_stages")
        assert joins.execute_in_process(instance=instance, partition_key="b00000004").success
        assert shop.defs.resolve_job_def("shop_reports").execute_in_process(instance=instance).success
    totals: dict[str, list[Any]] = {}
    for row in joined_by_hand(pipeline.spec.file.parent / "landing"):
        found = totals.setdefault(row[7] or "", [0, Decimal(0)])
        totals[row[7] or ""] = [found[0] + 1, found[1] + row[3]]
    with (tmp_path / "revenue.csv").open(newline="") as file:
        reported = {row["segment"]: [int(row["orders"]), Decimal(row["revenue"])] for row in csv.DictReader(file)}
    assert reported == totals
    assert len(totals) == 6  # five segments, and orders without a known customer


@pytest.mark.docs
@pytest.mark.parametrize("module", ["shop.definitions", "shop_dg.definitions"])
def test_dagster_finds_the_definitions_of_a_project_valid(module: str, tmp_path: Path) -> None:
    for name in ("orders", "project"):  # side by side: the pipeline file of the component is ../../../../orders
        shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("warehouse", "__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-m", module],
        cwd=tmp_path / "project",
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"Validation successful for code location {module}" in done.stderr + done.stdout


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore")  # what Dagster says of its own components: much of that is in beta
def test_a_component_brings_the_same_assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster import load_from_defs_folder

    for name in ("orders", "project"):
        shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("warehouse", "__pycache__"))
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    defs = load_from_defs_folder(path_within_project=tmp_path / "project" / "shop_dg")
    keys = {key.to_user_string() for key in defs.get_repository_def().asset_graph.get_all_asset_keys()}
    before = ("left", "right", "left_changelog", "right_table", "subscription_store", "responses")
    assert {key for key in keys if "landing" not in key} == {"orders", *(f"orders/{one}" for one in before)}
    assert defs.resolve_sensor_def("orders_new_batches")
