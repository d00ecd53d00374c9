"""The demo's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.demo.files import land, prepare_demo


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
