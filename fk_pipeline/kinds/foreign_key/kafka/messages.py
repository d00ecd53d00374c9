"""The two messages of KIP-213 in the form in which Kafka Streams 4.3 writes them to its internal topics.

A subscription goes from the left side to the partition of its foreign key; a response goes back to the partition of the
left key.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fk_pipeline.errors import MessageFormatError
from fk_pipeline.kinds.foreign_key.kafka.instructions import (
    DELETE_KEY_AND_PROPAGATE,
    DELETE_KEY_NO_PROPAGATE,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
)

CODES = {
    DELETE_KEY_NO_PROPAGATE: 0,
    DELETE_KEY_AND_PROPAGATE: 1,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE: 2,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE: 3,
}
"""The byte that encodes each instruction (`SubscriptionWrapper.Instruction`)."""

_NAMES = {code: name for name, code in CODES.items()}
_PARTITION = struct.Struct(">i")
_HASH_IS_NULL = 0x80
_HASH_BYTES = 16

SUBSCRIPTION_VERSION = 1
RESPONSE_VERSION = 0


@dataclass(frozen=True)
class Subscription:
    """`SubscriptionWrapper`: a left row's request to its foreign key. The foreign key is the key of the message.

    Version 1: `{1 bit: no hash}{7 bits: version}{instruction}{hash, 16 bytes}{primary key}{partition, 4 bytes}`;
    version 0 (Kafka before 3.3) has no partition.
    """

    instruction: str
    hash: bytes | None
    primary_key: bytes
    partition: int | None = 0
    version: int = SUBSCRIPTION_VERSION

    def __post_init__(self) -> None:
        if self.instruction not in CODES:
            raise MessageFormatError(f"{self.instruction!r} is no instruction")
        _check_version("subscription", self.version, SUBSCRIPTION_VERSION)
        _check_hash(self.hash)
        if self.version >= 1 and self.partition is None:
            raise MessageFormatError("a subscription of version 1 names the partition of its left key")

    def to_bytes(self) -> bytes:
        """Returns the value of the message."""
        head = bytes([_head(self.version, self.hash), CODES[self.instruction]])
        tail = _PARTITION.pack(self.partition) if self.version >= 1 else b""
        return head + (self.hash or b"") + self.primary_key + tail

    @classmethod
    def from_bytes(cls, data: bytes) -> Subscription:
        """Reads a message from its value.

        Raises:
            MessageFormatError: the version is newer, the instruction is unknown, or the value is too short.
        """
        version, hash_, rest = _open("subscription", data, SUBSCRIPTION_VERSION, extra=1)
        code = data[1]
        if code not in _NAMES:
            raise MessageFormatError(f"{code} is no instruction")
        partition = None
        if version >= 1:
            if len(rest) < _PARTITION.size:
                raise MessageFormatError("a subscription of version 1 ends with 4 bytes of partition")
            (partition,) = _PARTITION.unpack(rest[-_PARTITION.size :])
            rest = rest[: -_PARTITION.size]
        return cls(_NAMES[code], hash_, rest, partition, version)


@dataclass(frozen=True)
class Response:
    """`SubscriptionResponseWrapper`: the right row as a response to the left row with that hash.

    `{1 bit: no hash}{7 bits: version}{hash, 16 bytes}{right value}`; for an absent right row the value is empty. The
    left key is the key of the message; `partition` is its destination and is not sent.
    """

    hash: bytes | None
    value: bytes | None
    partition: int | None = 0

    def __post_init__(self) -> None:
        _check_hash(self.hash)

    def to_bytes(self) -> bytes:
        """Returns the value of the message."""
        return bytes([_head(RESPONSE_VERSION, self.hash)]) + (self.hash or b"") + (self.value or b"")

    @classmethod
    def from_bytes(cls, data: bytes) -> Response:
        """Reads a message from its value.

        Raises:
            MessageFormatError: the version is another one, or the value is too short.
        """
        _, hash_, rest = _open("response", data, RESPONSE_VERSION, extra=0)
        return cls(hash_, rest or None, None)


def _head(version: int, hash_: bytes | None) -> int:
    return version | (_HASH_IS_NULL if hash_ is None else 0)


def _check_version(what: str, version: int, newest: int) -> None:
    if not 0 <= version <= newest:
        raise MessageFormatError(f"a {what} of version {version} cannot be read; the newest known is {newest}")


def _check_hash(hash_: bytes | None) -> None:
    if hash_ is not None and len(hash_) != _HASH_BYTES:
        raise MessageFormatError(f"a hash has {_HASH_BYTES} bytes, this one {len(hash_)}")


def _open(what: str, data: bytes, newest: int, extra: int) -> tuple[int, bytes | None, bytes]:
    """Returns version, hash and rest of a message whose hash follows `extra` bytes after the first byte."""
    if len(data) < 1 + extra:
        raise MessageFormatError(f"a {what} has at least {1 + extra} bytes, this one {len(data)}")
    version = data[0] & ~_HASH_IS_NULL
    _check_version(what, version, newest)
    rest = data[1 + extra :]
    if data[0] & _HASH_IS_NULL:
        return version, None, rest
    if len(rest) < _HASH_BYTES:
        raise MessageFormatError(f"a {what} with a hash has {_HASH_BYTES} bytes of it, this one {len(rest)}")
    return version, rest[:_HASH_BYTES], rest[_HASH_BYTES:]
