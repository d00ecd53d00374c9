"""The components in a project of the real `dg`, as a new user types it; `make setup` does not install it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fk_pipeline.kinds.registry import KINDS

ROOT = Path(__file__).parents[2]
DG = shutil.which("dg", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        DG is None,
        reason="no `dg`: install dagster-dg-cli, of the version of dagster, and fk-pipeline in one environment",
    ),
]

COMPONENTS = {
    "foreign_key": "FkJoinComponent",
    "window": "WindowJoinComponent",
    "aggregate": "AggregateComponent",
    "table": "TableComponent",
    "query": "QueryComponent",
}
FEEDING = ("query_orders", "query_customers")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of `dg` that is importable, without being installed."""
    module = tmp_path / "src/shop"
    (module / "defs").mkdir(parents=True)
    (module / "__init__.py").touch()
    (module / "defs/__init__.py").touch()
    (module / "definitions.py").write_text(
        "from pathlib import Path\n\nfrom dagster import definitions, load_from_defs_folder\n\n\n"
        "@definitions\ndef defs():\n    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "0.1.0"\n\n[tool.dg]\ndirectory_type = "project"\n\n'
        '[tool.dg.project]\nroot_module = "shop"\n'
    )
    return tmp_path


def dg(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    assert DG is not None
    paths = os.pathsep.join(map(str, (project / "src", ROOT)))
    env = {**os.environ, "PYTHONPATH": paths, "VIRTUAL_ENV": str(Path(DG).parents[1]), "COLUMNS": "200"}
    env.pop("DAGSTER_HOME", None)
    return subprocess.run([DG, *words], cwd=project, env=env, capture_output=True, text=True, timeout=120, check=False)


def done(project: Path, *words: str) -> str:
    ran = dg(project, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_project_scaffolded_with_dg_checks_and_lists_its_pipelines(project: Path) -> None:
    listed = done(project, "list", "components", "--json")
    assert {one["key"] for one in json.loads(listed)["items"]} >= {
        f"fk_pipeline.{name}" for name in COMPONENTS.values()
    }
    assert COMPONENTS.keys() == KINDS.keys()
    for kind, name in COMPONENTS.items():
        done(project, "scaffold", "defs", f"fk_pipeline.{name}", kind)
        assert (project / f"src/shop/defs/{kind}/{kind}.yaml").is_file()
        assert (project / f"landing/{kind}").is_dir()
    done(project, "check", "yaml")
    done(project, "check", "defs")
    defs = json.loads(done(project, "list", "defs", "--json"))
    assert {one["name"] for one in defs["jobs"]} >= {f"{name}_all_stages" for name in (*KINDS, *FEEDING)}
    assert {one["asset_key"] for one in defs["assets"]} >= {*KINDS, *FEEDING}
    assert {one["name"] for one in defs["sensors"]} == {f"{name}_new_batches" for name in (*KINDS, *FEEDING)}

    again = dg(project, "scaffold", "defs", "fk_pipeline.FkJoinComponent", "window")
    assert again.returncode != 0
    defs_yaml = project / "src/shop/defs/window/defs.yaml"
    defs_yaml.write_text("type: fk_pipeline.WindowJoinComponent\nattributes: {pipeline: [window.yaml]}\n")
    wrong = dg(project, "check", "yaml")
    assert wrong.returncode != 0
    assert "pipeline" in wrong.stdout + wrong.stderr
