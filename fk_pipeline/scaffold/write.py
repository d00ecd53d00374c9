"""The files of a new pipeline folder: a commented pipeline file, landing folders, settings for Dagster, a README."""

from __future__ import annotations

import csv
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.scaffold.column import Meaning, SampleColumn
from fk_pipeline.scaffold.examples import EXAMPLE_LEFT, EXAMPLE_RIGHT
from fk_pipeline.scaffold.foreign_key import ENOUGH, Proposal, propose, with_referred_key
from fk_pipeline.scaffold.names import names_table
from fk_pipeline.scaffold.sample import read_sample
from fk_pipeline.scaffold.sampled import Sample, as_events
from fk_pipeline.scaffold.text import GUESSED, NO_SAMPLE, folder_of, pipeline_text, word
from fk_pipeline.scaffold.types import Inferred
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.inputs import PLACEHOLDER
from fk_pipeline.spec.model import UNWRITABLE


@dataclass(frozen=True)
class Made:
    """The result of `make_folder` and of `queries.make_query`.

    Attributes:
        file: the pipeline file.
        paths: the landing folder of each sample, as the pipeline file writes it; without samples those of both sides.
        written: the files and folders, in order.
        facts: the facts about the samples, one sentence each.
        doubts: the guesses, one sentence each.
        samples: the samples; empty without any.
        to_do: the steps that the user must do before the pipeline can run; with a key or a foreign key among them,
            every command refuses the pipeline file.
        commands_for: the path for the commands that come next: the pipeline file, or the folder of several.
    """

    file: Path
    paths: tuple[str, ...]
    written: tuple[Path, ...]
    facts: tuple[str, ...]
    doubts: tuple[str, ...]
    samples: tuple[Sample, ...]
    to_do: tuple[str, ...]
    commands_for: Path

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline, as its file has it.

        Raises:
            PipelineFileError: its key or its foreign key is not known.
        """
        return load_spec(self.file)


def make_folder(folder: Path, samples: list[Path], *, in_place: bool = False) -> Made:
    """Makes the folder of a pipeline and returns what was written; overwrites no file.

    Args:
        folder: the folder; its name is the name of the pipeline.
        samples: a sample of the left side, then of the right side; one file with lines of two tables; or none.
        in_place: the pipeline reads the folders of the samples instead of landing folders of its own.

    Raises:
        UsageError: a file exists already, or a sample cannot be read.
    """
    name = name_of(folder)
    file = folder / f"{name}.yaml"
    refuse_place(folder, [file.name])
    with reading_samples():
        sides = _sides(samples)
    left, right = sides or (EXAMPLE_LEFT, EXAMPLE_RIGHT)
    folders = ("left", "right") if folder_of(left) == folder_of(right) else (folder_of(left), folder_of(right))
    paths = [f"landing/{table}" for table in folders]
    if "table" in left.options and left.path == right.path:
        paths = [f"landing/{word(left.path.absolute().name.split('.')[0], 'changes')}"] * 2
    if sides:
        stays = [in_place or sample.format == "delta" for sample in sides]
        paths = [seen_from(folder, side.folder) if s else p for p, s, side in zip(paths, stays, sides, strict=True)]
        _refuse_mixed(sides, stays)
    landing = [folder / path for path in dict.fromkeys(paths) if path.startswith("landing/")]
    _check(name, left, right, paths)
    proposal = propose(left, right)
    text, doubts = pipeline_text(name, left, right, paths, proposal)
    write_folder(folder, landing, {file.name: text, "README.md": _readme(name, left, right, paths)})
    facts = _facts(sides, proposal) if sides else []
    written = (file, *landing, folder / "dagster.yaml", folder / "README.md")
    to_do = _to_do(file, left, right, proposal, folder / paths[1])
    guesses = tuple(doubts) if sides else ()
    return Made(file, tuple(paths), written, tuple(facts), guesses, sides or (), to_do, commands_for=file)


def refuse_place(folder: Path, names: Sequence[str]) -> None:
    """Refuses a folder under which no Delta table can be written, or that has a file of these names already.

    Raises:
        UsageError: it is such a folder.
    """
    if odd := sorted(set(str(folder.absolute())) & UNWRITABLE):
        raise UsageError(f"{folder.absolute()} has {' '.join(odd)} in it, which Delta tables cannot be written under")
    for file in (folder / name for name in (*names, "dagster.yaml", "README.md")):
        if file.exists():
            raise UsageError(f"{file} is there already", why="nothing was written", fix="name another folder")


@contextmanager
def reading_samples() -> Iterator[None]:
    """Replaces errors of files that cannot be read.

    Raises:
        UsageError: a sample cannot be read.
    """
    try:
        yield
    except (OSError, EOFError, csv.Error) as error:
        raise UsageError(f"a sample cannot be read: {error}", fix="take another file, or a part of this one") from error


def write_folder(folder: Path, landing: Iterable[Path], texts: Mapping[str, str]) -> None:
    """Writes the files of a new folder and the settings for Dagster, all or none; makes its landing folders.

    Raises:
        UsageError: a file cannot be written, or exists already.
    """
    contents = {name: text.encode("utf-8") for name, text in texts.items()}
    contents["dagster.yaml"] = (files("fk_pipeline.servers") / "dagster.yaml").read_bytes()
    written: list[Path] = []
    try:
        for path in (folder, *landing):
            path.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with (folder / name).open("xb") as file:
                written.append(folder / name)
                file.write(content)
    except OSError as error:
        for path in written:
            path.unlink()
        raise UsageError(
            f"{folder} cannot be written: {error}", why="no file was written", fix="name another folder"
        ) from error


def _to_do(file: Path, left: Sample, right: Sample, proposal: Proposal, landing: Path) -> tuple[str, ...]:
    """Returns what the user must write because the samples do not show it, one sentence each."""
    keys = [
        f"write in {file} which columns identify a row of {sample.table} ({side}.key): {sample.key_doubt}"
        for side, sample in (("left", left), ("right", right))
        if not sample.has_key
    ]
    if right.types_from == NO_SAMPLE:
        return (*keys, f"say in {file} what the right side is, and land files of it in {landing}")
    if not proposal.is_sure:
        keys.append(f"write in {file} which left column refers to a row of {right.table} (left.foreign_key)")
    return tuple(keys)


def _facts(samples: tuple[Sample, Sample], proposal: Proposal) -> list[str]:
    """Returns the facts and the notes about the samples, one sentence each."""
    left, right = samples
    sentences = [_sentence("left", left), _sentence("right", right)]
    sentences += [f"{sample.table}: {note}" for sample in samples for note in sample.notes]
    turned = propose(right, left)
    if turned.is_sure and turned.score >= proposal.score + 2:
        sentences.append(
            f"{right.table} seems to refer to {left.table} ({', '.join(turned.written)}): "
            "if so, name the samples the other way round"
        )
    return sentences


def _check(name: str, left: Sample, right: Sample, paths: list[str]) -> None:
    """Loads the text of the pipeline file before anything is written, with some column for each key that is not known.

    Raises:
        UsageError: the text does not load, which no sample should cause.
    """
    left, right = _with_some_key(left), _with_some_key(right)
    sure = Proposal(tuple(replace(part, score=ENOUGH) for part in propose(left, right).parts))
    text, _ = pipeline_text(name, left, right, paths, sure)
    load_before_writing({f"{name}.yaml": text}, "begin with 'fk-pipeline init DIR', and edit it")


def load_before_writing(texts: Mapping[str, str], fix: str) -> list[PipelineSpec]:
    """Returns the pipelines that these texts of files of one folder are.

    Raises:
        UsageError: a text does not load.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        try:
            return [load_spec(Path(folder, name)) for name in texts]
        except PipelineFileError as error:
            message = re.sub(rf"{re.escape(folder)}/(\S+?):(\d+): ", r"\1, line \2: ", str(error))
            why = f"the pipeline file that these samples give does not load: {message}"
            raise UsageError(why, why="nothing was written", fix=fix) from None


def _with_some_key(sample: Sample) -> Sample:
    """Returns the sample with some column as key if its key is not known."""
    flat = [column for column in sample.columns if column.meaning is not Meaning.NESTED] or list(sample.columns)
    return sample if sample.has_key else replace(sample, key=(flat[0].name,))


def _refuse_mixed(samples: tuple[Sample, Sample], stays: list[bool]) -> None:
    """Raises an error for sides that would read each other's files in place, and for a right side without a sample.

    Raises:
        UsageError: a side would read the files of the other side, or the place of the right side is not known.
    """
    left, right = samples
    if not any(stays):
        return
    if right.types_from == NO_SAMPLE:
        raise UsageError(
            "where the right side lies is not known", fix="give a sample of it too, or leave out --in-place"
        )
    if all(stays) and left.folder == right.folder and "table" not in left.options:
        raise UsageError(
            f"both samples lie in {left.folder}, so each side would read the other's files",
            fix="leave out --in-place, or keep the files of each table in a folder of their own",
        )


def name_of(folder: Path) -> str:
    """Returns the name of the pipeline: that of the folder, in lower case, with _ for forbidden characters."""
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
                names = ", ".join(sample.table for sample in tables)
                raise UsageError(f"{path} has lines of several tables: {names}", fix="give a sample with lines of one")
        left = as_events(read[0][0])
        return left, with_referred_key(left, read[1][0])
    (tables,) = read
    if len(tables) == 1:
        left = as_events(tables[0])
        return left, _unknown_right(left)
    pairs = [
        (as_events(sample), with_referred_key(sample, other))
        for sample in tables
        for other in tables
        if sample is not other
    ]
    return max(pairs, key=lambda pair: propose(*pair).score)


def _unknown_right(left: Sample) -> Sample:
    """Returns a guessed right side without a sample: the table to which a column of the left side seems to refer."""
    others = (c for c in left.columns if c.name not in left.key and not names_table("".join(c.subject), left.table))
    refers = next((c for c in others if re.fullmatch(r"(?i).+_(id|key|code|no)", c.name)), None)
    table = refers.name.rsplit("_", 1)[0].lower() + "s" if refers else "right_table"
    name, dtype = (refers.name, refers.inferred.type) if refers else ("id", left.columns[0].inferred.type)
    key = SampleColumn(name, Inferred(dtype, doubt=NO_SAMPLE), frozenset(), 0)
    value = SampleColumn("name", Inferred("STRING", doubt=NO_SAMPLE), frozenset(), 0)
    columns = (key,) if name == "name" else (key, value)
    return Sample(left.path, left.folder, left.format, NO_SAMPLE, table, columns, (name,), NO_SAMPLE, 0, NO_SAMPLE)


def seen_from(folder: Path, other: Path) -> str:
    """Returns a path relative to the folder of the pipeline file if it is near that folder; else the absolute path."""
    relative = os.path.relpath(other.absolute(), folder.absolute())
    return relative if relative.count("..") <= 2 else str(other.absolute())


def _sentence(side: str, sample: Sample) -> str:
    if sample.types_from == NO_SAMPLE:
        return f"{side:<5} {sample.table}: {NO_SAMPLE}; its part of the pipeline file is a guess"
    return f"{side:<5} {sample.table}: {facts_of(sample)}"


def facts_of(sample: Sample) -> str:
    """Returns the format of a sample, the number of its columns, and its key, as part of a sentence."""
    columns = f"{len(sample.columns)} column{'s' * (len(sample.columns) != 1)}"
    key = f"key {', '.join(sample.key)}{f' ({GUESSED})' if sample.key_doubt else ''}" if sample.key else "events"
    key = key if sample.has_key else "key not known"
    return f"{sample.format}, {sample.shape}, {columns}, {key}"


def _readme(name: str, left: Sample, right: Sample, paths: list[str]) -> str:
    file = f"{name}.yaml"
    folders = "\n".join(
        f"* `{path}/`: change files of {sample.table}" for path, sample in zip(paths, (left, right), strict=True)
    )
    return f"""# {name}

A join of {left.table} with {right.table} that fk-pipeline keeps up to date.

* `{file}`: the pipeline. Lines marked `{GUESSED}` were not said by the sample: look at them before the first run. A
  `{PLACEHOLDER}` stands where nothing tells a key: every command refuses the file until it is replaced.
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
