"""What the tests ask Dagster's webserver for, as its pages do: through GraphQL."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

LOCATION, REPOSITORY = "fk_pipeline.definitions", "__repository__"
SELECTOR = {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY}


@dataclass
class Dagster:
    """A webserver."""

    url: str

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of an answer; an error of GraphQL's is one here."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def sensor(self, name: str, running: bool) -> None:
        """Switches a sensor on or off."""
        if running:
            query = "mutation M($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename } }"
            told = self.ask(query, s={**SELECTOR, "sensorName": name})["startSensor"]
            assert told["__typename"] == "Sensor", told
        else:
            query = "query Q($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { id } } }"
            sensor = self.ask(query, s={**SELECTOR, "sensorName": name})["sensorOrError"]
            query = "mutation M($id: String) { stopSensor(id: $id) { __typename } }"
            told = self.ask(query, id=sensor["id"])["stopSensor"]
            assert told["__typename"] == "StopSensorMutationResult", told

    def switches(self) -> dict[str, str]:
        """Whether each sensor and each schedule is RUNNING or STOPPED, by name."""
        query = """query Q($s: RepositorySelector!) {
            sensorsOrError(repositorySelector: $s) { ... on Sensors { results { name state: sensorState { status } } } }
            schedulesOrError(repositorySelector: $s) {
                ... on Schedules { results { name state: scheduleState { status } } } } }"""
        told = self.ask(query, s=SELECTOR)
        return {one["name"]: one["state"]["status"] for kind in told.values() for one in kind["results"]}

    def assets(self, group: str) -> list[list[str]]:
        """The keys of the assets of a group."""
        query = "query Q($g: AssetGroupSelector!) { assetNodes(group: $g) { assetKey { path } } }"
        return [one["assetKey"]["path"] for one in self.ask(query, g={**SELECTOR, "groupName": group})["assetNodes"]]

    def partitions(self, asset: Sequence[str]) -> list[str]:
        """The partitions of an asset, in Dagster's order."""
        query = "query Q($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { partitionKeys } } }"
        return self.ask(query, k={"path": list(asset)})["assetNodeOrError"]["partitionKeys"]

    def green(self, asset: Sequence[str]) -> bool:
        """Whether every partition of an asset is materialised, and no run of any has failed since."""
        query = """query Q($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
            partitionStats { numPartitions numMaterialized numFailed } } } }"""
        found = self.ask(query, k={"path": list(asset)})["assetNodeOrError"]["partitionStats"]
        return bool(found["numMaterialized"] == found["numPartitions"] and not found["numFailed"])

    def figures(self, asset: Sequence[str]) -> dict[str, dict[str, float]]:
        """The numbers of the newest materialisation of each partition, those in its table of figures too."""
        told = self.ask(
            "query Q($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {"
            " assetMaterializations(limit: 1000) { partition metadataEntries { label"
            " ... on IntMetadataEntry { intValue } ... on FloatMetadataEntry { floatValue }"
            " ... on TableMetadataEntry { table { records } } } } } } }",
            key={"path": list(asset)},
        )["assetOrError"]["assetMaterializations"]
        found: dict[str, dict[str, float]] = {}
        for one in reversed(told):
            shown = {entry["label"]: entry.get("intValue", entry.get("floatValue")) for entry in one["metadataEntries"]}
            for entry in one["metadataEntries"]:
                rows = map(json.loads, entry.get("table", {}).get("records", ()))
                shown |= {row["figure"]: row["value"] for row in rows if "figure" in row}
            found[one["partition"]] = {name: value for name, value in shown.items() if isinstance(value, int | float)}
        return found

    def stale(self, asset: Sequence[str], *partitions: str) -> list[str]:
        """Returns the partitions that Dagster shows as stale, of some."""
        query = (
            "query Q($key: AssetKeyInput!, $partition: String) { assetNodeOrError(assetKey: $key) {"
            " ... on AssetNode { staleStatus(partition: $partition) } } }"
        )
        key = {"path": list(asset)}
        told = {one: self.ask(query, key=key, partition=one)["assetNodeOrError"]["staleStatus"] for one in partitions}
        return [one for one, status in told.items() if status == "STALE"]

    def ticks(self, sensor: str) -> list[dict[str, Any]]:
        """The last ticks of a sensor, the newest first: status, and the message of an error."""
        query = """query Q($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor {
            sensorState { ticks(limit: 100) { status error { message } } } } } }"""
        found = self.ask(query, s={**SELECTOR, "sensorName": sensor})["sensorOrError"]
        ticks: list[dict[str, Any]] = found["sensorState"]["ticks"]
        return ticks

    def add_partition(self, pipeline: str, key: str) -> None:
        """Adds a partition, as the button of the launch dialog does."""
        query = """mutation M($r: RepositorySelector!, $d: String!, $k: String!) {
            addDynamicPartition(repositorySelector: $r, partitionsDefName: $d, partitionKey: $k) { __typename } }"""
        told = self.ask(query, r=SELECTOR, d=f"{pipeline}_batches", k=key)["addDynamicPartition"]
        assert told["__typename"] in ("AddDynamicPartitionSuccess", "DuplicateDynamicPartitionError"), told

    def backfill(self, assets: Sequence[Sequence[str]], partitions: Sequence[str]) -> str:
        """Launches a backfill; returns its id."""
        query = """mutation M($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
            __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
        wanted = {"assetSelection": [{"path": list(path)} for path in assets], "partitionNames": list(partitions)}
        told = self.ask(query, p=wanted)["launchPartitionBackfill"]
        assert told["__typename"] == "LaunchBackfillSuccess", told
        return told["backfillId"]

    def backfill_status(self, backfill: str) -> str:
        """Its status."""
        query = """query Q($id: String!) { partitionBackfillOrError(backfillId: $id) {
            ... on PartitionBackfill { status } } }"""
        return self.ask(query, id=backfill)["partitionBackfillOrError"]["status"]

    def runs(self) -> list[dict[str, Any]]:
        """All runs, the newest first: id, status, job, tags by name, start and end."""
        query = """{ runsOrError(limit: 200) { ... on Runs { results {
            runId status jobName startTime endTime creationTime tags { key value } } } } }"""
        found = self.ask(query)["runsOrError"]["results"]
        return [run | {"tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in found]

    def run(self, run_id: str) -> dict[str, Any]:
        """One of them."""
        return next(run for run in self.runs() if run["runId"] == run_id)

    def steps(self, run_id: str) -> dict[str, tuple[float, float]]:
        """When each step of a run has begun, and when it has ended."""
        query = """query Q($id: ID!) { runOrError(runId: $id) { ... on Run {
            stepStats { stepKey startTime endTime } } } }"""
        found = self.ask(query, id=run_id)["runOrError"]["stepStats"]
        return {step["stepKey"]: (step["startTime"], step["endTime"]) for step in found}

    def checks(self, asset: Sequence[str]) -> dict[str, str | None]:
        """Status of the last execution of every check of an asset."""
        query = """query Q($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
            assetChecksOrError { ... on AssetChecks { checks { name
                executionForLatestMaterialization { status evaluation { success severity } } } } } } } }"""
        found = self.ask(query, k={"path": list(asset)})["assetNodeOrError"]["assetChecksOrError"]["checks"]
        last = {check["name"]: check["executionForLatestMaterialization"] for check in found}
        return {name: one["status"] if one else None for name, one in last.items()}

    def launch(self, job: str, **tags: str) -> str:
        """Launches a job; returns the run's id."""
        query = """mutation M($p: ExecutionParams!) { launchPipelineExecution(executionParams: $p) {
            __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
        params = {
            "selector": {**SELECTOR, "pipelineName": job},
            "mode": "default",
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        told = self.ask(query, p=params)["launchPipelineExecution"]
        assert told["__typename"] == "LaunchRunSuccess", told
        return told["run"]["runId"]


def wait(what: Callable[[], T], seconds: float = 120, every: float = 0.5) -> T:
    """What something returns as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"still {found!r} after {seconds} s"
        time.sleep(every)
    return found
