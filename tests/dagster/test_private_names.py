"""What fk_pipeline imports of private modules of Dagster has a reason beside it, for as long as it is private."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = ("dagster", "dagster.components")
"""The modules whose names Dagster promises to keep."""


@dataclass(frozen=True)
class Import:
    """An import of a private module of Dagster: where it stands, what it gets, and the comment beside it."""

    where: str
    module: str
    names: tuple[str, ...]
    reason: str


def is_private(module: str) -> bool:
    package, *parts = module.split(".")
    return package == "dagster" and any(part.startswith("_") for part in parts)


def private_imports(file: Path) -> Iterator[Import]:
    text = file.read_text()
    if "dagster._" not in text:
        return
    lines = text.splitlines()
    above: tuple[int, str] = (0, "")  # where the import before ends, and its reason: it holds for those right below
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.ImportFrom):
            found = [(node.module or "", tuple(one.name for one in node.names))]
        else:
            found = [(one.name, ()) for one in node.names]
        for module, names in found:
            if not is_private(module):
                continue
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            said = [line.partition("  # ")[2] for line in lines[first:last]]
            said += [lines[first - 1].strip()[2:]] if lines[first - 1].strip().startswith("# ") else []
            reason = " ".join(said).strip() or (above[1] if above[0] == first else "")
            above = (last, reason)
            yield Import(f"{file.name}:{node.lineno}", module, names, reason)


IMPORTS = [one for file in sorted((ROOT / "fk_pipeline").rglob("*.py")) for one in private_imports(file)]


@pytest.mark.parametrize("one", IMPORTS, ids=lambda one: f"{one.where} {one.module}")
def test_a_private_import_of_dagster_has_a_reason_and_no_public_way(one: Import) -> None:
    assert one.reason, f"{one.where}: say beside the import why {one.module} is needed, or do without it"
    public = [f"{module}.{name}" for name in one.names for module in PUBLIC if hasattr(import_module(module), name)]
    assert not public, f"{one.where}: import {', '.join(public)} in place of {one.module}"


def test_private_imports_are_found_with_their_reasons(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "from dagster import asset\n"
        "from dagster._core.loader import LoadingContext\n"
        "\n"
        "# Because.\n"
        "from dagster._core.launcher import (\n    RunLauncher,\n    WorkerStatus,\n)\n"
        "import dagster._daemon.cli\n"
        "def f():\n    from dagster._core.storage.dagster_run import RunRecord  # for this\n"
    )
    assert [(one.where, one.names, one.reason) for one in private_imports(file)] == [
        ("bad.py:2", ("LoadingContext",), ""),
        ("bad.py:5", ("RunLauncher", "WorkerStatus"), "Because."),
        ("bad.py:9", (), "Because."),
        ("bad.py:11", ("RunRecord",), "for this"),
    ]
    with pytest.raises(AssertionError, match=r"import dagster\.RunRecord in place of dagster\._core"):
        test_a_private_import_of_dagster_has_a_reason_and_no_public_way([*private_imports(file)][-1])
