"""A state machine that applies every possible event to a kind, and compares the outcome with its plain definition.

One example is one *schedule*: batches land, are rewritten, withdrawn and brought back, files vanish; single stages run
for any batches in any order, also before their upstream; runs die at a commit. At the end, all due work runs.
An event that cannot happen in the state of the schedule is left out.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyspark.sql import SparkSession

from fk_pipeline.engine.fingerprints import columns_to_add
from fk_pipeline.errors import FkPipelineError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from fk_pipeline.store.sizes import MEASURED, Sizes
from tests.any_order.histories import LEFT, MORE, RIGHT, Content, Key, Place, story
from tests.any_order.subjects import FOREIGN_KEY_JOIN, Rows
from tests.deaths import Killed

BATCHES = range(7)
DIE = Path(__file__).parent / "die.py"

batches = st.sampled_from(BATCHES)
sides = st.sampled_from([LEFT, RIGHT])
numbers = st.integers(0, 59)
"""A number draws one of the stages, batches or files that there are then."""
seeds = st.integers(0, 2**32 - 1)


class Broken(RuntimeError):
    """The error with which a stage fails in a test."""


class AnyOrder(RuleBasedStateMachine):
    """The machine; the caller sets `session` and `worlds`; `totals` counts over all schedules."""

    session: SparkSession
    subject = FOREIGN_KEY_JOIN
    joins: tuple[str, ...] = ()
    """The joins to draw from; default: those of the subject."""
    ways: tuple[Sizes, ...] = (MEASURED,)
    """The sizes to draw from, at which the physical way to read and write changes."""
    worlds = 100
    kills = 0
    """The number of real `kill -9` still to be done, one at the end of every schedule in which runs die."""
    checks = 0.0
    """The share of intermediate states that all checks check, for batches and for whole tables: none may fail."""
    anew = 0.3
    """The share of schedules whose landing files also run into a new warehouse, in other passes."""
    least_steps = 0
    """The least number of steps of a counted schedule; shorter schedules run, but are not counted."""
    totals: ClassVar[Counter[str]] = Counter()
    progress: Callable[[str], None] = staticmethod(lambda _: None)

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="any-order-"))
        self.landed: dict[Place, Content] = {}
        self.withdrawn: dict[Place, Content] = {}
        self.landings: list[tuple[str, Place, Content]] = []
        self.log: list[str] = []
        self.split: set[Place] = set()
        self.vanished: set[Place] = set()
        self.may_be_due = True
        self.died = False

    # ---- start and end of a schedule

    @initialize(
        join=numbers,
        way=numbers,
        sequenced=st.sampled_from([True, True, False]),
        faulty=st.sampled_from([True, True, False]),
        seed=seeds,
    )
    def begin(self, join: int, way: int, sequenced: bool, faulty: bool, seed: int) -> None:
        self.random, self.faulty = Random(seed), faulty
        self.histories = self.subject.histories(self.random, self.worlds, sequenced)
        joins, self.sizes = self.joins or self.subject.joins, self.ways[way % len(self.ways)]
        self.join, self.declared = joins[join % len(joins)], set[str]()
        for side in self.subject.sides:
            (self.folder / "landing" / side).mkdir(parents=True)
        self.files = self._files(self.folder)
        self.pipelines = self._open(self.files)
        order = "by sequence" if sequenced else "by arrival"
        self._say(f"{self.join or self.subject.name}, {order}, way {way % len(self.ways)}, seed {seed}")
        for batch in self.random.sample(BATCHES, 3):
            for side in self.subject.sides:
                self._write("landed:", (batch, side), self.histories.content(side, 0.6))

    def _files(self, folder: Path) -> list[Path]:
        """Writes the pipeline files, with the fields that are declared so far."""
        order = "    sequence_by: seq\n" if self.histories.sequenced else ""
        return self.subject.write(folder, self.join, order, self.declared, "settings: {fold_after_hours: 0}\n")

    def teardown(self) -> None:
        try:
            if hasattr(self, "pipelines"):
                self._end()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        if len(self.log) - 1 < self.least_steps:
            self.totals["schedules too short to count"] += 1
            return
        if self.faulty and self.kills:
            self._kill(self.random.randint(3, 25))
        while self.faulty and not self.died:
            self._die(self.random.randint(1, 25), killed=True)
        self._say("everything due runs")
        with self._explained():
            for pipeline in self.pipelines:
                pipeline.run()
        assert not any(any(one.due().values()) for one in self.pipelines), "run without arguments left work due"
        self._check()
        expected = self.subject.expected(self.histories, self.landed, self.join, self.declared)
        self._compare(self._result(self.pipelines[-1]), expected)
        self._compare_hashes()
        report = self.pipelines[-1].verify()
        assert (report.ok, report.due, report.pending, report.rows) == (True, 0, 0, self.subject.number(expected)), (
            report
        )
        for key in self.random.sample(range(self.histories.left_keys), 2):
            assert self.pipelines[-1].explain(self.subject.explained(self.join, key)).as_expected, (
                f"{self._story()}\nexplain calls key {key} wrong"
            )
        if self.random.random() < self.anew and self.landed:
            self._another_way(expected)
        mine = self.totals
        mine["schedules"] += 1
        mine["schedules with crashes"] += self.died
        mine["left keys"] += self.histories.left_keys
        mine["events"] += self.histories.events
        mine["late events"] += self.histories.late
        mine["truncates"] += self.histories.truncates
        mine["result rows compared"] += len(expected)
        self.progress(f"{mine['schedules']:4} right: {'; '.join(self.log)}")

    def _another_way(self, expected: Rows) -> None:
        """Runs the current landing files into a new warehouse, in one pass, one by one, or in passes of any batches."""
        here = sorted({batch for batch, _ in self.landed})
        number = self.random.choice([1, len(here), self.random.randint(1, len(here))])
        groups: dict[int, list[int]] = {}
        for place, batch in enumerate(self.random.sample(here, len(here))):
            groups.setdefault(place % number, []).append(batch)
        passes = [BatchRange.covering(group, here) for group in groups.values()]
        self.random.shuffle(passes)
        other = self.folder / "other"
        for side in self.subject.sides:
            (other / "landing" / side).mkdir(parents=True)
        for (batch, side), content in self.landed.items():
            self._put(batch, side, content, other)
        self._say(f"the same files anew, in passes {', '.join(map(str, passes))}")
        anew = self._open(self._files(other))
        for pipeline in anew:
            pipeline.run(passes if pipeline.spec.definition.logged else None)
        assert not any(any(one.due().values()) for one in anew)
        self._compare(self._result(anew[-1]), expected)
        self.totals["compared with another split"] += 1

    # ---- events of the landing files

    @rule(batch=batches, side=sides, both=st.booleans(), share=st.sampled_from([0.1, 0.5, 0.9]))
    def lands_or_is_rewritten(self, batch: int, side: str, both: bool, share: float) -> None:
        if (batch, self._side(side)) in self.withdrawn:
            return
        for of in self.subject.sides if both else (self._side(side),):
            if (batch, of) not in self.withdrawn:
                self._rewrite((batch, of), self.histories.content(of, share))

    @rule(side=sides, data=st.data(), how=st.sampled_from(["back to an older content", "cut", "emptied"]))
    def is_rewritten_by_what_was_there(self, side: str, data: st.DataObject, how: str) -> None:
        side = self._side(side)
        known = sorted({place for _, place, _ in self.landings if place[1] == side and place not in self.withdrawn})
        if not known:
            return
        place = data.draw(st.sampled_from(known))
        older = [content for _, of, content in self.landings if of == place]
        content = data.draw(st.sampled_from(older))
        if how == "cut":
            content = Content(content.events[: len(content.events) // 3])
        self._rewrite(place, Content() if how == "emptied" else content)

    @rule(number=numbers)
    def vanishes(self, number: int) -> None:
        """Removes a file that was read before, which must change nothing."""
        self._discover()
        readers = self._readers()
        read = []
        for batch, side in sorted(self.landed):
            pipeline, stage = readers[side]
            if not pipeline.ledger().due.has(stage, batch):
                read.append((batch, side))
        if not read:
            return
        batch, side = read[number % len(read)]
        self._say(f"files of batch {batch} {side} vanish")
        self.vanished.add((batch, side))
        for path in self._paths(batch, side):
            path.unlink(missing_ok=True)

    @precondition(lambda self: not self.withdrawn and len(self.landed) > 2)
    @rule(number=numbers)
    def is_withdrawn(self, number: int) -> None:
        here = sorted({batch for batch, _ in self.landed})
        batch = here[number % len(here)]
        if batch in self._folded():
            return
        self._say(f"batch {batch} is withdrawn")
        for pipeline in self._having(batch, self.landed):
            pipeline.remove_batch(batch, forget=True)
        self.may_be_due = True
        self.withdrawn = {place: self.landed.pop(place) for place in list(self.landed) if place[0] == batch}
        self.landings += [("withdrawn:", place, Content()) for place in self.withdrawn]
        self.totals["batches withdrawn"] += 1

    @precondition(lambda self: self.withdrawn)
    @rule()
    def is_brought_back(self) -> None:
        batch = next(iter(self.withdrawn))[0]
        having = self._having(batch, self.withdrawn)
        for (_, side), content in self.withdrawn.items():
            self._put(batch, side, content)
            self.vanished.discard((batch, side))
        self._say(f"batch {batch} is brought back")
        self.landed |= self.withdrawn
        self.landings += [("brought back:", place, content) for place, content in self.withdrawn.items()]
        self.withdrawn = {}
        for pipeline in having:
            pipeline.run(str(batch))

    @precondition(lambda self: not self.withdrawn)
    @rule(after=st.integers(1, 20))
    def is_compacted(self, after: int) -> None:
        """Folds the finished batches from the first one on; they are not restated any more."""
        finished = [pipeline for pipeline in self.pipelines if not self._unfinished(pipeline)]
        if not finished:
            return
        self._say("is compacted")
        self.totals["compactions"] += 1

        def compact() -> None:
            with self._explained():
                for pipeline in finished:
                    pipeline.compact()

        if self.faulty:
            self._until(after, True, compact)
        else:
            compact()
        self._check()
        self.totals["batches folded"] += len(self._folded())

    # ---- runs

    @precondition(lambda self: self.may_be_due)
    @rule(seed=seeds, hasty=st.sampled_from([0.0, 0.2]))
    def some_due_work_runs(self, seed: int, hasty: float) -> None:
        """Runs single stages for single batches in a random order, each after its upstream; hasty ones before it."""
        random = Random(seed)
        for _ in range(random.randint(4, 8)):
            work, ready = [], []
            for pipeline in self.pipelines:
                pipeline.discover()
                due, upstream = pipeline.due(), pipeline.ledger().upstream
                own = [(pipeline, stage, batch) for stage, these in due.items() for batch in these]
                work += own
                ready += [one for one in own if not any(one[2] in due[up] for up in upstream[one[1]])]
            if not work:
                self.may_be_due = False
                return
            pipeline, stage, batch = random.choice(work if random.random() < hasty else ready)
            beside = [int(number) for of, name, number in ready if of is pipeline and name == stage]
            chosen = {int(batch), *random.sample(beside, min(len(beside), random.choice([0, 0, 1, 2])))}
            self._run_stage(pipeline, stage, BatchRange.covering(chosen, pipeline.ledger().batches))

    @rule(number=numbers, side=sides, seed=seeds)
    def a_batch_lags(self, number: int, side: str, seed: int) -> None:
        """Runs one batch up to a stage; then runs another batch, with new content, which overtakes it."""
        random, side = Random(seed), self._side(side)
        readers = self._readers()
        pipeline, _ = readers[side]
        pipeline.discover()
        here = sorted({batch for batch, of in self.landed if readers[of][0] is pipeline})
        if len(here) < 2:
            return
        slow, fast = random.sample(here, 2)
        steps = pipeline.spec.definition.stage_names[:-1]
        for step in steps[: number % len(steps) + 1]:
            self._run_stage(pipeline, step, BatchRange.of(slow))
        self._rewrite((fast, side), self.histories.content(side, 0.6))
        self._run(f"batches [{fast}]", {pipeline: str(fast)})

    @rule(number=numbers, first=batches, more=st.sampled_from([0, 0, 1, 6]))
    def a_stage_runs(self, number: int, first: int, more: int) -> None:
        """Runs a stage for any batches, due or not, whatever has run before."""
        self._discover()
        stages = [(one, stage) for one in self.pipelines for stage in one.spec.definition.stage_names]
        self._run_stage(*stages[number % len(stages)], BatchRange.of(first, first + more))

    @rule(some=st.lists(batches, min_size=1, max_size=3, unique=True))
    def batches_run(self, some: list[int]) -> None:
        readers, known = self._readers(), dict[Pipeline, str]()
        for pipeline in self.pipelines:
            own = {side for side, (reader, _) in readers.items() if reader is pipeline}
            there = {batch for batch, side in self.landed if side in own} | set(pipeline.ledger().batches)
            there -= {batch for batch, side in self.withdrawn if side in own}
            if named := [batch for batch in some if batch in there]:
                known[pipeline] = ",".join(map(str, named))
        if known:
            self._run(f"batches {' and '.join(known.values())}", known)

    @precondition(lambda self: self.may_be_due)
    @rule()
    def all_that_is_due_runs(self) -> None:
        self._run("all that is due", dict.fromkeys(self.pipelines))
        self.may_be_due = False

    @precondition(lambda self: self.faulty)
    @rule(after=st.integers(1, 36), killed=st.booleans())
    def a_run_dies(self, after: int, killed: bool) -> None:
        """Starts a run that has work to do and dies at a point around a commit; then another process continues."""
        self._die(after, killed)

    @rule(source=st.sampled_from(["changelog", "landing"]), after=st.integers(1, 60), number=numbers)
    def is_rebuilt(self, source: str, after: int, number: int) -> None:
        """Rebuilds beside the tables and swaps the new ones in; may die before or in the swap where runs may die."""
        pipeline, readers = self.pipelines[number % len(self.pipelines)], self._readers()
        begun = pipeline.ledger().rebuilds.unfinished
        if source == "changelog" and begun is not None and begun["source"] != source:
            return
        gone = {place for place in self.vanished - set(self.withdrawn) if readers[place[1]][0] is pipeline}
        if source == "landing" and gone:
            return
        self.totals["rebuilds"] += 1
        self.may_be_due = True

        def rebuild() -> None:
            self._say(f"{pipeline.spec.name} is rebuilt from {source}")
            with self._explained():
                pipeline.rebuild(source)

        if self.faulty:
            self._until(after, True, rebuild)
        else:
            rebuild()

    @rule(side=sides, after=st.integers(1, 12))
    def a_field_is_declared_or_not_any_more(self, side: str, after: int) -> None:
        """Adds a column to the schema, which the tables add in place, or removes it, which needs a rebuild."""
        if self.vanished or any(one.ledger().rebuilds.unfinished is not None for one in self.pipelines):
            return
        side = self._side(side)
        field = MORE[side]
        self.declared ^= {field}
        self.pipelines = self._open(self._files(self.folder))
        pipeline, _ = self._readers()[side]
        self.may_be_due = True
        if field in self.declared:
            self._say(f"{field} is declared")
            self.totals["columns added"] += 1
            if self.faulty:
                self._until(after, True, pipeline.runner.add_columns)
        else:
            self._say(f"{field} is not declared any more; is rebuilt from changelog")
            self.totals["columns taken out"] += 1
            with self._explained():
                pipeline.rebuild("changelog")

    @precondition(lambda self: self.may_be_due)
    @rule()
    def is_verified_on_the_way(self) -> None:
        """Verifies an intermediate state: due work must explain every difference."""
        for pipeline in self.pipelines:
            if self._unfinished(pipeline):
                continue
            self._say(f"{pipeline.spec.name} is verified")
            pipeline.discover()
            report = pipeline.verify()
            self.totals["verified on the way"] += 1
            assert report.ok, f"{self._story()}\nverify calls legal differences wrong: {report}"

    # ---- helpers

    def _check(self) -> None:
        """Asserts that no check fails, whatever is due: at full depth, for a range of batches, and for one batch."""
        finished = [pipeline for pipeline in self.pipelines if not self._unfinished(pipeline)]
        if not self.checks or self.random.random() >= self.checks or not finished:
            return
        first, last = sorted(self.random.choices(BATCHES, k=2))
        for pipeline, stage in ((one, stage) for one in finished for stage in one.spec.definition.stage_names):
            for batches in (None, BatchRange.of(first, last), BatchRange.of(first)):
                found = violations(pipeline, stage, batches)
                red = {n: f for n, f in found.findings.items() if f.value and not n.endswith("share_is_low")}
                assert not red, f"{self._story()}\n{stage}, batches {batches}: legal states turn red: {red}"
                self.totals["rows pending in checks"] += sum(f.pending for f in found.findings.values())
        self.totals["states checked"] += 1

    @staticmethod
    def _unfinished(pipeline: Pipeline) -> bool:
        """Returns whether the tables need a run before they can be checked: nothing ran, or the file was edited."""
        ledger = pipeline.ledger()
        return (
            not ledger.runs.stages
            or ledger.rebuilds.unfinished is not None
            or bool(columns_to_add(pipeline.spec, ledger))
        )

    def _readers(self) -> dict[str, tuple[Pipeline, str]]:
        """Returns, per side, the pipeline and the stage that read its landing files."""
        stages = [(one, logged.stage) for one in self.pipelines for logged in one.spec.definition.logged]
        return dict(zip(self.subject.sides, stages, strict=True))

    def _having(self, batch: int, places: Iterable[Place]) -> list[Pipeline]:
        """Returns the pipelines that read a batch of some places."""
        readers = self._readers()
        found = [readers[side][0] for of, side in places if of == batch]
        return [pipeline for pipeline in self.pipelines if pipeline in found]

    def _discover(self) -> None:
        for pipeline in self.pipelines:
            pipeline.discover()

    def _something_to_do(self) -> None:
        folded = self._folded()
        places = [place for place in sorted(self.landed) if place[0] not in folded]
        place = self.random.choice(places or [(max(batch for batch, _ in self.landed) + 1, LEFT)])
        self._rewrite(place, self.histories.content(place[1], 0.5))

    def _die(self, after: int, killed: bool) -> None:
        self._something_to_do()
        self._until(after, killed, lambda: self._run("all that is due, and", dict.fromkeys(self.pipelines)))

    def _until(self, after: int, killed: bool, work: Callable[[], None]) -> None:
        """Does work that dies or fails at a point; then another process continues."""
        count = 0

        def die(point: str) -> None:
            nonlocal count
            count += 1
            if count == after:
                self._say(f"{'dies' if killed else 'fails'} {point}")
                self.totals["crashes"] += killed
                self.totals["failed stages"] += not killed
                self.died = True
                raise Killed if killed else Broken

        with faults.listening(die), contextlib.suppress(Killed, Broken):
            work()
            self._say("nothing happens")
        self.pipelines = self._open(self.files)
        self._check()

    def _kill(self, after: int) -> None:
        self._something_to_do()
        command = [sys.executable, DIE, str(after), *map(str, self.files)]
        done = subprocess.run(command, check=False, start_new_session=True)
        assert done.returncode in (0, -signal.SIGKILL), f"the process ended with {done.returncode}"
        if done.returncode:
            type(self).kills -= 1
            self.died = True
            self.totals["processes killed with kill -9"] += 1
        self._say("a process is killed" if done.returncode else "a process runs all that is due")
        self.pipelines = self._open(self.files)

    def _open(self, files: Iterable[Path]) -> list[Pipeline]:
        return [Pipeline(load_spec(file), self.session, sizes=self.sizes) for file in files]

    def _say(self, what: str) -> None:
        self.log.append(what)
        if currently_in_test_context():  # not where a test calls the rules one by one
            note(what)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FkPipelineError as error:
            raise AssertionError(f"{self._story()}\n{type(error).__name__}: {error}") from error

    def _run(self, what: str, batches: Mapping[Pipeline, str | None]) -> None:
        """Runs pipelines for batches, or for all that are due."""
        self._say(f"run {what}")
        self.may_be_due = True
        with self._explained():
            for pipeline, some in batches.items():
                self.totals["stage runs"] += len(pipeline.run(some))

    def _run_stage(self, pipeline: Pipeline, stage: str, some: BatchRange) -> None:
        """Runs a stage like an asset does: a withdrawn batch stays withdrawn."""
        self._say(f"run {stage} of {some}" + (f" of {pipeline.spec.name}" if len(self.pipelines) > 1 else ""))
        self.may_be_due = True
        with self._explained():
            pipeline.runner.run(stage, some)
        self.totals["stage runs"] += 1
        self._check()

    def _paths(self, batch: int, side: str, home: Path | None = None) -> list[Path]:
        folder = (home or self.folder) / "landing" / side
        return [folder / f"{batch:08d}.jsonl", folder / f"rest-{batch:08d}.jsonl"]

    def _put(self, batch: int, side: str, content: Content, home: Path | None = None) -> None:
        """Writes a batch as one file, or as two that are read in name order."""
        one, two = self._paths(batch, side, home)
        lines = content.text(side).splitlines(keepends=True)
        two_files = (batch, side) in self.split or self.random.random() < 0.15
        self.split |= {(batch, side)} if two_files else set()
        cut = self.random.randint(0, len(lines)) if two_files else len(lines)
        for path, part in ((one, lines[:cut]), (two, lines[cut:])):
            if path == one or two_files:
                path.with_suffix(".writing").write_text("".join(part))
                path.with_suffix(".writing").rename(path)

    def _write(self, what: str, place: Place, content: Content) -> None:
        self._put(*place, content)
        self.vanished.discard(place)
        self.may_be_due = True
        self.landed[place] = content
        self.landings.append((what, place, content))

    def _folded(self) -> frozenset[int]:
        """Returns the batches that are not restated any more on at least one side."""
        readers = self._readers().values()
        return frozenset().union(*(pipeline.ledger().folds.of(stage) for pipeline, stage in readers))

    def _rewrite(self, place: Place, content: Content) -> None:
        if place[0] in self._folded():
            self.totals["rewrites of folded batches left out"] += 1
            return
        known = any(of == place for _, of, _ in self.landings)
        self.totals["rewrites"] += known
        self._say(f"batch {place[0]} {place[1]} {'is rewritten' if known else 'lands'}")
        self._write("rewritten:" if known else "landed:", place, content)

    def _side(self, drawn: str) -> str:
        """Returns a drawn side if the subject has it, else the one that it has."""
        return drawn if drawn in self.subject.sides else self.subject.sides[0]

    def _result(self, pipeline: Pipeline) -> Rows:
        return self.subject.result(pipeline, self.join, self.declared)

    def _compare(self, found: dict[Key, Any], expected: dict[Key, Any]) -> None:
        wrong = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
        if not wrong:
            return
        (_, told), key = min(((story(key, self.landings), key) for key in wrong), key=lambda one: one[0])
        table = self.pipelines[-1].table
        shown = self.subject.shown(key).items()
        rows = [f"{name}: {row.asDict()}" for name, where in shown for row in table(name).where(where).collect()]
        raise AssertionError(
            f"{self._story()}\n{len(wrong)} keys are wrong, of {self.histories.left_keys} left keys. The one with the "
            f"shortest history is {key}:\n{told}\nexpected {expected.get(key)}, found {found.get(key)}\n"
            + "\n".join(rows)
        )

    def _compare_hashes(self) -> None:
        """Asserts that every result row has the hashes of the current rows."""
        keys = self.subject.stale(self.pipelines[-1])
        if keys:
            _, told = min(story(key, self.landings) for key in keys)
            raise AssertionError(f"{self._story()}\n{len(keys)} result rows have the hashes of other rows:\n{told}")

    def _story(self) -> str:
        return "The schedule:\n  " + "\n  ".join(self.log)
