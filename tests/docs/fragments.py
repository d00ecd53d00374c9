"""A part of a pipeline file, as a page shows it, made whole: it must load."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.inputs import SideSpec
from fk_pipeline.spec.model import PipelineSpec as Whole
from fk_pipeline.spec.sql import parse_columns

_BASE: dict[str, Any] = {
    "name": "shown",
    "join": "left",
    "left": {
        "path": "landing/left",
        "format": "rows",
        "schema": "order_id BIGINT, customer STRING, amount DECIMAL(10,2)",
    },
    "right": {"path": "landing/right", "format": "rows", "schema": "customer STRING, name STRING, city STRING"},
}
_TYPES = {"decimal_bytes": "DECIMAL(12,2)"}


def load_fragment(text: str, folder: Path) -> PipelineSpec:
    """The pipeline that a fragment belongs to: what it leaves out is filled in so that it fits.

    A fragment of a side alone (`logical_types: ...`) is one of the left side. Columns that only options name are added.
    """
    shown = YAML(typ="safe").load(text)
    fields = {f.alias or name for name, f in SideSpec.model_fields.items()} | {"foreign_key"}
    if shown.keys() <= fields and not shown.keys() & Whole.model_fields.keys():
        shown = {"left": shown}
    whole = copy.deepcopy(_BASE)
    for name, value in shown.items():
        if name in ("left", "right") and isinstance(value, dict):
            whole[name] |= value
        else:
            whole[name] = value
    for side in ("left", "right"):
        _complete(whole[side], "schema" in shown.get(side, {}))
    right = {c.name: c.type for c in parse_columns(whole["right"]["schema"])}
    if "foreign_key" not in whole["left"]:
        keys = whole["right"]["key"]
        first = parse_columns(whole["left"]["schema"])[0].name
        whole["left"]["foreign_key"] = [
            f"CAST({first} AS {right[k]})" for k in ([keys] if isinstance(keys, str) else keys)
        ]
    file = folder / "shown.yaml"
    with file.open("w") as stream:
        YAML().dump(whole, stream)
    return load_spec(file)


def _complete(side: dict[str, Any], has_schema: bool) -> None:
    known = {c.name for c in parse_columns(side["schema"])}
    named = {name: _TYPES.get(how, "TIMESTAMP") for name, how in side.get("logical_types", {}).items()}
    named |= dict.fromkeys(
        [side["sensitive"]] if isinstance(side.get("sensitive"), str) else side.get("sensitive", ()), "STRING"
    )
    if not has_schema:
        side["schema"] += "".join(f", {name} {kind}" for name, kind in named.items() if name not in known)
    if "csv" in side and side["format"] == "rows":
        side["format"] = "csv"
    if "table" in side and side["format"] == "rows":
        side["format"] = "debezium"
    side.setdefault("key", parse_columns(side["schema"])[0].name)
