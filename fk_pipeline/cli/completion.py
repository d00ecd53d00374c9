"""What the shell completes: pipeline files, stages, tables. Called at every tab, so nothing heavy is imported."""

from __future__ import annotations

from pathlib import Path

from fk_pipeline.contract import Source
from fk_pipeline.kinds.registry import kinds
from fk_pipeline.store import LEDGER_TABLES

STAGES = tuple(dict.fromkeys(name for kind in kinds() for name in kind.stage_names))
"""The stages of all kinds, in running order."""

TABLES = (
    *dict.fromkeys(table.name for kind in kinds() for table in reversed(kind.tables)),
    "changes",
    *LEDGER_TABLES,
)
"""What `show` shows: the tables of a pipeline, its changes, and the tables of its ledger."""


def completed_files(incomplete: str) -> list[str]:
    """YAML files, and folders on the way to them; hidden ones only if they are asked for."""
    begun = Path(incomplete)
    folder, name = (begun, "") if incomplete.endswith("/") or not incomplete else (begun.parent, begun.name)
    prefix = incomplete.removesuffix(name) if name else incomplete
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    shown = [path for path in found if path.name.startswith(name) and path.name.startswith(".") <= name.startswith(".")]
    files = [prefix + path.name for path in shown if path.suffix in (".yaml", ".yml") and path.is_file()]
    return files + [f"{prefix}{path.name}/" for path in shown if path.is_dir()]


def stages(incomplete: str) -> list[str]:
    """The next stage of a comma-separated list: those that are not in it yet."""
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + stage for stage in STAGES if stage.startswith(begun) and stage not in before.split(",")]


def tables(incomplete: str) -> list[str]:
    """The tables of a pipeline."""
    return [name for name in TABLES if name.startswith(incomplete)]


def sources(incomplete: str) -> list[str]:
    """What a rebuild can read."""
    return [name for name in Source if name.startswith(incomplete)]
