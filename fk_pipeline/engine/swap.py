"""Swaps the tables of a complete rebuild in: one commit per table, and each table keeps its history.

The commits are atomic together because nothing else runs before all are made: the ledger records that a rebuild is
ready, and the next run of any stage first makes the missing commits. Making one twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.table_versions import table_id
from fk_pipeline.contract import Kind, Source, loaded
from fk_pipeline.engine.damage import translated
from fk_pipeline.engine.fingerprints import can_be_finished, fingerprints, shadow_home
from fk_pipeline.engine.sole import sole_stages
from fk_pipeline.environment import storage
from fk_pipeline.errors import FkPipelineError, StateError
from fk_pipeline.frames import empty, join_by_key
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.damage import damage_of, has_files_only, is_there, put_aside
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.lease import LeaseCheck
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import READ, row_metadata
from fk_pipeline.store.reader import ABSENT
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.warehouse import Warehouse
from fk_pipeline.table_features import may_be_replaced, open_table


def discard_shadow(spec: PipelineSpec) -> None:
    """Removes the tables of a rebuild that was given up, or is finished."""
    fs, root = storage.filesystem(shadow_home(spec))
    if fs.exists(root):
        fs.rm(root, recursive=True)


def finish_rebuild(session: SparkSession, spec: PipelineSpec, ledger: Ledger, layout: Layout) -> None:
    """Makes the missing commits of a rebuild that died while it was swapped in, if there is one."""
    with sole_stages(session, spec.home, ledger.kind.stage_names) as check:
        ledger.refresh()
        if ledger.rebuilds.unfinished is not None:
            swap_in(session, spec, ledger, layout, check)


def swap_in(session: SparkSession, spec: PipelineSpec, ledger: Ledger, layout: Layout, check: LeaseCheck) -> None:
    """Swaps in the rebuild that is ready. The caller holds the leases of all stages; `check` checks them.

    Raises:
        StateError: its tables are gone, or the pipeline file was edited since.
    """
    ready = ledger.rebuilds.unfinished
    assert ready is not None
    built = Warehouse(session, shadow_home(spec))
    rows = dict(ready["rows"])
    if not can_be_finished(spec, ledger):
        same_file = dict(ready["fingerprints"]) == fingerprints(spec)
        raise StateError(
            "a rebuild died while its tables were swapped in, and "
            + ("they are gone" if same_file else "the pipeline file was edited since"),
            where=spec.home,
            why="some of the stored tables are from before the rebuild, some from after",
            fix=f"fk-pipeline rebuild {spec.file} --from {ready['source']}",
        )

    check()
    stages, source = list(ready["stages"]), Source(ready["source"])
    first, last = (ledger.batches[i] for i in (0, -1))
    info = CommitInfo(spec.name, "rebuild", BatchRange(first, last), ready["rebuild_id"], check)
    real = Warehouse(session, spec.home)
    kind = ledger.kind
    rejecting = origins(kind, stages, source)
    whole_quarantine = {*rejecting} == {*kind.rejecting}
    names = [name for stage in stages for name in kind.written_by(stage)]
    for name in [*names, *([s.QUARANTINE] if whole_quarantine else [])]:
        if takes_no_commit(spec.home, name):
            put_aside(spec.home, name)
    moved: dict[tuple[str, int], tuple[str, int]] = {}
    for table in layout.of(*names):
        if table.name in rows or real.version(table.name) is not None:
            _swap_with_facts(built, table, real, spec, info, moved)
    if s.QUARANTINE in rows or real.version(s.QUARANTINE) is not None:
        rejected = built.read(layout[s.QUARANTINE])
        if whole_quarantine:
            real.replace_all(rejected, layout[s.QUARANTINE], info)
        else:
            for origin in rejecting:
                of_origin = rejected.where(F.col(s.SIDE) == origin)
                real.replace(of_origin, layout[s.QUARANTINE], f"{s.SIDE} = '{origin}'", info)
    ledger.adopt(ledger.at(shadow_home(spec), source), stages, source)
    ledger.record_fingerprints(fingerprints(spec))
    names = [s.QUARANTINE, *(name for stage in stages for name in kind.written_by(stage))]
    versions = [(name, version) for name in names if (version := real.version(name)) is not None]
    recorded = {k: ready[k] for k in ("rebuild_id", "source", "stages", "rows", "seconds")}
    ledger.rebuilds.record("finished", **recorded, versions=versions)
    discard_shadow(spec)


def origins(kind: Kind, stages: Sequence[str], source: Source) -> list[str]:
    """Returns the origins whose quarantine rows a rebuild replaces; an input only if it reads landing files."""
    rebuilt = [origin for origin, stage in kind.rejecting.items() if stage in stages]
    return [origin for origin in rebuilt if source is Source.LANDING or kind.side_of(kind.rejecting[origin]) is None]


def takes_no_commit(home: str, name: str) -> bool:
    """Returns whether a table cannot be replaced in its folder.

    Its log cannot be read, or is gone; or somebody has given it a feature that Delta does not end.
    """
    damage, path = damage_of(home, name), f"{home}/{name}"
    if damage is not None:
        return damage.of_log
    return not may_be_replaced(open_table(path)) if is_there(home, name) else has_files_only(home, name)


def _swap_with_facts(
    built: Warehouse,
    table: Table,
    real: Warehouse,
    spec: PipelineSpec,
    info: CommitInfo,
    moved: dict[tuple[str, int], tuple[str, int]],
) -> None:
    """Replaces a table; its commit carries the facts that the kind carries over, if it has any (`Kind.carried`).

    `moved` has, per id and version of a table that was built, those of the table in its place; this one is added.
    """
    carried, version = spec.definition.carried, built.version(table.name)
    if not carried or version is None:
        _swap(built.read(table), table, real, spec, info)
        return
    before = real.version(table.name)
    facts = loaded(carried)(row_metadata(built.path(table.name), version), moved)
    info = replace(info, metadata={**facts, READ: ABSENT if before is None else before} if facts else {})
    _swap(built.read(table), table, real, spec, info)
    if facts and real.version(table.name) == before:  # no row differs
        real.tell(table, info)
    places = ((of.path(table.name), of.version(table.name)) for of in (built, real))
    was, now = ((table_id(f"{path}@..{at}"), at) for path, at in places if at is not None)
    moved[was] = now


def _swap(rows: DataFrame, table: Table, real: Warehouse, spec: PipelineSpec, info: CommitInfo) -> None:
    """Replaces a table; in the result only the rows that differ, so that its change feed has no others.

    A damaged table is replaced as a whole, without being read.
    """
    try:
        _swap_rows(rows, table, real, spec, info)
    except FkPipelineError:
        raise
    except Exception as error:  # an error of Spark, delta-rs or Arrow
        if translated(error, spec) is error:
            raise
        real.replace_all(rows, table, info)


def _fits(real: Warehouse, table: Table) -> bool:
    """Returns whether a stored table has exactly the declared columns and types, in this order."""
    stored = real.session.read.format("delta").load(real.path(table.name)).schema
    declared = empty(real.session, table.columns).schema
    return [(f.name, f.dataType) for f in stored.fields] == [(f.name, f.dataType) for f in declared.fields]


def _swap_rows(rows: DataFrame, table: Table, real: Warehouse, spec: PipelineSpec, info: CommitInfo) -> None:
    version = real.version(table.name)
    if (
        table.name != spec.definition.result.name
        or version is None
        or not _fits(real, table)
        or "map<" in table.ddl.lower()
    ):
        real.replace_all(rows, table, info)
        return
    keys = [*table.keys]
    old = real.read(table, version)
    if not old.groupBy(*map(quote, keys)).count().where("count > 1").isEmpty():
        real.replace_all(rows, table, info)  # damage that a MERGE cannot repair
        return
    content = [quote(name) for name in table.names if name not in (*keys, s.BATCH, s.CHANGED_AT)]
    both = rows.select(
        *map(quote, keys), F.struct(*map(quote, table.names)).alias("new"), F.struct(*content).alias("n")
    )
    stored = old.select(*map(quote, keys), F.struct(*content).alias("o"))
    both = join_by_key(both, stored, keys, "full", nullable=bool(table.nullable_keys))
    differ = both.where(~F.col("n").eqNullSafe(F.col("o")))
    changes = differ.select(
        *map(quote, keys),
        *[F.col("new")[name].alias(name) for name in table.names if name not in keys],
        F.col("n").isNull().alias(s.DELETED),
    )
    real.merge(changes, table, info, delete_when=s.DELETED)
