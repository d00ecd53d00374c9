"""The files of a new pipeline folder: a commented pipeline file, landing folders, settings for Dagster, a README."""

from __future__ import annotations

import csv
import json
import os
import re
import tempfile
import textwrap
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.scaffold.foreign_key import Proposal, propose
from fk_pipeline.scaffold.names import singular
from fk_pipeline.scaffold.sample import Sample, SampleColumn, read_sample
from fk_pipeline.scaffold.types import Inferred
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.model import UNWRITABLE

GUESSED = "guessed"
"""Stands in the comment of every line that the sample does not say."""


@dataclass(frozen=True)
class Made:
    """What `make_folder` has made.

    Attributes:
        spec: the pipeline file, as it was read back.
        written: files and folders, in order.
        said: what was found in the samples, a sentence each.
        doubts: the guesses, a sentence each.
        samples: per side the sample; empty without any.
        to_do: what the user has to say before the pipeline can run.
    """

    spec: PipelineSpec
    written: tuple[Path, ...]
    said: tuple[str, ...]
    doubts: tuple[str, ...]
    samples: tuple[Sample, ...]
    to_do: tuple[str, ...] = ()


def make_folder(folder: Path, samples: list[Path], *, in_place: bool = False) -> Made:
    """Makes the folder of a pipeline; nothing is overwritten.

    Args:
        folder: its name is that of the pipeline.
        samples: of the left side, then of the right side; one file with lines of two tables; or none.
        in_place: the pipeline reads the folders of the samples instead of landing folders of its own.

    Raises:
        UsageError: a file is there already, or a sample cannot be read.
    """
    if odd := sorted(set(str(folder.absolute())) & UNWRITABLE):
        raise UsageError(f"{folder.absolute()} has {' '.join(odd)} in it, which Delta tables cannot be written under")
    name = _name_of(folder)
    file = folder / f"{name}.yaml"
    for one in (file, folder / "dagster.yaml", folder / "README.md"):
        if one.exists():
            raise UsageError(f"{one} is there already", why="nothing was written", fix="name another folder")
    try:
        found = _sides(samples)
    except (OSError, EOFError, csv.Error) as error:
        raise UsageError(f"a sample cannot be read: {error}", fix="take another file, or a part of this one") from error
    left, right = found or (_EXAMPLE_LEFT, _EXAMPLE_RIGHT)
    folders = ("left", "right") if _folder(left) == _folder(right) else (_folder(left), _folder(right))
    paths = [f"landing/{one}" for one in folders]
    if "table" in left.options and left.path == right.path:
        paths = [f"landing/{_word(left.path.absolute().name.split('.')[0], 'changes')}"] * 2
    if found:
        stays = [in_place or one.format == "delta" for one in found]
        paths = [_seen_from(folder, o.folder) if s else p for p, s, o in zip(paths, stays, found, strict=True)]
        _refuse_mixed(found, stays)
    landing = [folder / one for one in dict.fromkeys(paths) if one.startswith("landing/")]
    proposal = propose(left, right)
    text, doubts = _pipeline_text(name, left, right, paths, proposal)
    _check(text, file.name)
    try:
        for one in (folder, *landing):
            one.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        (folder / "dagster.yaml").write_bytes((files("fk_pipeline.servers") / "dagster.yaml").read_bytes())
        (folder / "README.md").write_text(_readme(name, left, right, paths), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error}", fix="name another folder") from error
    spec = load_spec(file)
    said = _found(found, proposal) if found else []
    written = (file, *landing, folder / "dagster.yaml", folder / "README.md")
    to_do = []
    if found and right.types_from == _NO_SAMPLE:
        to_do.append(f"say in {file} what the right side is, and land files of it in {folder / paths[1]}")
    elif found and not proposal.is_sure:
        to_do.append(f"say in {file} which left column is the foreign key")
    return Made(spec, written, tuple(said), tuple(doubts) if found else (), found or (), tuple(to_do))


def _found(found: tuple[Sample, Sample], proposal: Proposal) -> list[str]:
    """What the samples say, and what the user should know of them."""
    left, right = found
    said = [_sentence("left", left), _sentence("right", right)]
    said += [f"{one.table}: {note}" for one in found for note in one.notes]
    turned = propose(right, left)
    if turned.is_sure and turned.score >= proposal.score + 2:
        said.append(
            f"{right.table} seems to refer to {left.table} ({', '.join(turned.expressions)}): "
            "if so, name the samples the other way round"
        )
    return said


def _check(text: str, name: str) -> None:
    """Reads the pipeline file back before anything of the user's is written.

    Raises:
        UsageError: it does not load, which no sample should bring about.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8")
        try:
            load_spec(file)
        except PipelineFileError as error:
            said = error.what.replace(f"{file}:", "line ")
            why = f"the pipeline file that these samples give does not load: {said}"
            raise UsageError(
                why, why="nothing was written", fix="begin with 'fk-pipeline init DIR', and edit it"
            ) from None


def _refuse_mixed(found: tuple[Sample, Sample], stays: list[bool]) -> None:
    """Refuses sides that would read each other's files where they lie."""
    left, right = found
    if not any(stays):
        return
    if right.types_from == _NO_SAMPLE:
        raise UsageError(
            "where the right side lies is not known", fix="give a sample of it too, or leave out --in-place"
        )
    if all(stays) and left.folder == right.folder and "table" not in left.options:
        raise UsageError(
            f"both samples lie in {left.folder}, so each side would read the other's files",
            fix="leave out --in-place, or keep the files of each table in a folder of their own",
        )


def _name_of(folder: Path) -> str:
    """The name of the pipeline: that of the folder, in lower case, with _ for what a name cannot have."""
    name = re.sub(r"[^a-z0-9]+", "_", folder.absolute().name.lower()).strip("_")[:100]
    return name if name[:1].isalpha() else f"pipeline_{name}".rstrip("_")


def _sides(samples: list[Path]) -> tuple[Sample, Sample] | None:
    if not samples:
        return None
    if len(samples) > 2:
        raise UsageError("a join has two sides", fix="--from-sample LEFT --from-sample RIGHT")
    read = [read_sample(path) for path in samples]
    if len(samples) == 2:
        for path, tables in zip(samples, read, strict=True):
            if len(tables) > 1:
                names = ", ".join(one.table for one in tables)
                raise UsageError(f"{path} has lines of several tables: {names}", fix="give a sample with lines of one")
        return read[0][0], read[1][0]
    (tables,) = read
    if len(tables) == 1:
        return tables[0], _unknown_right(tables[0])
    pairs = [(one, other) for one in tables for other in tables if one is not other]
    return max(pairs, key=lambda pair: propose(*pair).score)


_NO_SAMPLE = "no sample of it"


def _unknown_right(left: Sample) -> Sample:
    """A right side that nobody has shown: what a column of the left one seems to refer to."""
    refers = next(
        (c for c in left.columns if re.fullmatch(r"(?i).+_(id|key|code|no)", c.name) and c.name not in left.key), None
    )
    table = refers.name.rsplit("_", 1)[0].lower() + "s" if refers else "right_table"
    name, kind = (refers.name, refers.inferred.type) if refers else ("id", left.columns[0].inferred.type)
    key = SampleColumn(name, Inferred(kind, doubt=_NO_SAMPLE), frozenset(), 0)
    value = SampleColumn("name", Inferred("STRING", doubt=_NO_SAMPLE), frozenset(), 0)
    columns = (key,) if name == "name" else (key, value)
    return Sample(left.path, left.folder, left.format, _NO_SAMPLE, table, columns, (name,), _NO_SAMPLE, 0, _NO_SAMPLE)


def _example(table: str, ddl: str, key: str) -> Sample:
    columns = tuple(
        SampleColumn(name, Inferred(kind), frozenset(), 0)
        for name, kind in (one.split(" ", 1) for one in ddl.split("; "))
    )
    return Sample(Path(), Path(), "rows", "", table, columns, (key,), "", 0, "")


_EXAMPLE_LEFT = _example(
    "orders", "order_id BIGINT; customer_id STRING; amount DECIMAL(12,2); updated_at TIMESTAMP", "order_id"
)
_EXAMPLE_RIGHT = _example("customers", "customer_id STRING; name STRING; city STRING", "customer_id")


def _word(text: str, instead: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower() or instead


def _folder(sample: Sample) -> str:
    return _word(sample.table, "side")


def _seen_from(folder: Path, other: Path) -> str:
    """A path relative to the folder of the pipeline file, where the two lie near each other; else absolute."""
    relative = os.path.relpath(other.absolute(), folder.absolute())
    return relative if relative.count("..") <= 2 else str(other.absolute())


def _sentence(side: str, sample: Sample) -> str:
    columns = f"{len(sample.columns)} column{'s' * (len(sample.columns) != 1)}"
    if sample.types_from == _NO_SAMPLE:
        return f"{side:<5} {sample.table}: {_NO_SAMPLE}; its part of the pipeline file is a guess"
    key = f"key {', '.join(sample.key)}{f' ({GUESSED})' if sample.key_doubt else ''}"
    return f"{side:<5} {sample.table}: {sample.format}, {sample.shape}, {columns}, {key}"


# The pipeline file.


def _yaml(value: Any) -> str:
    """A YAML scalar or flow collection: plain where it can be, else in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(k)}: {_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][\w./ ()-]*[\w/)]|[A-Za-z]", value):
        plain = value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
        return value if plain else json.dumps(value)
    return json.dumps(value)


def _pipeline_text(
    name: str, left: Sample, right: Sample, paths: list[str], proposal: Proposal
) -> tuple[str, list[str]]:
    """The pipeline file, and what is guessed in it."""
    foreign_key = proposal.expressions[0] if len(proposal.expressions) == 1 else list(proposal.expressions)
    doubt = "" if left is _EXAMPLE_LEFT else _foreign_key_doubt(proposal)
    if right.types_from == _NO_SAMPLE:
        doubt = _NO_SAMPLE.replace("it", right.table)
    comment = "a SQL expression over left columns: the key of a right row"
    refers = [_line("foreign_key", foreign_key, comment, doubt, indent=2)]
    blocks = [
        f"# {left.table} (left), each with the row of {right.table} (right) that it refers to.",
        "# Paths are relative to this file. Everything that may stand here: the page `pipeline file` of the reference.",
        _line("name", name),
        _line("join", "left", f"left: a row of {left.table} without a right row stays, with nulls; inner: it does not"),
        "",
        *_side("left", left, paths[0], refers),
        "",
        *_side("right", right, paths[1], []),
        "",
        "# The columns of the result. A right row whose selected columns stay as they are touches nothing: leave out",
        "# what nobody reads. SQL expressions need a name: upper(city) AS city",
        "select:",
        *(f"  - {one}" for one in _select(left, right)),
        "",
        _line("warehouse", "warehouse", "folder or URI of the tables, all below warehouse/" + name),
        _line("on_bad_record", "quarantine", "or fail: a record that cannot be read stops its batch"),
        _line("schema_changes", "evolve", "or ignore, fail: when the source sends other columns than before"),
        "",
        "# settings:",
        "#   driver_memory: 4g          # heap of a local Spark",
        "#   sensor_seconds: 15         # how often Dagster looks for new files",
    ]
    doubts = [f"{label}: {one.key_doubt}" for one, label in ((left, "left.key"), (right, "right.key")) if one.key_doubt]
    doubts += [f"left.foreign_key: {doubt}"] if doubt else []
    doubts += [
        f"{side}.{option}: {sample.options[option]}; {doubt}"
        for side, sample in (("left", left), ("right", right))
        for option, doubt in _GUESSES.items()
        if option in sample.options
    ]
    doubts += [
        f"{side}.{column.name}: {column.inferred.type}; {column.inferred.doubt}"
        for side, sample in (("left", left), ("right", right))
        for column in sample.columns
        if column.inferred.doubt
    ]
    return "\n".join(blocks) + "\n", doubts


def _foreign_key_doubt(proposal: Proposal) -> str:
    if not proposal.is_sure:
        return "nothing in the samples tells which column refers to the right key; say it"
    also = f"; or {', '.join(proposal.others)}" if proposal.others else ""
    return "; ".join(dict.fromkeys(proposal.evidence)) + also


def _line(key: str, value: Any, comment: str = "", doubt: str = "", indent: int = 0) -> str:
    """`key: value`, with a comment; what is a guess says so first."""
    said = f"{GUESSED}: {doubt}" if doubt else comment
    text = f"{' ' * indent}{key}: {_yaml(value)}"
    return f"{text:<34} # {said}" if said else text


def _side(side: str, sample: Sample, path: str, refers: list[str]) -> list[str]:
    shape = f"found in the sample: {sample.shape}" if sample.shape and sample.shape != _NO_SAMPLE else ""
    unknown = sample.shape == _NO_SAMPLE
    lines = [
        f"{side}:",
        _line("path", path, "a folder, a glob, or a URI; the last number in a file's name is its batch", indent=2),
        _line("format", sample.format, shape, _NO_SAMPLE if unknown else "", indent=2),
    ]
    if "table" in sample.options:
        lines.append(_line("table", sample.options["table"], "lines of other tables are ignored", indent=2))
    if sample.types_from and not unknown:
        lines.append(f"  # types from {sample.types_from}")
    lines += [
        f"  # {GUESSED}: {one.name} {one.inferred.type}; {one.inferred.doubt}"
        for one in sample.columns
        if one.inferred.doubt and not unknown
    ]
    ddl = ", ".join(one.ddl.replace(" ", _GLUE) for one in sample.columns)
    wrapped = textwrap.wrap(
        ddl, 110, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    lines += ["  schema: >-", *(line.replace(_GLUE, " ") for line in wrapped)]
    logical = {one.name: one.inferred.logical for one in sample.columns if one.inferred.logical}
    if logical:
        lines += ["  logical_types:                   # how the source writes these values"]
        lines += [f"    {_yaml(name.strip('`'))}: {how}" for name, how in logical.items()]
    key = [name.strip("`") for name in sample.key]
    known = "" if sample.types_from in ("", _NO_SAMPLE) else "from the records"
    lines.append(_line("key", key, "" if sample.key_doubt else known, sample.key_doubt, indent=2))
    lines += refers
    for option in ("op_column", "delete_when", "csv", "batch_by"):
        if option in sample.options:
            lines.append(_line(option, sample.options[option], _OPTIONS.get(option, ""), _GUESSES.get(option, ""), 2))
    moment = next((c.name for c in sample.columns if c.inferred.type.startswith("TIMESTAMP")), None)
    if sample.format in ("rows", "csv", "parquet") and moment:
        lines.append(f"  # sequence_by: {moment:<17} # if a later change has a larger one; default: order of arrival")
    lines.append("  # sensitive: [email]             # columns whose values stay out of logs, samples and messages")
    return lines


_GLUE = "\0"
"""Holds a column's name and type together where lines are wrapped."""

_GUESSES = {
    "op_column": "its name and its values: it says what a row does, insert, update or delete",
    "delete_when": "its name: rows on which it is true are deleted; FALSE if it says no such thing",
}
_OPTIONS = {
    "csv": "how the files are written",
    "batch_by": "the numbers in these names are no batches: files count as they arrive",
}


def _select(left: Sample, right: Sample) -> list[str]:
    """Every column of both sides, those with equal names told apart."""
    shown = [one for one in left.columns if one.name != left.mark or one.name in left.key]
    taken = {one.name.strip("`").lower() for one in left.columns}
    both = taken & {one.name.strip("`").lower() for one in right.columns}
    lines = [f"left.{one.name} AS {one.name}" if one.name.strip("`").lower() in both else one.name for one in shown]
    for one in right.columns:
        if one.name == right.mark:
            continue
        plain = one.name.strip("`")
        if plain.lower() not in both:
            lines.append(one.name)
            taken.add(plain.lower())
            continue
        alias = f"{singular(_folder(right))}_{plain}"
        while alias.lower() in taken or alias.lower() in {c.name.strip("`").lower() for c in right.columns}:
            alias = f"right_{alias}"
        taken.add(alias.lower())
        lines.append(f"right.{one.name} AS {alias if alias.isidentifier() else f'`{alias}`'}")
    return [_yaml(line) if line.startswith("`") or ":" in line else line for line in lines]


def _readme(name: str, left: Sample, right: Sample, paths: list[str]) -> str:
    file = f"{name}.yaml"
    folders = "\n".join(
        f"* `{path}/`: change files of {one.table}" for path, one in zip(paths, (left, right), strict=True)
    )
    return f"""# {name}

A join of {left.table} with {right.table} that fk-pipeline keeps up to date.

* `{file}`: the pipeline. Lines marked `{GUESSED}` were not said by the sample: look at them before the first run.
{folders}. A number in a file's name is its batch (`00000001.jsonl`); a file must be
  complete when it gets its name: write it under a name that begins with `.`, then rename it.
* `dagster.yaml`: settings of Dagster; `fk-pipeline up {file}` puts them into its home, `.dagster`.
* `warehouse/`: the tables, once something was run.

In this folder:

```sh
fk-pipeline plan {file}        # what would be done, and why
fk-pipeline run {file}         # do it
fk-pipeline verify {file}      # prove the result, row by row
fk-pipeline export {file} --to joined.csv
fk-pipeline up {file}          # the same in Dagster, at http://127.0.0.1:3000; `fk-pipeline down` ends it
```
"""
