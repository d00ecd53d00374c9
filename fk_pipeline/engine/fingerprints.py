"""The parts of the pipeline file that the stored tables depend on; an edit that does not fit the tables is refused."""

from __future__ import annotations

from dataclasses import dataclass

from fk_pipeline.blocks.hashing import HASH_VERSION
from fk_pipeline.contract import Kind, Role, Source
from fk_pipeline.engine.claim import check_claim
from fk_pipeline.engine.evolution import Stale, edits, only_adds
from fk_pipeline.errors import StateError
from fk_pipeline.kinds.registry import FIRST
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.store.damage import damage_of, is_there
from fk_pipeline.store.ledger import Ledger

HASHES = "hash version"
"""The part that every changelog depends on: the version of the row hash."""

VERSION = "state version"
"""The part that every table depends on."""

STATE_VERSION = 5
"""The version of the stored tables; it must grow when tables of an older version can no longer be read."""

WHOLE_ROWS_SINCE = 4
"""The oldest version whose changelogs have all that a rebuild needs: whole rows, and where each stands."""


def fingerprints(spec: PipelineSpec) -> dict[str, str]:
    """Returns the values that the stored state depends on; the parts are named after the pipeline file."""
    parts = {
        "kind": spec.kind,
        **spec.definition.depends_on(spec),
        HASHES: str(HASH_VERSION),
        VERSION: str(STATE_VERSION),
    }
    for side in spec.sides:
        side_spec = spec.side(side)
        of_columns = "schema" if spec.definition.input(side).log else "columns"  # no table of ours has these columns
        parts[f"{side}.{of_columns}"] = ", ".join(f"{c.quoted} {c.type}" for c in side_spec.columns)
        parts[f"{side}.key"] = ", ".join(side_spec.key)
        parts[f"{side}.format"] = _format(side_spec)
        logical = [f"{c.name}: {how}" for c in side_spec.columns if (how := side_spec.logical_type(c)) is not None]
        parts[f"{side}.logical_types"] = ", ".join(logical)
        last = ", and written rows after removed ones" if side_spec.feed_of_delta else ""
        parts[f"{side}.sequence_by"] = (side_spec.sequence_by or "") + last
        if side_spec.where is not None:
            parts[f"{side}.where"] = side_spec.where
        if side_spec.valid_from is not None:
            source = " of the source" if side_spec.holds_since_commit else ""  # else a column may have this name
            parts[f"{side}.valid_from"] = side_spec.valid_from + source
    return parts


def _format(side: SideSpec) -> str:
    """Returns how the files of a side are read, as text; settings with their default are left out."""
    declared = side.model_dump(include={"table", "contents", "csv", "delete_when"}, exclude_defaults=True)
    by_place = side.csv.header is False if side.format == "csv" else side.format == "dms" and not side.csv.header
    declared |= {"columns": [c.name for c in side.columns]} if by_place else {}  # their fields have no names
    return " ".join(
        [side.format, *filter(None, [side.op_column]), *(f"{name} {value}" for name, value in declared.items())]
    )


def columns_to_add(spec: PipelineSpec, ledger: Ledger) -> Stale:
    """Returns the stale parts of the pipeline file if the next run adds columns for all of them; otherwise none."""
    stale = stale_parts(spec, ledger)
    return stale if only_adds(spec, stale) and ledger.rebuilds.unfinished is None else {}


def stale_parts(spec: PipelineSpec, ledger: Ledger) -> dict[str, tuple[str, str]]:
    """Returns the parts of the pipeline file that differ from those of the stored tables: (was, is)."""
    expected, stored = fingerprints(spec), ledger.fingerprints
    if not stored:
        return {}
    stored = {"kind": FIRST, **stored}
    parts = dict.fromkeys([*expected, *stored])
    if stored.get(VERSION) != expected[VERSION]:  # an older version did not know all parts
        parts = dict.fromkeys(part for part in expected if part in stored)
    both = {part: (stored.get(part, ""), expected.get(part, "")) for part in parts}
    return {part: (was, now) for part, (was, now) in both.items() if was != now}


@dataclass(frozen=True)
class NeededRebuild:
    """The rebuild that makes the stored tables fit the pipeline file: its source and its stages."""

    source: Source
    stages: tuple[str, ...]

    @classmethod
    def of_all(cls, kind: Kind) -> NeededRebuild:
        """Returns the rebuild of everything from the landing files."""
        return cls(Source.LANDING, kind.stage_names)

    def command(self, spec: PipelineSpec) -> str:
        """Returns the command of the rebuild."""
        is_default = set(self.stages) == set(spec.definition.rebuilds(self.source))
        some = "" if is_default else f" --stages {','.join(self.stages)}"
        source = f" --from {self.source}" if spec.definition.logged else ""  # else there is nothing to choose
        return f"fk-pipeline rebuild {spec.file}{source}{some}"


def needed_rebuild(kind: Kind, stale: Stale) -> NeededRebuild:
    """Returns the smallest rebuild that is enough for some stale parts.

    The changelogs hold whole rows: new derived columns, another selection or hash can be computed from them, and so can
    a schema with other columns or wider types. Another reading of the landing files (key, order, format, another type)
    cannot. Of tables of an older state version only the changelogs are read, if they have all that a rebuild needs.
    """
    of_inputs = tuple(input_.stage for input_ in kind.logged)
    filtered = {f"{input_.name}.where": (str(kind.state_of(input_.name).stage),) for input_ in kind.logged}
    lying = {f"{input_.name}." for input_ in kind.inputs if not input_.log}
    known = {part: kind.stage_names for part in stale if part[: part.find(".") + 1] in lying} | {
        **kind.rebuilt_by,
        **filtered,
        HASHES: of_inputs,
    }
    if VERSION in stale and int(stale[VERSION][0]) >= WHOLE_ROWS_SINCE:
        known[VERSION] = of_inputs
    for side, edit in edits(stale).items():
        if not edit.retyped:
            known[f"{side}.schema"] = (kind.input(side).stage,)
    if set(stale) - known.keys():
        return NeededRebuild.of_all(kind)
    return NeededRebuild(Source.CHANGELOG, kind.downstream(stage for part in stale for stage in known[part]))


def refuse_unknown_types(spec: PipelineSpec) -> None:
    """Refuses to go on while a column that the result of another pipeline will have is not there.

    Raises:
        StateError: the other pipeline has not run, or was edited and has not run since.
    """
    for side in map(spec.side, spec.sides):
        if side.not_run:
            raise StateError(
                f"pipeline {side.pipeline} has no result yet, or not all of its columns, so their types are not known",
                where=str(spec.file),
                why="its first run makes the result, after a file has landed; the batches stay due",
                fix=f"fk-pipeline run {side.not_run} {spec.file}",
            )


def check_fingerprints(spec: PipelineSpec, ledger: Ledger) -> None:
    """Refuses tables that were made with another pipeline file, and tables without a ledger. Needs no Spark.

    Accepts tables that only lack columns: a run adds them (`evolution.py`).

    Raises:
        StateError: the pipeline file differs (names the parts and the rebuild that remedies it), the ledger is gone, or
            the tables belong to another pipeline.
    """
    check_claim(spec, ledger)
    stale = stale_parts(spec, ledger)
    if stale and not only_adds(spec, stale):
        refuse_unknown_types(spec)
        changes = "; ".join(f"{part} was {was!r}, is {now!r}" for part, (was, now) in stale.items())
        rebuild = needed_rebuild(spec.definition, stale).command(spec)
        edited = any(not part.endswith(" version") for part in stale)
        raise StateError(
            f"the stored tables were made with another {'pipeline file' if edited else 'fk-pipeline'}: {changes}",
            where=str(spec.file),
            why="mixing both would give a wrong result; nothing was changed",
            fix=f"undo the edit, or: {rebuild}" if edited else rebuild,
        )
    if tables_without_ledger(spec, ledger):
        raise StateError(
            "there are tables but no ledger",
            where=spec.home,
            why="which batches they hold is not known",
            fix="restore the ledger tables (files, batches, runs, fingerprints, corrections, fields), or: "
            + NeededRebuild.of_all(spec.definition).command(spec),
        )


def tables_without_ledger(spec: PipelineSpec, ledger: Ledger) -> bool:
    """Returns whether there are tables, but no ledger or not all that it needs: then their content is unknown."""
    whole = bool(ledger.fingerprints)
    if ledger.home == spec.home.rstrip("/"):  # the copy of a rebuild has no runs yet
        whole = whole and bool(ledger.files.known and ledger.files.lists and ledger.runs.stages)
    return not whole and any(is_there(spec.home, table) for table in spec.definition.with_role(Role.STATE))


def shadow_home(spec: PipelineSpec) -> str:
    """Returns the folder of a rebuild's tables until they are complete."""
    return f"{spec.home}/rebuilding"


def can_be_finished(spec: PipelineSpec, ledger: Ledger) -> bool:
    """Returns whether a rebuild died while it was swapped in, and the next run can make the missing commits."""
    ready = ledger.rebuilds.unfinished
    if ready is None or dict(ready["fingerprints"]) != fingerprints(spec):
        return False
    built = shadow_home(spec)
    return all(is_there(built, name) and damage_of(built, name) is None for name, _ in ready["rows"])


def finishing(spec: PipelineSpec, ledger: Ledger) -> str:
    """Returns what makes the tables whole after a rebuild died while it was swapped in; empty if none did."""
    ready = ledger.rebuilds.unfinished
    if can_be_finished(spec, ledger):
        return f"fk-pipeline run {spec.file} swaps in the rest"
    return "" if ready is None else f"fk-pipeline rebuild {spec.file} --from {ready['source']}"
