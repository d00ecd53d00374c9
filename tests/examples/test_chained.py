"""examples/chained: the changes of one result are the left side of another join."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dagster import AllPartitionMapping, AssetKey, DagsterInstance

import fk_pipeline as fk
from fk_pipeline.errors import LandingError
from fk_pipeline.resources import LandingZoneResource
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import evaluated

Row = dict[str, Any]


class Chain:
    """The example in a folder, and what its result has to be."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self.withdrawn: set[Path] = set()

    def pipeline(self, name: str) -> fk.Pipeline:
        return fk.Pipeline(load_spec(self.folder / f"{name}.yaml"), self.spark)

    def land(self, side: str, batch: int, *rows: Row) -> Path:
        file = self.folder / "landing" / side / f"{batch:08d}.jsonl"
        file.write_text("".join(json.dumps({"op": "u"} | row) + "\n" for row in rows))
        return file

    def land_later(self) -> None:
        """The second batch of files."""
        shutil.copytree(self.folder / "later", self.folder / "landing", dirs_exist_ok=True)

    def run(self) -> list[str]:
        """Both, in order; what they note."""
        done = [self.pipeline(name).run() for name in ("priced_lines", "supplied_lines")]
        return [note for runs in done for run in runs for note in run.notes]

    def last_rows(self, side: str, key: str) -> dict[Any, Row]:
        found: dict[Any, Row] = {}
        for file in sorted((self.folder / "landing" / side).glob("*.jsonl")):
            for row in map(json.loads, [] if file in self.withdrawn else file.read_text().splitlines()):
                found.pop(row[key], None)
                if row["op"] != "d":
                    found[row[key]] = row
        return found

    def three_way_join(self) -> set[tuple[Any, ...]]:
        """Of the last rows, in plain Python."""
        products, suppliers = self.last_rows("products", "product"), self.last_rows("suppliers", "supplier")
        rows = set()
        for line in self.last_rows("lines", "line").values():
            product = products.get(line["product"], {})
            supplier = suppliers.get(product.get("supplier"), {})
            amount = line["quantity"] * Decimal(product["price"]) if product else None
            whose = (product.get("supplier"), supplier.get("name"), supplier.get("country"))
            rows.add((line["line"], product.get("title"), amount, *whose))
        return rows

    def is_right(self) -> bool:
        result = self.pipeline("supplied_lines").table("resolved_join")
        names = ["line", "title", "amount", "supplier", "name", "country"]
        rows = [tuple(row) for row in result.select(*names).collect()]
        assert len(rows) == len(set(rows))
        assert set(rows) == self.three_way_join()
        return True


@pytest.fixture
def chain(example: Callable[[str], Path], spark: Any) -> Chain:
    return Chain(example("chained"), spark)


def test_the_second_pipeline_depends_on_the_result_of_the_first(chain: Chain, loaded: Any) -> None:
    graph = loaded(chain.folder / "definitions.py").defs.get_repository_def().asset_graph
    left, result = graph.get(AssetKey(["supplied_lines", "left"])), AssetKey("priced_lines")
    assert left.parent_keys == {result}
    assert isinstance(left.partition_mappings[result], AllPartitionMapping)
    assert graph.get(AssetKey(["supplied_lines", "left_changelog"])).parent_keys == {left.key}
    for landed in ("supplied_lines/right", "priced_lines/left"):
        [source] = graph.get(AssetKey.from_user_string(landed)).parent_keys
        assert graph.get(source).group_name == "sources"


class Dagster:
    """The definitions of the example, and what Dagster's daemon does with them."""

    def __init__(self, defs: Any, instance: DagsterInstance) -> None:
        self.defs, self.instance = defs, instance

    def tick(self, name: str) -> Any:
        """The sensor of a pipeline, its partitions added; the run that it asks for, or why it asks for none."""
        found = evaluated(self.defs, name, self.instance, {"landing_zone": LandingZoneResource()})
        return found.run_requests[0] if found.run_requests else found.skip_message

    def run(self, name: str) -> str:
        """The run that a tick asks for; its last batch."""
        tags = self.tick(name).tags
        job = self.defs.resolve_job_def(f"{name}_all_stages")
        assert job.execute_in_process(instance=self.instance, tags=tags).success
        return str(tags["dagster/asset_partition_range_end"])


@pytest.fixture
def dagster(chain: Chain, loaded: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dagster]:
    monkeypatch.setenv("FK_EXAMPLE", str(chain.folder))
    with DagsterInstance.ephemeral() as instance:
        yield Dagster(loaded(chain.folder / "definitions.py").defs, instance)


@pytest.mark.docs
@pytest.mark.spark
def test_a_batch_of_the_first_goes_through_both(chain: Chain, dagster: Dagster) -> None:
    chain.run()
    assert chain.is_right()
    rows = chain.pipeline("supplied_lines").table("resolved_join").select("line", "amount", "name").collect()
    assert {tuple(row) for row in rows} == {
        (1, Decimal("3.00"), "North & Sons"),
        (2, Decimal("4.00"), "South Ltd"),
        (3, None, None),
        (4, Decimal("1.50"), "North & Sons"),
    }
    assert dagster.tick("supplied_lines").startswith("nothing is due")
    chain.land_later()
    chain.pipeline("priced_lines").run()
    assert dagster.tick("supplied_lines").tags["dagster/asset_partition_range_end"] == "b00000001"
    second = chain.pipeline("supplied_lines")
    second.run()
    assert chain.is_right()
    left = second.table("left_changelog").where("_fk_batch = 1").select("line", "_fk_deleted").collect()
    assert {row["line"]: row["_fk_deleted"] for row in left} == {1: False, 2: True, 3: False, 4: False, 5: False}


@pytest.mark.slow
@pytest.mark.spark
def test_the_sensors_run_both_in_dagster(chain: Chain, dagster: Dagster) -> None:
    assert [dagster.run(name) for name in ("priced_lines", "supplied_lines")] == ["b00000000", "b00000000"]
    assert chain.is_right()
    chain.land_later()
    assert [dagster.run(name) for name in ("priced_lines", "supplied_lines")] == ["b00000001", "b00000001"]
    assert all(dagster.tick(name).startswith("nothing is due") for name in ("priced_lines", "supplied_lines"))
    assert chain.is_right()
    assert all(chain.pipeline(name).verify().ok for name in ("priced_lines", "supplied_lines"))


@pytest.mark.slow
@pytest.mark.spark
def test_whatever_happens_to_the_first_the_second_is_the_three_way_join(chain: Chain) -> None:
    chain.pipeline("supplied_lines").run()  # before the first was ever run
    chain.run()
    chain.land_later()
    chain.run()
    assert chain.is_right()

    chain.land(
        "products", 4, {"product": "pen", "title": "Late loses to nothing", "price": "9.00", "supplier": "south"}
    )
    chain.run()
    chain.land("products", 3, {"product": "pen", "title": "Too late", "price": "1.00", "supplier": "north"})
    chain.land("lines", 1, {"line": 1, "product": "pad", "quantity": 9}, {"line": 6, "product": "pen", "quantity": 1})
    chain.run()  # a late batch, and a rewritten one
    assert chain.is_right()

    gone = chain.land("lines", 5, {"line": 7, "product": "pad", "quantity": 1})
    chain.run()
    chain.pipeline("priced_lines").remove_batch(5)
    chain.withdrawn.add(gone)
    chain.land("suppliers", 2, {"op": "d", "supplier": "north"})
    chain.run()
    assert chain.is_right()

    for source in ("changelog", "landing"):
        chain.pipeline("priced_lines").rebuild(source)
        chain.run()
        assert chain.is_right()
    chain.pipeline("supplied_lines").rebuild("landing")
    assert chain.is_right()

    file = chain.folder / "priced_lines.yaml"
    file.write_text(file.read_text() + "  - quantity\nsettings: {retention_hours: 0, strategy: full}\n")
    chain.pipeline("priced_lines").rebuild()  # a new table with a new id, in its place
    notes = chain.run()
    assert any("left rows have a field that is not in the schema: quantity" in note for note in notes)
    assert chain.is_right()
    chain.land("lines", 6, {"line": 8, "product": "pen", "quantity": 2})
    chain.run()  # written whole: every row is a delete and an insert
    assert chain.is_right()


@pytest.mark.slow
@pytest.mark.spark
def test_versions_that_are_removed_before_they_are_read_are_told_and_taken_whole(chain: Chain) -> None:
    file = chain.folder / "priced_lines.yaml"
    file.write_text(file.read_text() + "settings: {retention_hours: 0}\n")
    chain.run()
    chain.pipeline("priced_lines").compact()
    chain.run()
    assert chain.is_right()
    chain.land_later()
    first, second = chain.pipeline("priced_lines"), chain.pipeline("supplied_lines")
    first.run()
    second.discover()  # it names the versions, whose files are removed before they are read
    first.compact()
    with pytest.raises(LandingError) as refused:
        second.run()
    batch = second.ledger().batches[-2]  # the last one has the versions of the upkeep
    removed = f"fk-pipeline remove-batch {second.spec.file} {batch}"
    assert str(refused.value.fix) == (
        f"{removed}; the next run takes the whole table instead, and what else is in batch {batch} stays"
    )
    second.remove_batch(batch)
    second.run()
    assert chain.is_right()
    assert second.verify().ok
