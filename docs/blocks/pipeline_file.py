"""Every key of a pipeline file: from the fields of pydantic's models, and the docstrings below them."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Mapping
from typing import Any

from blocks.markdown import cell, code, items, one_of
from pydantic import AfterValidator, BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from fk_pipeline.cdc.endings import ENDINGS, JSON_LINES
from fk_pipeline.contract import loaded
from fk_pipeline.kinds.aggregate import spec as aggregate
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.registry import KINDS, kind_named
from fk_pipeline.kinds.window import spec as window
from fk_pipeline.spec import formats, inputs, join, model, settings
from fk_pipeline.spec.model import registered

MORE = {
    "JoinSpec.left": "#of-a-side",
    "AggregateSpec.input": "#of-a-side",
    "JoinSpec.right": "#of-a-side",
    "ForeignKeySpec.result_key": "#result-key",
    "ForeignKeySpec.as_of": "../kinds/as-of.md",
    "ForeignKeySpec.history": "../kinds/as-of.md#how-far-back",
    "WindowSpec.retention": "../kinds/window.md#how-far-back",
    "JoinSpec.select": "#select",
    "PipelineSpec.schema_changes": "schema-changes.md",
    "PipelineSpec.on_bad_record": "command.md#quarantine",
    "PipelineSpec.expectations": "expectations.md#your-own-expectations",
    "PipelineSpec.settings": "#settings",
    "PipelineSpec.description": "dagster.md#what-the-pipeline-file-says-of-the-data",
    "SideSpec.path": "landing.md",
    "SideSpec.key": "landing.md#changes-snapshots-or-events",
    "SideSpec.valid_from": "../kinds/as-of.md#keys",
    "SideSpec.schema": "#schema",
    "SideSpec.sequence_by": "#sequence",
    "SideSpec.batch_by": "landing.md",
    "SideSpec.op_column": "rows.md#deletes",
    "SideSpec.delete_when": "rows.md#deletes-as-data",
    "SideSpec.contents": "landing.md#changes-snapshots-or-events",
    "SideSpec.csv": "rows.md#csv",
    "SideSpec.logical_types": "formats.md#values",
    "SideSpec.sensitive": "privacy.md",
    "LeftSpec.foreign_key": "#foreign-key",
    "WindowSettings.optimize": "../kinds/window.md#a-stream-joined-to-itself",
    "Settings.max_line_bytes": "landing.md#lines-that-are-too-long",
    "Settings.max_fan_out": "#fan-out",
    "Settings.max_quarantined_share": "expectations.md#the-suites",
    "Settings.max_late_share": "expectations.md#the-suites",
    "Settings.max_unresolved_holes": "expectations.md#the-suites",
    "Settings.data_docs": "expectations.md#data-docs",
    "Settings.report": "../how-to/report.md#the-page-in-dagster",
    "Settings.automation": "dagster.md#switching-on",
    "Settings.freshness": "dagster.md#freshness",
    "Settings.sensor_seconds": "dagster.md#the-sensor",
    "Settings.retry_seconds": "dagster.md#the-sensor",
    "Settings.retention_hours": "command.md#compact",
    "Settings.fold_after_hours": "command.md#compact",
    "Settings.tombstone_retention": "command.md#compact",
    "Settings.statistics_columns": "../how-to/read-elsewhere.md#what-the-table-tells",
    "Settings.strategy": "#strategy",
    "PipelineSpec.register": "#register",
}
"""Where more is said of a key."""


VALUES = {
    "ForeignKeySpec.history": "text",
    "SideSpec.format": "[a format](#formats)",
    "Settings.freshness": "text",
    "Settings.strategy": "`auto`, `incremental` or `full`, or these by stage",
}
"""What may stand there, where the type does not tell."""


REQUIRED = "required"
"""What stands in place of a default where there is none."""


PAGES = {"csv": "rows.md#csv", "parquet": "rows.md", "module:Class": "formats.md#your-own-format"}
"""The page of a format, where it has not the name of the format."""


def blocks() -> dict[str, str]:
    """The lists of keys, by the names of their blocks."""
    left, right = _keys(inputs.LeftSpec), _keys(inputs.SideSpec)
    foreign_key = {name: field for name, field in left.items() if name not in right}
    said = {"pipeline": _keys(model.PipelineSpec), "settings": _keys(settings.Settings)}
    said["join"] = {name: row for name, row in _keys(join.JoinSpec).items() if name not in said["pipeline"]}
    said |= {name: _own_keys(loaded(kind_named(name).spec)) for name in KINDS}
    del said["table"]  # one input is all that it has
    said["window"] = _with_parts(said["window"], "within", window.WithinSpec)
    said["aggregate"] = _with_parts(said["aggregate"], "window", aggregate.TimeWindow)
    said["expectation"] = _keys(settings.OwnExpectation)
    names = [f"{owner}.{name}" for owner, cls in _OWNERS.items() for name in _keys(cls)]
    unknown = set(MORE) - set(names)
    if unknown:
        raise LookupError(f"there is no key {', '.join(sorted(unknown))}")
    found = {name: _listed(rows) for name, rows in said.items()}
    more = {f"{name} (left only)": row for name, row in foreign_key.items()}
    more |= {f"{name} (`kind: window`)": row for name, row in _keys(window.WindowSide).items() if name not in right}
    found["side"] = _listed(right | more)
    optimize = {"optimize (`kind: window`)": _keys(window.WindowSettings)["optimize"]}
    found["settings"] = _listed(said["settings"] | optimize)
    return {f"keys.{name}": text for name, text in found.items()} | {"formats": _formats()}


def _formats() -> str:
    """The formats that are read, each with its page, by the endings of their files."""
    lines = f"{', '.join(map(code, JSON_LINES))}, each also with `.gz`"
    endings = {name: ", ".join(map(code, ENDINGS[name])) if name in ENDINGS else lines for name in formats.FORMATS}
    endings |= {"delta": "none: `path` is a Delta table", "module:Class": "those of your class"}
    rows: dict[str, list[str]] = {}
    for name, told in endings.items():
        rows.setdefault(told, []).append(f"[{code(name)}]({PAGES.get(name, f'{name}.md')})")
    return items(f"{', '.join(names)}: {told}" for told, names in rows.items())


def _with_parts(rows: Mapping[str, list[str]], key: str, cls: type[BaseModel]) -> dict[str, list[str]]:
    """Rows of keys, with those of the parts of one of them behind it: `within.before`."""
    parts = {f"{key}.{name}": row for name, row in _keys(cls).items()}
    found: dict[str, list[str]] = {}
    for name, row in rows.items():
        found |= {name: row} | (parts if name == key else {})
    return found


def _own_keys(cls: type[BaseModel]) -> dict[str, list[str]]:
    """The keys of a pipeline file that only one kind has; both sides of a join are told elsewhere."""
    common = join.JoinSpec if issubclass(cls, join.JoinSpec) else model.PipelineSpec
    shared = _keys(common)
    return {name: row for name, row in _keys(cls).items() if name not in shared}


_PARTS = (
    model.PipelineSpec,
    join.JoinSpec,
    ForeignKeySpec,
    window.WindowSpec,
    aggregate.AggregateSpec,
    window.WindowSide,
    window.WindowSettings,
)
_OWNERS = {cls.__name__: cls for cls in (*_PARTS, inputs.SideSpec, inputs.LeftSpec, settings.Settings)}


def _listed(rows: Mapping[str, list[str]]) -> str:
    """A list of keys, each with what may stand there, its default in brackets, and its meaning."""
    return items(_item(name, *row) for name, row in rows.items())


def _item(name: str, more: str, value: str, default: str, meaning: str) -> str:
    """One key: a plain type is not said, as the default shows it, nor a default that is the first of some words.

    Of a text that is SQL the value says so.
    """
    word, _, note = name.partition(" ")
    key = f"[{code(word)}]({more}) {note}" if more else f"{code(word)} {note}"
    if meaning.startswith("SQL: "):
        value, meaning = re.sub("texts?", "SQL", value, count=1), meaning.removeprefix("SQL: ")
    if value in ("text", "mapping") or (value in _PLAIN.values() and default):
        value = ""
    if value.startswith(default) and default != REQUIRED:
        default = ""
    given = f"{key.rstrip()}, {value}" if value else key.rstrip()
    return f"{given} ({default}): {meaning}" if default else f"{given}: {meaning}"


def _keys(cls: type[BaseModel]) -> dict[str, list[str]]:
    """Per key of a part of the file: the place where more is said of it, its value, its default, its meaning."""
    told: dict[str, str] = {}
    for base in reversed(cls.__mro__[: cls.__mro__.index(BaseModel)]):
        told |= _docstrings(base)
    found = {}
    for field, info in cls.model_fields.items():
        if info.exclude:
            continue
        name = info.alias or field
        owner = next(base.__name__ for base in reversed(cls.__mro__) if field in getattr(base, "__annotations__", {}))
        if field not in told:
            raise LookupError(f"{owner}.{field} has no docstring below it")
        meaning, _, default = cell(told[field]).partition("; default: ")
        value = VALUES.get(f"{owner}.{name}") or _value(info)
        default = default or _default(info)
        found[name] = [MORE.get(f"{owner}.{name}", ""), value, default, meaning]
    return found


def _docstrings(cls: type) -> dict[str, str]:
    """The texts that stand below the fields of a class."""
    body = typing.cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return REQUIRED
    default = info.get_default(call_default_factory=True)
    if isinstance(default, BaseModel) or default in (None, "", (), {}):
        return ""
    if isinstance(default, tuple):
        return ", ".join(map(code, default))
    return code(str(default).lower() if isinstance(default, bool) else default)


def _value(info: FieldInfo) -> str:
    """What may stand there, in words."""
    if AfterValidator(registered) in info.metadata:
        return one_of(tuple(KINDS))
    limits = {}
    for limit in info.metadata:
        limits |= {
            name: getattr(limit, name)
            for name in ("ge", "gt", "le", "max_length", "pattern")
            if getattr(limit, name, None) is not None
        }
    lists = any(isinstance(one, BeforeValidator) for one in info.metadata)
    words = _type(info.annotation, lists=lists)
    if "pattern" in limits:
        words = code(limits["pattern"])
    if "max_length" in limits:
        words += f", at most {limits['max_length']} characters"
    if "le" in limits:
        return f"{limits['ge']} to {limits['le']}"
    return f"{words} above {limits['gt']}" if "gt" in limits else words


_PLAIN: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "boolean"}


def _type(kind: Any, *, lists: bool = False) -> str:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin is typing.Literal:
        return one_of(parts)
    if origin is tuple:
        what = _type(parts[0])
        return f"{what} or list" if lists else f"list of {'mappings' if what == 'mapping' else what + 's'}"
    if origin is dict:
        return f"mapping of {_type(parts[1])}s" if parts[1] in _PLAIN else "mapping"
    if origin in (types.UnionType, typing.Union):
        whole = [part for part in parts if part is not types.NoneType]
        return " or ".join(_type(part, lists=lists) for part in whole)
    if origin is typing.Annotated:
        return _type(parts[0], lists=True)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "mapping"
    raise LookupError(f"no word for {kind}")
