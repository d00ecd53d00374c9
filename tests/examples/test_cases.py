"""The cases beside the pipeline files of the examples and of the demo."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import fk_pipeline as fk
from fk_pipeline.demo.files import PIPELINE_FILE, prepare_demo

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = sorted(EXAMPLES.rglob("*.tests.yaml"))


def refuse_differences(file: Path, spark: Any) -> None:
    results = fk.Pipeline(fk.load(file).spec, spark).test()
    assert [(result.name, result.error, result.difference) for result in results if not result.passed] == []


@pytest.mark.docs
@pytest.mark.parametrize("cases", CASES, ids=lambda file: file.name)
def test_the_cases_of_an_example_pass(cases: Path, tmp_path: Path, spark: Any) -> None:
    folder = tmp_path / cases.parent.name
    shutil.copytree(cases.parent, folder, ignore=shutil.ignore_patterns("warehouse", "__pycache__", "landing"))
    refuse_differences(folder / cases.name.replace(".tests.", "."), spark)
    assert not (folder / "warehouse").exists()


@pytest.mark.docs
def test_the_case_of_the_demo_passes(tmp_path: Path, spark: Any) -> None:
    prepare_demo(tmp_path / "demo")
    refuse_differences(tmp_path / "demo" / PIPELINE_FILE, spark)
