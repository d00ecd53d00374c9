"""What is given away: the wheel and the sdist, and what they say of themselves; built without a network."""

from __future__ import annotations

import email
import email.message
import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fk_pipeline
from fk_pipeline.environment import doctor, jars

ROOT = Path(__file__).parent.parent
DATA = {
    "fk_pipeline/py.typed", "fk_pipeline/log4j2.properties", "fk_pipeline/servers/dagster.yaml",
    "fk_pipeline/report/page.css", "fk_pipeline/report/page.html.jinja",
    "fk_pipeline/kinds/foreign_key/README.md",
    "fk_pipeline/demo/data/README.md", "fk_pipeline/demo/data/flight_planes.yaml",
    "fk_pipeline/demo/data/flight_planes.tests.yaml",
    *(f"fk_pipeline/demo/data/landing/{side}/{n:08d}.jsonl.gz" for side in ("flights", "planes") for n in range(8)),
}  # fmt: skip
"""What is no Python: what is needed when it runs, and what is read beside it."""


def build(source: Path, target: Path, kind: str) -> Path:
    """Builds with the environment's hatchling; the one file that it makes."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)],
        cwd=source, capture_output=True, check=True,
    )  # fmt: skip
    [made] = target.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if not name.endswith("/")}


def info(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as file:
        return file.read(f"fk_pipeline-{fk_pipeline.__version__}.dist-info/{name}").decode()


def tracked(folder: str) -> set[str]:
    """The files of a folder that belong to the project: no caches."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_one_package_and_its_data_and_nothing_else(wheel: Path) -> None:
    found = {name for name in names(wheel) if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in found} == {"fk_pipeline"}
    lock = "fk_pipeline/environment/requirements.lock"
    assert {name for name in found if not name.endswith(".py")} == {*DATA, lock}
    assert found == {lock} | tracked("fk_pipeline")


def test_the_wheel_is_for_every_platform_and_says_what_it_is(wheel: Path) -> None:
    assert wheel.name == f"fk_pipeline-{fk_pipeline.__version__}-py3-none-any.whl"
    said: email.message.Message = email.message_from_string(info(wheel, "METADATA"))
    assert (said["Name"], said["Version"]) == ("fk-pipeline", fk_pipeline.__version__)
    assert said["License-Expression"] == "Apache-2.0"
    assert said.get_all("License-File") == ["LICENSE"]
    assert said["Requires-Python"] == ">=3.11"
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload() == (ROOT / "README.md").read_text()
    assert "KIP-213" in said["Summary"]
    classifiers = said.get_all("Classifier") or []
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} <= set(classifiers)
    wanted = [Requirement(line) for line in said.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert len(wanted) >= 18
    assert [str(one) for one in wanted if "==" in str(one) or ">=" not in str(one)] == [], "others must install it too"

    assert "Apache License" in info(wheel, "licenses/LICENSE")
    assert info(wheel, "entry_points.txt") == (
        "[console_scripts]\nfk-pipeline = fk_pipeline.cli.main:app_main\n\n"
        "[dagster_dg_cli.registry_modules]\nfk_pipeline = fk_pipeline\n"
    )


def test_the_tested_versions_fit_what_the_package_accepts() -> None:
    tested, fitting = doctor.tested_versions(), doctor.fitting_versions()
    assert {name for name, fits in fitting.items() if tested[name] not in fits} == set()


def test_the_classifiers_are_known(wheel: Path) -> None:
    from trove_classifiers import classifiers

    said = email.message_from_string(info(wheel, "METADATA")).get_all("Classifier") or []
    assert [name for name in said if name not in classifiers] == []


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as file:
        file.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.0 to 3.11.3
        file.extractall(folder)
    [root] = folder.iterdir()
    return root


def test_the_sdist_has_what_builds_and_tests_the_wheel_and_no_caches(unpacked: Path) -> None:
    found = {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()}
    assert {path.parts[0] for path in found} == {
        "fk_pipeline", "tests", "examples", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
        "LICENSE", "Makefile", "requirements.lock", "workspace.yaml", "pyproject.toml", "PKG-INFO", ".gitignore",
    }  # fmt: skip
    assert [path for path in found if path.suffix == ".pyc" or "__pycache__" in path.parts] == []
    shipped = {str(path) for path in found}
    for folder in ("fk_pipeline", "tests", "examples", "docs"):
        assert tracked(folder) <= shipped


def test_the_sdist_makes_the_same_wheel_as_the_tree(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    again = build(unpacked, tmp_path, "wheel")
    assert again.name == wheel.name
    assert names(again) == names(wheel)
    assert again.read_bytes() == wheel.read_bytes()


def test_the_version_stands_in_one_place() -> None:
    line = f'__version__ = "{fk_pipeline.__version__}"'
    assert line in (ROOT / "fk_pipeline" / "__init__.py").read_text()
    assert "\nversion =" not in (ROOT / "pyproject.toml").read_text()
    assert f"{fk_pipeline.__version__}" in (ROOT / "CHANGELOG.md").read_text()


# Installed.


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it, which borrows the dependencies of this one; its folder."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, symlinks=True, with_pip=True)
    here = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / here / "site-packages"
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True)
    # Behind the wheel on the import path, and without the .pth files, which would lead back to this checkout.
    (packages / "borrowed.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return folder


@pytest.fixture
def new_user(tmp_path: Path) -> dict[str, str]:
    """An environment without anything of ours, in a home of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"HOME": str(tmp_path / "home"), "COLUMNS": "200"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """This environment's JARs in a folder laid out as a Maven repository."""
    root = tmp_path / "repository"
    for jar, path in zip(jars.DELTA_JARS, jars.jar_paths(), strict=True):
        place = root / jar.repository_path
        place.parent.mkdir(parents=True)
        place.symlink_to(path)
    return root


def run(installed: Path, cwd: Path, environment: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(installed / "bin" / "fk-pipeline"), *args],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.slow
def test_an_installed_wheel_knows_its_version_and_where_its_jars_go(
    installed: Path, tmp_path: Path, new_user: dict[str, str]
) -> None:
    assert run(installed, tmp_path, new_user, "--version").stdout == f"fk-pipeline {fk_pipeline.__version__}\n"
    found = {c["name"]: c for c in json.loads(run(installed, tmp_path, new_user, "doctor", "--format", "json").stdout)}
    assert found["Delta JARs"]["found"].startswith("not there yet: the first session fetches them from ")
    assert str(installed) in found["Delta JARs"]["found"]
    assert found["pyspark"]["ok"]


@pytest.mark.slow
def test_a_project_may_have_assets_resources_and_expectations_of_its_own(
    installed: Path, tmp_path: Path, new_user: dict[str, str]
) -> None:
    (tmp_path / "assets.py").write_text("OURS = 'assets'\n")
    for name in ("resources", "expectations"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OURS = {name!r}\n")
    landing = tmp_path / "landing"
    landing.mkdir()
    (tmp_path / "p.yaml").write_text(
        "name: counted\nkind: aggregate\ngroup_by: [k]\naggregates: ['count(*) AS n']\n"
        "input: {path: landing, format: rows, schema: 'id INT, k STRING', key: id}\n"
    )
    (tmp_path / "defs.py").write_text(
        "import assets, expectations, resources\n"
        "import fk_pipeline as fk\n"
        "assert [one.OURS for one in (assets, resources, expectations)] == ['assets', 'resources', 'expectations']\n"
        "defs = fk.definitions(['p.yaml'])\n"
    )
    code = "import defs; print(*sorted(key.to_user_string() for key in defs.defs.resolve_all_asset_keys()))"
    done = subprocess.run(
        [str(installed / "bin" / "python"), "-c", code],
        cwd=tmp_path, env=new_user, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"counted", "counted/changelog", "counted/input"} <= {*done.stdout.split()}


@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_runs_from_an_empty_folder_and_fetches_the_jars_once(
    installed: Path, tmp_path: Path, new_user: dict[str, str], repository: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    unreachable = run(installed, empty, new_user | {"FK_MAVEN_BASE_URL": "file:///nowhere"}, "demo")
    assert unreachable.returncode == 3
    assert "EnvironmentNotFit: file:///nowhere/io/delta/" in unreachable.stderr
    assert "FK_MAVEN_BASE_URL" in unreachable.stderr.rpartition("Fix: ")[2]

    done = run(installed, empty, new_user | {"FK_MAVEN_BASE_URL": repository.as_uri()}, "demo")
    assert done.returncode == 0, done.stderr
    folder = installed / "share" / "fk-pipeline" / "jars"
    assert f"fetching {repository.as_uri()}/{jars.DELTA_JARS[0].repository_path} into {folder}" in done.stderr
    assert "result rows: equal to the join of the two tables" in done.stdout
    assert [path.name for path in empty.iterdir()] == ["fk-pipeline-demo"]
    for line in ("make ", "examples/", "docs/", str(ROOT)):
        assert line not in done.stdout

    tried = [line.strip() for line in done.stdout.splitlines() if line.startswith("  fk-pipeline ")]
    assert len(tried) == 4
    status = run(installed, empty, new_user, *tried[0].split()[1:])
    assert status.returncode == 0
    assert "8 batches, 0 of them with work due" in status.stdout
    told = run(installed, empty, new_user, "demo", "--format", "json").stdout
    assert json.loads(told)["ok"]
    again = run(installed, empty, new_user | {"FK_MAVEN_BASE_URL": "file:///nowhere"}, *tried[1].split()[1:])
    assert again.returncode == 0, again.stderr
    assert "fetching" not in again.stderr
