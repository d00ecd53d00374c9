"""Imports point down only, and what must start quickly imports nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LONGEST_FILE = 400
"""Lines; a longer file has two roles."""

MOST_METHODS = 20

LONGEST_FUNCTION = 60
"""Lines, with the docstring."""

SAY_NOTHING = frozenset(
    [
        "alone",
        "anew",
        "asked",
        "few",
        "found",
        "heard",
        "here",
        "kept",
        "lonely",
        "mine",
        "news",
        "one",
        "ours",
        "said",
        "standing",
        "stood",
        "theirs",
        "there",
        "told",
        "wanted",
    ]
)
"""Names that say how a value was come to, not what it is (ADR 0029)."""

LAYERS: dict[str, int] = {
    "fk_pipeline.errors": 0,
    "fk_pipeline.failures": 0,
    "fk_pipeline.identity": 0,
    "fk_pipeline.proof": 0,
    "fk_pipeline.words": 0,
    "fk_pipeline.environment": 1,
    "fk_pipeline.contract": 1,
    "fk_pipeline.stage_input": 1,
    "fk_pipeline.effects": 2,
    "fk_pipeline.answers": 2,
    "fk_pipeline.table_features": 2,
    "fk_pipeline.kinds": 2,
    "fk_pipeline.kinds.foreign_key.kind": 2,
    "fk_pipeline.kinds.window.kind": 2,
    "fk_pipeline.kinds.aggregate.kind": 2,
    "fk_pipeline.kinds.table.kind": 2,
    "fk_pipeline.kinds.query.kind": 2,
    "fk_pipeline.spec": 3,
    "fk_pipeline.frames": 4,
    "fk_pipeline.parquet_files": 4,
    "fk_pipeline.vector_files": 4,
    "fk_pipeline.conditions": 4,
    "fk_pipeline.arrow_text": 4,
    "fk_pipeline.conditions_of_sql": 5,
    "fk_pipeline.export_files": 5,
    "fk_pipeline.export_delta": 6,
    "fk_pipeline.cdc": 5,
    "fk_pipeline.store": 5,
    "fk_pipeline.period": 6,
    "fk_pipeline.privacy": 6,
    "fk_pipeline.export": 7,
    "fk_pipeline.session": 7,
    "fk_pipeline.blocks": 7,
    "fk_pipeline.blocks.refresh": 8,
    "fk_pipeline.verify": 8,
    "fk_pipeline.rules": 8,
    "fk_pipeline.kinds.foreign_key": 9,
    "fk_pipeline.kinds.window": 9,
    "fk_pipeline.kinds.aggregate": 9,
    "fk_pipeline.kinds.table": 9,
    "fk_pipeline.kinds.query": 9,
    "fk_pipeline.engine": 9,
    "fk_pipeline.feed": 10,
    "fk_pipeline.feed_in_process": 11,
    "fk_pipeline.plan": 10,
    "fk_pipeline.quarantine": 10,
    "fk_pipeline.quarantine_in_process": 7,
    "fk_pipeline.reads": 10,
    "fk_pipeline.rebuild": 10,
    "fk_pipeline.result_rows": 10,
    "fk_pipeline.upkeep": 10,
    "fk_pipeline.opened": 11,
    "fk_pipeline.passes": 12,
    "fk_pipeline.readable": 12,
    "fk_pipeline.status": 12,
    "fk_pipeline.testing": 12,
    "fk_pipeline.report": 13,
    "fk_pipeline.shown_rows": 13,
    "fk_pipeline.expectations.validation": 13,
    "fk_pipeline.expectations.violations": 13,
    "fk_pipeline.expectations.checking": 14,
    "fk_pipeline.shown": 14,
    "fk_pipeline.console": 14,
    "fk_pipeline.scaffold": 14,
    "fk_pipeline.pipeline": 15,
    "fk_pipeline.maintained": 16,
    "fk_pipeline.trace": 16,
    "fk_pipeline.resources": 16,
    "fk_pipeline.expectations": 17,
    "fk_pipeline.assets": 18,
    "fk_pipeline.demo": 18,
    "fk_pipeline.servers": 18,
    "fk_pipeline.cli": 19,
    "fk_pipeline.definitions": 19,
    "fk_pipeline.component": 20,
}
"""Every module belongs to the longest prefix; an import may go to the same layer's own package or to a lower layer."""

ENGINE = ("spec", "cdc", "blocks", "engine", "store", "rules", "verify")


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str | None:
    fitting = [name for name in LAYERS if module == name or module.startswith(name + ".")]
    return max(fitting, key=len, default=None)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def imports_of(file: Path) -> list[str]:
    found = []
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


FILES = sorted((ROOT / "fk_pipeline").rglob("*.py"))


def upward_imports(file: Path, module: str) -> list[str]:
    package = package_of(module)
    if package is None:  # fk_pipeline/__init__.py: imports its names when they are used
        return []
    return [
        name
        for name in imports_of(file)
        if (target := package_of(name)) is not None and target != package and LAYERS[target] >= LAYERS[package]
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_point_down(file: Path) -> None:
    module = module_of(file)
    assert module == "fk_pipeline" or package_of(module), f"{module} has no layer: add it to LAYERS"
    assert upward_imports(file, module) == []


def test_an_import_that_points_up_is_found(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("def f():\n    from fk_pipeline.assets.stage import stage_asset\n")
    assert upward_imports(file, "fk_pipeline.engine.bad") == ["fk_pipeline.assets.stage.stage_asset"]


MAY_NAME_A_KIND = ("fk_pipeline.kinds.registry", "fk_pipeline.trace")
"""The registry, and `trace`, which replays recorded cases of Kafka through the kind that has the operator.

Besides them the package itself, which offers the stages of one kind as functions.
"""


def kind_of(module: str) -> str | None:
    """The folder of the kind that a module belongs to."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["fk_pipeline", "kinds"] and len(parts) > 2 and parts[2] != "registry" else None


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_only_the_registry_names_a_kind(file: Path) -> None:
    module = module_of(file)
    if module == "fk_pipeline" or module.startswith(MAY_NAME_A_KIND):
        return
    named = {kind for name in imports_of(file) if (kind := kind_of(name)) is not None}
    assert named <= {kind_of(module)}
    if kind_of(module) is None:
        assert "fk_pipeline.kinds.foreign_key" not in file.read_text()


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if f.relative_to(ROOT).parts[1] in ENGINE or kind_of(module_of(f))],
    ids=lambda f: str(f.relative_to(ROOT)),
)
def test_engine_and_kinds_know_neither_dagster_nor_great_expectations(file: Path) -> None:
    assert not [name for name in imports_of(file) if name.split(".")[0] in ("dagster", "great_expectations")]


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import fk_pipeline", ("pyspark", "dagster", "great_expectations", "pydantic")),
        ("import fk_pipeline; fk_pipeline.load", ("pyspark", "dagster", "great_expectations")),
        (
            "from fk_pipeline.kinds.registry import kinds; list(kinds())",
            ("pyspark", "dagster", "great_expectations", "pydantic", "deltalake"),
        ),
        ("import fk_pipeline.cli.main", ("pyspark", "dagster", "great_expectations", "deltalake")),
    ],
)
def test_what_must_start_quickly_imports_nothing_heavy(statement: str, heavy: tuple[str, ...]) -> None:
    check = f"import sys; {statement}; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


OF_A_KIND = ("subscri", "foreign", "response")
"""Parts of words of the foreign-key join, which the engine must not know."""


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if f.parent.name in ("store", "ledger", "blocks", "select", "refresh", "engine", "cdc")],
    ids=lambda f: f.name,
)
def test_the_engine_knows_no_word_of_a_kind(file: Path) -> None:
    found = [line for line in file.read_text().splitlines() if any(word in line.lower() for word in OF_A_KIND)]
    assert [line for line in found if "for example" not in line] == []


SHARED_NAMES = {"Json", "UNAVAILABLE"}
"""The assets' texts; an alias of one type; Debezium's own constant, which `init` knows without Spark."""


def test_no_two_modules_share_the_name_of_a_class_or_constant() -> None:
    places: dict[str, list[str]] = {}
    for file in FILES:
        for node in tree_of(file).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [one.id for one in targets if isinstance(one, ast.Name)]
            names += [node.name] if isinstance(node, ast.ClassDef) else []
            for name in names:
                places.setdefault(name, []).append(module_of(file))
    shared = {name: where for name, where in places.items() if len(where) > 1 and not name.startswith("_")}
    assert {name: where for name, where in shared.items() if name not in SHARED_NAMES} == {}


NOT_EVERYWHERE = {
    *("_jvm", "_jsparkSession", "_jdf", "_sc", "sparkContext", "rdd"),  # not through Spark Connect
    *("udf", "udtf", "pandas_udf", "arrow_udf", "mapInPandas", "mapInArrow", "applyInPandas", "applyInArrow"),
    *("foreach", "foreachPartition", "dataSource"),  # Python on the executors
}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_session_will_do_and_executors_need_no_python(file: Path) -> None:
    nodes = list(ast.walk(tree_of(file)))
    names = {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {n.id for n in nodes if isinstance(n, ast.Name)}
    assert not names & NOT_EVERYWHERE


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_has_one_role_and_a_class_a_handful_of_methods(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    methods = {one.name: sum(isinstance(part, ast.FunctionDef) for part in one.body) for one in classes}
    assert {name: number for name, number in methods.items() if number > MOST_METHODS} == {}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_functions_are_short_and_names_say_what_a_value_is(file: Path) -> None:
    nodes = [*ast.walk(ast.parse(file.read_text()))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    assert [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= LONGEST_FUNCTION] == []
    names = [(node.name, node.lineno) for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    names += [(node.arg, node.lineno) for node in nodes if isinstance(node, ast.arg)]
    names += [(n.id, n.lineno) for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    assert [f"{name} in line {line}" for name, line in names if name.strip("_").lower() in SAY_NOTHING] == []
