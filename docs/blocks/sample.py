"""A pipeline that stands for all of them: one key column on each side, one column besides."""

from __future__ import annotations

from fk_pipeline.spec import PipelineSpec

SPEC = PipelineSpec.model_validate(
    {
        "name": "sample",
        "join": "left",
        "left": {"path": "left", "schema": "l STRING, lv STRING", "key": "l", "foreign_key": "lv"},
        "right": {"path": "right", "schema": "r STRING, rv STRING", "key": "r"},
    }
)
