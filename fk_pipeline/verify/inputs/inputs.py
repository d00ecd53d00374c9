"""The comparison of all landing files of a pipeline with its changelogs, or of a sample of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from pyspark.sql import DataFrame

from fk_pipeline.cdc.names import real
from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.cdc.zone import FoundFile, LandingZone
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.places import landing_path, relative
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.verify.inputs.compare import Comparison, Group
from fk_pipeline.verify.inputs.csv_files import CsvEntries
from fk_pipeline.verify.inputs.debezium import DebeziumEntries
from fk_pipeline.verify.inputs.delta import DeltaEntries
from fk_pipeline.verify.inputs.differences import InputDifferences
from fk_pipeline.verify.inputs.dms import DmsEntries
from fk_pipeline.verify.inputs.doubts import NotReadError
from fk_pipeline.verify.inputs.landed import FilePlace, FileReader, InputColumns
from fk_pipeline.verify.inputs.lines import LineEntries
from fk_pipeline.verify.inputs.maxwell import MaxwellEntries
from fk_pipeline.verify.inputs.parquet_files import ParquetEntries
from fk_pipeline.verify.inputs.report import InputsReport, NotCompared
from fk_pipeline.verify.inputs.rows import RowEntries
from fk_pipeline.verify.inputs.stored import StoredRows, quarantined

SAMPLED_FROM = 100_000_000
"""Bytes of landing files up to which all are compared if nothing else is asked for."""

_TOGETHER = 1 << 24
"""Bytes of landing files of small batches that are compared together."""

_MOST_TOGETHER = 500
_PACKED = 8
"""How many bytes of records a byte of a packed file stands for."""


@dataclass(frozen=True)
class _Unit:
    """The files of an input in a batch."""

    side: Side
    batch: int
    files: Sequence[LandedFile]

    @property
    def size(self) -> int:
        return sum(max(file.size, 0) for file in self.files)

    @property
    def memory(self) -> int:
        """About how many bytes its records are, unpacked."""
        return sum(
            max(f.size, 0) * (_PACKED if f.path.endswith((".gz", ".parquet", ".parq")) else 1) for f in self.files
        )

    @property
    def slot(self) -> float:
        """A number from 0 to 1 that depends on the names of its files alone."""
        names = "\n".join(file.known_as or file.path for file in self.files)
        return crc32(f"{self.side}\n{names}".encode("utf-8", "surrogatepass")) / (1 << 32)


@dataclass
class _Left:
    """The units that are not compared, by the reason."""

    units: list[tuple[str, _Unit]] = field(default_factory=list)

    def add(self, why: str, unit: _Unit) -> None:
        self.units.append((why, unit))

    def summed_up(self) -> list[NotCompared]:
        batches = Counter((unit.side, why) for why, unit in self.units)
        files: Counter[tuple[Side, str]] = Counter()
        for why, unit in self.units:
            files[unit.side, why] += len(unit.files)
        return [NotCompared(side, why, number, files[side, why]) for (side, why), number in batches.items()]


def verify_inputs(
    spec: PipelineSpec, ledger: Ledger, zone: LandingZone, read: TableReader, share: float | None = None
) -> InputsReport:
    """Compares the landing files with the changelogs and the quarantine.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        zone: lists the landing folders.
        read: reads the tables.
        share: the share of the batches to compare, chosen by a hash; 1 for all. None: all, or a sample of
            `SAMPLED_FROM` bytes if they are more.
    """
    report, left = InputsReport(), _Left()
    kind = spec.definition
    inputs = [source for source in kind.logged if source.name in spec.sides and source.shared(spec) is None]
    units = {source.name: [*_comparable(spec, ledger, zone, source.name, source.stage, left)] for source in inputs}
    report.bytes_all = sum(unit.size for of_side in units.values() for unit in of_side)
    chosen_share = min(1.0, SAMPLED_FROM / max(report.bytes_all, 1)) if share is None else share
    if not inputs:  # what stages read where it lies is in no log
        return report
    quarantine = read.read(s.QUARANTINE)
    for source in inputs:
        chosen = _chosen(units[source.name], chosen_share)
        if chosen:
            side = _Side(spec, ledger, read, source.name, source.stage, source.log, report, left)
            side.compare(chosen, chosen_share, quarantine)
            if chosen_share >= 1:
                side.find_strange()
    report.not_compared += left.summed_up()
    return report


def _comparable(
    spec: PipelineSpec, ledger: Ledger, zone: LandingZone, side: Side, stage: str, left: _Left
) -> Iterator[_Unit]:
    """Yields the batches of an input whose files can be compared with stored rows."""
    declared = spec.side(side)
    present = [] if declared.format == "delta" else zone.list(landing_path(spec, side))
    listed = {relative(spec, file.path): file for file in present}
    due, folded = {*map(int, ledger.due.of(stage))}, ledger.folds.of(stage)
    for batch in map(int, ledger.batches):
        files = ledger.files.of(batch, side)
        if not files:
            continue
        unit = _Unit(side, batch, files)
        if ":" in declared.format:
            why = f"{declared.format} is a format of your own"
        elif declared.key_of_result:
            why = "the key of its rows is a text that the pipeline makes"
        elif declared.told_apart:
            why = "not every row of it is an input: two windows of days may begin together"
        elif batch in folded:
            why = "folded: only the last row of a key is stored"
        elif batch in due:
            why = "due: not read yet, or to be read again"
        else:
            why = next(filter(None, (_gone(spec, zone, file, listed, declared) for file in files)), "")
        if why:
            left.add(why, unit)
        else:
            yield unit


def _gone(spec: PipelineSpec, zone: LandingZone, file: LandedFile, listed: dict[str, FoundFile], side: SideSpec) -> str:
    """Returns why a file is not the one that was read; empty if it is."""
    if side.format == "delta":
        return "" if are_kept(spec.location(file.path)) else "its versions are gone"
    now = listed.get(file.path)
    if now is None:
        return "a file of it is gone"
    if now.modified == file.modified and now.size == file.size:
        return ""
    return (
        ""
        if now.size == file.size and zone.digest(now) == file.digest
        else "a file of it has changed since it was read"
    )


def _chosen(units: Sequence[_Unit], share: float) -> list[_Unit]:
    """Returns the units of a share, by the hash of their names; at least one."""
    chosen = [unit for unit in units if share >= 1 or unit.slot < share]
    return chosen or ([min(units, key=lambda unit: unit.slot)] if units else [])


class _Side:
    """The comparison of one input."""

    def __init__(
        self,
        spec: PipelineSpec,
        ledger: Ledger,
        read: TableReader,
        side: Side,
        stage: str,
        log: str,
        report: InputsReport,
        left: _Left,
    ) -> None:
        self._spec, self._ledger, self._name, self._stage, self._report, self._left = (
            spec,
            ledger,
            side,
            stage,
            report,
            left,
        )
        self._declared = spec.side(side)
        self._columns = InputColumns(self._declared)
        self._reader = reader_of(self._columns, spec.settings.max_line_bytes)
        self._rows = StoredRows(read, log, self._declared)

    def find_strange(self) -> None:
        """Reports rows of batches that have no files of the input, except of those that are due."""
        ledger = self._ledger
        due = {*map(int, ledger.due.of(self._stage))}
        known = [int(batch) for batch in ledger.batches if batch in due or ledger.files.of(batch, self._name)]
        differences = InputDifferences(self._declared, self._name, self._report)
        for batch, rows in self._rows.besides(known).items():
            text = "no file of the input is in the batch"
            differences.add(batch, "unexpected", landed=text, stored=f"{rows} row(s)")

    def compare(self, units: Sequence[_Unit], share: float, quarantine: DataFrame) -> None:
        """Compares some batches; one with a file that this reader cannot read is named as not compared."""
        for group in _grouped(units):
            try:
                self._report.include(self._compared(group, share, quarantine))
            except NotReadError as error:
                if len(group) > 1:
                    for unit in group:
                        self.compare([unit], share, quarantine)
                else:
                    self._left.add(str(error), group[0])

    def _compared(self, group: Sequence[_Unit], share: float, quarantine: DataFrame) -> InputsReport:
        batches, size = [unit.batch for unit in group], sum(unit.size for unit in group)
        memory = sum(unit.memory for unit in group)
        is_large = size > SAMPLED_FROM and share < 1
        report = InputsReport(bytes_read=size, keys_share=is_large)
        read = Group(
            [place for unit in group for place in self._places(unit)],
            memory,
            self._quarantined(quarantine, batches),
            {batch: ignored for batch in batches if (ignored := self._ignored(batch)) is not None},
            SAMPLED_FROM / size if is_large else 1.0,
            self._ledger.folds.horizon(self._stage) is None,
        )
        rows = self._rows.of(batches, many=memory > _TOGETHER)
        Comparison(self._columns, self._reader, self._name, report, read).with_rows(rows)
        return report

    def _quarantined(self, rows: DataFrame, batches: Sequence[int]) -> dict[int, list[tuple[str, int, str]]]:
        """Returns the quarantine of some batches; none is read where no run has counted a record."""
        counted = [batch for batch in batches if self._ledger.state(self._stage, batch).counts.get("quarantined")]
        return quarantined(rows, self._name, counted) if counted else {}

    def _ignored(self, batch: int) -> int | None:
        counts = self._ledger.state(self._stage, batch).counts
        return sum(n for name, n in counts.items() if name.startswith("ignored: ")) if counts.get("read") else None

    def _places(self, unit: _Unit) -> Iterator[FilePlace]:
        delta = self._declared.format == "delta"
        for number, file in enumerate(unit.files):
            path = self._spec.location(file.path)
            texts = self._ledger.corrections.texts(self._name, file.path)
            stored_as = path.removeprefix("file://")
            yield FilePlace(
                path if delta else real(path), stored_as, file.known_as or file.path, unit.batch, number, texts
            )


def _grouped(units: Iterable[_Unit]) -> Iterator[list[_Unit]]:
    """Yields units that are compared together: one query finds the rows of many small batches."""
    group: list[_Unit] = []
    for unit in units:
        if group and (sum(member.memory for member in group) + unit.memory > _TOGETHER or len(group) == _MOST_TOGETHER):
            yield group
            group = []
        group.append(unit)
    if group:
        yield group


def reader_of(columns: InputColumns, limit: int) -> FileReader:
    """Returns the reader of an input's format.

    Args:
        columns: its columns.
        limit: the largest number of bytes of a line.
    """
    side = columns.side

    def arrival(place: FilePlace) -> tuple[Any, ...]:
        return (place.batch,)

    rows = RowEntries(columns, side.op_column)
    if side.format == "csv":
        return CsvEntries(rows, limit, header=side.csv.header is not False, order=arrival)
    if side.format == "parquet":
        return ParquetEntries(rows, order=arrival)
    if side.format == "dms":
        return DmsEntries(columns, limit)
    if side.format == "delta":
        return DeltaEntries(columns)
    if side.format == "debezium":
        return LineEntries(limit, DebeziumEntries(columns).of_line, null_is_empty=True)
    if side.format == "maxwell":
        return LineEntries(limit, MaxwellEntries(columns).of_line, null_is_empty=True)
    return LineEntries(limit, rows.of_line, null_is_empty=False)
