"""What a changelog computes of every row."""

from __future__ import annotations

from fk_pipeline.blocks.changelog import row_expressions
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec


def test_the_expressions_of_a_row_are_sql_of_the_kind_and_of_the_input() -> None:
    spec = PipelineSpec.model_validate(
        {
            "name": "p",
            "kind": "aggregate",
            "input": {
                "path": "x",
                "format": "rows",
                "schema": "id INT, shop STRING, price DOUBLE, gone BOOLEAN, v INT",
                "key": "id",
                "sequence_by": "v + 1",
                "delete_when": "gone",
                "where": "shop <> ''",
            },
            "group_by": ["UPPER(shop) AS shop"],
            "aggregates": ["SUM(1 / price) AS total"],
        }
    )
    assert row_expressions(spec, Side.INPUT) == ("UPPER(shop)", "1 / price", "v + 1", "gone", "shop <> ''")
