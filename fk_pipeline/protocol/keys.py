"""Kafka's row hash, and the combined key of its subscription store, byte for byte.

The engine has a canonical hash of its own (`hashing`); these are for the reference, which is held against Kafka.
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
    """Kafka's hash of a serialised left value: Murmur3, x64, 128 bits, as two big-endian longs (16 bytes).

    A row that is not there has no hash.
    """
    if value is None:
        return None
    return struct.pack(">qq", *mmh3.hash64(value, seed=MURMUR_SEED, x64arch=True, signed=True))


def hash_as_longs(value: bytes) -> tuple[int, int]:
    """A hash as the two signed longs that Kafka's classes hold."""
    high, low = struct.unpack(">qq", value)
    return high, low


@dataclass(frozen=True)
class CombinedKey:
    """Key of a row of the subscription store: `{4-byte length of the foreign key}{foreign key}{primary key}`.

    The length keeps foreign key `1` from matching the subscriptions of `10` in a prefix scan (KIP-213, "Combined Key").
    """

    foreign_key: bytes
    primary_key: bytes

    @staticmethod
    def prefix(foreign_key: bytes) -> bytes:
        """What the keys of all subscribers of a foreign key start with, and no others."""
        return LENGTH.pack(len(foreign_key)) + foreign_key

    def to_bytes(self) -> bytes:
        """The key as it is stored; the store is ordered by it."""
        return self.prefix(self.foreign_key) + self.primary_key

    @classmethod
    def from_bytes(cls, data: bytes) -> CombinedKey:
        """The key that was stored.

        Raises:
            MessageFormatError: shorter than its length says.
        """
        if len(data) < LENGTH.size:
            raise MessageFormatError(f"a combined key starts with 4 bytes of length; there are {len(data)} bytes")
        (length,) = LENGTH.unpack_from(data)
        rest = data[LENGTH.size :]
        if not 0 <= length <= len(rest):
            raise MessageFormatError(f"the foreign key should have {length} bytes; {len(rest)} are left")
        return cls(rest[:length], rest[length:])
