"""A process is proved to be dead, or alive, or nothing is known: never guessed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fk_pipeline.environment.process import Life, ProcessIdentity


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_runs_is_alive(child: subprocess.Popen[bytes]) -> None:
    assert ProcessIdentity.of().life() is Life.ALIVE
    assert ProcessIdentity.of(child.pid).life() is Life.ALIVE


def test_a_process_that_ended_is_dead_before_and_after_its_parent_has_heard_of_it(
    child: subprocess.Popen[bytes],
) -> None:
    identity = ProcessIdentity.of(child.pid)
    child.kill()
    assert child.stdout is None
    while identity.life() is Life.ALIVE:
        pass
    assert identity.life() is Life.DEAD, "a zombie"
    child.communicate()
    assert identity.life() is Life.DEAD


def test_another_process_with_the_same_number_is_not_it() -> None:
    assert replace(ProcessIdentity.of(), started=1.0).life() is Life.DEAD


def test_a_process_of_an_earlier_boot_is_dead_and_of_what_cannot_be_seen_nothing_is_known() -> None:
    here = ProcessIdentity.of()
    assert replace(here, boot="another").life() is Life.DEAD
    assert replace(here, host="another").life() is Life.UNKNOWN
    assert replace(here, host="another", boot="another").life() is Life.UNKNOWN
    assert replace(here, space="another").life() is Life.UNKNOWN


def test_it_is_the_same_after_it_was_written_down() -> None:
    assert ProcessIdentity.from_json(ProcessIdentity.of().as_json()) == ProcessIdentity.of()
