"""Finds tables that are intact but do not match the ledger: older, newer, or written by an overtaken run.

A table is older if it is from a backup that was copied during a run, was removed, lost its last commits, or was
restored to a version; it is newer if the ledger is older. An overtaken run slept for longer than its lease lasts:
others went on, and it committed when it woke. Such a table may lack all work of its stage since some entry of the
ledger, for any batch: `tests/any_order/model.py` shows that the batch of a late commit alone is not enough.

A stage that replaces the partitions of its batches, and the resolver, become due again for all their batches since that
entry. An older state table does not show which rows were seen before (architecture, rule 4): it must be rebuilt.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from fk_pipeline.cdc.landing import Discovery
from fk_pipeline.contract import Kind, Role, Source
from fk_pipeline.engine.fingerprints import NeededRebuild
from fk_pipeline.environment import storage
from fk_pipeline.errors import StateError
from fk_pipeline.identity import BatchId, Side, parse_batches
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import Commit, commits

_STATES = (Role.STATE, Role.INDEX)
"""Roles of tables without partitions per batch: rows missing in an older version look like rows that never existed."""

_KEYED = (*_STATES, Role.RESULT)
"""Roles of tables with one row per key; rows that were appended without reading the table may be duplicates."""

_COMMIT = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")


class Wrong(StrEnum):
    """The kind of mismatch between a table and the ledger."""

    OLDER = "older"
    LATE = "late"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Lag:
    """A table that does not match the ledger.

    Attributes:
        table: its name.
        stage: the stage that has to run again or be rebuilt.
        kind: the kind of mismatch.
        what: the mismatch in words.
        version: the current version of the table; -1 if it does not exist.
        batches: the batches for which the stage becomes due.
        rebuild: the rebuild that is needed, if running these batches would not be enough.
        run_id: the run of the commit that is wrong, if one is.
    """

    table: str
    stage: str
    kind: Wrong
    what: str
    version: int
    batches: tuple[BatchId, ...]
    rebuild: NeededRebuild | None = None
    run_id: str = ""

    def fix(self, spec: PipelineSpec) -> str:
        """Returns the command that is the remedy."""
        return f"fk-pipeline run {spec.file}" if self.rebuild is None else self.rebuild.command(spec)


def lags(spec: PipelineSpec, ledger: Ledger, discovery: Discovery | None = None) -> list[Lag]:
    """Returns the tables that do not match the ledger; none while a rebuild is being swapped in. Needs no Spark.

    Args:
        spec: the pipeline.
        ledger: its ledger, read before the tables.
        discovery: the result of a discovery in the landing folders; by default no file is gone.
    """
    if ledger.rebuilds.unfinished is not None:
        return []
    kind = spec.definition
    places = [(name, kind.table(name).stage) for stage in kind.stage_names for name in kind.written_by(stage)]
    places += [(name, None) for name in kind.with_role(Role.REJECTED)]
    gone = {(file.side, int(file.batch)) for file in (discovery.vanished if discovery else ())}
    all_of_them = [lag for name, stage in places for lag in _lags_of(spec, ledger, name, stage)]
    return [left for lag in all_of_them if (left := _still_behind(lag, ledger, gone)).batches or left.rebuild]


def due_by(mismatches: Iterable[Lag]) -> dict[str, dict[int, str]]:
    """Returns, per stage, the batches that become due by the mismatches, with the reason."""
    due: dict[str, dict[int, str]] = {}
    for lag in mismatches:
        for batch in lag.batches if lag.rebuild is None else ():
            due.setdefault(lag.stage, {}).setdefault(int(batch), lag.what)
    return due


def reopen(ledger: Ledger, mismatches: Iterable[Lag]) -> None:
    """Records the batches that become due by the mismatches, and that the commits of these tables are accounted for."""
    now = uuid.uuid4().hex[:12]
    for lag in mismatches:
        if lag.rebuild is not None:
            continue
        if lag.kind is Wrong.UNKNOWN:
            ledger.runs.assume_started(lag.stage, lag.batches, lag.run_id)
        ledger.runs.reopen(lag.stage, lag.batches, now, lag.what, {lag.table: lag.version})


def refuse(spec: PipelineSpec, mismatches: Iterable[Lag], replaced: Collection[str] = ()) -> None:
    """Refuses tables for which a rebuild is the only remedy.

    Args:
        spec: the pipeline.
        mismatches: the mismatches.
        replaced: tables to ignore, because they are about to be replaced.

    Raises:
        StateError: such a table exists; the error names the rebuild.
    """
    wrong = [(lag, lag.rebuild) for lag in mismatches if lag.rebuild is not None and lag.table not in replaced]
    if not wrong:
        return
    sources = {rebuild.source for _, rebuild in wrong}
    stages = spec.definition.downstream(stage for _, rebuild in wrong for stage in rebuild.stages)
    rebuild = (
        NeededRebuild.of_all(spec.definition) if Source.LANDING in sources else NeededRebuild(Source.CHANGELOG, stages)
    )
    lag = wrong[0][0]
    raise StateError(
        "; ".join(lag.what for lag, _ in wrong),
        where=f"{spec.home}/{lag.table}",
        why="running the batches again would not bring back all that was done to it since; nothing was changed",
        fix=f"restore the tables and the ledger from one backup, or: {rebuild.command(spec)}",
    )


def versions_of(kind: Kind, home: str, stage: str) -> dict[str, int]:
    """Returns the versions of the existing tables that only this stage writes."""
    versions = {name: _version(f"{home}/{name}") for name in kind.written_by(stage)}
    return {name: version for name, version in versions.items() if version is not None}


def overtaken(kind: Kind, home: str, stage: str, run_id: str, before: Mapping[str, int]) -> Commit | None:
    """Returns a commit of another run of the stage that was made during this run, which may not have read it; or None.

    Args:
        kind: the kind of join.
        home: the folder or URI of the tables.
        stage: the stage.
        run_id: the id of this run.
        before: per table, its version when this run began.

    Returns:
        The commit; its `appends` is true only if repeating this run would leave duplicate rows for its keys.
    """
    for table, version in versions_of(kind, home, stage).items():
        new = range(before.get(table, -1) + 1, version + 1)
        for commit in commits(f"{home}/{table}", new) if len(new) > 1 else ():
            if commit.stage == stage and commit.run_id != run_id:
                return replace(commit, appends=commit.appends and kind.table(table).role in _KEYED)
    return None


def _version(path: str) -> int | None:
    """Returns the version of a table by the file names in its log; None without a log. Does not read the log."""
    fs, root = storage.filesystem(f"{path}/_delta_log")
    try:
        listed = fs.ls(root, detail=False)
    except FileNotFoundError:
        return None
    names = (_COMMIT.fullmatch(file.rsplit("/", 1)[-1]) for file in listed)
    return max((int(name[1]) for name in names if name is not None), default=None)


def _lags_of(spec: PipelineSpec, ledger: Ledger, table: str, stage: str | None) -> Iterator[Lag]:
    log, path = ledger.runs.commits, f"{spec.home}/{table}"
    version, known = _version(path), log.versions.get(table)
    if known is not None and (version is None or version < known):
        what = f"{table} is not there" if version is None else f"{table} is at version {version}"
        at, after = -1 if version is None else version, log.after(table, version)
        for writer in (stage,) if stage is not None else sorted(log.writers(table, version)):
            since = tuple(ledger.runs.since(writer, after))
            yield Lag(table, writer, Wrong.OLDER, f"{what}, and a run wrote version {known}", at, since)
    elif version is not None and table not in log.unexplained:
        for commit in commits(path, range(-1 if known is None else known + 1, version + 1)):
            lag = _lag_by(commit, ledger, table, stage)
            if lag is not None:
                yield replace(lag, version=version)


def _lag_by(commit: Commit, ledger: Ledger, table: str, stage: str | None) -> Lag | None:
    """Returns the mismatch due to a commit that the ledger does not account for; None if there is none."""
    log, where = ledger.runs.commits, f"version {commit.version} of {table}"
    if commit.restored is not None and stage is not None:
        since = tuple(ledger.runs.since(stage, log.after(table, commit.restored)))
        return Lag(table, stage, Wrong.OLDER, f"{where} brought version {commit.restored} back", 0, since)
    if commit.stage == "rebuild" and stage is not None:
        what = f"{where} is of a rebuild of which the ledger does not say that it was finished"
        by_rebuild = NeededRebuild(Source.CHANGELOG, ledger.kind.downstream([stage]))
        return Lag(table, stage, Wrong.LATE, what, 0, (), by_rebuild, commit.run_id)
    if commit.stage not in ledger.kind.stage_names or not commit.run_id:
        return None
    writer = commit.stage
    _, started = log.starts.get(commit.run_id, (writer, None))
    if started is None:
        parts = parse_batches(commit.batches)
        batches = tuple(batch for batch in ledger.batches if any(batch in part for part in parts))
        what = f"{where} is of run {commit.run_id}, of which the ledger knows nothing"
        is_known = {end for part in parts for end in (part.first, part.last)} <= {*batches}
        rebuild = None if is_known else NeededRebuild.of_all(ledger.kind)
        return Lag(table, writer, Wrong.UNKNOWN, what, 0, batches, rebuild, commit.run_id)
    entry = log.found_at(commit, table)
    if log.newest.get(writer) == commit.run_id or (entry is not None and not ledger.folds.since(started, entry)):
        return None
    what = f"{where} was committed late: run {commit.run_id} of {writer} was overtaken by another"
    since = tuple(ledger.runs.since(writer, started - 1))
    lag = Lag(table, writer, Wrong.LATE, what, 0, since, run_id=commit.run_id)
    twice = commit.appends and ledger.kind.table(table).role in _KEYED
    return _by_rebuild(lag, ledger.kind) if twice or ledger.folds.since(started) else lag


def _still_behind(lag: Lag, ledger: Ledger, gone: Collection[tuple[Side, int]]) -> Lag:
    """Returns the mismatch, with a rebuild if running the batches again would not be enough."""
    if lag.rebuild is not None:
        return lag
    kind = ledger.kind
    role, side = kind.table(lag.table).role, kind.side_of(lag.stage)
    if role in _STATES and lag.kind is Wrong.OLDER:
        return _by_rebuild(lag, kind)
    lost = {b for b in lag.batches if (side, int(b)) in gone or (side and b in ledger.folds.of(lag.stage))}
    if role is Role.REJECTED:
        return replace(lag, batches=tuple(batch for batch in lag.batches if batch not in lost))
    if role is Role.LOG and lost:
        return _by_rebuild(lag, kind)
    return _by_rebuild(lag, kind) if side is None and {*lag.batches} & ledger.folds.on_all_sides else lag


def _by_rebuild(lag: Lag, kind: Kind) -> Lag:
    is_log = kind.table(lag.table).role is Role.LOG
    return replace(
        lag,
        rebuild=NeededRebuild.of_all(kind) if is_log else NeededRebuild(Source.CHANGELOG, kind.downstream([lag.stage])),
    )
