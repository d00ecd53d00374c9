"""The names `assets`, `resources` and `expectations` are common: whatever else bears one is told as what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fk_pipeline.environment import own_packages
from fk_pipeline.environment.own_packages import NAMES, ROOT, fault, require_own_packages
from fk_pipeline.errors import EnvironmentNotFit


@pytest.fixture
def not_imported(monkeypatch):
    """As in a process that has imported none of the three yet; the test run's own come back."""
    for name in [module for module in sys.modules if module.partition(".")[0] in NAMES]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def installed(tmp_path, monkeypatch, not_imported) -> Path:
    """A folder with packages of ours that stands for where fk-pipeline is installed."""
    root = tmp_path / "installed"
    for name in NAMES:
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_bytes((ROOT / name / "__init__.py").read_bytes())
    monkeypatch.setattr(own_packages, "ROOT", root)
    monkeypatch.setattr(sys, "path", [str(root)])
    return root


def first_on_the_path(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])


def found(name: str) -> str:
    wrong = fault(name)
    assert wrong is not None
    return wrong.found


@pytest.mark.parametrize("name", NAMES)
def test_ours_are_found_and_nothing_is_imported(name, not_imported):
    assert fault(name) is None
    assert name not in sys.modules


def test_ours_may_have_been_imported_before():
    import assets
    import expectations
    import resources

    assert [Path(package.__file__).parent for package in (assets, resources, expectations)] == [
        ROOT / name for name in NAMES
    ]
    require_own_packages()


@pytest.mark.parametrize("path", ["assets.py", "assets/__init__.py"])
def test_a_module_earlier_on_the_import_path_is_named_with_its_cure(path, installed, tmp_path, monkeypatch):
    file = tmp_path / "project" / path
    file.parent.mkdir(parents=True)
    file.touch()
    first_on_the_path(tmp_path / "project", monkeypatch)
    with pytest.raises(EnvironmentNotFit) as caught:
        require_own_packages()
    assert caught.value.what == (
        f"'import assets' should find fk-pipeline's own package {installed / 'assets'} and finds {file}"
    )
    assert caught.value.fix.startswith("rename it, or put it into a package of your project")


def test_another_distribution_is_told_from_a_project(installed, tmp_path, monkeypatch):
    package = tmp_path / "lib" / "site-packages" / "resources"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    first_on_the_path(package.parent, monkeypatch)
    wrong = fault("resources")
    assert wrong is not None
    assert wrong.found == str(package / "__init__.py")
    assert wrong.fix.startswith("give fk-pipeline an environment of its own, or uninstall")


def test_a_folder_without_an_init_file_does_not_hide_ours(installed, tmp_path, monkeypatch):
    (tmp_path / "project" / "assets").mkdir(parents=True)
    (tmp_path / "project" / "assets" / "logo.py").touch()
    first_on_the_path(tmp_path / "project", monkeypatch)
    assert fault("assets") is None


def test_ours_under_another_path_to_the_same_place_is_ours(installed, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(installed)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "link")])
    assert fault("expectations") is None


def test_a_module_of_the_project_that_was_imported_before_is_named(tmp_path, monkeypatch):
    file = tmp_path / "assets.py"
    module = ModuleType("assets")  # made by hand: it has no spec
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "assets", module)
    assert found("assets") == str(file)


def test_ours_with_the_init_file_of_another_package_is_told(installed):
    (installed / "assets" / "__init__.py").write_text('"""Asset handling for web pages."""\n')
    assert found("assets") == f"{installed / 'assets' / '__init__.py'} with the content of another package"


def test_ours_that_has_lost_its_init_file_is_told(installed):
    (installed / "resources" / "__init__.py").unlink()
    assert found("resources") == f"what is left of it: {installed / 'resources'} has no __init__.py"


def test_ours_that_is_gone_is_told_with_or_without_a_folder_of_the_name(installed, tmp_path, monkeypatch):
    (installed / "assets" / "__init__.py").unlink()
    (installed / "assets").rmdir()
    assert found("assets") == "nothing"
    (tmp_path / "project" / "assets").mkdir(parents=True)
    first_on_the_path(tmp_path / "project", monkeypatch)
    assert found("assets") == f"only the folder {tmp_path / 'project' / 'assets'}"


@pytest.mark.parametrize(
    "statement",
    [
        "import fk_pipeline.definitions",
        "import fk_pipeline; fk_pipeline.definitions",
        "from fk_pipeline import FkJoinComponent",
        "import fk_pipeline.servers.launcher",
    ],
)
def test_dagster_in_a_project_with_assets_of_its_own_is_told_before_anything_is_imported(statement, tmp_path):
    """The folder that Dagster is started from comes first on the import path, as that of `python -c` does."""
    (tmp_path / "assets.py").write_text("raise RuntimeError('imported')\n")
    code = (
        f"import sys\ntry:\n    {statement}\nexcept Exception as error:\n"
        "    print(type(error).__name__, error.what)\n    print('dagster' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told, dagster = done.stdout.splitlines()
    assert told.startswith("EnvironmentNotFit 'import assets' should find fk-pipeline's own package")
    assert told.endswith(f"and finds {tmp_path / 'assets.py'}")
    assert dagster == ("True" if "FkJoinComponent" in statement else "False")


@pytest.mark.parametrize(
    "arguments", [["verify", "p.yaml"], ["run", "p.yaml", "--check"], ["up"], ["down"], ["recover"]]
)
def test_the_commands_that_need_them_say_so_first(arguments, tmp_path):
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "fk_pipeline.cli.main", *arguments],
        cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("EnvironmentNotFit: 'import resources' should find fk-pipeline's own package")


def test_commands_that_do_not_need_them_go_on(tmp_path):
    (tmp_path / "assets.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "fk_pipeline.cli.main", "status", "none.yaml"],
        cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.startswith("PipelineFileError: none.yaml: there is no such pipeline file")


@pytest.mark.slow
def test_dagster_shows_the_error_and_starts_from_another_folder(tmp_path):
    """`dagster dev` loads its code locations as this does."""
    (tmp_path / "assets.py").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DAGSTER_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "fk_pipeline.definitions"]
    here, elsewhere = (
        subprocess.run([*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        for more in ([], ["--working-directory", "elsewhere"])
    )
    told = here.stdout + here.stderr
    assert here.returncode == 1
    assert f"and finds {tmp_path / 'assets.py'}" in told
    assert "Fix: rename it, or put it into a package of your project" in told
    assert elsewhere.returncode == 0, elsewhere.stderr
