"""What Dagster loads: everything in `defs`."""

from pathlib import Path

from dagster import Definitions, definitions, load_from_defs_folder


@definitions
def defs() -> Definitions:
    """All definitions below `defs`."""
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
