"""A block that reads a table of its own pipeline, which is neither an input nor another block."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from fk_pipeline.blocks.refresh.advice import advice_on
from fk_pipeline.blocks.refresh.refresh import Refresh
from fk_pipeline.blocks.refresh.sums import ROWS, SUM
from fk_pipeline.blocks.refresh.tables import anchor_columns, declared_table
from fk_pipeline.blocks.select.block import ANCHOR, ROW, Block
from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.spec import Column
from fk_pipeline.stage_input import Reader
from fk_pipeline.store.schemas import Table

MEMBERS = Table(
    "members",
    (("id", "BIGINT"), ("city", "STRING"), ("name", "STRING"), ("_fk_batch", "INT")),
    keys=("id",),
    sensitive=frozenset({"Name"}),
)


class Members:
    """A pipeline without inputs that blocks read."""

    inputs: ClassVar[dict[str, Any]] = {}
    clocks, refresh, file = (), "auto", Path("members.yaml")

    def __init__(self, select: str) -> None:
        columns = {"members": [Column(name, kind) for name, kind in MEMBERS.columns]}
        self.blocks = parse_query(select, columns, {"members": MEMBERS.keys}, last="counted")

    def block_of(self, stage: str, _: Any) -> Block:
        return self.blocks.block(stage)


def table_of(spec: Any) -> Table:
    return declared_table(spec, {"members": MEMBERS}, spec.blocks.block("counted"))


def test_the_last_block_has_the_name_that_it_is_given() -> None:
    blocks = Members("WITH a AS (SELECT DISTINCT city FROM members) SELECT COUNT(*) AS n FROM a").blocks.blocks
    assert [one.name for one in blocks] == ["a", "counted"]


def test_rows_are_told_apart_by_the_key_of_the_table() -> None:
    spec: Any = Members("SELECT id, name AS called, upper(city) AS city FROM members")
    found = table_of(spec)
    assert found.keys == (ANCHOR.format(0),)
    assert dict(found.columns)[ANCHOR.format(0)] == "BIGINT"
    assert dict(found.columns)["called"] == "STRING"
    assert found.sensitive == {"called"}
    assert anchor_columns(spec, {"members": MEMBERS}, spec.blocks.block("counted")) == {ANCHOR.format(0): "id"}


def test_groups_are_kept_by_arithmetic() -> None:
    found = table_of(Members("SELECT city, COUNT(*) AS n FROM members GROUP BY city"))
    assert found.keys == (ROW,)
    assert ROWS in found.names
    assert found.sensitive == frozenset()


def test_a_hidden_sum_of_sensitive_values_is_sensitive() -> None:
    found = table_of(
        Members("SELECT city, COUNT(name) AS n, SUM(id) AS ids, AVG(length(name)) AS mean FROM members GROUP BY city")
    )
    assert found.sensitive == {"n", "mean", SUM.format(2)}


def test_advice_is_given_though_nothing_tells_the_key() -> None:
    spec: Any = Members("SELECT id, row_number() OVER (PARTITION BY city ORDER BY name) AS place FROM members")
    [text] = advice_on(spec, spec.blocks.block("counted"))
    assert text.endswith("what tells them apart: the key of the rows")


def test_a_refresh_asks_for_the_tables_that_are_no_input() -> None:
    spec = Members("SELECT city, COUNT(*) AS n FROM members GROUP BY city")
    tables = {"members": MEMBERS, "counted": table_of(spec)}
    read = SimpleNamespace(
        spec=spec,
        history=SimpleNamespace(stage="counted"),
        about=lambda name: SimpleNamespace(declared=tables[name], metadata={}),
        seen=lambda _: None,
        read=lambda _: SimpleNamespace(sparkSession=None),
    )
    refresh = Refresh(cast("Reader", read))
    assert refresh.tables == tables
    assert refresh.table is tables["counted"]
    relation = refresh.relations["members"]
    assert (relation.keys, relation.stored, relation.declared, relation.is_clock) == (("id",), True, False, False)
    assert relation.table.names == ["id", "city"]
