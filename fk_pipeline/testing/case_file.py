"""Reads the cases of a pipeline from YAML. Every mistake is reported with file and line, and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from fk_pipeline.errors import CaseFileError, UsageError, escaped
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.paths import inline_of
from fk_pipeline.spec.problems import line_of
from fk_pipeline.spec.project import CASES
from fk_pipeline.spec.yaml_text import YamlTextError, load_yaml
from fk_pipeline.testing.cases import (
    CaseStep,
    ExpectedState,
    GivenBatch,
    GivenRow,
    PipelineCase,
    RowValues,
    WrittenNumber,
)
from fk_pipeline.testing.inputs import CaseInput, inputs_of_cases
from fk_pipeline.words import meant_or_all

DELETE = "delete"
"""In place of the values of a row: a mapping with the values of its key, which is deleted."""

_GIVEN, _STEPS, _NOW = "given", "steps", "now"
_ROWS, _SOME, _QUARANTINED = "expect", "expect_some", "expect_quarantined"
_OF_STEP = (_GIVEN, _NOW, _ROWS, _SOME, _QUARANTINED)
_OF_CASE = ("name", *_OF_STEP, _STEPS)

_NOT_FINITE = {".nan": "NaN", ".inf": "Infinity", "+.inf": "Infinity", "-.inf": "-Infinity"}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

_SCALARS: Mapping[str, Callable[[str], Any]] = {
    "bool": lambda text: _BOOLEANS[text.lower()],
    "int": WrittenNumber,
    "float": lambda text: _NOT_FINITE.get(text.lower()) or WrittenNumber(text),
    "timestamp": str,
}
"""Per type of YAML, the value of a scalar."""

DocumentPlace = tuple[str | int, ...]
"""Keys and indices from the top of a document."""


def selected_cases(spec: PipelineSpec, files: Sequence[Path] = (), select: str = "") -> list[PipelineCase]:
    """Returns cases of a pipeline, in the order of their files.

    Args:
        spec: the pipeline.
        files: the files of cases; none: the one beside the pipeline file.
        select: only cases with this text in their name, in any case.

    Raises:
        UsageError: a file is not there, or no case is selected.
        CaseFileError: a file is no list of cases that fit the pipeline, or two cases have one name; each problem is on
            a line of its own.
    """
    whole, of = inline_of(spec.file)
    beside = whole.with_name(f"{whole.stem}{f'.{of}' if of else ''}{CASES}")
    cases: dict[str, PipelineCase] = {}
    for file in files or [beside]:
        if not file.is_file():
            raise UsageError(
                "there is no such file of cases",
                where=str(file),
                fix=f"write a list of cases into {beside}, or name a file: --cases FILE",
            )
        for case in _CaseReader(spec, file).cases():
            if case.name in cases:
                raise CaseFileError(f"two cases are called {case.name!r}", where=str(file))
            cases[case.name] = case
    selected = [case for name, case in cases.items() if select.lower() in name.lower()]
    if not selected:
        raise UsageError(f"no case has {select!r} in its name", fix=f"cases are {', '.join(map(repr, cases))}")
    return selected


class _CaseReader:
    """Reads one file of cases, and collects what is wrong with it."""

    def __init__(self, spec: PipelineSpec, file: Path) -> None:
        self.file = file
        self.inputs = inputs_of_cases(spec)
        self.clocks = tuple(map(str, spec.clocks))
        self.result = [output.name for output in spec.outputs]
        self.document = _document(file)
        self.problems: list[tuple[int, str]] = []

    def cases(self) -> list[PipelineCase]:
        """Returns the cases of the file.

        Raises:
            CaseFileError: something is wrong with them.
        """
        if not isinstance(self.document, list) or not self.document:
            raise CaseFileError(
                "a file of cases is a YAML list, of mappings with name, given and expect", where=f"{self.file}:1"
            )
        cases = [self._case(given, (i,)) for i, given in enumerate(self.document)]
        names = [case.name for case in cases]
        for i, name in enumerate(names):
            if name and name in names[:i]:
                self._wrong((i, "name"), f"two cases are called {name!r}; give each a name of its own")
        if self.problems:
            lines = [f"{escaped(str(self.file))}:{line}: {text}" for line, text in sorted(self.problems)]
            raise CaseFileError("\n".join(lines))
        return cases

    def _wrong(self, place: DocumentPlace, text: str) -> None:
        self.problems.append((line_of(self.document, place), escaped(text)))

    def _case(self, given: Any, place: DocumentPlace) -> PipelineCase:
        given = self._mapping(given, place, _OF_CASE, "a case")
        name = given.get("name")
        if not isinstance(name, str) or not name.strip():
            self._wrong(
                place, "a case has a name: a sentence that says what is true, 'name: an order finds its customer'"
            )
            name = ""
        what = f"case {name!r}"
        if _STEPS in given and any(key in given for key in _OF_STEP):
            self._wrong(place, f"{what}: has steps, and {_GIVEN} or {_ROWS} beside them; each step has its own")
        if _STEPS in given:
            at = (*place, _STEPS)
            steps = [self._step(step, (*at, i), what) for i, step in enumerate(self._list(given[_STEPS], at))]
        else:
            steps = [self._step({key: value for key, value in given.items() if key in _OF_STEP}, place, what)]
        if self.clocks and steps and steps[0].now is None:
            first = " in its first step" if _STEPS in given else ""
            self._wrong(
                place, f"{what}: nothing says what clock {self.clocks[0]!r} shows; write '{_NOW}: 2026-05-01'{first}"
            )
        if not steps or steps[-1].expected is None:
            last = " after its last step" if _STEPS in given else ""
            self._wrong(place, f"{what}: expects nothing{last}; write {_ROWS}, {_SOME} or {_QUARANTINED}")
        return PipelineCase(str(name), tuple(steps))

    def _step(self, given: Any, place: DocumentPlace, what: str) -> CaseStep:
        given = self._mapping(given, place, _OF_STEP, "a step")
        at = (*place, _GIVEN)
        batches: tuple[GivenBatch, ...] = ()
        if isinstance(given.get(_GIVEN), Mapping):
            batches = (self._batch(given[_GIVEN], at),)
        elif _GIVEN in given:
            batches = tuple(self._batch(batch, (*at, i)) for i, batch in enumerate(self._list(given[_GIVEN], at)))
        now = given.get(_NOW)
        if now is not None and not self.clocks:
            self._wrong((*place, _NOW), f"{what}: {_NOW} sets a clock among the inputs, and the pipeline has none")
        if not batches and now is None:
            self._wrong(place, f"{what}: {_GIVEN} is missing: a list of batches, each with rows by input")
        return CaseStep(batches, self._expected(given, place, what), None if now is None else str(now))

    def _batch(self, given: Any, place: DocumentPlace) -> GivenBatch:
        rows: dict[Any, tuple[GivenRow, ...]] = {}
        for name, values in self._mapping(given, place, None, "a batch").items():
            at = (*place, name)
            source = next((source for source in self.inputs if str(source.side) == name), None)
            if str(name) in self.clocks:
                self._wrong(at, f"{name!r} is a clock, which {_NOW} sets: '{_NOW}: 2026-05-01'")
            elif source is None:
                self._wrong(
                    at, f"there is no input {str(name)!r}{meant_or_all(name, [str(t.side) for t in self.inputs])}"
                )
            elif source.lands_as != source.side:
                self._wrong(at, f"{name!r} is the same stream as {str(source.lands_as)!r}; give its rows there, once")
            else:
                listed = self._list(values, at) if values is not None else []
                rows[source.side] = tuple(self._row(row, (*at, i), source) for i, row in enumerate(listed))
        return rows

    def _row(self, given: Any, place: DocumentPlace, source: CaseInput) -> GivenRow:
        given = self._mapping(given, place, None, "a row")
        deletes = DELETE in given and DELETE not in source.columns
        if not deletes:
            return GivenRow(self._values(given, place, source.columns, f"input {source.side}"))
        if len(given) > 1 or not isinstance(given[DELETE], Mapping):
            self._wrong(place, f"a delete is {{{DELETE}: {{{', '.join(f'{name}: ...' for name in source.key)}}}}}")
        if not source.may_delete:
            self._wrong(place, f"input {source.side} has {source.contents}: its rows are not deleted one by one")
        values = self._values(given[DELETE], (*place, DELETE), source.columns, f"input {source.side}")
        lacking = [name for name in source.key if name not in values]
        if lacking and not self.problems:
            self._wrong(place, f"a delete names the key of its row: {', '.join(lacking)} is missing")
        return GivenRow(values, deletes=True)

    def _expected(self, given: Mapping[Any, Any], place: DocumentPlace, what: str) -> ExpectedState | None:
        if _ROWS in given and _SOME in given:
            self._wrong((*place, _SOME), f"{what}: {_ROWS} are all rows, {_SOME} some of them; write one of the two")
        key = next((key for key in (_ROWS, _SOME) if key in given), None)
        rows = None
        if key is not None:
            at = (*place, key)
            listed = self._list(given[key], at) if given[key] is not None else []
            rows = tuple(self._values(row, (*at, i), self.result, "the result") for i, row in enumerate(listed))
        number = given.get(_QUARANTINED)
        if number is not None and not (isinstance(number, WrittenNumber) and number.isdigit()):
            self._wrong((*place, _QUARANTINED), f"{what}: {_QUARANTINED} is a number of records, not {str(number)!r}")
            number = None
        if key is None and number is None:
            return None
        return ExpectedState(rows, key == _SOME, int(number or 0))

    def _values(self, given: Any, place: DocumentPlace, columns: Sequence[str], whose: str) -> RowValues:
        known = {name.lower(): name for name in columns}
        values: dict[str, Any] = {}
        for name, value in self._mapping(given, place, None, "a row").items():
            column = known.get(str(name).lower())
            if column is None:
                self._wrong((*place, name), f"{whose} has no column {str(name)!r}{meant_or_all(name, columns)}")
            elif column in values:
                self._wrong((*place, name), f"{whose}: a row has column {column!r} twice")
            else:
                self._check_value(value, (*place, name), f"{whose}: column {column!r}")
                values[column] = value
        return values

    def _check_value(self, value: Any, place: DocumentPlace, what: str) -> None:
        """Reports a value that no line of JSON has."""
        if isinstance(value, Mapping):
            for name, item in value.items():
                self._check_value(item, (*place, name), what)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self._check_value(item, (*place, i), what)
        elif isinstance(value, WrittenNumber) and not value.is_plain:
            self._wrong(place, f"{what}: write {value} as 1000, -5 or 0.5 are written, or in quotes if it is a text")
        elif not isinstance(value, (str, bool, NoneType)):
            self._wrong(place, f"{what}: a value is null, true, false, a text, a number, a list or a mapping")

    def _mapping(self, given: Any, place: DocumentPlace, keys: Sequence[str] | None, what: str) -> Mapping[Any, Any]:
        """Returns a mapping, or reports that there is none, or that it has other keys than it may have."""
        if not isinstance(given, Mapping):
            self._wrong(place, f"{what} is a mapping{': ' + ', '.join(keys) if keys else ''}; not {_shown(given)}")
            return {}
        for key in given if keys is not None else ():
            if key not in (keys or ()):
                self._wrong((*place, key), f"{what} has no key {str(key)!r}{meant_or_all(key, keys or ())}")
        return given

    def _list(self, given: Any, place: DocumentPlace) -> Sequence[Any]:
        if isinstance(given, list):
            return given
        self._wrong(place, f"{place[-1]}: a list, with '- ' before each of its entries; not {_shown(given)}")
        return []


def _document(file: Path) -> Any:
    """Returns the content of a file of cases, whose values know their lines.

    Raises:
        CaseFileError: it is no YAML, or cannot be read.
    """
    try:
        return load_yaml(file.read_text(encoding="utf-8"), scalars=_SCALARS)
    except YamlTextError as error:
        raise CaseFileError(str(error), where=f"{file}:{error.line}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CaseFileError(f"the file of cases cannot be read: {error}", where=str(file)) from None


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(str(value))[:60]
