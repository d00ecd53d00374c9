"""docs/reference/python.md has every public name, as it is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import fk_pipeline as fk
from fk_pipeline.definitions import definitions
from fk_pipeline.maintained import MaintainedQuery

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "python.md"


def public(of: type) -> dict[str, Any]:
    """The names of a class that users see, those that it inherits among them."""
    every = {name: value for one in reversed(of.__mro__[:-1]) for name, value in vars(one).items()}
    return {name: value for name, value in every.items() if not name.startswith("_")}


def told(text: str) -> list[str]:
    """The first cell of every row of its tables, without the backticks."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


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
