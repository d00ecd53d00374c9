"""Reads a pipeline file. Every mistake is reported with file and line, the problem and the correct form."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from fk_pipeline.contract import loaded
from fk_pipeline.errors import PipelineFileError, escaped
from fk_pipeline.kinds.registry import FIRST, KINDS, kind_named
from fk_pipeline.spec.base import as_tuple
from fk_pipeline.spec.model import PipelineSpec
from fk_pipeline.spec.paths import place_of
from fk_pipeline.spec.results import REPLACED, as_input, schema_of
from fk_pipeline.spec.settings import Settings
from fk_pipeline.spec.sql import body_of
from fk_pipeline.spec.yaml_text import YamlTextError, load_yaml

KEYS_TOLD = 8
"""The largest number of keys of a mapping that an error lists."""

_OF_LOADER = ("file", "texts", "own_settings")
"""The fields of a pipeline that no file may have."""

Texts: TypeAlias = dict[Path, str]
"""Per file that was read the hash of its text."""


def load_spec(file: str | Path, read_by: Sequence[Path] = ()) -> PipelineSpec:
    """Returns the pipeline that a YAML file describes.

    Args:
        file: the file.
        read_by: the files of the pipelines that read its result, the first of them first.

    Raises:
        PipelineFileError: the file is missing, not YAML, or not a pipeline; each problem is on its own line.
        StateError: the result of another pipeline that it reads cannot be opened.
    """
    path = Path(file)
    if ".." in path.parts:
        path = Path(place_of(path))
    texts: Texts = {}
    document = load_document(path, texts)
    for key in _OF_LOADER:
        if key in document:
            raise PipelineFileError(f"unknown key {key!r}", where=f"{path}:{_line_of(document, (key,))}")
    try:
        read = _with_suites(document, path, texts) | _with_results(document, path, read_by, texts)
        read |= _with_query(document, path, texts)
        return PipelineSpec.model_validate({**document, "file": path, **read, "texts": tuple(texts.items())})
    except ValidationError as error:
        problems = [_describe(e, document) for e in error.errors()]
    lines = [f"{escaped(str(path))}:{line}: {message}" for line, message in sorted(problems)]
    raise PipelineFileError("\n".join(lines))


def load_document(path: Path, texts: Texts | None = None) -> dict[Any, Any]:
    """Returns the content of a pipeline file as a mapping whose values know their lines; it may be no pipeline.

    Args:
        path: the file.
        texts: gets the hash of its text.

    Raises:
        PipelineFileError: the file is missing, or its content is no YAML or no mapping.
    """
    try:
        document = load_yaml(_read(path, {} if texts is None else texts))
    except FileNotFoundError:
        raise PipelineFileError(
            "there is no such pipeline file", where=str(path), fix="give the path of a pipeline .yaml file"
        ) from None
    except YamlTextError as error:
        raise PipelineFileError(str(error), where=f"{path}:{error.line}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineFileError(f"the pipeline file cannot be read: {error}", where=str(path)) from None
    if not isinstance(document, dict):
        raise PipelineFileError("a pipeline file is a YAML mapping with name, join, left and right", where=f"{path}:1")
    return document


def hash_of(text: str) -> str:
    """Returns the hash that tells a text of a file from others."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _read(file: Path, texts: Texts) -> str:
    """Returns the text of a file, whose hash `texts` gets."""
    text = file.read_text(encoding="utf-8")
    texts[file] = hash_of(text)
    return text


def _with_results(document: Any, path: Path, read_by: Sequence[Path], texts: Texts) -> dict[str, Any]:
    """Returns the inputs of a pipeline file that are results of other pipelines, with their schema and key.

    Raises:
        PipelineFileError, StateError: as `_with_result`.
    """
    name = document.get("kind", FIRST)
    kind = kind_named(name) if isinstance(name, str) and name in KINDS else None
    if kind is not None and kind.named_inputs:
        return _with_named_inputs(document, path, read_by, texts)
    found: dict[str, Any] = {}
    for one in kind.inputs if kind is not None else ():
        given = document.get(one.name)
        if not isinstance(given, dict) or not isinstance(given.get("pipeline"), str):
            continue
        referred = one.referred and document.get("join") != "outer"  # an outer join keeps what nothing refers to
        place = (str(one.name),)
        found[one.name] = _with_result(document, place, path, read_by, texts, referred=referred)
    return found


def _with_named_inputs(document: Any, path: Path, read_by: Sequence[Path], texts: Texts) -> dict[str, Any]:
    """Returns `inputs` of a pipeline file whose inputs have any names, with their schemas and keys."""
    inputs = document.get("inputs")
    if not isinstance(inputs, dict):
        return {}
    found = dict(inputs)
    for name, given in inputs.items():
        if isinstance(given, dict) and isinstance(given.get("pipeline"), str):
            found[name] = _with_result(document, ("inputs", name), path, read_by, texts, referred=False)
        elif isinstance(given, dict) and isinstance(given.get("table"), str):
            found[name] = _as_table(document, ("inputs", name), path)
    return {"inputs": found}


def _as_table(document: Any, place: tuple[str, ...], path: Path) -> dict[str, Any]:
    """Returns an input that is a Delta table, with the schema that the table has.

    Raises:
        PipelineFileError: there is no table.
    """
    given = _at(document, place)
    for key in REPLACED:
        if key in given and key not in ("key", "table"):
            raise PipelineFileError(
                f"{place[-1]}: {key!r} is given by the table",
                where=f"{path}:{_line_of(document, (*place, key))}",
                fix=f"leave out {key}, or table",
            )
    rest = {key: value for key, value in given.items() if key != "table"}
    where = f"{path}:{_line_of(document, (*place, 'table'))}"
    return {**rest, "path": given["table"], "format": "delta", "schema": schema_of(path.parent, given["table"], where)}


def _with_result(
    document: Any,
    place: tuple[str, ...],
    path: Path,
    read_by: Sequence[Path],
    texts: Texts,
    *,
    referred: bool,
) -> dict[str, Any]:
    """Returns an input, at a place in a pipeline file, that is the result of another pipeline; see `as_input`.

    Raises:
        PipelineFileError: that pipeline reads, itself or by others, the result of this one.
        StateError: the result cannot be opened.
    """
    given, name = _at(document, place), place[-1]
    where = f"{path}:{_line_of(document, (*place, 'pipeline'))}"
    for key in REPLACED:
        if key in given:
            raise PipelineFileError(
                f"{name}: {key!r} is given by the result of {given['pipeline']}",
                where=f"{path}:{_line_of(document, (*place, key))}",
                fix=f"leave out {key}, or pipeline",
            )
    other = path.parent / given["pipeline"]
    chain = [*read_by, path]
    if other.resolve() in [one.resolve() for one in chain]:
        circle = " -> ".join(one.name for one in [*chain, other])
        raise PipelineFileError(f"{name}: these pipelines read each other's results: {circle}", where=where)
    feeding = load_spec(other, chain)
    texts |= dict(feeding.texts)
    result = as_input(feeding, referred=referred)
    own = as_tuple(given.get("sensitive", ()))
    secret = [*own, *result.get("sensitive", ())] if isinstance(own, tuple) else own  # else pydantic refuses it
    told = given.get("descriptions", {})
    told = {**result["descriptions"], **told} if isinstance(told, dict) else told
    return {**given, **result, "sensitive": secret, "descriptions": told}


def _at(document: Any, place: tuple[str, ...]) -> Any:
    """Returns what stands at a place in a document."""
    return reduce(lambda node, key: node[key], place, document)


def _with_query(document: Any, path: Path, texts: Texts) -> dict[str, Any]:
    """Returns the `query` of a pipeline file that names a file with it.

    Raises:
        PipelineFileError: that file cannot be read.
    """
    query = document.get("query")
    if not isinstance(query, str) or not query.strip().endswith(".sql") or len(query.split()) > 1:
        return {}
    try:
        return {"query": _read(path.parent / query.strip(), texts)}
    except (OSError, UnicodeDecodeError) as error:
        where = f"{path}:{_line_of(document, ('query',))}"
        raise PipelineFileError(f"the query {query.strip()} cannot be read: {error}", where=where) from None


def _with_suites(document: Any, path: Path, texts: Texts) -> dict[str, Any]:
    """Returns the `expectations` of a pipeline file, including those in separate files.

    Such a file is YAML or JSON as Great Expectations writes it: a suite (a mapping with `expectations`), or a list.
    """
    suites = document.get("expectations")
    if not isinstance(suites, dict):
        return {}
    found = dict(suites)
    for table, suite in suites.items():
        if not isinstance(suite, str):
            continue
        file = path.parent / suite
        where = f"{path}:{_line_of(document, ('expectations', table))}"
        try:
            content = load_yaml(_read(file, texts), typ="safe")
        except (OSError, UnicodeDecodeError, YamlTextError) as error:
            what = f"line {error.line}: {error}" if isinstance(error, YamlTextError) else error
            raise PipelineFileError(f"the suite {suite!r} cannot be read: {what}", where=where) from None
        listed = content.get("expectations") if isinstance(content, dict) else content
        if not isinstance(listed, list):
            raise PipelineFileError(f"the suite {suite!r} is no list of expectations", where=where)
        # Keys that a store of Great Expectations adds for its own use are left out.
        kept = {"type", "kwargs", "severity", "name", "description", "meta"}
        found[table] = [
            {key: value for key, value in one.items() if key in kept and value is not None}
            if isinstance(one, dict)
            else one
            for one in listed
        ]
    return {"expectations": found}


def _describe(error: Any, document: Any) -> tuple[int, str]:
    """Returns line and message of one pydantic error."""
    context = error.get("ctx") or {}
    loc = tuple(error["loc"]) + tuple(context.get("path", ()))
    shown = ".".join(str(part) for part in loc if not isinstance(part, int))
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
    elif kind == "string_pattern_mismatch":
        message = f"{shown}: {got!r} must start with a letter a-z and go on with a-z, 0-9 and _"
    else:
        message = f"{shown}: {error['msg']}, not {got!r}"
    return _line_of(document, loc), message


def _keys(loc: tuple[Any, ...], document: Any) -> str:
    """Returns the keys of a small mapping at a path of the document, as `: {before: ..., after: ...}`."""
    model = _model_at(loc, document)
    names = [] if model is None else _keys_of(model)
    return f": {{{', '.join(f'{name}: ...' for name in names)}}}" if 0 < len(names) <= KEYS_TOLD else ""


def _suggestion(loc: tuple[Any, ...], document: Any) -> str:
    model = _model_at(loc[:-1], document)
    if model is None:
        return ""
    known = sorted(_keys_of(model))
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; possible are {', '.join(known)}"


def _keys_of(model: type[BaseModel]) -> list[str]:
    """Returns the keys that a file may give for a model, without what only the loader sets."""
    return [field.alias or name for name, field in model.model_fields.items() if not field.exclude]


def _model_at(loc: tuple[Any, ...], document: Any) -> type[BaseModel] | None:
    """Returns the model of the mapping at a path of the document; None if it has none."""
    kind = document.get("kind", FIRST)
    model: Any = loaded(kind_named(kind).spec) if kind in KINDS else PipelineSpec
    for part in loc:
        field = model.model_fields.get(str(part))
        model = None if field is None else field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None
    found: type[BaseModel] = model
    return found


def _line_of(node: Any, loc: tuple[Any, ...]) -> int:
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


def file_and_line(file: Path, key: str, text: str) -> str:
    """Returns `file:line` of a text under a key of a pipeline file, given as `left.foreign_key`.

    Only `file` if the file cannot be read any more.
    """
    try:
        document = load_document(file)
    except PipelineFileError:
        return str(file)
    node: Any = document
    path: list[str | int] = [*key.split(".")]
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, list):
        path += [i for i, one in enumerate(node) if text in (str(one), body_of(str(one)))][:1]
    return f"{file}:{_line_of(document, tuple(path))}"


def named_pipelines(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the files and folders that FK_PIPELINES names, separated like PATH."""
    return [Path(part) for part in environment.get("FK_PIPELINES", "").split(os.pathsep) if part]


def all_automated(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether FK_AUTOMATION says that all pipelines of Dagster's code location have `automation`."""
    return environment.get("FK_AUTOMATION", "off") == "on"


def results_read(spec: PipelineSpec) -> list[Path]:
    """Returns the files of the pipelines whose results a pipeline reads directly, one per input that is a result."""
    named = (spec.side(side).pipeline for side in spec.sides)
    return [(spec.file.parent / one).resolve() for one in named if one is not None]


def merged(specs: Sequence[PipelineSpec]) -> Settings:
    """Returns the Spark settings of pipelines that share a session.

    Of different values for a name in `spark`, the last counts; of `driver_memory` and `shuffle_partitions`, the first.
    If a pipeline has sensitive columns, data that Spark spills to disk is encrypted, unless a pipeline sets otherwise.
    """
    each = [spec.settings for spec in specs]
    encrypted = {"spark.io.encryption.enabled": "true"} if any(spec.has_sensitive for spec in specs) else {}
    return Settings(
        spark=encrypted | {name: value for one in each for name, value in one.spark.items()},
        driver_memory=next((one.driver_memory for one in each if one.driver_memory), None),
        shuffle_partitions=next((one.shuffle_partitions for one in each if one.shuffle_partitions), None),
    )
