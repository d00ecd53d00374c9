"""Kafka's row hash and the combined key of its subscription store, byte for byte.

The engine has a canonical hash of its own (`hashing`). Only the reference, which is compared with Kafka, uses these.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import mmh3

from fk_pipeline.errors import MessageFormatError

MURMUR_SEED = 104729
"""The seed of Kafka's `Murmur3.hash128`."""

LENGTH = struct.Struct(">i")


def kafka_row_hash(value: bytes | None) -> bytes | None:
    """Returns Kafka's hash of a serialised left value: Murmur3, x64, 128 bits, as two big-endian longs (16 bytes).

    Returns None for a row that does not exist.
    """
    if value is None:
        return None
    return struct.pack(">qq", *mmh3.hash64(value, seed=MURMUR_SEED, x64arch=True, signed=True))


def hash_as_longs(value: bytes) -> tuple[int, int]:
    """Returns a hash as the two signed longs that Kafka's classes hold."""
    high, low = struct.unpack(">qq", value)
    return high, low


@dataclass(frozen=True)
class CombinedKey:
    """The key of a row of the subscription store: `{4-byte length of the foreign key}{foreign key}{primary key}`.

    Because of the length, a prefix scan for foreign key `1` does not match subscriptions of `10` (KIP-213, "Combined
    Key").
    """

    foreign_key: bytes
    primary_key: bytes

    @staticmethod
    def prefix(foreign_key: bytes) -> bytes:
        """Returns the prefix that the keys of all subscribers of a foreign key have, and no other keys."""
        return LENGTH.pack(len(foreign_key)) + foreign_key

    def to_bytes(self) -> bytes:
        """Returns the key as it is stored; the store is ordered by it."""
        return self.prefix(self.foreign_key) + self.primary_key

    @classmethod
    def from_bytes(cls, data: bytes) -> CombinedKey:
        """Reads a stored key.

        Raises:
            MessageFormatError: the bytes are fewer than the stored length requires, or the length is negative.
        """
        if len(data) < LENGTH.size:
            raise MessageFormatError(f"a combined key starts with 4 bytes of length; there are {len(data)} bytes")
        (length,) = LENGTH.unpack_from(data)
        rest = data[LENGTH.size :]
        if not 0 <= length <= len(rest):
            raise MessageFormatError(f"the foreign key should have {length} bytes; {len(rest)} are left")
        return cls(rest[:length], rest[length:])
