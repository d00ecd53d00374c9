"""The packages `assets`, `resources` and `expectations`: whether an import finds those of fk-pipeline or others.

A module `assets.py` in the folder from which `dagster dev` is started, a folder on PYTHONPATH, or another distribution
may come first; and a distribution that ships a package of one of these names overwrites files of fk-pipeline. Code that
imports these packages calls `require_own_packages` first, so that the error names the cause and not a failed import.

Importing them from their place, whatever the import path, is no solution: the user's project would then get them where
it imports its own packages of these names.
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
"""The text that the first line of each `__init__.py` contains."""

REINSTALL = "install fk-pipeline anew (pip install --force-reinstall --no-deps, with the wheel that it came as)"


@dataclass(frozen=True)
class Fault:
    """The fault that an import does not find fk-pipeline's package: what it finds, and the fix."""

    found: str
    fix: str


def fault(name: str) -> Fault | None:
    """Returns the fault if `import name` would not find fk-pipeline's package; None if it would. Imports nothing."""
    ours, found = ROOT / name / "__init__.py", _found(name)
    if found is None:
        return Fault("nothing", REINSTALL)
    if found.is_dir():  # a namespace package: any regular package on the import path would have come first
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
    """Returns the file that an import of the package executes, or has executed; for a namespace package, a folder."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was created by hand
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
    """Raises an error unless imports find the three packages of fk-pipeline.

    Raises:
        EnvironmentNotFit: another module comes first, or has replaced one of them.
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
