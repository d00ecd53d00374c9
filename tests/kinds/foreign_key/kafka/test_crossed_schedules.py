"""Messages that are delayed at random: which rules leave stale rows, and which do not (`docs/protocol.md`).

Three left keys, three foreign keys and null, three partitions; rows arrive while messages of earlier ones still wait.
Kafka keeps the order of a partition. The engine's rules must also hold when answers overtake each other.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fk_pipeline.kinds.foreign_key.kafka.reference import ENGINE, KAFKA, ForeignKeyJoin, Rules

SHORT, LONG = 1_000, 20_000
EVENTS = 40


def foreign_key(_: bytes, value: bytes) -> bytes | None:
    return value.split(b"|")[1] or None


def is_right(seed: int, inner: bool, rules: Rules, overtaking: bool) -> bool:
    """Runs one random schedule to its end; whether the result is then the join of the tables."""
    rng = random.Random(seed)
    join = ForeignKeyJoin(inner=inner, extract=foreign_key, partitions=3, rules=rules)

    def deliver_one() -> None:
        topic, partition = rng.choice(join.waiting())
        length = len(join.waiting_responses[partition])
        join.deliver(topic, partition, rng.randrange(length) if overtaking and topic == "response" else 0)

    for timestamp in range(EVENTS):
        if rng.random() < 0.6:
            row = f"v{rng.randint(0, 2)}|{rng.choice(['x', 'y', 'z', ''])}".encode()
            join.left(rng.choice([b"k", b"l", b"m"]), row if rng.random() < 0.8 else None, timestamp)
        else:
            row = f"X{rng.randint(0, 2)}".encode()
            join.right(rng.choice([b"x", b"y", b"z"]), row if rng.random() < 0.65 else None, timestamp)
        while join.waiting() and rng.random() < 0.55:
            deliver_one()
    while join.waiting():
        deliver_one()
    return join.result_as_table() == join.batch_join()


def wrong(schedules: int, inner: bool, rules: Rules, overtaking: bool = False) -> int:
    """How many of the schedules end with a wrong table."""
    return sum(not is_right(seed, inner, rules, overtaking) for seed in range(schedules))


@pytest.mark.parametrize("overtaking", [False, True], ids=["in order", "overtaking"])
@pytest.mark.parametrize("inner", [True, False], ids=["inner", "left"])
@pytest.mark.parametrize("schedules", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_the_engine_s_rules_leave_no_wrong_row(schedules: int, inner: bool, overtaking: bool) -> None:
    assert wrong(schedules, inner, ENGINE, overtaking) == 0


def test_kafka_s_inner_join_leaves_stale_rows() -> None:
    assert wrong(SHORT, True, KAFKA) > SHORT / 20


def test_kafka_s_left_join_is_right_in_kafka_s_order() -> None:
    assert wrong(SHORT, False, KAFKA) == 0


def test_without_an_answer_for_every_change_the_inner_join_goes_stale() -> None:
    assert wrong(SHORT, True, replace(ENGINE, always_respond=False)) > SHORT / 20


@pytest.mark.parametrize("inner", [True, False], ids=["inner", "left"])
def test_without_the_check_of_the_right_side_overtaking_answers_go_stale(inner: bool) -> None:
    assert wrong(SHORT, inner, replace(ENGINE, check_right=False), overtaking=True) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inner", "rules", "overtaking", "number"),
    [
        (True, KAFKA, False, 3229),
        (False, KAFKA, False, 0),
        (True, replace(ENGINE, always_respond=False), False, 3026),
        (True, replace(ENGINE, check_right=False), False, 0),
        (True, replace(ENGINE, check_right=False), True, 1978),
        (False, replace(ENGINE, check_right=False), True, 2115),
    ],
)
def test_the_figures_in_the_documentation(inner: bool, rules: Rules, overtaking: bool, number: int) -> None:
    assert wrong(LONG, inner, rules, overtaking) == number
