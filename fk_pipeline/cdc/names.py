r"""Names of landing files: how they are recorded, and how Spark reads a file of any name.

Names are bytes in a local file system. A name that is not UTF-8 is recorded with `\xff` for the byte FF, in the ledger,
in tables and in messages; `real` returns the path of the file again.

Hadoop, through which Spark opens files, cannot open every local name: it reads a colon as the end of a scheme, and
loses a byte that is not UTF-8. Such a file, and every other whose name has a character that is not plain, is read
through a link.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from fk_pipeline.environment import storage

_PLAIN = re.compile(r"[A-Za-z0-9_.=+,@ -]*")
"""Pattern of a file name that every reader of Spark opens as it is."""

_PATTERN = re.compile(r"[\[\]{}*?\\]")
"""Characters that make a folder's path a glob: a Spark Connect server reads it as one, whatever a reader's options are.
"""

_BYTE = re.compile(r"\\x([0-9a-f]{2})")


def as_utf8(path: str) -> str:
    r"""Returns a local path as text that is valid UTF-8.

    >>> print(as_utf8("a\udcff"), as_utf8(r"a\xff"), as_utf8(r"a\b"))
    a\xff a\x5cxff a\b
    """
    escaped = _BYTE.sub(r"\\x5cx\1", path)
    return re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", escaped)


def real(path: str) -> str:
    r"""Returns the path that was given to `as_utf8`; a URI is returned unchanged.

    >>> [real(as_utf8(path)) == path for path in ("a\udcff", r"a\xff")]
    [True, True]
    """
    if storage.scheme_of(path):
        return path
    return _BYTE.sub(lambda match: os.fsdecode(bytes.fromhex(match[1])), path)


def strange(paths: Iterable[str]) -> list[str]:
    """Returns the local paths, as `real` returns them, that Spark may not be able to open as they are."""
    return [path for path in paths if not storage.scheme_of(path) and not _is_plain(path)]


def _is_plain(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    is_text = not re.search("[\udc80-\udcff]", path)
    return is_text and _PATTERN.search(folder) is None and _PLAIN.fullmatch(name) is not None


def linked(paths: Iterable[str], folder: str) -> dict[str, str]:
    """Puts links to files into a folder, under plain names with the same ending.

    Args:
        paths: the files, as `strange` returns them.
        folder: a folder or URI; the caller removes it after the files were read.

    Returns:
        Per file its link; a copy if the folder is in an object store or cannot have links.
    """
    return {path: _linked(path, folder) for path in paths}


def _linked(path: str, folder: str) -> str:
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9_.=+,@ -]", "-", path.rsplit("/", 1)[-1])  # no _ first: Spark would not see the file
    link = f"{folder}/{digest}/{name}"
    if not storage.scheme_of(link):
        Path(link).parent.mkdir(parents=True, exist_ok=True)
        try:
            Path(link).symlink_to(path)
        except FileExistsError:
            return link
        except OSError:  # a file system without links
            pass
        else:
            return link
    with storage.opened(path) as source, storage.opened(link, "wb") as copy:
        shutil.copyfileobj(source, copy)
    return link
