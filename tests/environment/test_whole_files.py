"""A small file appears as a whole, and one that a death has cut anywhere counts as missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.environment.process import ProcessIdentity
from fk_pipeline.environment.whole_files import read_whole, write_whole


def test_a_file_that_is_missing_or_cut_anywhere_says_nothing(tmp_path: Path) -> None:
    file, here = tmp_path / "owner.json", ProcessIdentity.of()
    content = json.dumps(here.as_json()).encode()
    assert read_whole(file, ProcessIdentity.from_json) is None
    for length in range(len(content)):
        file.write_bytes(content[:length])
        assert read_whole(file, ProcessIdentity.from_json) is None
    for other in (b"\xff\xfe", b"\0" * len(content), b"[]", b"7", b"{}"):
        file.write_bytes(other)
        assert read_whole(file, ProcessIdentity.from_json) is None
    write_whole(file, content)
    assert read_whole(file, ProcessIdentity.from_json) == here


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_whole(file, b"old")

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
