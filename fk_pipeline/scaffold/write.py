"""Writes the files of a new pipeline folder, all or none, and loads every pipeline file before."""

from __future__ import annotations

import csv
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.scaffold.sampled import Sample
from fk_pipeline.scaffold.text import GUESSED
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.model import UNWRITABLE


@dataclass(frozen=True)
class Made:
    """The result of `make.make_folder` and of `queries.make_query`.

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
        kind: what the samples were taken for, as `--kind` has it.
    """

    file: Path
    paths: tuple[str, ...]
    written: tuple[Path, ...]
    facts: tuple[str, ...]
    doubts: tuple[str, ...]
    samples: tuple[Sample, ...]
    to_do: tuple[str, ...]
    commands_for: Path
    kind: str

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline, as its file has it.

        Raises:
            PipelineFileError: its key or its foreign key is not known.
        """
        return load_spec(self.file)


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


def name_of(folder: Path) -> str:
    """Returns the name of the pipeline: that of the folder, in lower case, with _ for forbidden characters."""
    name = re.sub(r"[^a-z0-9]+", "_", folder.absolute().name.lower()).strip("_")[:100]
    return name if name[:1].isalpha() else f"pipeline_{name}".rstrip("_")


def seen_from(folder: Path, other: Path) -> str:
    """Returns a path relative to the folder of the pipeline file if it is near that folder; else the absolute path."""
    relative = os.path.relpath(other.absolute(), folder.absolute())
    return relative if relative.count("..") <= 2 else str(other.absolute())


def facts_of(sample: Sample) -> str:
    """Returns the format of a sample, the number of its columns, and its key, as part of a sentence."""
    columns = f"{len(sample.columns)} column{'s' * (len(sample.columns) != 1)}"
    key = f"key {', '.join(sample.key)}{f' ({GUESSED})' if sample.key_doubt else ''}" if sample.key else "events"
    key = key if sample.has_key else "key not known"
    return f"{sample.format}, {sample.shape}, {columns}, {key}"
