"""The components, as `dg` finds, scaffolds and loads them; it is not installed here, so its parts in Dagster do it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from dagster import Definitions, load_from_defs_folder
from dagster.components.core import package_entry
from dagster.components.core.snapshot import get_package_entry_snap
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox
from dagster_shared.serdes.objects.package_entry import ComponentFeatureData

import fk_pipeline as fk
from fk_pipeline import component
from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.kinds.registry import KINDS
from fk_pipeline.spec import load_spec

ROOT = Path(__file__).parents[2]
COMPONENTS = {
    "foreign_key": fk.FkJoinComponent,
    "window": fk.WindowJoinComponent,
    "aggregate": fk.AggregateComponent,
    "table": fk.TableComponent,
    "query": fk.QueryComponent,
}
BESIDE = {"query": ("orders", "customers")}
"""Per kind, the tables of which its scaffold writes a pipeline beside it."""

pytestmark = pytest.mark.filterwarnings("ignore")  # what Dagster says of its own components: much of that is in beta


def declared() -> list[EntryPoint]:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return [EntryPoint(name, value, group) for group, found in groups.items() for name, value in found.items()]


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


def loaded(sandbox: DefsFolderSandbox) -> Definitions:
    """What a project of `dg` loads: everything in its folder `defs`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(sandbox.project_root / "src"))
        return load_from_defs_folder(path_within_project=sandbox.defs_folder_path)


def names_in(defs: Definitions) -> set[str]:
    """The pipelines of definitions; these are complete if they need resources that are in them."""
    if defs.resources:
        Definitions.validate_loadable(defs)
    return {sensor.name.removesuffix("_new_batches") for sensor in defs.sensors or ()}


def names_of(kind: str) -> list[str]:
    """The pipelines that the scaffold of a kind makes in a folder of its name."""
    return [kind, *(f"{kind}_{table}" for table in BESIDE.get(kind, ()))]


def scaffolded() -> set[str]:
    """The pipelines that the scaffolds of all kinds make."""
    return {name for kind in KINDS for name in names_of(kind)}


def refused(sandbox: DefsFolderSandbox) -> PipelineFileError:
    """The error of the project: Dagster says which component it comes from, and names it as the cause."""
    with pytest.raises(Exception, match="Error while building definitions for") as told:
        loaded(sandbox)
    error: BaseException | None = told.value
    while error is not None and not isinstance(error, PipelineFileError):
        error = error.__cause__
    assert error is not None
    return error


def test_dg_finds_a_component_per_kind_with_its_description_and_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_entry, "get_plugin_entry_points", declared)
    found = package_entry.discover_entry_point_package_objects()
    assert COMPONENTS.keys() == KINDS.keys()
    assert {key.name: one for key, one in found.items()} == {one.__name__: one for one in COMPONENTS.values()}
    scaffolds = ("an aggregate", "a foreign-key", "a query", "a table", "a windowed")
    for (key, one), said in zip(sorted(found.items()), scaffolds, strict=True):
        assert key.namespace == "fk_pipeline"
        shown = get_package_entry_snap(key, one)
        assert shown.summary is not None
        assert f"the scaffold is {said}" in shown.summary
        schema = next(part.schema for part in shown.feature_data if isinstance(part, ComponentFeatureData))
        assert schema is not None
        assert schema["properties"].keys() == {"pipelines", "resources"}
        assert all(one["description"] for one in schema["properties"].values())
        assert "required" not in schema


@pytest.mark.parametrize("format_", ["yaml", "python"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_scaffold_of_a_kind_loads_as_it_is(kind: str, format_: Any, sandbox: DefsFolderSandbox) -> None:
    folder = sandbox.scaffold_component(COMPONENTS[kind], "shop/first-one", scaffold_format=format_)
    spec = load_spec(folder / "first_one.yaml")
    assert spec.definition.name == kind
    beside = [load_spec(folder / f"first_one_{table}.yaml") for table in BESIDE.get(kind, ())]
    assert names_in(loaded(sandbox)) == {"first_one", *(one.name for one in beside)}
    root = sandbox.project_root.resolve()
    lands = [(one, side) for one in beside or [spec] for side in one.sides]
    landing = [Path(one.file.parent / one.side(side).path).resolve() for one, side in lands]
    assert landing
    assert all(one.is_dir() and one.parent == root / "landing/first_one" for one in landing)
    assert Path(spec.home).resolve() == root / "warehouse/first_one"
    with pytest.raises(UsageError, match="is there already"):
        sandbox.scaffold_component(COMPONENTS[kind], "shop/first-one")


def test_components_of_all_kinds_share_one_spark_with_the_settings_of_all(sandbox: DefsFolderSandbox) -> None:
    for kind, one in COMPONENTS.items():
        file = sandbox.scaffold_component(one, kind) / f"{kind}.yaml"
        file.write_text(f"{file.read_text()}\nsettings: {{spark: {{spark.of.{kind}: x}}}}\n")
    defs = loaded(sandbox)
    assert names_in(defs) == scaffolded()
    assert defs.resources is not None
    assert defs.resources["spark"].spark_config.keys() == {f"spark.of.{kind}" for kind in KINDS}


def test_each_file_of_a_project_is_loaded_once_per_load(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {kind: sandbox.scaffold_component(one, kind) for kind, one in COMPONENTS.items()}
    files = [folder / f"{name}.yaml" for kind, folder in folders.items() for name in names_of(kind)]
    read: list[Path] = []
    monkeypatch.setattr(component, "load_spec", lambda file: read.append(file) or load_spec(file))
    assert names_in(loaded(sandbox)) == scaffolded()
    assert sorted(read) == sorted(files)
    files[0].write_text(files[0].read_text().replace("name: foreign_key", "name: other"))
    assert names_in(loaded(sandbox)) == scaffolded() - {"foreign_key"} | {"other"}
    assert len(read) == 2 * len(files)


def test_a_folder_of_pipelines_is_one_component(sandbox: DefsFolderSandbox) -> None:
    folder = sandbox.scaffold_component(fk.WindowJoinComponent, "all")
    text = (folder / "all.yaml").read_text()
    (folder / "second.yml").write_text(text.replace("name: all", "name: second"))
    (folder / "more").mkdir()
    (folder / "more" / "third.yaml").write_text(text.replace("name: all", "name: third"))
    (folder / "settings.yaml").write_text("some: {other: thing}\n")
    assert names_in(loaded(sandbox)) == {"all", "second"}
    (folder / "defs.yaml").write_text(
        "type: fk_pipeline.AggregateComponent\nattributes: {pipelines: [second.yml, more], resources: false}\n"
    )
    defs = loaded(sandbox)
    assert names_in(defs) == {"second", "third"}
    assert not defs.resources
    (folder / "defs.yaml").write_text("type: fk_pipeline.AggregateComponent\nattributes: {pipelines: [less]}\n")
    (folder / "less").mkdir()
    assert "there is no pipeline file in" in str(refused(sandbox))


def test_pipelines_of_one_name_are_refused_with_both_files(sandbox: DefsFolderSandbox) -> None:
    first = sandbox.scaffold_component(fk.AggregateComponent, "a/totals") / "totals.yaml"
    second = sandbox.scaffold_component(fk.WindowJoinComponent, "b/totals") / "totals.yaml"
    said = refused(sandbox)
    assert said.what == f"two pipelines are called 'totals': {first} and {second}"
    assert "give each a name of its own" in str(said)


def test_the_project_of_the_examples_loads() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "examples/project"))
        defs = load_from_defs_folder(path_within_project=ROOT / "examples/project/shop_dg")
        assert names_in(defs) >= {"orders"}
