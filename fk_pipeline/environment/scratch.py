"""A private folder per process for what Spark spills to disk, and the removal of those that killed processes left.

Spark's own folders lie in the temporary folder of the machine, and anybody may read them. Ours lie in one that only its
user may enter, `fk-pipeline-UID`, each with the process that owns it written beside (`ProcessIdentity`).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path

from fk_pipeline.environment.process import Life, ProcessIdentity

_OWNER = "owner.json"
_mine: dict[int, Path] = {}
"""By number of a process, since one may be forked, its folder."""


def scratch_folder() -> Path:
    """The folder of this process, made on first use, when those of dead processes are removed.

    Spark empties it in the end. The folder itself stays until the next process looks: only then is it sure that nothing
    of this one writes there any more.

    Raises:
        OSError: the temporary folder of the machine cannot be written.
    """
    found = _mine.get(os.getpid())
    if found is not None and found.is_dir():
        return found
    root = _private(Path(tempfile.gettempdir()) / f"fk-pipeline-{os.getuid()}")
    sweep(root)
    made = Path(tempfile.mkdtemp(prefix=".", dir=root))
    (made / _OWNER).write_text(json.dumps(ProcessIdentity.of().as_json()))
    named = root / f"{os.getpid()}-{secrets.token_hex(4)}"
    made.rename(named)  # it is there with its owner or not at all
    _mine[os.getpid()] = named
    return named


def sweep(root: Path) -> None:
    """Removes the folders of processes that are certainly dead; what cannot be removed stays."""
    for folder in root.iterdir():
        try:
            owner = ProcessIdentity.from_json(json.loads((folder / _OWNER).read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if owner.life() is Life.DEAD:
            shutil.rmtree(folder, ignore_errors=True)


def _private(root: Path) -> Path:
    """The folder that only this user may enter; another where somebody else has put something in its place."""
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        found = root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return Path(tempfile.mkdtemp(prefix="fk-pipeline-"))
    root.chmod(0o700)
    return root
