"""Reads and writes files of deletion vectors, in the format of the Delta protocol ("Deletion Vector Format").

With them the files of most tables are read as Parquet, without Delta (`table_features.is_plain`).
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyroaring import BitMap64

from fk_pipeline.environment import storage

Place = Mapping[str, Any]
"""Where a deletion vector is, as an action in the log names it (`DeletionVectorDescriptor`)."""

FORMAT = b"\x01"
"""The first byte of the file: the version of its format."""

MAGIC = struct.pack("<i", 1681511377)
"""The beginning of a deletion vector. A portable Roaring bitmap of 64 bits follows."""

_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
"""The digits of Python's base 85."""

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""The digits of Z85, in which the log writes the name of the file."""

_NAME_DIGITS = 20
"""The length of such a name; the log may have a folder before it."""


def write_vectors(folder: str, vectors: Mapping[str, BitMap64]) -> dict[str, Place]:
    """Writes deletion vectors to one new file in the folder of a table.

    Args:
        folder: the path or URI of the folder (`storage.has_exclusive_writes`).
        vectors: per data file, the indices (from 0) of its deleted rows.

    Returns:
        Per data file, where its deletion vector is.
    """
    if not vectors:
        return {}
    name = uuid.uuid4()
    encoded = base64.b85encode(name.bytes).translate(bytes.maketrans(_DIGITS, _Z85)).decode()
    places: dict[str, Place] = {}
    data = bytearray(FORMAT)
    for file, rows in vectors.items():
        body = MAGIC + rows.serialize()
        place = {"storageType": "u", "pathOrInlineDv": encoded, "offset": len(data), "sizeInBytes": len(body)}
        places[file] = place | {"cardinality": len(rows)}
        data += struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    storage.write_named(f"{folder}/{_file_name(name)}", bytes(data))
    return places


def file_of_vector(place: Place) -> str | None:
    """Returns the name of the file of a deletion vector, in the folder of the table; None if it is anywhere else."""
    encoded = place["pathOrInlineDv"]
    if place["storageType"] != "u" or len(encoded) != _NAME_DIGITS:
        return None
    return _file_name(uuid.UUID(bytes=base64.b85decode(encoded.encode().translate(bytes.maketrans(_Z85, _DIGITS)))))


def read_vector(folder: Path, place: Place | None) -> BitMap64 | None:
    """Returns the indices (from 0) of the deleted rows of a data file.

    Args:
        folder: the folder of the table.
        place: where its deletion vector is; None: no row is deleted.

    Returns:
        None if the vector is not in a file in the folder, or if the file is damaged.

    Raises:
        OSError: the file is gone or cannot be read.
    """
    if place is None:
        return BitMap64()
    name = file_of_vector(place)
    if name is None:
        return None
    size = place["sizeInBytes"]
    with (folder / name).open("rb") as stream:
        stream.seek(place["offset"])
        data = stream.read(4 + size + 4)
    body = data[4:-4]
    if len(body) != size or data[-4:] != struct.pack(">I", zlib.crc32(body)) or not body.startswith(MAGIC):
        return None
    return BitMap64.deserialize(body[len(MAGIC) :])


def _file_name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"
