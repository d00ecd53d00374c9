"""Several pipelines as one project: their files, each with a name of its own, what reads what, and what they share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from fk_pipeline.errors import FkPipelineError, PipelineFileError
from fk_pipeline.kinds.registry import kinds
from fk_pipeline.spec.load import document_of, inline_files, load_spec, with_settings
from fk_pipeline.spec.model import PipelineSpec
from fk_pipeline.spec.paths import inline_of, inline_reference
from fk_pipeline.spec.settings import Settings
from fk_pipeline.spec.yaml_text import load_yaml

NAMED_INPUTS = "inputs"
"""The key of a pipeline file with inputs of any names (`Kind.named_inputs`)."""

_YAML = (".yaml", ".yml")
"""The endings of pipeline files in a folder."""

CASES = ".tests.yaml"
"""The ending of the file with the cases of a pipeline file, in place of that one's own: it is no pipeline."""


@dataclass(frozen=True)
class Project:
    """The pipelines of a command.

    Attributes:
        files: the pipeline files, each after those whose results it reads.
        names: per file the name of its pipeline; its path if the file is wrong and has none.
        reads: per file, the files among them whose results it reads directly.
        wrong: per file that cannot be loaded, the error: the file is wrong, or a result that it reads cannot be opened;
            a file that only reads such a file has the same one.
    """

    files: tuple[Path, ...]
    names: Mapping[Path, str]
    reads: Mapping[Path, tuple[Path, ...]]
    wrong: Mapping[Path, FkPipelineError]


def project_of(files: Sequence[Path]) -> Project:
    """Returns the project of some pipeline files; a file that is named twice is in it once.

    Raises:
        PipelineFileError: two pipelines have one name, or a file beside them has the tables of one of them.
    """
    given: dict[Path, Path] = {}
    for file in files:
        given.setdefault(file.resolve(), file)
    specs: dict[Path, PipelineSpec] = {}
    wrong: dict[Path, FkPipelineError] = {}
    for file in given.values():
        try:
            specs[file] = load_spec(file)
        except FkPipelineError as error:
            wrong[file] = error
    refuse_same_name(specs.values())
    refuse_same_tables(given.values())
    reads = {file: [given[path] for path in results_read(spec) if path in given] for file, spec in specs.items()}
    for file, problem in wrong.items():
        named = [given[path] for path in _named(file) if path in given and given[path] != file]
        of_result = not isinstance(problem, PipelineFileError)  # then the file may be right, and waits for the other
        reads[file] = [other for other in named if (str(wrong[other]) == str(problem) if other in wrong else of_result)]
    return Project(
        files=tuple(TopologicalSorter(reads).static_order()),
        names={file: specs[file].name if file in specs else _name(file) for file in given.values()},
        reads={file: tuple(others) for file, others in reads.items()},
        wrong=wrong,
    )


def pipeline_files(named: Sequence[Path], *, inline: bool = True) -> list[Path]:
    """Returns the given files, and the pipeline files in the given folders, sorted by name within a folder.

    Args:
        named: files and folders.
        inline: whether the pipelines of the inline inputs of a file come before it, as `FILE#INPUT`; none comes twice.
    """
    files: list[Path] = []
    for path in named:
        files += filter(_may_be_pipeline, _yaml_files(path)) if path.is_dir() else [path]
    if not inline:
        return files
    parts = {file: inline_files(_read(file), file) for file in files}
    taken = {part for of_file in parts.values() for part in of_file}
    return [path for file in files if file not in taken for path in (*parts[file], file)]


def named_pipelines(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the files and folders that FK_PIPELINES names, separated like PATH."""
    return [Path(part) for part in environment.get("FK_PIPELINES", "").split(os.pathsep) if part]


def all_automated(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether FK_AUTOMATION says that all pipelines of Dagster's code location have `automation`."""
    return environment.get("FK_AUTOMATION", "off") == "on"


def with_inline(specs: Iterable[PipelineSpec]) -> list[PipelineSpec]:
    """Returns pipelines, and before each the pipelines of its inline inputs, with its settings; none of them twice.

    Raises:
        PipelineFileError, StateError: as `load_spec`.
    """
    by_file: dict[Path, PipelineSpec] = {}
    for spec in specs:
        for side in spec.sides:
            file = inline_reference(spec.file, side)
            if spec.side(side).pipeline == file.name and file.resolve() not in by_file:
                by_file[file.resolve()] = with_settings(load_spec(file), **spec.own_settings)
        by_file[spec.file.resolve()] = spec
    return list(by_file.values())


def results_read(spec: PipelineSpec) -> list[Path]:
    """Returns the files of the pipelines whose results a pipeline reads directly, one per input that is a result."""
    named = (spec.side(side).pipeline for side in spec.sides)
    return [(spec.file.parent / path).resolve() for path in named if path is not None]


def merged(specs: Sequence[PipelineSpec]) -> Settings:
    """Returns the Spark settings of pipelines that share a session.

    Of different values for a name in `spark`, the last counts; of `driver_memory` and `shuffle_partitions`, the first.
    If a pipeline has sensitive columns, data that Spark spills to disk is encrypted, unless a pipeline sets otherwise.
    """
    each = [spec.settings for spec in specs]
    encrypted = {"spark.io.encryption.enabled": "true"} if any(spec.has_sensitive for spec in specs) else {}
    return Settings(
        spark=encrypted | {name: value for settings in each for name, value in settings.spark.items()},
        driver_memory=next((settings.driver_memory for settings in each if settings.driver_memory), None),
        shuffle_partitions=next(
            (settings.shuffle_partitions for settings in each if settings.shuffle_partitions), None
        ),
    )


def _yaml_files(folder: Path) -> list[Path]:
    """Returns the YAML files of a folder, sorted by name; none if the folder cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if _is_named_so(path) and path.is_file())
    except OSError:
        return []


def _is_named_so(path: Path) -> bool:
    return path.suffix in _YAML and not path.name.endswith(CASES)


def _may_be_pipeline(file: Path) -> bool:
    """Returns whether a YAML file names an input, a join or a query, or cannot be read; others are settings."""
    try:
        return _is_pipeline(load_yaml(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return True  # the command says what is wrong with it


def _is_pipeline(document: Any) -> bool:
    """Returns whether a document names an input, inputs or a join, right or wrong."""
    keys = {"join", NAMED_INPUTS, *(source.name for kind in kinds() for source in kind.inputs)}
    return isinstance(document, dict) and not keys.isdisjoint(document)


def refuse_same_name(specs: Iterable[PipelineSpec]) -> None:
    """Refuses pipelines of one name, such as a file and its copy.

    Raises:
        PipelineFileError: two of them have one name; it names both files.
    """
    files: dict[str, Path] = {}
    for spec in specs:
        if spec.name in files:
            raise _same_name(spec.name, files[spec.name], spec.file)
        files[spec.name] = spec.file


def refuse_same_tables(files: Iterable[Path]) -> None:
    """Refuses pipeline files if another file in the folder of one, such as a copy of it, has the same tables.

    Files that cannot be read are left out, and so are those that are no pipelines: others have a name, too.

    Raises:
        PipelineFileError: there is such a file; it names both.
    """
    folders: dict[Path, list[tuple[Path, str]]] = {}
    for file in dict.fromkeys(inline_of(file)[0] for file in files):
        document = _read(file)
        name = document.get("name")
        if not isinstance(name, str) or not _is_pipeline(document):
            continue
        if file.parent not in folders:
            folders[file.parent] = list(_texts(file.parent))
        for other, text in folders[file.parent]:
            other_document = _read(other) if name in text and not _same(other, file) else {}
            if _is_pipeline(other_document) and _tables(other_document, other) == _tables(document, file):
                raise _same_name(name, file, other)


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yields the YAML files of a folder with their text."""
    for path in _yaml_files(folder):
        try:
            yield path, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def _read(file: Path) -> Mapping[Any, Any]:
    try:
        return document_of(file)
    except PipelineFileError:
        return {}


def _name(file: Path) -> str:
    name = _read(file).get("name")
    return name if isinstance(name, str) else str(file)


def _named(file: Path) -> list[Path]:
    """Returns the pipeline files that the inputs of a file name; the file may be wrong otherwise."""
    document = _read(file)
    named = document.get(NAMED_INPUTS)
    values = (*document.values(), *(named.values() if isinstance(named, dict) else ()))
    inputs = [value for value in values if isinstance(value, dict)]
    others = [(file.parent / str(given["pipeline"])).resolve() for given in inputs if "pipeline" in given]
    return [*others, *(reference.resolve() for reference in inline_files(document, file))]


def _same(file: Path, other: Path) -> bool:
    return file.resolve() == other.resolve()


def _tables(document: Mapping[Any, Any], file: Path) -> tuple[str, str]:
    """Returns the warehouse and the name that a pipeline file gives its tables."""
    warehouse = str(document.get("warehouse", PipelineSpec.model_fields["warehouse"].default)).rstrip("/")
    where = warehouse if "://" in warehouse else os.path.realpath(file.parent / warehouse)
    return where, str(document.get("name"))


def _same_name(name: str, file: Path, other: Path) -> PipelineFileError:
    first, second = sorted(map(str, (file, other)))
    return PipelineFileError(
        f"two pipelines are called {name!r}: {first} and {second}",
        why="they would have the same tables: each would take those of the other for its own",
        fix="give each a name of its own; a copy that is only kept needs another ending than .yaml",
    )
