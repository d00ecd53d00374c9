"""The impact of a change of the right side before it is made: the rows of the result that it would touch (fan-out)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.as_of import during, held
from fk_pipeline.blocks.horizon import sql_of
from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.blocks.would_land import ADDED, CHANGED, EFFECT, REMOVED, TOUCHING, effects_on, log_of_file
from fk_pipeline.errors import LeftToSpark, UsageError
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.fan_out import SUBSCRIBER_COUNT, referring
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import is_key, parse_key, shown
from fk_pipeline.spec.sql import text
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.rows_in_process import Relation
from fk_pipeline.words import counted


@dataclass(frozen=True)
class Impact:
    """The impact of a change.

    Attributes:
        fan_out: number of left rows that refer to right rows which would be added, changed or removed; in an outer join
            also of those of these right rows to which none refers, because such a row stands alone.
        right_rows: number of right rows, by the effect on them.
        quarantined: number of records of the file that cannot be used.
        keys: the right keys with the most left rows: `key`, `subscribers`, `effect`.
    """

    fan_out: int
    right_rows: dict[str, int]
    quarantined: int
    keys: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """Returns the impact as a JSON object."""
        return asdict(self)

    def table(self) -> list[list[str]]:
        """Returns the right keys as a table for people, its header first."""
        rows = [[row["key"], f"{row['subscribers']:,}", row["effect"]] for row in self.keys]
        return [["right key", "left rows that refer to it", "what it would do"], *rows]

    def sentences(self) -> list[str]:
        """Returns the numbers in sentences."""
        lines = [f"{counted(number, 'right row')} {what}" for what, number in self.right_rows.items()]
        if self.quarantined:
            lines.append(f"{counted(self.quarantined, 'record')} of the file cannot be used")
        return [*lines, f"{counted(self.fan_out, 'row')} of the result would be written or taken out."]


def impact(
    read: TableReader,
    spec: ForeignKeySpec,
    ledger: Ledger,
    right_key: str | None,
    changes: Path | None,
    limit: int,
    since: str | None = None,
) -> Impact:
    """Returns the impact of any change of one right row, or of the changes in a file.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        right_key: the key of a right row; or
        changes: a file as it would land.
        limit: the largest number of right keys to report.
        since: with `as_of` and a right key, the time since which the changed version holds; None: any version.

    Raises:
        UsageError: it is neither or both, not a key of the right side, or not a file in its format; or a time is given
            without `as_of` and a right key, or does not fit its type.
    """
    _check(spec, right_key, changes, since)
    if right_key is not None:
        return of_key(read, spec, ledger, right_key, since)
    assert changes is not None
    return of_changes(read, spec, ledger, changes, limit)


def _check(spec: ForeignKeySpec, right_key: str | None, changes: Path | None, since: str | None) -> None:
    """Refuses what does not go together; see `impact`."""
    if since is not None and (right_key is None or spec.as_of is None):
        raise UsageError("a time goes with a right key of a pipeline with as_of", fix="--right-key KEY --from TIME")
    if (right_key is None) == (changes is None):
        raise UsageError(
            "impact needs a right key, or a file of changes", fix="--right-key KEY, or --changes FILE; not both"
        )


def impact_in_process(
    table: Callable[[str], Relation],
    spec: ForeignKeySpec,
    ledger: Ledger,
    right_key: str | None,
    changes: Path | None,
    _limit: int,
    since: str | None = None,
) -> Impact:
    """Returns what `impact` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark finds the same.
        UsageError: as of `impact`.
    """
    from fk_pipeline.kinds.foreign_key.impact_in_process import seen_in_process

    _check(spec, right_key, changes, since)
    if right_key is None:
        raise LeftToSpark("a file of changes is read by Spark")
    key, exists, fan_out = seen_in_process(table, spec, ledger, right_key, since)
    return _of_key(key, since, exists, fan_out, spec)


def of_key(read: TableReader, spec: ForeignKeySpec, ledger: Ledger, right_key: str, since: str | None = None) -> Impact:
    """Returns the impact of any change of one right row.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        right_key: the key, as `parse_key` takes it.
        since: as of `impact`.

    Raises:
        UsageError: it is not a key of the right side, or the time does not fit its type.
    """
    side = spec.right
    key = parse_key(right_key, side, "--right-key")
    name = key_row(read.warehouse.session, key, side)
    versions = read.read(k.RIGHT_TABLE).where(is_key(key, side)).where(f"{s.HASH} IS NOT NULL")
    referring_to_it = _referring(read, spec).where(is_key(key, side, k.fk))
    if since is not None:
        versions, referring_to_it = _of_the_version(versions, referring_to_it, since, _horizon(ledger))
    return _of_key(name, since, not versions.isEmpty(), referring_to_it.count(), spec)


def _of_key(key: JsonRow, since: str | None, exists: bool, fan_out: int, spec: ForeignKeySpec) -> Impact:
    name = shown(key) + ("" if since is None else f" since {since}")
    effect = f"{CHANGED} or {REMOVED}" if exists else ADDED
    touched = max(fan_out, 1) if spec.outer else fan_out
    return Impact(touched, {effect: 1}, 0, ({"key": name, "subscribers": fan_out, "effect": effect},))


def _horizon(ledger: Ledger) -> str | None:
    """SQL: the time by which versions had ended that do not answer any more."""
    return sql_of(ledger.folds.horizon(Stage.RIGHT_TABLE))


def _of_the_version(
    versions: DataFrame, referring: DataFrame, since: str, horizon: str | None
) -> tuple[DataFrame, DataFrame]:
    """Returns the version of a right key that begins at a time, and the left rows that see it or would see it.

    Args:
        versions: the versions of the key.
        referring: the left rows that refer to it.
        since: the time as text.
        horizon: SQL, the time by which versions had ended that do not answer any more; None if all answer.

    Raises:
        UsageError: the time does not fit its type.
    """
    dtype = versions.schema[s.VALID_FROM].dataType.simpleString()
    time = versions.sparkSession.range(1).selectExpr(f"TRY_CAST({text(since)} AS {dtype}) AS at").first()
    if time is None or time["at"] is None:
        raise UsageError(f"--from: {since!r} is no {dtype}")
    at = F.expr(f"CAST({text(since)} AS {dtype})")
    later = versions.where(F.col(s.VALID_FROM) > at).agg(F.min(s.VALID_FROM).alias("_fk_next"))
    seeing = referring.where(F.col(k.AS_OF) >= at).crossJoin(F.broadcast(later))
    seen = f"{k.AS_OF} < _fk_next" + (f" AND _fk_next > {horizon}" if horizon is not None else "")
    return versions.where(F.col(s.VALID_FROM) == at), seeing.where(f"_fk_next IS NULL OR {seen}")


def of_changes(read: TableReader, spec: ForeignKeySpec, ledger: Ledger, file: Path, limit: int) -> Impact:
    """Returns the impact of the changes in a file if it landed as the next batch of the right side.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        file: a file in the right side's format.
        limit: the largest number of right keys to report.

    Raises:
        UsageError: the file does not exist, or is not of that format.
    """
    side = spec.right
    keys, names = [c.name for c in side.key_columns], [*k.keys_of(spec, k.RIGHT_TABLE).keys]
    with ExitStack() as stack:
        log, quarantined = log_of_file(read, spec, Side.RIGHT, "the right side", ledger, file, stack)
        state = read.read(k.RIGHT_TABLE)
        if spec.as_of_batch:  # a truncate ends versions, and removes none
            log = log.where(f"{quote(keys[0])} IS NOT NULL")
        effects = effects_on(log, state, names)
        if spec.as_of is None:
            subscribers = _subscribers(read, spec).toDF(*keys, SUBSCRIBER_COUNT)
        else:
            horizon = None if spec.as_of_batch else _horizon(ledger)
            subscribers = _seeing(read, spec, log, state, effects, horizon)
        touched = (
            effects.join(subscribers, names, "left")
            .select(*map(quote, names), EFFECT, F.coalesce(SUBSCRIBER_COUNT, F.lit(0)).alias(SUBSCRIBER_COUNT))
            .persist()
        )
        stack.callback(touched.unpersist)
        rows = F.greatest(SUBSCRIBER_COUNT, F.lit(1)) if spec.outer else F.col(SUBSCRIBER_COUNT)
        groups = touched.groupBy(EFFECT).agg(F.count("*"), F.sum(rows)).collect()
        most = touched.orderBy(F.col(EFFECT).isin(*TOUCHING).desc(), F.col(SUBSCRIBER_COUNT).desc(), *map(quote, names))
        listed = json_rows(most.limit(limit))
    return Impact(
        sum(row[2] for row in groups if row[0] in TOUCHING),
        {row[0]: row[1] for row in sorted(groups)},
        quarantined,
        tuple(
            {"key": _named(row, keys), "subscribers": row[SUBSCRIBER_COUNT], "effect": row[EFFECT]} for row in listed
        ),
    )


def _named(row: dict[str, Any], keys: list[str]) -> str:
    """Returns a right key as text, with `as_of` also since when its version holds."""
    since = f" since {row[s.VALID_FROM]}" if s.VALID_FROM in row else ""
    return shown({name: row[name] for name in keys}) + since


def _seeing(
    read: TableReader,
    spec: ForeignKeySpec,
    log: DataFrame,
    state: DataFrame,
    effects: DataFrame,
    horizon: str | None,
) -> DataFrame:
    """Returns, per version that a batch would change, the number of left rows that see it or would see it."""
    names = [*k.keys_of(spec, k.RIGHT_TABLE).keys]
    touching = effects.where(F.col(EFFECT).isin(*TOUCHING)).select(*map(quote, names))
    keys = k.right_keys(spec)
    stored, new = (
        rows.where(f"{s.HASH} IS NOT NULL").select(*map(quote, names), s.HASH)
        for rows in (state, log.where(f"{quote(names[0])} IS NOT NULL"))
    )
    after = held(stored.unionByName(new).dropDuplicates(names), [*keys], horizon=horizon).drop(s.HASH)
    times = after.join(touching, names, "left_semi")
    times = times.selectExpr("*", f"STRUCT({', '.join(map(quote, names))}) AS _fk_version")
    subscriptions = _referring(read, spec).select(*map(quote, k.subscribed(spec)))
    seeing = during(subscriptions, times, keys, k.AS_OF, "inner")
    return (
        seeing.groupBy("_fk_version")
        .agg(F.count("*").alias(SUBSCRIBER_COUNT))
        .select("_fk_version.*", SUBSCRIBER_COUNT)
    )


def _referring(read: TableReader, spec: ForeignKeySpec) -> DataFrame:
    return referring(read.read(k.SUBSCRIPTION_STORE), spec)


def _subscribers(read: TableReader, spec: ForeignKeySpec) -> DataFrame:
    """Returns, per foreign key, the number of left rows that refer to it."""
    fks = [*map(quote, k.fk_names(spec))]
    return _referring(read, spec).groupBy(*fks).agg(F.count("*").alias(SUBSCRIBER_COUNT))
