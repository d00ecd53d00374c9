"""The name of a result in Spark's catalog: `register` of the pipeline file."""

from __future__ import annotations

import re
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fk_pipeline.blocks.input_types import first_line
from fk_pipeline.errors import StateError
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.sql import text


def refuse_taken(session: SparkSession, spec: PipelineSpec) -> None:
    """Refuses a name that Spark's catalog has for something else than the result of the pipeline.

    Raises:
        StateError: there is such a table or view, or the catalog has no such schema.
    """
    if spec.register_ is not None:
        _is_registered(session, spec, spec.register_)


def register(session: SparkSession, spec: PipelineSpec) -> None:
    """Registers the result, whose table is there, in Spark's catalog under the name in the pipeline file, if any.

    Raises:
        StateError: the name is that of something else, or the catalog refuses it.
    """
    name = spec.register_
    if name is None or _is_registered(session, spec, name):
        return
    try:
        session.sql(f"CREATE TABLE IF NOT EXISTS {_quoted(name)} USING DELTA LOCATION {text(_place(spec))}")
    except PySparkException as error:
        raise _refused(spec, name, f"Spark's catalog refuses it: {first_line(error)}") from None
    if not _is_registered(session, spec, name):
        raise _refused(spec, name, "Spark's catalog does not have it after CREATE TABLE")


def _is_registered(session: SparkSession, spec: PipelineSpec, name: str) -> bool:
    """Returns whether the catalog has the name for the result; False if it has not got it.

    Raises:
        StateError: it has it for something else, or cannot have it.
    """
    schema = name.rpartition(".")[0]
    try:
        if not session.catalog.databaseExists(schema):
            raise _refused(spec, name, f"Spark's catalog has no schema {schema}", f"in Spark: CREATE SCHEMA {schema}")
        if not session.catalog.tableExists(name):
            return False
        detail = session.sql(f"DESCRIBE DETAIL {_quoted(name)}").select("location").first()
    except PySparkException as error:
        raise _refused(spec, name, f"Spark's catalog does not tell where its table lies: {first_line(error)}") from None
    place = "" if detail is None or detail[0] is None else _local(unquote(str(detail[0])))
    if place != _local(_place(spec)):
        raise _refused(spec, name, f"Spark's catalog has a table of this name at {place or 'an unknown place'}")
    return True


def _refused(spec: PipelineSpec, name: str, what: str, fix: str = "") -> StateError:
    return StateError(
        f"register: {name}: {what}",
        where=str(spec.file),
        why=f"the result is in {_place(spec)}, and nothing of the catalog was changed",
        fix=fix or f"register another name; or, if nobody needs the other one, in Spark: DROP TABLE {name}",
    )


def _place(spec: PipelineSpec) -> str:
    return f"{spec.home}/{spec.definition.result.name}"


def _local(place: str) -> str:
    """Returns a place without the scheme of local files, as Spark writes it in several ways."""
    return re.sub(r"^file:/+", "/", place).rstrip("/")


def _quoted(name: str) -> str:
    return ".".join(map(quote, name.split(".")))
