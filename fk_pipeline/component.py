"""The Dagster components for projects that are laid out with `dg`: a folder of pipelines, one class per kind.

They differ only in the pipeline file that `dg scaffold defs` writes: each takes pipeline files of every kind.
"""

# No `from __future__ import annotations`: Dagster resolves the types of a component's attributes.
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from dagster import (
    Component,
    ComponentLoadContext,
    ConfigurableResource,
    Definitions,
    Model,
    Resolvable,
    Resolver,
    Scaffolder,
    ScaffoldRequest,
    scaffold_with,
)
from pydantic import BaseModel, PrivateAttr

from fk_pipeline.definitions import definitions_with, resources_of
from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.scaffold.kinds import write_first
from fk_pipeline.spec import PipelineSpec, Settings, load_spec
from fk_pipeline.spec.project import merged, pipeline_files, refuse_same_name

_OF_DAGSTER = ("defs.yaml", "defs.yml", "component.yaml")
"""Files in the folder of a component that are no pipelines, whatever is in them."""

_DEFS_YAML = """\
type: {type}

attributes:
  # pipelines: [{file}]      # files and folders, relative to this folder; default: every pipeline file in it
  resources: true              # false where the project brings the resources `spark` and `landing_zone`
"""

_COMPONENT_PY = '''\
"""The pipelines of this folder."""

import dagster as dg
from {module} import {name}


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> {name}:
    """Returns the component with every pipeline file in this folder."""
    return {name}()
'''


class _KindScaffolder(Scaffolder):
    """Writes a pipeline file of a kind, to begin with, and the file that makes its folder a component."""

    kind: ClassVar[str]

    def scaffold(self, request: ScaffoldRequest) -> None:
        """Writes the files; landing folders and warehouse belong to the root of the project.

        Raises:
            UsageError: the folder is a component already, or a file exists.
        """
        folder = request.target_path
        if request.append:
            raise UsageError(
                f"{folder} is there already", why="nothing was written", fix="name a folder that is no component yet"
            )
        file = write_first(folder, self.kind, request.project_root or folder)
        if request.scaffold_format == "python":
            module, _, name = request.type_name.rpartition(".")
            (folder / "component.py").write_text(_COMPONENT_PY.format(module=module, name=name), encoding="utf-8")
        else:
            text = _DEFS_YAML.format(type=request.type_name, file=file.name)
            (folder / "defs.yaml").write_text(text, encoding="utf-8")


class _ForeignKeyScaffolder(_KindScaffolder):
    kind = "foreign_key"


class _WindowScaffolder(_KindScaffolder):
    kind = "window"


class _AggregateScaffolder(_KindScaffolder):
    kind = "aggregate"


class _TableScaffolder(_KindScaffolder):
    kind = "table"


class _QueryScaffolder(_KindScaffolder):
    kind = "query"


@scaffold_with(_ForeignKeyScaffolder)
class FkJoinComponent(Component, Model, Resolvable):
    """A folder of pipelines that are kept up to date; the scaffold is a foreign-key join.

    Each row of a table with the row of another table that it refers to, after Kafka's KIP-213.
    Assets, checks, jobs, a sensor and schedules per pipeline file.
    """

    pipelines: Annotated[
        list[str],
        Resolver.default(
            description="Pipeline files of any kind, and folders of them, relative to the folder of the component; "
            "default: every pipeline file in this folder.",
            examples=[["orders.yaml", "flights.yaml"], ["../../pipelines"]],
        ),
    ] = ["."]  # noqa: RUF012  a field of a model: each component has its own list
    resources: Annotated[
        bool,
        Resolver.default(
            description="Whether the component brings the resources `spark` and `landing_zone`, which all components "
            "with it share; false where the project brings them."
        ),
    ] = True
    _folder: Path | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path | None:
        """The folder of its `defs.yaml`; None if Python made the component."""
        return self._folder

    def at(self, folder: Path) -> Self:
        """Returns this component, which from now on knows its folder."""
        self._folder = folder
        return self

    @classmethod
    def load(cls, attributes: BaseModel | None, context: ComponentLoadContext) -> Self:
        """Returns the component of a `defs.yaml`; it knows its folder, so that other components see its files."""
        return super().load(attributes, context).at(context.path)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Returns the assets, checks, jobs, schedules and sensors of the pipelines.

        Raises:
            PipelineFileError: a pipeline file is wrong, there is none, or another pipeline of this component, or of one
                that has a `defs.yaml` in the same project, has the same name.
            StateError: the result of another pipeline that one of them reads cannot be opened.
        """
        own = self.specs(_folder_of(context))
        others = [other for other in context.component_tree.get_all_components(FkJoinComponent) if other is not self]
        beside = [(other.resources, other.specs(other.folder)) for other in others if other.folder is not None]
        refuse_same_name([*own, *(spec for _, specs in beside for spec in specs)])
        if not self.resources:
            return definitions_with(own, {}, shared=False)
        sharing = [*own, *(spec for shares, specs in beside if shares for spec in specs)]
        settings = merged(sorted(sharing, key=lambda spec: spec.name))  # the same for all components
        return definitions_with(own, _resources(settings.model_dump_json()), shared=False)

    def specs(self, folder: Path) -> list[PipelineSpec]:
        """Returns the pipelines of the component in a folder; those of its own are loaded once: every component asks.

        Raises:
            PipelineFileError: a pipeline file is wrong, or there is none.
        """
        return self._own if folder == self._folder else self._load(folder)

    @cached_property
    def _own(self) -> list[PipelineSpec]:
        assert self._folder is not None
        return self._load(self._folder)

    def _load(self, folder: Path) -> list[PipelineSpec]:
        named = [folder / path for path in self.pipelines]
        files = [file for file in pipeline_files(named) if file.name not in _OF_DAGSTER]
        if not files:
            raise PipelineFileError(
                f"there is no pipeline file in {', '.join(map(str, named))}",
                fix="write one there, or name files or folders in `pipelines`",
            )
        return [load_spec(file) for file in files]


@scaffold_with(_WindowScaffolder)
class WindowJoinComponent(FkJoinComponent):
    """A folder of pipelines that are kept up to date; the scaffold is a windowed join.

    Pairs of rows of two streams or tables that share a value and happened near each other.
    Assets, checks, jobs, a sensor and schedules per pipeline file.
    """


@scaffold_with(_AggregateScaffolder)
class AggregateComponent(FkJoinComponent):
    """A folder of pipelines that are kept up to date; the scaffold is an aggregate.

    One row per group of the rows of a table or stream, or per group and window of time.
    Assets, checks, jobs, a sensor and schedules per pipeline file.
    """


@scaffold_with(_TableScaffolder)
class TableComponent(FkJoinComponent):
    """A folder of pipelines that are kept up to date; the scaffold is a table of current rows.

    The current row of every key of a source of changes.
    Assets, checks, jobs, a sensor and schedules per pipeline file.
    """


@scaffold_with(_QueryScaffolder)
class QueryComponent(FkJoinComponent):
    """A folder of pipelines that are kept up to date; the scaffold is a query over two tables.

    The rows of one SELECT over any number of tables, refreshed from what changed in them.
    Assets, checks, jobs, a sensor and schedules per pipeline file.
    """


def _folder_of(context: ComponentLoadContext) -> Path:
    """Returns the folder of a component: of one that a Python file makes, the folder of the file."""
    return context.path if context.path.is_dir() else context.path.parent


@cache
def _resources(settings: str) -> dict[str, ConfigurableResource[Any]]:
    """Returns the resources of some settings, the same objects for all components.

    Dagster merges definitions with a resource of one name only if it is one object.
    """
    return resources_of(Settings.model_validate_json(settings))
