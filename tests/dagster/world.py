"""A pipeline without Spark, for tests of what Dagster sees: a landing zone in memory, and a ledger told of runs."""

from __future__ import annotations

from pathlib import Path

from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance, DagsterRunStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test

from fk_pipeline.cdc.zone import FoundFile
from fk_pipeline.definitions import definitions
from fk_pipeline.errors import LandingError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import LandingZoneResource
from fk_pipeline.resources.names import asset_key
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import evaluated

JOB = "tested_all_stages"


class FakeZone:
    """Landing files that are names in memory."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, str]] = {"left": {}, "right": {}}
        self.broken = False

    def put(self, side: str, batch: int, content: str = "1") -> None:
        self.files[side][f"{batch:08d}.jsonl"] = content

    def list(self, location: str) -> list[FoundFile]:
        if self.broken:
            raise LandingError("the bucket is not there", where=location)
        side = location.rsplit("/", 1)[-1]
        return [FoundFile(f"{location}/{name}", 1, content) for name, content in sorted(self.files[side].items())]

    def exists(self, _location: str) -> bool:
        return True

    def digest(self, file: FoundFile) -> str:
        return file.modified


ZONE = FakeZone()


class FakeZoneResource(LandingZoneResource):
    def zone(self) -> FakeZone:
        return ZONE


class World:
    """A pipeline without Spark: the sensor, its Dagster, and a ledger in which stages run by word of mouth."""

    def __init__(self, folder: Path, instance: DagsterInstance, settings: str, name: str = "tested") -> None:
        self.name = name
        file = folder / f"{name}.yaml"
        file.write_text(
            f"name: {name}\njoin: left\n"
            "left: {path: in/left, format: rows, schema: 'id BIGINT, fk STRING', key: id, foreign_key: fk}\n"
            "right: {path: in/right, format: rows, schema: 'k STRING, name STRING', key: k}\n"
            f"settings: {settings}\n"
        )
        self.instance, self.file = instance, file
        self.runs = 0
        self.reload()

    def reload(self) -> None:
        """Loads the pipeline file as it is, as a code location does that is loaded again."""
        self.pipeline = Pipeline(load_spec(self.file), zone=ZONE)
        self.defs = definitions([self.file])

    def beside(self, name: str) -> World:
        """Another pipeline over the same files, in the same Dagster."""
        return World(self.pipeline.spec.file.parent, self.instance, "{}", name)

    def tick(self) -> tuple[str | None, list[str]]:
        """The range that one tick asks for and its reasons to skip."""
        found = evaluated(self.defs, self.name, self.instance, {"landing_zone": FakeZoneResource()})
        requests = found.run_requests or []
        assert len(requests) <= 1, "at most one run"
        self.request = requests[0] if requests else None
        reasons = found.skip_message.split("; ") if found.skip_message else []
        assert bool(requests) != bool(reasons)
        if not requests:
            return None, reasons
        tags = requests[0].tags
        first, last = (int(tags[f"dagster/asset_partition_range_{end}"][1:]) for end in ("start", "end"))
        return f"{first}..{last}", []

    def failed(self, stage: str) -> AssetCheckEvaluation:
        """The newest result of the check `no_batch_failed` of a stage."""
        key = AssetCheckKey(asset_key(self.pipeline.spec, stage), "no_batch_failed")
        record = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
        assert record.event is not None
        assert record.event.dagster_event is not None
        found = record.event.dagster_event.event_specific_data
        assert isinstance(found, AssetCheckEvaluation)
        return found

    def asked(self) -> list[int]:
        """The batches that the last tick asked for: those between two partitions, in the order of Dagster."""
        assert self.request is not None
        ends = [int(self.request.tags[f"dagster/asset_partition_range_{end}"][1:]) for end in ("start", "end")]
        places = [self.partitions().index(end) for end in ends]
        return self.partitions()[places[0] : places[1] + 1]

    def partitions(self) -> list[int]:
        return [int(key[1:]) for key in self.instance.get_dynamic_partitions(f"{self.name}_batches")]

    def do(
        self, *batches: int, stages: tuple[Stage, ...] = tuple(Stage), error: str | None = None, rows: int = 1
    ) -> None:
        """Stages run for batches, as the ledger hears of it; with an error the last of them fails."""
        ledger = self.pipeline.ledger()
        for stage in stages:
            self.runs += 1
            ledger.start(stage, batches, f"run {self.runs}", {})
            if error is not None and stage is stages[-1]:
                ledger.runs.fail(0.1, error)
            else:
                ledger.runs.succeed({batch: {"rows": rows} for batch in batches}, {"a table": self.runs}, 0.1)

    def dagster_run(self, status: DagsterRunStatus) -> str:
        """A run of what the last tick asked for."""
        assert self.request is not None
        location = RegisteredCodeLocationOrigin("fk_pipeline.definitions")
        origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), JOB)
        run = create_run_for_test(
            self.instance, job_name=JOB, status=status, tags=dict(self.request.tags), remote_job_origin=origin
        )
        return run.run_id
