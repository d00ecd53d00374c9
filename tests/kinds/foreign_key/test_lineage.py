"""The columns that the values of a stage's table come from. Needs no Spark."""

from __future__ import annotations

from pathlib import Path

from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.lineage import lineage
from fk_pipeline.spec import load_spec


def test_a_foreign_key_comes_from_the_column_that_has_the_part(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\njoin: left\n"
        'left: {path: l, format: rows, schema: "id INT, at STRUCT<city: STRING>", key: id, foreign_key: at.city}\n'
        'right: {path: r, format: rows, schema: "city STRING, name STRING", key: city}\n'
    )
    assert lineage(load_spec(file), Stage.SUBSCRIPTION_STORE) == {
        "_fk_pk_id": [(Stage.LEFT_CHANGELOG, "id")],
        "_fk_fk_city": [(Stage.LEFT_CHANGELOG, "at")],
    }
