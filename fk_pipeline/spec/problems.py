"""Describes the problems of a pipeline file as people correct them: the line, what is wrong, and the correct form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from fk_pipeline.contract import loaded
from fk_pipeline.kinds.registry import FIRST, KINDS, kind_named
from fk_pipeline.spec.model import PipelineSpec
from fk_pipeline.words import did_you_mean, meant_or_all

_FORM = re.compile(r"[\[(]")
"""Found in a part of a place that names the form of a value, such as `dict[str,...]`, and no key."""

_MOST_KEYS = 8
"""The largest number of keys of a mapping that an error lists."""


def described(error: Any, document: Any, inline: str = "") -> tuple[int, str]:
    """Returns line and message of one pydantic error.

    Args:
        error: the error.
        document: the file.
        inline: the input of the file whose pipeline has the error; empty: the pipeline of the file.
    """
    context = error.get("ctx") or {}
    loc = within(tuple(error["loc"]) + tuple(context.get("path", ())), inline)
    shown = ".".join(str(part) for part in loc if not isinstance(part, int) and not _FORM.search(str(part)))
    kind, got = error["type"], error.get("input")
    if kind == "pipeline_file":
        message = f"{shown}: {context['message']}" if shown else context["message"]
    elif kind == "missing":
        message = f"{shown!r} is missing"
    elif kind == "extra_forbidden":
        message = f"unknown key {shown!r}{_suggestion(loc, document)}"
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        message = f"{shown}: {got!r} is not possible; it must be a mapping{_keys(loc, document)}"
    elif kind == "literal_error":
        message = f"{shown}: {got!r} is not possible; it must be {context['expected']}"
        message += did_you_mean(got, re.findall("'([^']*)'", context["expected"]))
    elif kind == "string_pattern_mismatch":
        message = f"{shown}: {got!r} must start with a letter a-z and go on with a-z, 0-9 and _"
    else:
        message = f"{shown}: {error['msg']}, not {got!r}"
    return line_of(document, loc), message


def of_meant_form(errors: Sequence[Any]) -> list[Any]:
    """Returns the errors without those of a form that a value has not: of a mapping, that it is no text."""
    places = {
        tuple(error["loc"])[:i] for error in errors for i, part in enumerate(error["loc"]) if "dict[" in str(part)
    }
    return [e for e in errors if tuple(e["loc"])[:-1] not in places or not isinstance(e.get("input"), dict)]


def within(loc: tuple[Any, ...], inline: str) -> tuple[Any, ...]:
    """Returns the place in the file of a place in the pipeline of an inline input."""
    return ("inputs", inline, *loc[1:]) if inline and loc[:1] == ("input",) else loc


def _keys(loc: tuple[Any, ...], document: Any) -> str:
    """Returns the keys of a small mapping at a path of the document, as `: {before: ..., after: ...}`."""
    model = _model_at(loc, document)
    names = [] if model is None else _keys_of(model)
    return f": {{{', '.join(f'{name}: ...' for name in names)}}}" if 0 < len(names) <= _MOST_KEYS else ""


def _suggestion(loc: tuple[Any, ...], document: Any) -> str:
    model = _model_at(loc[:-1], document)
    if model is None:
        return ""
    return meant_or_all(loc[-1], sorted(_keys_of(model)))


def _keys_of(model: type[BaseModel]) -> list[str]:
    """Returns the keys that a file may give for a model, without what only the loader sets."""
    return [field.alias or name for name, field in model.model_fields.items() if not field.exclude]


def _model_at(loc: tuple[Any, ...], document: Any) -> type[BaseModel] | None:
    """Returns the model of the mapping at a path of the document; None if it has none."""
    kind = document.get("kind", FIRST)
    model: Any = loaded(kind_named(kind).spec) if kind in KINDS else PipelineSpec
    for part in loc:
        if get_origin(model) is dict:  # of mappings by any names
            model = get_args(model)[1]
            continue
        mapping = _mapping_of(model)
        field = None if mapping is None else mapping.model_fields.get(str(part))
        model = None if field is None else field.annotation
    return _mapping_of(model)


def _mapping_of(annotation: Any) -> type[BaseModel] | None:
    """Returns the model that a field has, or may have among other forms; None without one."""
    if _is_model(annotation):
        mapping: type[BaseModel] = annotation
        return mapping
    forms = get_args(annotation) if get_origin(annotation) in (Union, UnionType, Annotated) else ()
    return next((model for form in forms if (model := _mapping_of(form)) is not None), None)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def line_of(node: Any, loc: tuple[Any, ...]) -> int:
    """Returns the line, from 1, of the deepest part of `loc` that exists in the document."""
    line = 1
    for part in loc:
        try:
            marks: Any = node.lc
            position = marks.key(part) if isinstance(node, dict) else marks.item(part)
            line, node = position[0] + 1, node[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return line
