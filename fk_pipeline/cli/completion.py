"""Shell completion: pipeline files, stages, tables. The shell calls it at every tab, so nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
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
"""The tables that `show` can show: those of a pipeline, its changes, and those of its ledger."""


def completed_files(incomplete: str) -> list[str]:
    """Returns the YAML files and folders that complete a path; hidden ones only if the name starts with a dot."""
    begun = Path(incomplete)
    folder, name = (begun, "") if incomplete.endswith("/") or not incomplete else (begun.parent, begun.name)
    prefix = incomplete.removesuffix(name) if name else incomplete
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    shown = [path for path in paths if path.name.startswith(name) and path.name.startswith(".") <= name.startswith(".")]
    files = [prefix + path.name for path in shown if path.suffix in (".yaml", ".yml") and path.is_file()]
    return files + [f"{prefix}{path.name}/" for path in shown if path.is_dir()]


def stages(incomplete: str) -> list[str]:
    """Returns the completions of the last stage in a comma-separated list: stages that are not in it yet."""
    return _listed(incomplete, STAGES)


def alarms(incomplete: str) -> list[str]:
    """Returns the completions of the last word in the comma-separated list of `status --fail-on`."""
    from fk_pipeline.cli.alarm import ALARMS

    return _listed(incomplete, [*ALARMS])


def _listed(incomplete: str, names: Sequence[str]) -> list[str]:
    """Returns the completions of the last name in a comma-separated list: names that are not in it yet."""
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in names if name.startswith(begun) and name not in before.split(",")]


def tables(incomplete: str) -> list[str]:
    """Returns the names in `TABLES` that complete a text."""
    return [name for name in TABLES if name.startswith(incomplete)]


def sources(incomplete: str) -> list[str]:
    """Returns the sources that a rebuild can read and that complete a text."""
    return [name for name in Source if name.startswith(incomplete)]
