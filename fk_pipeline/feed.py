"""The changes of a batch to the result, for downstream consumers (KIP-213: the output of a join is a changelog too)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.contract import Removals, loaded
from fk_pipeline.engine.runner import Runner
from fk_pipeline.frames import empty
from fk_pipeline.identity import BatchRange
from fk_pipeline.period import Period, commits_in, refuse_gone
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
INSERT, UPDATE, DELETE = "insert", "update", "delete"


def changes(runner: Runner, batch: int) -> DataFrame:
    """Returns the rows of the result that the runs for a batch changed, from the table's change feed.

    If a batch ran several times, the changes of each run are returned; apply them in the order of `_commit_version`. A
    run over a range makes one commit for all its batches: inserted and updated rows are assigned to a batch by the
    batch of the row, deleted rows by the verdicts of the run; a row that two of the batches retracted is returned for
    both, and a deleted row without a left key (of an outer join) for each of them. The changes of a rebuild belong to
    no batch: read the whole result after one.

    Args:
        runner: the runner of the pipeline.
        batch: the batch.

    Returns:
        One row per key and commit: `_change_type` (insert, update, delete), `_commit_version`, `_commit_timestamp`, and
        the row after the change; for a deleted row, the row before it.

    Raises:
        StateError: the change feed of these commits is no longer available.
    """
    warehouse, kind = runner.warehouse, runner.spec.definition
    table = runner.layout[kind.result.name]
    columns = _columns(runner)
    if warehouse.version(table.name) is None:
        return empty(runner.session, columns)
    commits = [
        (version, span, metadata)
        for version, metadata in _history(runner, table.name, stage=kind.result_stage)
        if batch in (span := BatchRange.parse(metadata["batches"]))
    ]
    written = runner.ledger.state(kind.result_stage, batch).versions.get(f"{table.name} written")
    versions = {version for version, _, _ in commits} | ({written} if written is not None else set())
    gone = [version for version in versions if not are_kept(f"{warehouse.path(table.name)}@{version}..{version}")]
    refuse_gone(f"the changes of batch {batch}", gone, table.name, warehouse.path(table.name))
    return _together(runner, [_of_commit(runner, batch, *commit) for commit in commits], columns)


def changes_in(runner: Runner, period: Period) -> DataFrame:
    """Returns the rows of the result that runs changed in a period.

    Args:
        runner: the runner of the pipeline.
        period: the time of their commits, as `period.commits_in` has it.

    Returns:
        Rows as `changes` returns them: those of every run of the result's stage, whichever batches it was for. A row
        that several batches of one run changed is returned once.

    Raises:
        StateError: the change feed of these commits is no longer available.
    """
    made = commits_in(runner.spec, runner.ledger, period)
    frames = [_of_commit(runner, None, commit.version, BatchRange.parse(commit.batches), {}) for commit in made]
    return _together(runner, frames, _columns(runner))


def _columns(runner: Runner) -> Sequence[tuple[str, str]]:
    """Returns the columns of changes, each with its type."""
    table = runner.layout[runner.spec.definition.result.name]
    return [(CHANGE, "STRING"), (VERSION, "BIGINT"), (TIME, "TIMESTAMP"), *table.columns]


def _together(runner: Runner, frames: Sequence[DataFrame], columns: Sequence[tuple[str, str]]) -> DataFrame:
    """Returns the changes of several commits as one DataFrame with these columns."""
    if not frames:
        return empty(runner.session, columns)
    return reduce(DataFrame.unionByName, frames).select(*[quote(name) for name, _ in columns])


def _history(runner: Runner, name: str, **required: str) -> list[tuple[int, dict[str, Any]]]:
    """Returns the commits of the pipeline that the log of a table still has, oldest first: version and user metadata.

    Args:
        runner: the runner of the pipeline.
        name: name of the table.
        required: only commits with these values in their user metadata are returned.
    """
    commits: list[tuple[int, dict[str, Any]]] = []
    if runner.warehouse.version(name) is None:  # the table has no commit yet
        return commits
    for version, words in sorted(runner.warehouse.history(name)):
        with suppress(ValueError):  # a commit of another writer, whose metadata may not be JSON
            metadata = json.loads(words)
            if isinstance(metadata, dict) and required.items() <= metadata.items():
                commits.append((version, metadata))
    return commits


def _of_commit(
    runner: Runner, batch: int | None, version: int, span: BatchRange, metadata: Mapping[str, Any]
) -> DataFrame:
    """Returns the changes of one commit for a batch, without the equal rows that a rewritten table has in the feed.

    Without a batch they are those for all its batches.
    """
    table = runner.layout[runner.spec.definition.result.name]
    feed = runner.warehouse.feed(table, version)
    row = F.struct(*map(quote, table.names))
    identity = table.identity or table.keys
    own_columns = [quote(name) for name in table.names if name.startswith("_fk_") and name not in identity]
    same = " AND ".join(f"_fk_new.{name} <=> _fk_old.{name}" for name in own_columns)
    new, old = F.col(CHANGE).isin("insert", "update_postimage"), F.col(CHANGE).isin("delete", "update_preimage")
    pairs = (
        feed.groupBy(*map(quote, identity))
        .agg(
            F.first(F.when(new, row), ignorenulls=True).alias("_fk_new"),
            F.first(F.when(old, row), ignorenulls=True).alias("_fk_old"),
            F.max(VERSION).alias(VERSION),
            F.max(TIME).alias(TIME),
        )
        .where(f"NOT ({same})")
    )
    change = F.when(F.col("_fk_old").isNull(), INSERT).when(F.col("_fk_new").isNull(), DELETE).otherwise(UPDATE)
    changed = pairs.withColumn(CHANGE, change).withColumn("_fk_row", F.coalesce("_fk_new", "_fk_old"))
    of_batch = changed.where(F.col(CHANGE) != DELETE)
    if batch is not None:
        of_batch = of_batch.where(F.col("_fk_new")[s.BATCH] == batch)
    gone = changed.where(F.col(CHANGE) == DELETE)
    removals = runner.spec.definition.removals
    if batch is not None and removals is not None and not span.is_single:
        by = loaded(removals.keys)(runner.spec)
        names = [name for name, _ in by]
        gone = gone.withColumns({name: F.col("_fk_row")[name] for name in names})
        removed = _removed(runner, removals, by, batch, metadata)
        if table.nullable_keys or table.identity:  # a row whose key changed was removed by the batch of the new row
            removed = removed.unionByName(of_batch.select(*[F.col("_fk_row")[name].alias(name) for name in names]))
        named = gone.join(removed, names, "left_semi")
        gone = named.unionByName(gone.where(F.col(quote(names[0])).isNull())) if table.nullable_keys else named
    parts = [frame.select(CHANGE, VERSION, TIME, "_fk_row.*") for frame in (of_batch, gone)]
    return parts[0].unionByName(parts[1])


def _removed(
    runner: Runner, removals: Removals, keys: Sequence[tuple[str, str]], batch: int, metadata: Mapping[str, Any]
) -> DataFrame:
    """Returns the keys that a run removed from the result for a batch, from the messages right after that run.

    If the run has no commit of messages, because an earlier run that died had made it, they are the messages that the
    run had read. `metadata` is the user metadata of the commit of the result.
    """
    history = _history(runner, removals.table, run_id=metadata["run_id"])
    version = history[-1][0] if history else metadata.get("rows", {}).get(removals.table)
    if version is None:
        return empty(runner.session, keys)
    messages = runner.session.read.format("delta").option("versionAsOf", version)
    rows = (
        messages.load(runner.warehouse.path(removals.table)).where(F.col(removals.batch) == batch).where(removals.when)
    )
    return rows.select(*[quote(name) for name, _ in keys]).distinct()
