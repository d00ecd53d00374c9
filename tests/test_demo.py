"""The demo's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.demo.files import land, prepare_demo
from fk_pipeline.demo.tour import run_demo


def test_a_demo_whose_folder_was_half_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "demo"
    write, make, left = Path.write_bytes, Path.mkdir, [0]

    def dies(do: Any) -> Any:
        def until(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return do(*arguments, **options)

        return until

    monkeypatch.setattr(Path, "write_bytes", dies(write))
    monkeypatch.setattr(Path, "mkdir", dies(make))
    for steps in range(20):
        left[0] = steps
        try:
            prepare_demo(folder)
        except KeyboardInterrupt:
            continue
        break
    assert steps > 3
    left[0] = 100
    assert [file.name for file in land(folder, 0)] == ["00000000.jsonl.gz"] * 2


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_ends_with_its_rows_and_a_page_of_them(tmp_path: Path, spark: SparkSession, capsys: Any) -> None:
    done = run_demo(tmp_path / "demo")
    printed = capsys.readouterr().out
    assert done["ok"]
    [page] = re.findall(r"A page of all of it: (\S+)", printed)
    assert f"{done['rows']:,}" in Path(page).read_text()
    assert "report" in printed.split("Try next:")[1].split("\n")[1]
