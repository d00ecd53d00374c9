"""What the stored tables depend on, part by part; an edited pipeline file is refused before it mixes both."""

from __future__ import annotations

from fk_pipeline.errors import StateError
from fk_pipeline.identity import Side
from fk_pipeline.protocol.hashing import HASH_VERSION
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.tables.ledger import Ledger
from fk_pipeline.tables.schemas import RIGHT_TABLE, SUBSCRIPTION_STORE

STATE_VERSION = 2
"""Raise it when tables of an older version cannot be read any more."""


def fingerprints(spec: PipelineSpec) -> dict[str, str]:
    """What the stored state depends on; the parts are named after the pipeline file."""
    parts = {
        "join": spec.join,
        "select": "; ".join(o.sql for o in spec.outputs),
        "left.foreign_key": "; ".join(spec.left.foreign_key),
        "hash version": str(HASH_VERSION),
        "state version": str(STATE_VERSION),
    }
    for side in Side:
        side_spec = spec.side(side)
        parts[f"{side}.schema"] = ", ".join(f"{c.quoted} {c.type}" for c in side_spec.columns)
        parts[f"{side}.key"] = ", ".join(side_spec.key)
        parts[f"{side}.format"] = f"{side_spec.format} {side_spec.op_column or ''}".strip()
        parts[f"{side}.sequence_by"] = side_spec.sequence_by or ""
    return parts


def check_fingerprints(spec: PipelineSpec, ledger: Ledger) -> None:
    """Refuses tables that were made with another pipeline file, and tables without a ledger. Needs no Spark.

    Raises:
        StateError: naming the parts that differ.
    """
    wanted, stored = fingerprints(spec), ledger.fingerprints
    stale = [part for part in wanted if part in stored and stored[part] != wanted[part]]
    if stale:
        changes = "; ".join(f"{part} was {stored[part]!r}, is {wanted[part]!r}" for part in stale)
        raise StateError(
            f"the stored tables were made with another pipeline file: {changes}",
            where=str(spec.file),
            why="mixing both would give a wrong join; nothing was changed",
            fix=f"undo the edit, or remove {spec.home} and run again: every batch is then read anew",
        )
    if not stored and any(
        ledger.logs.version(f"{spec.home}/{t}") is not None for t in (SUBSCRIPTION_STORE, RIGHT_TABLE)
    ):
        raise StateError(
            "there are tables but no ledger",
            where=spec.home,
            why="which batches they hold is not known",
            fix=f"restore the ledger tables (files, batches, runs, fingerprints), or remove {spec.home}",
        )
