"""What the ledger has and Dagster lacks, reported: whoever did the work, Dagster's pages show it.

The ledger is the truth; what Dagster shows may come from a command, another Dagster, or a run that died before it told
Dagster of its work. Each report carries the run of the ledger as its data version, so that nothing is reported twice.
A batch whose landing files changed gets an observation with another data version: by that Dagster shows the stages that
read it as stale.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterEventType,
    DagsterInstance,
    EventLogEntry,
)

from fk_pipeline.assets.current import observed
from fk_pipeline.assets.freshness import report_newest
from fk_pipeline.assets.partitions import active_runs, update_partitions
from fk_pipeline.assets.shown import FIGURES, figures_table, of_batch, of_landing
from fk_pipeline.errors import FkPipelineError
from fk_pipeline.expectations.checking import NO_BATCH_FAILED
from fk_pipeline.expectations.checks import failed_batches, id_of, recorded
from fk_pipeline.identity import BatchId, Side
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources.names import SourceKeys, asset_key, input_key, partitions_name, result_read_by, source_key
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

DATA_VERSION = "dagster/data_version"
"""The tag with which Dagster tells that a partition has other data than before."""

_CODE_VERSION, _IS_OURS = "dagster/code_version", "dagster/data_version_is_user_provided"
_READ_VERSION, _READ_EVENT = "dagster/input_data_version", "dagster/input_event_pointer"
_NONE_YET, _NO_EVENT = "INITIAL", "NULL"
"""What Dagster itself notes of what a materialisation read: per asset upstream its data version and its event."""

REPORT_SECONDS = 0.3
"""Seconds that a tick or a run reports to Dagster what the ledger has; the next tick goes on."""

AT_ONCE = 50
"""The number of batches that are reported stage by stage; then come the next ones, which are older."""

LedgerEvent = AssetMaterialization | AssetObservation | AssetCheckEvaluation


@dataclass(frozen=True)
class Reported:
    """What was reported: the number of events, and whether that was all."""

    events: int
    complete: bool


def report(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, sources: SourceKeys, seconds: float | None = None
) -> Reported:
    """Reports to Dagster what the ledger has and Dagster lacks, for batches that have a partition.

    Args:
        instance: Dagster.
        spec: the pipeline.
        ledger: its ledger.
        sources: the keys of the assets of what it and others read.
        seconds: how long to report at most, without the time to find out; None: all is reported.
    """

    def tags(side: Side, batch: BatchId) -> dict[str, str]:
        version = landed_version(ledger, side, batch)
        return {} if version is None else _of_version(version)

    begun, number = 0.0, report_newest(instance, spec, ledger, tags)
    for event in _lacking(instance, spec, ledger, sources):
        begun = begun or time.monotonic()
        instance.report_runless_asset_event(event)
        number += 1
        if seconds is not None and time.monotonic() - begun > seconds:
            return Reported(number, complete=False)
    return Reported(number, complete=True)


def report_refusal(instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, refused: FkPipelineError) -> None:
    """Reports once that nothing runs, and why, as a failed check of the result.

    A batch that has landed is not even listed then: without this, all that Dagster shows would stay green.
    """
    for evaluation in _not_yet_shown(instance, [failed_batches(spec, ledger, spec.definition.result_stage, refused)]):
        instance.report_runless_asset_event(evaluation)


def sync(instance: DagsterInstance, pipeline: Pipeline, sources: SourceKeys) -> Reported:
    """Discovers what landed, and brings Dagster in line with the ledger of a pipeline, as a tick of its sensor does.

    What an active run does is left to it: nothing is reported then, and it is not complete.
    """
    spec = pipeline.spec
    pipeline.discover()
    update_partitions(instance, spec, pipeline.ledger())
    if active_runs(instance, spec):
        return Reported(0, complete=False)
    return report(instance, spec, pipeline.ledger(), sources)


def landed_version(ledger: Ledger, side: Side, batch: BatchId) -> str | None:
    """Returns the data version of what landed of a batch on a side; None if nothing ever did.

    It changes with whatever makes a stage that reads it due again: files, a correction of a line, values that another
    batch had and this one lacks.
    """
    kind = ledger.kind
    if not ledger.files.listed(batch, side):
        return None
    log = kind.input(side)
    read = ledger.due.reading(log.stage, batch) if log.log else ledger.files.digest(batch, side)
    text = f"{read}:{max(ledger.state(stage, batch).reopened for stage in kind.readers_of(side))}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def report_landed(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, batches: Sequence[BatchId], seconds: float
) -> None:
    """Reports what landed of some batches before they run: a run has read what Dagster knows when it begins."""
    begun = time.monotonic()
    for source in spec.definition.inputs:
        for batch, (version, _) in _unreported(instance, spec, ledger, source.name, batches).items():
            instance.report_runless_asset_event(_landed(spec, ledger, source.name, batch, version))
            if time.monotonic() - begun > seconds:
                return


def successes(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, stage: str, batches: Iterable[BatchId]
) -> Iterator[AssetMaterialization]:
    """Yields the materialisations of a stage for those of some batches for which it has run, as the ledger has them.

    The tags name the run, and what it has read, as Dagster notes it. For a batch that is due again, that is what was
    there before the newest event: so Dagster finds it stale.
    """
    runs = {batch: run for batch in batches if (run := ledger.state(stage, batch).last) is not None}
    if not runs:
        return
    kind, done, landed = spec.definition, DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_OBSERVATION
    read = [
        *(_Shown(instance, asset_key(spec, up), done) for up in kind.stage(stage).upstream),
        *(_Shown(instance, input_key(spec, side), landed) for side in kind.inputs_of(stage)),
    ]
    keys = [batch.key for batch in runs]
    upstream = [(asset.key.to_user_string(), asset.versions(keys), asset.events(keys)) for asset in read]
    for batch, run in runs.items():
        due, tags = ledger.due.has(stage, batch), _of_version(run.run_id) | {_CODE_VERSION: run.run_id}
        for path, versions, events in upstream:
            event = events.get(batch.key)
            tags[f"{_READ_VERSION}/{path}"] = versions.get(batch.key, _NONE_YET)
            tags[f"{_READ_EVENT}/{path}"] = _NO_EVENT if event is None else str(event - due)
        shown = of_batch(spec, ledger, stage, batch)
        yield AssetMaterialization(asset_key(spec, stage), partition=batch.key, metadata=shown, tags=tags)


def _of_version(version: str) -> dict[str, str]:
    """Returns the tags of an event with a data version of ours."""
    return {DATA_VERSION: version, _IS_OURS: "true"}


def _lacking(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, sources: SourceKeys
) -> Iterator[LedgerEvent]:
    """Yields what Dagster lacks, the newest batches first; each is to be reported before the next is asked for."""
    stages = spec.definition.stage_names
    for stage in stages:
        yield from _checks(instance, spec, ledger, stage)
    partitions = {*instance.get_dynamic_partitions(partitions_name(spec))}
    batches = [batch for batch in reversed(ledger.batches) if batch.key in partitions]
    landed = {
        source.name: _unreported(instance, spec, ledger, source.name, batches) for source in spec.definition.inputs
    }
    done = {stage: _not_shown(instance, spec, ledger, stage, batches) for stage in stages}
    incomplete = frozenset[BatchId]().union(*landed.values(), *done.values())
    lacking = [batch for batch in batches if batch in incomplete]
    for some in (lacking[i : i + AT_ONCE] for i in range(0, len(lacking), AT_ONCE)):
        for side, versions in landed.items():
            readers = spec.definition.readers_of(side)
            for batch in (batch for batch in some if batch in versions):
                version, is_first = versions[batch]
                yield _landed(spec, ledger, side, batch, version)
                for reader in readers:
                    if is_first or not ledger.due.has(reader, batch):  # what Dagster noted of the run is older
                        done[reader].add(batch)
        for stage in stages:
            yield from successes(instance, spec, ledger, stage, (batch for batch in some if batch in done[stage]))
    newest = max(done[spec.definition.result_stage], default=None)
    if newest is not None and (now := observed(spec, [newest])) is not None:
        yield now
    yield from _sources(instance, spec, ledger, sources)
    yield from (failed_batches(spec, ledger, stage) for stage in stages if done[stage])


def _landed(spec: PipelineSpec, ledger: Ledger, side: Side, batch: BatchId, version: str) -> AssetObservation:
    metadata = of_landing(spec, ledger, side, batch)
    return AssetObservation(input_key(spec, side), partition=batch.key, metadata=metadata, tags=_of_version(version))


def _sources(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, sources: SourceKeys
) -> Iterator[AssetMaterialization]:
    """Yields, of each folder or table that is read, the newest batch, unless a pipeline has told of the same files."""
    for source in (source for source in spec.definition.inputs if source.name not in spec.clocks):
        newest, key = ledger.files.newest(source.name), source_key(spec, source.name, sources)
        if newest is None or result_read_by(spec, source.name) is not None:
            continue
        record = instance.get_latest_materialization_event(key)
        shown = record.asset_materialization if record is not None else None
        if record is not None and shown is not None:
            is_known = (shown.tags or {}).get(DATA_VERSION) == newest["input"]
            if is_known or record.timestamp >= newest["recorded_at"].timestamp():
                continue
        files = figures_table({"files": len(newest["files"])})
        yield AssetMaterialization(
            key,
            metadata={"batch": int(newest["batch"]), FIGURES: files, "pipeline": spec.name},
            tags=_of_version(newest["input"]),
        )


def _unreported(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, side: Side, batches: Sequence[BatchId]
) -> dict[BatchId, tuple[str, bool]]:
    """Returns the batches of which Dagster does not know what landed: the data version, and whether it knows of any."""
    known = _Shown(instance, input_key(spec, side), DagsterEventType.ASSET_OBSERVATION).versions()
    versions = ((batch, landed_version(ledger, side, batch)) for batch in batches)
    return {
        batch: (version, batch.key not in known)
        for batch, version in versions
        if version is not None and known.get(batch.key) != version
    }


def _not_shown(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, stage: str, batches: Sequence[BatchId]
) -> set[BatchId]:
    """Returns the batches of which Dagster does not show the last run of a stage."""
    known = _Shown(instance, asset_key(spec, stage), DagsterEventType.ASSET_MATERIALIZATION).versions()
    last = {batch: ledger.state(stage, batch).last for batch in batches}
    return {batch for batch, run in last.items() if run is not None and known.get(batch.key) != run.run_id}


@dataclass(frozen=True)
class _Shown:
    """The newest events of a kind that Dagster has of the partitions of an asset.

    Dagster's public ways ask for one partition at a time, which takes seconds for thousands; its own pages use these.
    """

    instance: DagsterInstance
    key: AssetKey
    kind: DagsterEventType

    def versions(self, partitions: Sequence[str] | None = None) -> dict[str, str]:
        """Returns the data version of each partition; of some of them, or of all."""
        storage = self.instance.event_log_storage
        by_partition = storage.get_latest_tags_by_partition(self.key, self.kind, [DATA_VERSION], partitions)
        return {partition: tags[DATA_VERSION] for partition, tags in by_partition.items()}

    def events(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """Returns the storage id of the newest event of some partitions."""
        return self.instance.event_log_storage.get_latest_storage_id_by_partition(self.key, self.kind, {*partitions})


def _checks(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, stage: str
) -> Iterator[AssetCheckEvaluation]:
    """Yields the results of checks outside Dagster, and whether a batch failed."""
    yield from _not_yet_shown(instance, [*recorded(spec, ledger, stage), failed_batches(spec, ledger, stage)])


def _not_yet_shown(
    instance: DagsterInstance, results: Sequence[AssetCheckEvaluation]
) -> Iterator[AssetCheckEvaluation]:
    """Yields those of some results of checks that are not the newest ones that Dagster has."""
    keys = [result.asset_check_key for result in results]
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for result in results:
        record = records.get(result.asset_check_key)
        if record is None or not _is_shown(result, record.event):
            yield result


def _is_shown(evaluation: AssetCheckEvaluation, entry: EventLogEntry | None) -> bool:
    """Returns whether the newest event of a check in Dagster, if any, is a result that the ledger has."""
    event = None if entry is None else entry.dagster_event
    shown = None if event is None else event.event_specific_data
    if entry is None or not isinstance(shown, AssetCheckEvaluation):
        return False
    if evaluation.check_name == NO_BATCH_FAILED:
        return (evaluation.passed, evaluation.description) == (shown.passed, shown.description)
    return id_of(shown, entry.run_id) == id_of(evaluation, "")
