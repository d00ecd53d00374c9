"""`docs/reference/errors.md` is the whole catalogue: every error a user can meet, and none that is never raised."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from pathlib import Path

import pytest

from fk_pipeline import errors
from fk_pipeline.errors import FkPipelineError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/errors.md").read_text()
SECTIONS = dict(zip(*[iter(re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))
WITHIN = {
    "DamagedTableError": "StateError",
    "KafkaDiedError": "part of the trace",
    "LeftToSpark": "a sentence on stderr, and Spark's answer",
    "MisfitError": "a record for the quarantine",
    "NotReadError": "a line of not_compared",
    "SqlTextError": "PipelineFileError",
    "UnknownSqlError": "nothing is claimed of the record",
    "YamlTextError": "PipelineFileError",
}
"""The other exceptions of the code, which no user meets: what each becomes."""

TYPES = sorted(
    name
    for name, one in vars(errors).items()
    if isinstance(one, type) and issubclass(one, FkPipelineError) and one is not FkPipelineError
)


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Every node of the code, with its file: for tests, not for their collection, because it takes seconds."""
    files = sorted((ROOT / "fk_pipeline").rglob("*.py"))
    return [(file, node) for file in files for node in ast.walk(ast.parse(file.read_text()))]


@cache
def classes() -> dict[str, tuple[Path, list[str]]]:
    """Every class of the code: where it is, and the names of its bases."""
    return {
        node.name: (file, [ast.unparse(base).rsplit(".", 1)[-1] for base in node.bases])
        for file, node in nodes()
        if isinstance(node, ast.ClassDef)
    }


def is_a(name: str, wanted: str) -> bool:
    """Whether a class of the code, or of Python, derives from another."""
    if name == wanted:
        return True
    if name in classes():
        return any(is_a(base, wanted) for base in classes()[name][1])
    known = getattr(builtins, name, None)
    return isinstance(known, type) and wanted in [base.__name__ for base in known.__mro__]


def test_error_types_are_defined_in_one_module() -> None:
    assert sorted(name for name in classes() if is_a(name, "FkPipelineError") and name != "FkPipelineError") == TYPES
    assert {str(classes()[name][0].relative_to(ROOT)) for name in TYPES} == {"fk_pipeline/errors.py"}


def test_the_catalogue_has_every_type_and_no_other() -> None:
    assert sorted(SECTIONS) == TYPES


@pytest.mark.parametrize("name", TYPES)
def test_every_type_has_cause_and_cure(name: str) -> None:
    parts = re.fullmatch(r"\n\*\*Cause\.\*\* (.+?)\n\n\*\*Remedy\.\*\* (.+?)\n+", SECTIONS[name], flags=re.DOTALL)
    assert parts is not None, f"{name}: **Cause.**, an empty line, **Remedy.**"


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_in_the_table_with_its_exit_status(name: str) -> None:
    status = getattr(errors, name).exit_code
    assert status in (1, 2, 3)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {status} | "))
    assert f"[`{name}`](#{name.lower()})" in row


@pytest.fixture(scope="module")
def called() -> set[str]:
    """Returns the last names of everything that the code calls."""
    return {ast.unparse(node.func).rsplit(".", 1)[-1] for _, node in nodes() if isinstance(node, ast.Call)}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_made_somewhere(name: str, called: set[str]) -> None:
    assert name in called, f"nothing raises {name}: take it out"


def test_other_exceptions_become_something() -> None:
    exceptions = {name for name in classes() if is_a(name, "BaseException")}
    assert sorted(WITHIN) == sorted(exceptions - {*TYPES, "FkPipelineError"})


def test_the_exit_statuses_of_the_command_are_those_of_the_types() -> None:
    page = (ROOT / "docs/reference/command.md").read_text()
    listed = {int(status) for status in re.findall(r"^\| (\d+) \| ", page, flags=re.MULTILINE)}
    assert listed == {0, 130} | {getattr(errors, name).exit_code for name in TYPES}
