"""A private folder per process for data that Spark spills to disk and for cases; those of killed processes are removed.

Spark's own folders are in the temporary folder of the machine, and every user may read them. These folders are in one
that only its user may enter, `fk-pipeline-UID`, each with a file that identifies its process (`ProcessIdentity`).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fk_pipeline.environment.process import Life, ProcessIdentity
from fk_pipeline.environment.whole_files import read_whole, write_whole

UNOWNED_SECONDS = 3600.0
"""Seconds after which a folder belongs to nobody if no whole file identifies its process: one that died made it."""

_OWNER = "owner.json"
_folders: dict[int, Path] = {}
"""The folder per process number: a forked process needs a folder of its own."""


def scratch_folder() -> Path:
    """Returns the folder of this process; the first call creates it and removes the folders of dead processes.

    What is in it is removed by what wrote it, by Spark at its end. The folder itself stays until another process
    removes it: only then is it certain that this process writes nothing there any more.

    Raises:
        OSError: the temporary folder of the machine cannot be written.
    """
    folder = _folders.get(os.getpid())
    if folder is not None and folder.is_dir():
        return folder
    root = _private(Path(tempfile.gettempdir()) / f"fk-pipeline-{os.getuid()}")
    sweep(root)
    made = Path(tempfile.mkdtemp(prefix=".", dir=root))
    write_whole(made / _OWNER, json.dumps(ProcessIdentity.of().as_json()).encode())
    named = root / f"{os.getpid()}-{secrets.token_hex(4)}"
    made.rename(named)  # the folder never exists without its owner file
    _folders[os.getpid()] = named
    return named


def sweep(root: Path) -> None:
    """Removes the folders of processes that are certainly dead; files that cannot be removed stay."""
    for folder in root.iterdir():
        with suppress(OSError):
            owner = read_whole(folder / _OWNER, ProcessIdentity.from_json)
            unowned = owner is None and time.time() - folder.stat().st_mtime >= UNOWNED_SECONDS
            if unowned or (owner is not None and owner.life() is Life.DEAD):
                shutil.rmtree(folder, ignore_errors=True)


def _private(root: Path) -> Path:
    """Creates and returns the folder that only this user may enter; a new one if another user has taken its name."""
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        status = root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return Path(tempfile.mkdtemp(prefix="fk-pipeline-"))
    root.chmod(0o700)
    return root
