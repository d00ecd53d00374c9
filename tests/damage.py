"""A pipeline whose tables all have rows, and the ways to damage a file of a table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from fk_pipeline.identity import Side
from fk_pipeline.store.ledger.corrections import Correction, digest_of
from fk_pipeline.store.sizes import Sizes

DATA = (
    "left_changelog", "right_changelog", "right_table", "subscription_store", "subscribers", "responses", "verdicts",
    "resolved_join", "quarantine",
)  # fmt: skip
LEDGER = ("files", "batches", "runs", "fingerprints", "rebuilds", "checks", "corrections", "folds", "fields")
TABLES = (*DATA, *LEDGER)

INDEXED = Sizes(indexed_rows=1)

LEFT = [(i, "ab"[i % 2], f"v{i}") for i in range(1, 9)]
BAD = ('{"op": "u", "id": "x", "fk": "a", "v": "w"}', '{"op": "u", "id": "y", "fk": "b", "v": "w"}', "{stays bad")


def fill(made: Any) -> None:
    """Runs batches of a pipeline with an index (`INDEXED`) until every table has at least two commits."""
    _land_first(made)
    made.pipeline.run()
    ledger = made.pipeline.ledger()
    ledger.checks.record([_check("left_changelog")])
    _correct_two(made)
    _land_second(made)
    made.pipeline.run()
    made.pipeline.rebuild("changelog", ["resolved_join"])
    ledger.checks.record([_check("resolved_join")])
    ledger.folds.record([0])
    ledger.folds.record([1])


def fill_at_once(made: Any) -> None:
    """Runs the same batches and corrections together: the rows are those of `fill`, and the tables have one commit."""
    _land_first(made)
    _land_second(made)
    made.pipeline.discover()
    _correct_two(made)
    made.pipeline.run()


def _land_first(made: Any) -> None:
    made.land(0, [*LEFT, *BAD, '{"op": "d", "id": 90, "seen": 1}'], [("a", "A"), ("b", "B")])


def _land_second(made: Any) -> None:
    made.land(1, [(1,), (2, "b", "w2"), (3, "c", "w3"), (4,), "{bad", '{"op": "d", "id": 91, "more": 1}'],
              [("b", "B1"), ("c", "C"), ("a", "A2")])  # fmt: skip


def _correct_two(made: Any) -> None:
    _correct(made, BAD[0], BAD[0].replace('"x"', "41"))
    _correct(made, BAD[1], BAD[1].replace('"y"', "42"))


def _check(stage: str) -> dict[str, Any]:
    found = {"name": "made_up", "severity": "warning", "depth": "full", "passed": True, "value": 0.0, "pending": 0}
    return {"check_id": "c", "stage": stage, **found}


def _correct(made: Any, line: str, text: str) -> None:
    path = f"landing/left/{0:08d}.jsonl"
    one = Correction(Side.LEFT, 0, path, None, digest_of(line), text)
    assert made.pipeline.ledger().corrections.record([one], "made up") == 1


def _file(table: Path) -> Path:
    """Returns the largest file of the current version."""
    return max(map(Path, DeltaTable(str(table)).file_uris()), key=lambda file: file.stat().st_size)


def _commit(table: Path) -> Path:
    """Returns the file of the last commit but one."""
    return sorted((table / "_delta_log").glob("*.json"))[-2]


def _cut(table: Path) -> Path:
    file = _file(table)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return file


def _deleted(table: Path) -> Path:
    file = _file(table)
    file.unlink()
    return file


def _replaced(table: Path) -> Path:
    """Replaces the largest file by a file of another table: of `left_changelog`, or of `responses` for that one."""
    file = _file(table)
    home = table.parent / ("left_changelog" if table.name != "left_changelog" else "responses")
    shutil.copy(_file(home), file)
    return file


def _garbled(table: Path) -> Path:
    file = _commit(table)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] + b"\x00garbled")
    return file


def _missing(table: Path) -> Path:
    file = _commit(table)
    file.unlink()
    return file


KINDS: dict[str, Callable[[Path], Path]] = {
    "cut": _cut, "deleted": _deleted, "replaced": _replaced, "garbled commit": _garbled, "missing commit": _missing,
}  # fmt: skip
"""Per kind of damage, a function that damages a table and returns the damaged file."""
