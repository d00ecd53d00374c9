"""Pipelines whose first batch is done: it is run once per kind of join, and each test goes on with a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from fk_pipeline.store.sizes import MEASURED, Sizes

LEFT = [*[(key, "ab"[key % 2], "v") for key in range(10)], (10, "none", "v")]
RIGHT = [("a", "A"), ("b", "B")]
BEGUN: dict[int, tuple[str | None, str | None]] = {key: ("v", "AB"[key % 2]) for key in range(10)}
"""The result of an inner join of them; that of a left join has `ALONE`, too."""
ALONE: dict[int, tuple[str | None, str | None]] = {10: ("v", None)}


@pytest.fixture(scope="session")
def begun(rows_pipeline: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that makes a pipeline of a join whose batch 0, with `LEFT` and `RIGHT`, is done.

    The sizes and the changes of the pipeline file must be such that no rebuild is needed for them.
    """

    @cache
    def first(join: str) -> Any:
        made = rows_pipeline(join)
        made.land(0, LEFT, RIGHT)
        made.pipeline.run()
        return made

    def begin(join: str, sizes: Sizes = MEASURED, **changes: str) -> Any:
        made = rows_pipeline(join, sizes, **changes)
        for name in ("landing", "warehouse"):
            shutil.copytree(first(join).folder / name, made.folder / name, dirs_exist_ok=True)
        return made

    return begin
