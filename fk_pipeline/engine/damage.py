"""The remedy of a damaged table: which command repairs it, and the error that names both.

A table can be rebuilt from its input: state and result from the changelogs, the changelogs and the ledger from the
landing files. If that input is gone too, only a backup helps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError

from fk_pipeline.cdc.table_versions import are_kept, names_versions, table_id
from fk_pipeline.cdc.zone import FsspecLandingZone, LandingZone
from fk_pipeline.contract import Kind, Role, Source
from fk_pipeline.engine.claim import landing_places
from fk_pipeline.engine.fingerprints import NeededRebuild
from fk_pipeline.errors import ConcealedError, FkPipelineError, StateError
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.inputs import ClockSpec
from fk_pipeline.spec.places import landing_path, relative
from fk_pipeline.store.damage import Damage, DamagedTableError, damage_in, damage_of, is_there, put_aside
from fk_pipeline.store.lease import lease, leases
from fk_pipeline.store.ledger import Names, is_claim
from fk_pipeline.store.ledger.entries import SCHEMAS, Entries, Entry, rows_in_files
from fk_pipeline.store.ledger.files import GIVEN_UP

_NOT_NEEDED = ("checks", "rebuilds")
"""Ledger tables that a rebuild does not need."""

_FORGOTTEN = {
    "batches": "withdrawn batches come back: only a restore of the table knows them; else withdraw them again",
    "corrections": "of the corrections those stay that can be read: only a restore of the table knows the others; else "
    "correct these lines again",
    "checks": "which checks failed is known again after fk-pipeline verify",
}
"""Per ledger table, a sentence about the content that no rebuild can recover."""


def all_tables(kind: Kind) -> tuple[str, ...]:
    """Returns the names of the tables of a pipeline and of its ledger."""
    return (*(table.name for table in kind.tables), *SCHEMAS)


def damages(spec: PipelineSpec, tables: Iterable[str] | None = None) -> list[Damage]:
    """Returns the damage of the stored tables that their logs and a listing of their files show.

    Args:
        spec: the pipeline.
        tables: the tables to check; default: all, with those of the ledger.

    Raises:
        OSError: the storage does not respond.
    """
    names = all_tables(spec.definition) if tables is None else tables
    return [damage for name in names if (damage := _damage(spec.home, name)) is not None]


def refuse_damaged(spec: PipelineSpec, tables: Iterable[str] | None = None, zone: LandingZone | None = None) -> None:
    """Raises if a stored table is damaged.

    Raises:
        StateError: a table is damaged; it names the command that repairs it.
    """
    damaged = damages(spec, tables)
    if damaged:
        raise damage_error(damaged, spec, zone)


def _damage(home: str, table: str) -> Damage | None:
    damage = damage_of(home, table)
    if damage is not None or table not in SCHEMAS:
        return damage
    try:  # the ledger is small: reading it finds files with other columns, or with impossible values
        Entries(home).rows(table)
    except DamagedTableError as error:
        return error.damage
    except (DeltaError, pa.ArrowException, OSError, LookupError, ValueError, TypeError) as error:
        return damage_in(home, [table], str(error)) or Damage(table, f"{home}/{table}", "cannot be read")
    return None


def translated(error: Exception, spec: PipelineSpec, zone: LandingZone | None = None) -> Exception:
    """Returns the error that names the damage and its remedy, if damage caused an error; otherwise the error itself.

    Args:
        error: of Spark, delta-rs, Arrow or Python.
        spec: the pipeline.
        zone: lists the landing files.
    """
    chain: list[BaseException] = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    known = [cause.damage for cause in chain if isinstance(cause, DamagedTableError)]
    try:
        damaged = known or damages(spec)
        if not damaged:
            named = damage_in(spec.home, all_tables(spec.definition), "\n".join(map(str, chain)))
            damaged = [] if named is None else [named]
        return damage_error(damaged, spec, zone) if damaged else error
    except OSError:  # the storage itself fails
        return error


@contextmanager
def telling_damage(spec: PipelineSpec, zone: LandingZone | None = None) -> Iterator[None]:
    """Replaces errors that a damaged table caused; passes all others on.

    Raises:
        StateError: a table is damaged (`translated`).
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, FkPipelineError) and not isinstance(error, ConcealedError):
            raise
        damage = translated(error, spec, zone)
        if damage is error:
            raise
        from fk_pipeline.privacy import cause_of  # loads PySpark, which most of the commands do without

        raise damage from cause_of(error, spec)


def damage_error(damaged: Sequence[Damage], spec: PipelineSpec, zone: LandingZone | None = None) -> StateError:
    """Returns the error for damaged tables: it names the first, and the command that repairs all of them."""
    first, tables = damaged[0], [damage.table for damage in damaged]
    needed = rebuild_of(spec.definition, tables)
    others = f"; damaged too: {', '.join(tables[1:])}" if len(tables) > 1 else ""
    gone = gone_files(spec, zone, _read_by(spec.definition, needed)) if needed.source is Source.LANDING else []
    if gone:
        lost = [name for name in tables if rebuild_of(spec.definition, [name]).source is Source.LANDING]
        why = f"{len(gone)} landing file(s) of which it could be made anew are gone, the first: {gone[0]}"
        fix = (
            f"only a restore mends it: of {' and '.join(lost)} from a backup of {spec.home}, together with all tables "
            "beside it; or of these landing files, and then call this command again"
        )
    else:
        why = "; ".join(["it is made anew from what it was made of", *_lost_with(tables)])
        fix = needed.command(spec)
    return StateError(f"{first}{others}", where=first.file, why=why, fix=fix)


def _lost_with(tables: Iterable[str]) -> list[str]:
    return [_FORGOTTEN[name] for name in tables if name in _FORGOTTEN]


def rebuild_of(kind: Kind, tables: Iterable[str]) -> NeededRebuild:
    """Returns the rebuild that repairs damaged tables."""
    rebuilds = [_rebuild_of(kind, name) for name in tables]
    source = Source.LANDING if any(rebuild.source is Source.LANDING for rebuild in rebuilds) else Source.CHANGELOG
    return NeededRebuild(source, kind.in_order(stage for rebuild in rebuilds for stage in rebuild.stages))


def _rebuild_of(kind: Kind, name: str) -> NeededRebuild:
    """Returns the rebuild that repairs one table."""
    if name in _NOT_NEEDED:
        return NeededRebuild(Source.CHANGELOG, kind.rebuilds(Source.CHANGELOG))
    table = None if name in SCHEMAS else kind.table(name)
    if table is None or table.stage is None:
        return NeededRebuild.of_all(kind)
    return NeededRebuild(Source.LANDING if table.role is Role.LOG else Source.CHANGELOG, (table.stage,))


def _read_by(kind: Kind, rebuild: NeededRebuild) -> list[Side]:
    """Returns the sides whose landing files a rebuild reads."""
    return [input_.name for input_ in kind.logged if input_.stage in rebuild.stages]


def gone_files(spec: PipelineSpec, zone: LandingZone | None, sides: Sequence[Side]) -> list[str]:
    """Returns the landing files of some sides that the ledger names and that are gone; skips its unreadable tables."""
    zone, rows = zone or FsspecLandingZone(), _readable(spec.home, "batches")
    newest = {(row["batch"], row["side"]): row for row in rows}
    withdrawn = {batch for (batch, _), row in newest.items() if row["event"] == "removed"}
    listed = {(Side(row["side"]), path) for row in newest.values() for path in row["files"] or ()}
    files = {(Side(row["side"]), row["path"]): row for row in _readable(spec.home, "files")}
    listed |= {place for place, row in files.items() if row["batch"] not in withdrawn}
    listed -= {place for place, row in files.items() if row["event"] == GIVEN_UP}
    names, gone = _names(spec, listed), list[str]()
    for side in sides:
        paths = sorted({names.now(side, path) for of, path in listed if of == side})
        if spec.side(side).format == "delta":
            gone += [path for path in paths if not are_kept(spec.location(path))]
            continue
        present = {relative(spec, file.path) for file in zone.list(landing_path(spec, side))}
        gone += [path for path in paths if path not in present]
    return gone


def _names(spec: PipelineSpec, known: Collection[tuple[Side, str]]) -> Names:
    """Returns what the files of the ledger are called now, of what can still be read of it."""
    claim = {row["part"]: row["value"] for row in rows_in_files(spec.home, "fingerprints")}
    places = landing_places(spec)
    return Names(places, claim, {side: [path for of, path in known if of == side] for side in places})


def _readable(home: str, table: str) -> list[Entry]:
    return Entries(home).rows(table) if _damage(home, table) is None else []


def make_ledger_readable(spec: PipelineSpec, zone: LandingZone, source: Source) -> None:
    """Moves damaged ledger tables aside before a rebuild reads the ledger, if the rebuild can do without them.

    It moves `fingerprints` too if the landing files are read again, and `rebuilds` if a rebuild is unfinished: until
    all is read, a run finds tables without a ledger and refuses (`fingerprints.check_fingerprints`), also after the
    rebuild died.

    Raises:
        StateError: another rebuild or a restore is needed; nothing was changed.
    """
    if not damages(spec, SCHEMAS):
        return
    with lease(spec.home, "discovery"), leases(spec.home, spec.definition.stage_names):
        damaged = damages(spec, SCHEMAS)
        tables = [damage.table for damage in damaged]
        needed = rebuild_of(spec.definition, tables)
        if needed.source is Source.LANDING and (
            source is not Source.LANDING or gone_files(spec, zone, _read_by(spec.definition, needed))
        ):
            raise damage_error(damaged, spec, zone)
        lists = _readable(spec.home, "batches")
        claims = [row for row in rows_in_files(spec.home, "fingerprints") if is_claim(row["part"])]
        corrections = rows_in_files(spec.home, "corrections") if "corrections" in tables else []
        first = []
        if needed.source is Source.LANDING:
            first = ["fingerprints"] if is_there(spec.home, "fingerprints") else []
            rebuilds = _readable(spec.home, "rebuilds")
            first += ["rebuilds"] if rebuilds and rebuilds[-1]["event"] == "ready" else []
        aside = dict.fromkeys([*first, *tables])
        for name in aside:
            put_aside(spec.home, name)
        Entries(spec.home).add("corrections", corrections)
        if "fingerprints" in aside:  # the claim stays: which pipeline the tables belong to
            Entries(spec.home).add("fingerprints", claims)
        if "files" in tables:
            _list_again(spec, lists, zone)


def _list_again(spec: PipelineSpec, lists: Sequence[Entry], zone: LandingZone) -> None:
    """Records the files in the lists of the batches again, as they are now: each stays in its batch."""
    newest = {(row["batch"], row["side"]): row for row in lists}
    names = _names(spec, {(Side(side), path) for (_, side), row in newest.items() for path in row["files"] or ()})
    sides = [side for side in spec.sides if not spec.side(side).has_versions]
    present = {relative(spec, file.path): file for side in sides for file in zone.list(landing_path(spec, side))}
    rows = []
    for row in newest.values():
        for path in row["files"] or ():
            now = names.now(Side(row["side"]), path)
            if names_versions(now):
                of = spec.side(Side(row["side"]))
                mark = of.of_wall.place if isinstance(of, ClockSpec) else table_id(spec.location(now))
                seen = {"size": -1, "modified": mark, "digest": mark}
            else:
                file = present[now]
                seen = {"size": file.size, "modified": file.modified, "digest": zone.digest(file)}
            place = {name: row[name] for name in ("side", "batch")}
            rows.append({"event": "discovered", **place, "path": path, **seen})
    Entries(spec.home).append("files", rows)
