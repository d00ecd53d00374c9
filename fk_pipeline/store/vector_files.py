"""Writes deletion vectors to a file, in the format of the Delta protocol ("Deletion Vector Format")."""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyroaring import BitMap64

FORMAT = b"\x01"
"""The first byte of the file: the version of its format."""

MAGIC = struct.pack("<i", 1681511377)
"""The beginning of a deletion vector. A portable Roaring bitmap of 64 bits follows."""

Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
"""The digits of Python's base 85, and those of Z85, in which the log writes the name of the file."""


def write_vectors(folder: Path, vectors: Mapping[str, BitMap64]) -> dict[str, dict[str, Any]]:
    """Writes deletion vectors to one new file in the folder of a table.

    Args:
        folder: the folder.
        vectors: per data file, the indices (from 0) of its deleted rows.

    Returns:
        Per data file, where its deletion vector is, as an action in the log names it (`DeletionVectorDescriptor`).
    """
    if not vectors:
        return {}
    name = uuid.uuid4()
    encoded = base64.b85encode(name.bytes).translate(Z85).decode()
    found: dict[str, dict[str, Any]] = {}
    data = bytearray(FORMAT)
    for file, rows in vectors.items():
        body = MAGIC + rows.serialize()
        place = {"storageType": "u", "pathOrInlineDv": encoded, "offset": len(data), "sizeInBytes": len(body)}
        found[file] = place | {"cardinality": len(rows)}
        data += struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    (folder / f"deletion_vector_{name}.bin").write_bytes(data)
    return found
