"""A query kept up to date from Python alone, for notebooks: `fk.query`.

What the caller says is written as a pipeline file into the warehouse, so that every command works on it too.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fk_pipeline.errors import FkPipelineError, PipelineFileError, UsageError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec, quote
from fk_pipeline.spec.paths import place_of
from fk_pipeline.spec.yaml_text import literal_block

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from fk_pipeline.blocks.story import Story
    from fk_pipeline.engine.runner import StageRun
    from fk_pipeline.verify.report import VerifyReport

GivenInput: TypeAlias = "str | Path | Pipeline | MaintainedQuery | Mapping[str, Any]"
"""An input of a query: a pipeline, its file, another query, or the keys that a pipeline file has for an input."""

_MARK = "# Written by fk.query, which overwrites it when the query is given again."
"""The first line of a file that `query` may overwrite."""

_OWN = ("name", "kind", "inputs", "query", "key", "warehouse")
"""The keys of the pipeline file that are parameters of `query`."""


def query(
    sql: str,
    inputs: Mapping[str, GivenInput],
    warehouse: str | Path,
    *,
    key: str | Sequence[str] = (),
    name: str = "query",
    session: SparkSession | None = None,
    options: Mapping[str, Any] | None = None,
) -> MaintainedQuery:
    """Returns a query that is kept up to date; nothing runs yet.

    With the same text the work goes on where it ended, whichever process did it. Another text is an edit of the
    pipeline file: what it needs, the next run says.

    Args:
        sql: one SELECT in Spark's dialect.
        inputs: by their names in FROM. A Delta table is `{"table": path, "key": [...]}`, files that land are
            `{"path": folder, "format": ..., "schema": ..., "key": ...}`, a clock `{"clock": "1 day"}`; a `Pipeline`,
            its file, or another query stands for its result. Relative paths are those of the working folder.
        warehouse: the local folder for the pipeline file `<name>.yaml` and, below `<name>`, for the tables.
        key: the columns that identify a row of the result, if other pipelines read it.
        name: the name of the query; two queries in a warehouse need two.
        session: a Spark session; default: one that is started when it is needed.
        options: further keys of the pipeline file, for example `{"refresh": "incremental"}`.

    Raises:
        UsageError: the warehouse is no local folder; an input is none of these; or `<name>.yaml` is there, and was not
            written by this function.
        PipelineFileError: the query cannot be kept up to date, or an input is wrong. The query that was there stays.
        StateError: the result of a pipeline that it reads cannot be opened.
    """
    if "://" in str(warehouse):
        raise UsageError(
            f"the warehouse {warehouse} is no local folder",
            why="fk.query writes a pipeline file into it",
            fix="write a pipeline file with this warehouse, and load it: fk.load(FILE)",
        )
    if taken := [option for option in options or {} if option in _OWN]:
        raise UsageError(f"options has {taken[0]!r}, which is a parameter of its own", fix=f"give {taken[0]}=...")
    document = {
        "inputs": {str(input_name): _entry(str(input_name), given) for input_name, given in inputs.items()},
        **({"key": [key] if isinstance(key, str) else list(key)} if key else {}),
        **(options or {}),
    }
    file = _written(Path(place_of(warehouse)), name, _text(name, sql, document))
    return MaintainedQuery(Pipeline(load_spec(file), session))


class MaintainedQuery:
    """A query that `fk.query` keeps up to date: its result is a Delta table."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __repr__(self) -> str:
        columns = ", ".join(output.name for output in self.pipeline.spec.outputs)
        return f"query {self.pipeline.spec.name} ({columns}) of {self.file}"

    def _repr_html_(self) -> str:
        from fk_pipeline.report.notebook import html_of

        return html_of(self.pipeline)

    @property
    def file(self) -> Path:
        """The pipeline file, for the commands: `fk-pipeline status FILE`."""
        return self.pipeline.spec.file

    def run(self, now: datetime | str | None = None) -> list[StageRun]:
        """Brings the result up to date, after the inputs that are files which land; see `Pipeline.run`.

        The pipelines of other inputs are run by themselves.

        Args:
            now: what its clocks show, as `Pipeline.run` takes it; default: the time it is.
        """
        return self.pipeline.run(now=now)

    def table(self) -> DataFrame:
        """Returns the rows of the result, with the columns of the query."""
        return self.pipeline.result()

    def verify(self) -> VerifyReport:
        """Compares the result with the query as it was written, over the inputs that the result stands for."""
        return self.pipeline.verify()

    def explain(self, key: str) -> Story:
        """Returns the story of the rows with these values, given as `country=France`: what they are made of."""
        return self.pipeline.explain(key)

    def changes(self) -> DataFrame:
        """Returns the rows that the last run with something to do inserted, updated and deleted.

        Each has `_change_type` (insert, update, delete) and the columns of the query: of a deleted row those before the
        run. The rows of a rebuild are no changes.

        Raises:
            StateError: the query was never run, or these changes are not kept any more.
        """
        from fk_pipeline.feed import CHANGE, VERSION

        self.pipeline.refuse_never_run()
        ledger, stage = self.pipeline.ledger(), self.pipeline.spec.definition.result_stage
        runs = [
            (attempt.entry, batch, attempt) for batch in ledger.batches if (attempt := ledger.state(stage, batch).last)
        ]
        _, batch, last = max(runs, key=lambda run: run[0], default=(0, -1, None))
        version = None if last is None else last.versions.get(f"{self._result} written")
        if version is None:  # it has written no rows, or a rebuild has
            return self.table().where("FALSE").selectExpr(f"'' AS {CHANGE}", *self._columns)
        return self.pipeline.changes(int(batch)).where(f"{VERSION} = {version}").select(CHANGE, *self._columns)

    @property
    def _result(self) -> str:
        return self.pipeline.spec.definition.result.name

    @property
    def _columns(self) -> list[str]:
        return [quote(output.name) for output in self.pipeline.spec.outputs]


def _entry(name: str, given: Any) -> dict[str, Any]:
    """Returns an input as the pipeline file has it, with absolute paths.

    Raises:
        UsageError: it is no input.
    """
    if isinstance(given, MaintainedQuery):
        return _entry(name, given.pipeline)
    if isinstance(given, Pipeline):
        return {"pipeline": place_of(given.spec.file)}
    if isinstance(given, (str, Path)) and re.search(r"\.ya?ml(#\w+)?$", str(given)):
        return {"pipeline": place_of(given)}
    if not isinstance(given, Mapping):
        what = given if isinstance(given, (str, Path)) else f"a value of type {type(given).__name__}"
        raise UsageError(
            f"input {name!r}: {what} is neither a pipeline nor a table with a key",
            fix=f'{name}={{"table": PATH, "key": [COLUMN]}}; or a pipeline file, a Pipeline, or landing files: '
            '{"path": FOLDER, "format": FORMAT, "schema": COLUMNS, "key": COLUMN}',
        )
    named = ("path",) if "path" in given else ("pipeline", "table")  # with a path, table is a name in the records
    places = {key: str(given[key]) for key in named if isinstance(given.get(key), (str, Path))}
    return {**given, **{key: place if "://" in place else place_of(place) for key, place in places.items()}}


def _text(name: str, sql: str, document: Mapping[str, Any]) -> str:
    """Returns the text of the pipeline file."""
    lines = [_MARK, f"name: {_json(name)}", "kind: query"]
    for key, value in document.items():
        if key == "inputs":
            lines += ["inputs:", *(f"  {_json(input_name)}: {_json(entry)}" for input_name, entry in value.items())]
        else:
            lines.append(f"{_json(key)}: {_json(value)}")
    return "\n".join([*lines, 'warehouse: "."', f"query: {literal_block(sql)}"]) + "\n"


def _json(value: Any) -> str:
    """Returns a value as JSON, which is YAML too; a name of letters as it is."""
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_]*", value) and value not in ("true", "false", "null"):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _written(folder: Path, name: str, text: str) -> Path:
    """Writes the pipeline file if it is right, in place of the stored one; returns it.

    Raises:
        UsageError: another file is there, or it cannot be written.
        PipelineFileError, StateError: as `load_spec`.
    """
    file, draft = folder / f"{name}.yaml", folder / f".{uuid.uuid4().hex}.new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        _check(draft, name)
        stored = file.read_text(encoding="utf-8") if file.exists() else _MARK
        if not stored.startswith(_MARK):
            raise UsageError(
                f"{file} is there already, and was not written by fk.query",
                fix=f"give the query another name: name=...; or load it: fk.load({str(file)!r})",
            )
        if stored != text:
            draft.replace(file)
    except FkPipelineError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be written: {error}", fix="give another warehouse") from error
    finally:
        draft.unlink(missing_ok=True)
    return file


def _check(draft: Path, name: str) -> None:
    """Loads the text of a pipeline file before it takes its place.

    Raises:
        PipelineFileError, StateError: as `load_spec`; the place in the file, which nobody has written, is left out.
    """
    try:
        load_spec(draft)
    except PipelineFileError as error:
        place = re.compile(rf"{re.escape(str(draft))}(:\d+)?")
        what, where = (place.sub(f"fk.query {name!r}", text) for text in (error.what, error.where))
        raise PipelineFileError(what, where=where, why=error.why, fix=error.fix) from None
