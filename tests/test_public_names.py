"""The public names: what docs/reference/python.md says of each, what an editor sees, and what the command has."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import fk_pipeline as fk
from fk_pipeline.cli.main import app
from fk_pipeline.definitions import definitions
from fk_pipeline.maintained import MaintainedQuery

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "python.md"
INIT = ROOT / "fk_pipeline" / "__init__.py"


def public(of: type) -> dict[str, Any]:
    """The names of a class that users see, those that it inherits among them."""
    every = {name: value for one in reversed(of.__mro__[:-1]) for name, value in vars(one).items()}
    return {name: value for name, value in every.items() if not name.startswith("_")}


def told(text: str) -> list[str]:
    """The names before the first colon of every item of its lists, without the backticks."""
    items: list[str] = re.findall(r"^\* ((?:`[^`]+`(?:, )?)+): ", text, re.MULTILINE)
    return [name for item in items for name in re.findall(r"`([^`]+)`", item)]


def signature(name: str, method: Any) -> str:
    """A method as the page writes it: parameters and what they are by default; `...` for a function."""
    parts = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default = "..." if callable(parameter.default) else repr(parameter.default)
        parts.append(parameter.name if parameter.default is inspect.Parameter.empty else f"{parameter.name}={default}")
    return f"{name}({', '.join(parts)})"


def rows_about(of: type) -> list[str]:
    """The rows of the page about a class."""
    before, after = PAGE.read_text().split("## The stages as functions\n")
    stages, query = after.split("## A query without a file\n")
    parts = {fk.Pipeline: before.split("## Run\n")[1], fk.StageFunctions: stages, MaintainedQuery: query}
    return told(parts[of])


@pytest.mark.parametrize("of", [fk.Pipeline, fk.StageFunctions, MaintainedQuery])
def test_every_public_method_is_told_with_its_parameters(of: type) -> None:
    rows = rows_about(of)
    methods = [signature(name, value) for name, value in public(of).items() if inspect.isfunction(value)]
    attributes = [name for name, value in public(of).items() if not inspect.isfunction(value)]
    if of is fk.Pipeline:
        attributes += ["spec", "zone"]
    if of is MaintainedQuery:
        attributes += ["pipeline"]
    assert sorted(rows) == sorted([*methods, *attributes])
    assert all(inspect.getdoc(value) for value in public(of).values())


def test_every_name_of_the_package_is_told() -> None:
    rows = told(PAGE.read_text().split("## Run\n")[0])
    assert sorted(row.removeprefix("fk.").split("(")[0] for row in rows) == sorted(fk.__all__)
    made = [signature("load", fk.load), signature("changes", fk.changes), signature("definitions", definitions)]
    made += [signature("query", fk.query)]
    made += [signature(one.__name__, one) for one in (fk.Pipeline, fk.StageFunctions)]
    assert {f"fk.{one}" for one in made} <= set(rows)


NO_METHODS = {
    "init": "there is no pipeline yet",
    "demo": "it makes a pipeline of its own",
    "doctor": "it checks the machine, also where no pipeline can be loaded",
    "trace": "it runs recorded cases, of no pipeline",
    "up": "it starts servers for several pipelines",
    "down": "it stops them",
    "recover": "it mends the servers' runs",
    "spark": "it starts and stops the user's Spark, which pipelines share",
    "dagster": "it is about the servers",
}
"""Commands that are no methods of `Pipeline`, and why."""


def test_every_command_of_a_pipeline_is_a_method() -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    methods = {name for name, value in public(fk.Pipeline).items() if inspect.isfunction(value)}
    lacking = [name for name in commands if name.replace("-", "_") not in methods]
    assert sorted(lacking) == sorted(NO_METHODS)


def test_an_editor_sees_the_name_that_is_imported_when_it_is_used() -> None:
    [block] = [node for node in ast.parse(INIT.read_text()).body if isinstance(node, ast.If)]
    seen = {
        alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    assert seen == fk._LAZY  # type: ignore[attr-defined]
    assert {*seen, "__version__"} == {*fk.__all__}
    assert INIT.with_name("py.typed").exists()


def test_the_names_are_listed_without_spark() -> None:
    code = "import sys, fk_pipeline as fk; print(*dir(fk)); print({'pyspark', 'dagster', 'pydantic'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == [" ".join(sorted(fk.__all__)), "set()"]


@pytest.mark.slow
def test_a_type_checker_knows_what_load_returns(tmp_path: Path) -> None:
    """It takes a minute: mypy reads all that the package imports."""
    pytest.importorskip("mypy", reason="mypy is not installed: it is among the extra dev")
    file = tmp_path / "its_user.py"
    lines = {
        "fk.load('p.yaml')": "fk_pipeline.pipeline.Pipeline",
        "fk.load('p.yaml').status()['due']": "int",
        "fk.load('p.yaml').show().columns": "list[str]",
        "fk.query('SELECT 1', {}, 'lake').pipeline": "fk_pipeline.pipeline.Pipeline",
    }
    revealed = [f"reveal_type({expression})\n" for expression in lines]
    file.write_text("import fk_pipeline as fk\n" + "".join(revealed) + "fk.laod\n")
    given = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache"), str(file)]
    done = subprocess.run([sys.executable, "-m", "mypy", *given], capture_output=True, text=True, check=False, cwd=ROOT)
    assert re.findall(r'Revealed type is "(.+)"', done.stdout) == [*lines.values()], done.stdout + done.stderr
    assert f'{len(lines) + 2}: error: Module has no attribute "laod"' in done.stdout
