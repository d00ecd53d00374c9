"""The long mode of the machine: `make fuzz`. Runs random schedules until there are enough, and prints what they did.

python -m tests.any_order.fuzz [--schedules 40] [--worlds 100] [--kills 5] [--checks 0.2] [--kind K] [--join J]
[--seed N]
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from random import SystemRandom
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings
from tests.any_order.machine import AnyOrder
from tests.any_order.subjects import SUBJECTS, WAYS, register


def main() -> int:
    parser = argparse.ArgumentParser(description="Random schedules against the plain definition of a kind.")
    parser.add_argument("--schedules", type=int, default=40)
    parser.add_argument("--worlds", type=int, default=100, help="two left keys each")
    parser.add_argument("--kills", type=int, default=5, help="processes that are killed with kill -9")
    parser.add_argument("--steps", type=int, default=7, help="of a schedule, at most")
    parser.add_argument("--checks", type=float, default=0.2, help="share of the states that all checks look at")
    parser.add_argument("--kind", choices=list(SUBJECTS), default="foreign_key")
    parser.add_argument("--join", help="of the kind, or the form of the query; default: each at random")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    wanted = parser.parse_args()
    os.environ.setdefault("FK_SPARK_REMOTE", "none")  # a warm Spark of the developer is for other things
    register()
    started = time.monotonic()
    print(f"{wanted.schedules} schedules of {2 * wanted.worlds} left keys, seed {wanted.seed}", flush=True)

    class Long(AnyOrder):
        session = start_session(Settings(shuffle_partitions=2))
        subject = SUBJECTS[wanted.kind]
        joins = (wanted.join,) if wanted.join else ()
        ways = tuple(WAYS.values())
        worlds = wanted.worlds
        kills = wanted.kills
        checks = wanted.checks
        least_steps = 5
        totals: ClassVar[Counter[str]] = Counter()
        progress = staticmethod(lambda line: print(f"{time.monotonic() - started:6.0f} s {line}", flush=True))

    try:
        for more in itertools.count():
            missing = max(
                wanted.schedules - Long.totals["schedules"],
                wanted.schedules // 2 - Long.totals["schedules with crashes"],
                Long.kills,
            )
            if missing <= 0:
                break
            run_state_machine_as_test(
                seed(wanted.seed + more)(Long),
                settings=settings(
                    max_examples=missing,
                    stateful_step_count=wanted.steps,
                    deadline=None,
                    database=None,
                    print_blob=False,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        wrong = 0
    except AssertionError as error:
        print(f"\nWRONG\n{error}\nAgain with --seed {wanted.seed}", flush=True)
        wrong = 1
    finally:
        minutes = (time.monotonic() - started) / 60
        print("\n" + "\n".join(f"{number:8,} {what}" for what, number in sorted(Long.totals.items())))
        print(f"{minutes:8.1f} minutes", flush=True)
        Long.session.stop()
    print(f"{wrong:8,} wrong schedules")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
