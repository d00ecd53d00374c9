"""Our packages `assets`, `resources` and `expectations`: whether an import finds ours, or another of so common a name.

A module `assets.py` in the folder that `dagster dev` is started from, a folder on PYTHONPATH, or another distribution
may come first; and a distribution that ships a package of one of these names overwrites files of ours. Whoever imports
ours calls `require_own_packages` before, so that this is told as what it is, not as a name that cannot be imported.

To import ours from their place whatever the import path says would not do: the project around us would then be given
ours where it asks for its own.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from fk_pipeline.errors import EnvironmentNotFit

NAMES = ("assets", "resources", "expectations")
ROOT = Path(__file__).resolve().parents[2]
_SIGN = "fk-pipeline"
"""Stands in the first line of the `__init__.py` of each."""

REINSTALL = "install fk-pipeline anew (pip install --force-reinstall --no-deps, with the wheel that it came as)"


@dataclass(frozen=True)
class Fault:
    """An import does not find our package: what it finds, and how to mend it."""

    found: str
    fix: str


def fault(name: str) -> Fault | None:
    """What `import name` finds if that is not our package; imports nothing."""
    ours, found = ROOT / name / "__init__.py", _found(name)
    if found is None:
        return Fault("nothing", REINSTALL)
    if found.is_dir():  # any package before or behind it would have come first
        left = f"what is left of it: {found} has no __init__.py" if found == ours.parent else f"only the folder {found}"
        return Fault(left, REINSTALL)
    if found != ours:
        return Fault(str(found), _way_out(found))
    with ours.open(encoding="utf-8", errors="replace") as file:
        if _SIGN not in file.readline():
            return Fault(
                f"{ours} with the content of another package",
                f"give fk-pipeline an environment of its own; or uninstall what brought it, and {REINSTALL}",
            )
    return None


def _found(name: str) -> Path | None:
    """The file that an import of the package executes, or has executed; of a namespace package a folder."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand
        return Path(getattr(sys.modules[name], "__file__", None) or name).resolve()
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    folders = [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]
    return next((folder for folder in folders if folder.parent == ROOT), folders[0] if folders else None)


def _way_out(found: Path) -> str:
    if "site-packages" in found.parts or "dist-packages" in found.parts:
        return "give fk-pipeline an environment of its own, or uninstall the package that brought it"
    return (
        "rename it, or put it into a package of your project (my_project/assets.py); or start from another folder: "
        "dagster dev -m fk_pipeline.definitions --working-directory DIR, or fk-pipeline up"
    )


def require_own_packages() -> None:
    """Raises unless imports find our three packages.

    Raises:
        EnvironmentNotFit: another module comes first, or is in the place of ours.
    """
    for name in NAMES:
        wrong = fault(name)
        if wrong is not None:
            raise EnvironmentNotFit(
                f"'import {name}' should find fk-pipeline's own package {ROOT / name} and finds {wrong.found}",
                why=f"fk-pipeline consists of the packages fk_pipeline, {', '.join(NAMES)}: what comes earlier on the "
                "import path under one of these names hides it",
                fix=wrong.fix,
            )
