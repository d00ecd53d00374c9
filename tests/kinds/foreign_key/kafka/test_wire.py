"""Keys, hashes and messages in the bytes that Kafka writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fk_pipeline.errors import MessageFormatError
from fk_pipeline.kinds.foreign_key.kafka.instructions import (
    DELETE_KEY_AND_PROPAGATE,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
)
from fk_pipeline.kinds.foreign_key.kafka.keys import CombinedKey, hash_as_longs, kafka_row_hash
from fk_pipeline.kinds.foreign_key.kafka.messages import CODES, Response, Subscription

HASH = bytes(range(16))


@pytest.mark.parametrize(
    ("text", "longs"),
    [
        ("", (-7122613646888064702, -8341524471658347240)),
        ("a", (3702349557448790408, -1601067453332442517)),
        ("lhsValue", (-9137880591318084221, 1628973011115443427)),
        ("lhsValue1|rhs1", (8349360643402949907, 2926358176406646415)),
        ("0123456789abcdef", (1904622552327088487, -2893518741649893711)),
        ("0123456789abcdefg", (-6253751916947851771, -5841899321478313166)),
        ("héllo wörld — ünïcode ✓", (-1682717869575661857, -3173270210877712832)),
    ],
)
def test_the_row_hash_is_that_of_kafka_s_own_class(text: str, longs: tuple[int, int]) -> None:
    hash_ = kafka_row_hash(text.encode())
    assert hash_ is not None
    assert hash_as_longs(hash_) == longs


def test_a_row_that_is_not_there_has_no_hash() -> None:
    assert kafka_row_hash(None) is None


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_combined_key_comes_back(foreign_key: bytes, primary_key: bytes) -> None:
    key = CombinedKey(foreign_key, primary_key)
    assert CombinedKey.from_bytes(key.to_bytes()) == key
    assert key.to_bytes() == len(foreign_key).to_bytes(4, "big") + foreign_key + primary_key


@given(st.binary(max_size=4), st.binary(max_size=4), st.binary(max_size=4))
def test_a_prefix_finds_the_subscribers_of_one_foreign_key_only(one: bytes, other: bytes, primary_key: bytes) -> None:
    found = CombinedKey(one, primary_key).to_bytes().startswith(CombinedKey.prefix(other))
    assert found == (one == other)


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x03ab", b"\xff\xff\xff\xffab"])
def test_a_combined_key_that_is_too_short_is_refused(data: bytes) -> None:
    with pytest.raises(MessageFormatError):
        CombinedKey.from_bytes(data)


HASHES = st.none() | st.binary(min_size=16, max_size=16)


@given(st.sampled_from(sorted(CODES)), HASHES, st.binary(max_size=9), st.integers(0, 2**31 - 1))
def test_a_subscription_comes_back(instruction: str, hash_: bytes | None, key: bytes, partition: int) -> None:
    for version, wanted in ((1, partition), (0, None)):
        sent = Subscription(instruction, hash_, key, wanted, version)
        assert Subscription.from_bytes(sent.to_bytes()) == sent


@given(HASHES, st.none() | st.binary(min_size=1, max_size=9))
def test_a_response_comes_back(hash_: bytes | None, value: bytes | None) -> None:
    assert Response.from_bytes(Response(hash_, value, None).to_bytes()) == Response(hash_, value, None)


def test_the_bytes_of_messages() -> None:
    asked = Subscription(PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, HASH, b"k", 7)
    assert asked.to_bytes() == b"\x01\x02" + HASH + b"k" + b"\x00\x00\x00\x07"
    assert Subscription(DELETE_KEY_AND_PROPAGATE, None, b"k", 0).to_bytes() == b"\x81\x01k\x00\x00\x00\x00"
    assert Subscription(DELETE_KEY_AND_PROPAGATE, None, b"k", None, 0).to_bytes() == b"\x80\x01k"
    assert Response(HASH, b"v").to_bytes() == b"\x00" + HASH + b"v"
    assert Response(None, None).to_bytes() == b"\x80"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "at least 2 bytes"),
        (b"\x02\x01" + HASH + b"k" + bytes(4), "version 2"),
        (b"\x81\x09k" + bytes(4), "9 is no instruction"),
        (b"\x01\x01" + HASH[:9], "16 bytes of it"),
        (b"\x81\x01" + bytes(3), "4 bytes of partition"),
    ],
)
def test_a_subscription_that_cannot_be_read_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(MessageFormatError, match=message):
        Subscription.from_bytes(data)


@pytest.mark.parametrize(
    ("data", "message"), [(b"", "at least 1 byte"), (b"\x01" + HASH, "version 1"), (b"\x00" + HASH[:3], "16 bytes")]
)
def test_a_response_that_cannot_be_read_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(MessageFormatError, match=message):
        Response.from_bytes(data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("NO_SUCH", None, b"k"), "no instruction"),
        ((DELETE_KEY_AND_PROPAGATE, b"short", b"k"), "16 bytes"),
        ((DELETE_KEY_AND_PROPAGATE, None, b"k", None), "names the partition"),
        ((DELETE_KEY_AND_PROPAGATE, None, b"k", 0, 2), "version 2"),
    ],
)
def test_a_message_that_nobody_could_read_is_not_made(fields: tuple, message: str) -> None:
    with pytest.raises(MessageFormatError, match=message):
        Subscription(*fields)
