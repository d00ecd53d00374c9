"""Reads a pipeline file. Every mistake is reported with file and line, the problem and the correct form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from fk_pipeline.errors import PipelineFileError, escaped
from fk_pipeline.kinds.registry import FIRST, KINDS, OF_INLINE, kind_named
from fk_pipeline.spec.base import as_tuple
from fk_pipeline.spec.inputs import INPUT_NAME
from fk_pipeline.spec.model import PipelineSpec
from fk_pipeline.spec.paths import inline_of, inline_reference, path_meant, place_of
from fk_pipeline.spec.problems import described, line_of, of_meant_form, within
from fk_pipeline.spec.results import REPLACED, as_input, schema_of
from fk_pipeline.spec.sql import body_of
from fk_pipeline.spec.yaml_text import YamlTextError, load_yaml

_OF_LOADER = ("file", "texts", "own_settings")
"""The fields of a pipeline that no file may have."""

_OF_INLINE = ("warehouse", "on_bad_record", "schema_changes", "settings", "owners", "tags")
"""The keys of a pipeline file that also count for the pipelines of its inline inputs."""

Texts: TypeAlias = dict[Path, str]
"""Per file that was read the hash of its text."""


def load_spec(file: str | Path, read_by: Sequence[Path] = ()) -> PipelineSpec:
    """Returns the pipeline that a YAML file describes.

    Args:
        file: the file; `FILE#INPUT` is the pipeline of an input that a file gives inline.
        read_by: the files of the pipelines that read its result, the first of them first.

    Raises:
        PipelineFileError: the file is missing, not YAML, or not a pipeline; each problem is on its own line.
        StateError: the result of another pipeline that it reads cannot be opened.
    """
    path = Path(file)
    if ".." in path.parts:
        path = Path(place_of(path))
    texts: Texts = {}
    whole, of = inline_of(path)
    document = load_document(whole, texts)
    for key in _OF_LOADER:
        if key in document:
            raise PipelineFileError(f"unknown key {key!r}", where=f"{whole}:{line_of(document, (key,))}")
    given = _pipeline_of(document, whole, of) if of else document
    try:
        read = {} if of else _read_elsewhere(document, path, read_by, texts)
        return PipelineSpec.model_validate({**given, "file": path, **read, "texts": tuple(texts.items())})
    except ValidationError as error:
        problems = [described(e, document, of) for e in of_meant_form(error.errors())]
    lines = [f"{escaped(str(whole))}:{line}: {message}" for line, message in sorted(problems)]
    raise PipelineFileError("\n".join(lines))


def with_settings(spec: PipelineSpec, **settings: Any) -> PipelineSpec:
    """Returns the same pipeline with some other settings than its file gives it.

    Raises:
        PipelineFileError: a setting is wrong.
    """
    try:
        changed = type(spec.settings).model_validate(spec.settings.model_dump() | settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise PipelineFileError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return spec.model_copy(update={"settings": changed, "own_settings": spec.own_settings | settings})


def document_of(file: Path) -> Mapping[Any, Any]:
    """Returns the content of a pipeline file; of `FILE#INPUT` that of the pipeline that the input is.

    Raises:
        PipelineFileError: as `load_document`; or it has no such input.
    """
    whole, of = inline_of(file)
    document = load_document(whole)
    return _pipeline_of(document, whole, of) if of else document


def inline_files(document: Mapping[Any, Any], file: Path) -> list[Path]:
    """Returns the references to the pipelines of the inline inputs of a file, which may be wrong otherwise."""
    named = document.get("inputs")
    inputs = named.items() if isinstance(named, dict) else ()
    return [inline_reference(file, name) for name, given in inputs if _is_inline(name, given)]


def _is_inline(name: Any, given: Any) -> bool:
    """Returns whether an entry of `inputs` is an input that is given inline."""
    named = isinstance(name, str) and INPUT_NAME.fullmatch(name) is not None
    return named and isinstance(given, dict) and "path" in given and not {"pipeline", "clock"} & {*given}


def _pipeline_of(document: Mapping[Any, Any], file: Path, name: str) -> dict[str, Any]:
    """Returns the content of the pipeline that an inline input of a document is.

    Raises:
        PipelineFileError: it has no inline input of this name.
    """
    inputs = document.get("inputs")
    given = inputs.get(name) if isinstance(inputs, dict) else None
    if not _is_inline(name, given):
        inline = [reference.name for reference in inline_files(document, file)]
        raise PipelineFileError(
            f"{file.name} has no inline input {name!r}",
            where=f"{file}:{line_of(document, ('inputs', name))}",
            why="FILE#INPUT names the pipeline of an input that a query gives with a path",
            fix=f"one of {', '.join(inline)}" if inline else f"name a file: {_file_of(given) or file}",
        )
    shared = {key: document[key] for key in _OF_INLINE if key in document}
    if isinstance(shared.get("settings"), dict):
        shared["settings"] = _settings_of_inline(shared["settings"])
    group = document.get("group", document.get("name"))
    return {"name": f"{document.get('name')}_{name}", "kind": OF_INLINE, "group": group, **shared, "input": given}


def _settings_of_inline(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the settings of a query that its inline inputs share: not what is about its own result."""
    shared = {name: value for name, value in settings.items() if name != "statistics_columns"}
    if isinstance(shared.get("strategy"), dict):
        stages = kind_named(OF_INLINE).stage_names
        shared["strategy"] = {stage: how for stage, how in shared["strategy"].items() if stage in stages}
    return shared


def _file_of(given: Any) -> str:
    return str(given.get("pipeline", "")) if isinstance(given, dict) else ""


def _read_elsewhere(document: Any, path: Path, read_by: Sequence[Path], texts: Texts) -> dict[str, Any]:
    """Returns the parts of a pipeline file that are read elsewhere: suites, results of other pipelines, the query."""
    parts = _with_suites(document, path, texts) | _with_results(document, path, read_by, texts)
    return parts | _with_query(document, path, texts)


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
            f"there is no such pipeline file{path_meant(path)}",
            where=str(path),
            fix="give the path of a pipeline .yaml file",
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
    results: dict[str, Any] = {}
    for source in kind.inputs if kind is not None else ():
        given = document.get(source.name)
        if not isinstance(given, dict) or not isinstance(given.get("pipeline"), str):
            continue
        referred = source.referred and document.get("join") != "outer"  # an outer join keeps what nothing refers to
        place = (str(source.name),)
        results[source.name] = _with_result(document, place, path, read_by, texts, referred=referred)
    return results


def _with_named_inputs(document: Any, path: Path, read_by: Sequence[Path], texts: Texts) -> dict[str, Any]:
    """Returns `inputs` of a pipeline file whose inputs have any names, with their schemas and keys."""
    inputs = document.get("inputs")
    if not isinstance(inputs, dict):
        return {}
    results = dict(inputs)
    for name, given in inputs.items():
        if isinstance(given, dict) and "clock" in given:
            continue
        if isinstance(given, dict) and isinstance(given.get("pipeline"), str):
            results[name] = _with_result(document, ("inputs", name), path, read_by, texts, referred=False)
        elif _is_inline(name, given) and isinstance(document.get("name"), str):
            reference = inline_reference(path, name)
            results[name] = {"pipeline": reference.name, **as_input(load_spec(reference), referred=False)}
        elif isinstance(given, dict) and isinstance(given.get("table"), str) and "path" not in given:
            results[name] = _as_table(document, ("inputs", name), path)
    return {"inputs": results}


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
                where=f"{path}:{line_of(document, (*place, key))}",
                fix=f"leave out {key}, or table",
            )
    rest = {key: value for key, value in given.items() if key != "table"}
    where = f"{path}:{line_of(document, (*place, 'table'))}"
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
    where = f"{path}:{line_of(document, (*place, 'pipeline'))}"
    for key in REPLACED:
        if key in given:
            raise PipelineFileError(
                f"{name}: {key!r} is given by the result of {given['pipeline']}",
                where=f"{path}:{line_of(document, (*place, key))}",
                fix=f"leave out {key}, or pipeline",
            )
    other = path.parent / given["pipeline"]
    chain = [*read_by, path]
    if other.resolve() in [file.resolve() for file in chain]:
        circle = " -> ".join(file.name for file in [*chain, other])
        raise PipelineFileError(f"{name}: these pipelines read each other's results: {circle}", where=where)
    if not inline_of(other)[0].is_file():
        what = f"{name}: there is no such pipeline file {given['pipeline']}{path_meant(other)}"
        raise PipelineFileError(what, where=where, fix="give the path of a pipeline .yaml file, relative to this one")
    feeding = load_spec(other, chain)
    texts |= dict(feeding.texts)
    result = as_input(feeding, referred=referred)
    own = as_tuple(given.get("sensitive", ()))
    secret = [*own, *result.get("sensitive", ())] if isinstance(own, tuple) else own  # else pydantic refuses it
    descriptions = given.get("descriptions", {})
    descriptions = {**result["descriptions"], **descriptions} if isinstance(descriptions, dict) else descriptions
    return {**given, **result, "sensitive": secret, "descriptions": descriptions}


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
        where = f"{path}:{line_of(document, ('query',))}"
        raise PipelineFileError(f"the query {query.strip()} cannot be read: {error}", where=where) from None


def _with_suites(document: Any, path: Path, texts: Texts) -> dict[str, Any]:
    """Returns the `expectations` of a pipeline file, including those in separate files.

    Such a file is YAML or JSON as Great Expectations writes it: a suite (a mapping with `expectations`), or a list.
    """
    suites = document.get("expectations")
    if not isinstance(suites, dict):
        return {}
    listed_suites = dict(suites)
    for table, suite in suites.items():
        if not isinstance(suite, str):
            continue
        file = path.parent / suite
        where = f"{path}:{line_of(document, ('expectations', table))}"
        try:
            content = load_yaml(_read(file, texts), typ="safe")
        except (OSError, UnicodeDecodeError, YamlTextError) as error:
            what = f"line {error.line}: {error}" if isinstance(error, YamlTextError) else error
            raise PipelineFileError(f"the suite {suite!r} cannot be read: {what}", where=where) from None
        listed = content.get("expectations") if isinstance(content, dict) else content
        if not isinstance(listed, list):
            raise PipelineFileError(f"the suite {suite!r} is no list of expectations", where=where)
        # Keys that a store of Great Expectations adds for its own use are left out.
        fields = {"type", "kwargs", "severity", "name", "description", "meta"}
        listed_suites[table] = [
            {key: value for key, value in expectation.items() if key in fields and value is not None}
            if isinstance(expectation, dict)
            else expectation
            for expectation in listed
        ]
    return {"expectations": listed_suites}


def file_and_line(file: Path, key: str, text: str) -> str:
    """Returns `file:line` of a text under a key of a pipeline file, given as `left.foreign_key`.

    Only `file` if the file cannot be read any more.
    """
    whole, of = inline_of(file)
    try:
        document = load_document(whole)
    except PipelineFileError:
        return str(whole)
    node: Any = document
    path: list[str | int] = [*within(tuple(key.split(".")), of)]
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, list):
        path += [i for i, entry in enumerate(node) if text in (str(entry), body_of(str(entry)))][:1]
    return f"{whole}:{line_of(document, tuple(path))}"
