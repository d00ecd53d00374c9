"""The text of a pipeline file, line by line, with a comment on every guess."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from fk_pipeline.scaffold.examples import EXAMPLE_LEFT
from fk_pipeline.scaffold.foreign_key import Proposal
from fk_pipeline.scaffold.meant import Groups, Nearness, Versions
from fk_pipeline.scaffold.names import may_be_bare
from fk_pipeline.scaffold.sampled import Sample
from fk_pipeline.spec.inputs import PLACEHOLDER
from fk_pipeline.spec.sql import quote

GUESSED = "guessed"
"""The word that begins the comment of every line that is a guess."""

NO_SAMPLE = "no sample of it"

PATHS = "# Paths are relative to this file. Everything that may stand here: the page `pipeline file` of the reference."
"""The second line of a pipeline file."""

_GLUE = "\0"
"""The character that replaces spaces inside a column definition, so that lines are not wrapped there."""

_GUESSES = {
    "contents": "no column has the name of a key, and rows are equal, or differ in times and amounts: all happened",
    "op_column": "its name and its values: it says what a row does, insert, update or delete",
    "delete_when": "its name: rows on which it is true are deleted; FALSE if it says no such thing",
}

_OPTIONS = {
    "csv": "how the files are written",
    "batch_by": "the numbers in these names are no batches: files count as they arrive",
}


def word(text: str, instead: str) -> str:
    """Returns a text as a name for the pipeline file; `instead` if no character of it can be kept."""
    return re.sub(r"\W+", "_", text).strip("_").lower() or instead


def folder_of(sample: Sample) -> str:
    """Returns the name of the folder in which the files of a table will land."""
    return word(sample.table, "side")


def yaml_of(value: Any) -> str:
    """Returns a YAML scalar or flow collection: plain if possible, else in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{yaml_of(k)}: {yaml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(yaml_of, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][\w./ ()-]*[\w/)]|[A-Za-z]", value):
        plain = value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
        return value if plain else json.dumps(value)
    return json.dumps(value)


def pipeline_text(
    name: str,
    left: Sample,
    right: Sample,
    paths: Sequence[str],
    proposal: Proposal,
    versions: Versions | None = None,
    warehouse: str = "warehouse",
) -> tuple[str, list[str]]:
    """Returns the text of the pipeline file of a join by key, and the guesses in it; `versions`: as of a time."""
    foreign_key = proposal.written[0] if len(proposal.written) == 1 else list(proposal.written)
    doubt = "" if left is EXAMPLE_LEFT or not proposal.is_sure else _foreign_key_doubt(proposal)
    if right.types_from == NO_SAMPLE and proposal.is_sure:
        doubt = NO_SAMPLE.replace("it", right.table)
    comment = "a SQL expression over left columns: the key of a right row"
    if not proposal.is_sure:
        comment = (
            f"nothing tells which left column refers to the key of {right.table}: write it in place of {PLACEHOLDER}"
        )
    refers = [_line("foreign_key", foreign_key, comment, doubt, indent=2)]
    as_of = [] if versions is None else [_line("as_of", versions.at, doubt=versions.evidence)]
    valid = [] if versions is None else [_line("valid_from", versions.since, "since when a version holds", indent=2)]
    when = "" if versions is None else ", as it was at its time"
    plain = len(proposal.parts) == len(right.key) and all(part.expression == part.column for part in proposal.parts)
    blocks = [
        f"# {left.table} (left), each with the row of {right.table} (right) that it refers to{when}.",
        PATHS,
        _line("name", name),
        _line("join", "left", f"left: a row of {left.table} without a right row stays, with nulls; inner: it does not"),
        *as_of,
        "",
        *_side("left", left, paths[0], refers),
        "",
        *_side("right", right, paths[1], valid),
        "",
        "# The columns of the result. A right row whose selected columns stay as they are touches nothing: leave out",
        "# what nobody reads. SQL expressions need a name: upper(city) AS city",
        "select:",
        *(f"  - {column}" for column in _select(left, right, right.key if plain and proposal.is_sure else ())),
        "",
        *_end(name, warehouse),
    ]
    sides = {"left": left, "right": right}
    refers_doubt = [f"left.foreign_key: {doubt}"] if doubt else []
    as_of_doubt = [] if versions is None else [f"as_of: {versions.at}; {versions.evidence}"]
    doubts = [*_key_doubts(sides), *refers_doubt, *as_of_doubt, *_other_doubts(sides)]
    return "\n".join(blocks) + "\n", doubts


def window_text(name: str, sides: tuple[Sample, Sample], paths: Sequence[str], near: Nearness) -> tuple[str, list[str]]:
    """Returns the text of the pipeline file of a join within a span of time, and the guesses in it."""
    left, right = sides
    equal = [
        [
            _line("on", near.on[side], doubt=near.evidence, indent=2),
            _line("time", near.times[side], "when it happened", indent=2),
        ]
        for side in range(2)
    ]
    blocks = [
        f"# {left.table} (left) and {right.table} (right) that happened near each other in time.",
        PATHS,
        _line("name", name),
        _line("kind", "window"),
        _line("join", "left", f"left: a row of {left.table} without a match stays, with nulls; inner: it does not"),
        "",
        *_side("left", left, paths[0], equal[0]),
        "",
        *_side("right", right, paths[1], equal[1]),
        "",
        _line("within", {"before": "0 seconds", "after": "1 hour"}, doubt="no sample tells how far apart they may be"),
        _line("grace", "0 seconds", "how much later than its time an event may land"),
        _line("unmatched", "when_closed", "or at_once: when a left row without a match is in the result"),
        "",
        "select:",
        *(f"  - {column}" for column in _select(left, right, (near.same,) if near.same else ())),
        "",
        *_end(name, "warehouse"),
    ]
    named = {"left": left, "right": right}
    doubts = [f"{side}.on: {on}; {near.evidence}" for side, on in zip(named, near.on, strict=True)]
    doubts.append("within: 0 seconds before, 1 hour after; no sample tells how far apart they may be")
    return "\n".join(blocks) + "\n", [*_key_doubts(named), *doubts, *_other_doubts(named)]


def aggregate_text(name: str, sample: Sample, path: str, groups: Groups) -> tuple[str, list[str]]:
    """Returns the text of the pipeline file of an aggregate, and the guesses in it."""
    names = {groups.by.strip("`").lower()}
    aggregates = [f"count(*) AS {_unused(word(sample.table, 'number'), names)}"]
    aggregates += [
        f"sum({column}) AS {_unused('total_' + word(column.strip('`'), 'value'), names)}" for column in groups.sums
    ]
    moment = next((c.name for c in sample.columns if c.inferred.type.startswith("TIMESTAMP")), "")
    window = _line("window", {"size": "1 day", "time": moment}, "one group per day besides") if moment else ""
    blocks = [
        f"# {sample.table}, counted and added up per {groups.by.strip('`')}.",
        PATHS,
        _line("name", name),
        _line("kind", "aggregate"),
        "",
        *_side("input", sample, path, []),
        "",
        _line("group_by", [groups.by], doubt=groups.evidence),
        *([f"# {window}"] if window else []),
        "aggregates:",
        *(f"  - {aggregate}" for aggregate in aggregates),
        f"{f'# having: {aggregates[0].split()[-1]} > 1':<34} # which groups are in the result",
        "",
        *_end(name, "warehouse"),
    ]
    sides = {"input": sample}
    doubts = [*_key_doubts(sides), f"group_by: {groups.by}; {groups.evidence}", *_other_doubts(sides)]
    return "\n".join(blocks) + "\n", doubts


def _unused(name: str, names: set[str]) -> str:
    """Returns a name for a column of the result that no other has, in backticks if it needs them."""
    while name in names:
        name = f"{name}_"
    names.add(name)
    return name if may_be_bare(name) else quote(name)


def table_text(name: str, sample: Sample, path: str, label: str) -> tuple[str, list[str]]:
    """Returns the text of a pipeline file of `kind: table`, and the guesses in it, each with a label."""
    blocks = [
        f"# The current rows of {sample.table}: one per key, from its changes.",
        PATHS,
        _line("name", name),
        _line("kind", "table"),
        "",
        *_side("input", sample, path, []),
        "",
        *_end(name, "warehouse"),
    ]
    sides = {label: sample}
    return "\n".join(blocks) + "\n", [*_key_doubts(sides), *_other_doubts(sides)]


def key_line(key: Sequence[str], doubt: str, indent: int, comment: str = "") -> str:
    """Returns the line of a key; a doubt makes it a guess."""
    return _line("key", [name.strip("`") for name in key], comment, doubt, indent=indent)


def warehouse_line(name: str, warehouse: str) -> str:
    """Returns the line of the warehouse of a pipeline."""
    return _line("warehouse", warehouse, f"folder or URI of the tables, all below {warehouse}/{name}")


def _end(name: str, warehouse: str) -> list[str]:
    """Returns the last lines of a pipeline file that reads what lands."""
    return [
        warehouse_line(name, warehouse),
        _line("on_bad_record", "quarantine", "or fail: a record that cannot be read stops its batch"),
        _line("schema_changes", "evolve", "or ignore, fail: when the source sends other columns than before"),
        "",
        "# settings:",
        "#   driver_memory: 4g          # heap of a local Spark",
        "#   sensor_seconds: 15         # how often Dagster looks for new files",
    ]


def _key_doubts(sides: Mapping[str, Sample]) -> list[str]:
    return [
        f"{s}.key: {', '.join(sample.key)}; {sample.key_doubt}"
        for s, sample in sides.items()
        if sample.key and sample.key_doubt
    ]


def _other_doubts(sides: Mapping[str, Sample]) -> list[str]:
    """Returns the guesses of options and types, those of all options first."""
    doubts = [
        f"{side}.{option}: {sample.options[option]}; {doubt}"
        for side, sample in sides.items()
        for option, doubt in _GUESSES.items()
        if option in sample.options
    ]
    return doubts + [
        f"{side}.{column.name}: {column.inferred.type}; {column.inferred.doubt}"
        for side, sample in sides.items()
        for column in sample.columns
        if column.inferred.doubt
    ]


def _foreign_key_doubt(proposal: Proposal) -> str:
    also = f"; or {', '.join(proposal.others)}" if proposal.others else ""
    return "; ".join(dict.fromkeys(part.evidence for part in proposal.parts)) + also


def _line(key: str, value: Any, comment: str = "", doubt: str = "", indent: int = 0) -> str:
    """Returns `key: value` with a comment; the comment of a guess begins with `GUESSED`."""
    note = f"{GUESSED}: {doubt}" if doubt else comment
    text = f"{' ' * indent}{key}: {yaml_of(value)}"
    return f"{text:<34} # {note}" if note else text


def _side(side: str, sample: Sample, path: str, refers: list[str]) -> list[str]:
    shape = f"found in the sample: {sample.shape}" if sample.shape and sample.shape != NO_SAMPLE else ""
    unknown = sample.shape == NO_SAMPLE
    lines = [
        f"{side}:",
        _line("path", path, "a folder, a glob, or a URI; the last number in a file's name is its batch", indent=2),
        _line("format", sample.format, shape, NO_SAMPLE if unknown else "", indent=2),
    ]
    if "table" in sample.options:
        lines.append(_line("table", sample.options["table"], "lines of other tables are ignored", indent=2))
    if sample.types_from and not unknown:
        lines.append(f"  # types from {sample.types_from}")
    lines += [
        f"  # {GUESSED}: {column.name} {column.inferred.type}; {column.inferred.doubt}"
        for column in sample.columns
        if column.inferred.doubt and not unknown
    ]
    ddl = ", ".join(column.ddl.replace(" ", _GLUE) for column in sample.columns)
    wrapped = textwrap.wrap(
        ddl, 110, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    lines += ["  schema: >-", *(line.replace(_GLUE, " ") for line in wrapped)]
    logical = {column.name: column.inferred.logical for column in sample.columns if column.inferred.logical}
    if logical:
        lines += ["  logical_types:                   # how the source writes these values"]
        lines += [f"    {yaml_of(name.strip('`'))}: {how}" for name, how in logical.items()]
    known = "" if sample.types_from in ("", NO_SAMPLE) else sample.key_from
    if sample.key:
        lines.append(key_line(sample.key, sample.key_doubt, 2, "" if sample.key_doubt else known))
    elif not sample.has_key:
        unclear = f"{sample.key_doubt}: write the columns that identify a row in place of {PLACEHOLDER}"
        lines.append(_line("key", PLACEHOLDER, unclear, indent=2))
    lines += refers
    for option in ("contents", "op_column", "delete_when", "csv", "batch_by"):
        if option in sample.options:
            lines.append(_line(option, sample.options[option], _OPTIONS.get(option, ""), _GUESSES.get(option, ""), 2))
    moment = next((c.name for c in sample.columns if c.inferred.type.startswith("TIMESTAMP")), None)
    if sample.format in ("rows", "csv", "parquet") and moment:
        lines.append(f"  # sequence_by: {moment:<17} # if a later change has a larger one; default: order of arrival")
    lines.append("  # sensitive: [email]             # columns whose values stay out of logs, samples and messages")
    return lines


def _select(left: Sample, right: Sample, same: Sequence[str]) -> list[str]:
    """Returns every column of both sides once; a right one that has the name of a left one begins with `right_`.

    Args:
        left: the left side.
        right: the right side.
        same: right columns whose values a left column has; they are left out, unless the right side has no others.
    """
    shown = [column for column in left.columns if column.name != left.mark or column.name in left.key]
    events = _is_events(left)
    of_right = [column for column in right.columns if column.name != right.mark]
    of_right = [column for column in of_right if column.name not in same] or of_right
    taken = {column.name.strip("`").lower() for column in left.columns} | ({"event"} if events else set())
    both = taken & {column.name.strip("`").lower() for column in right.columns}
    lines = [
        f"left.{column.name} AS {column.name}" if column.name.strip("`").lower() in both else column.name
        for column in shown
    ]
    if events:
        lines.insert(0, "left.event AS event" if "event" in both or _is_events(right) else "event")
    names = taken | {column.name.strip("`").lower() for column in right.columns}
    for column in of_right:
        plain = column.name.strip("`")
        if plain.lower() not in both:
            lines.append(column.name)
            continue
        alias = f"right_{plain}"
        while alias.lower() in names:
            alias = f"right_{alias}"
        names.add(alias.lower())
        lines.append(f"right.{column.name} AS {alias if alias.isidentifier() else quote(alias)}")
    return [yaml_of(line) if line.startswith("`") or ":" in line else line for line in lines]


def _is_events(sample: Sample) -> bool:
    return sample.has_key and not sample.key
