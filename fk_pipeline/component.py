"""A Dagster component with pipelines, for projects that are laid out with `dg`."""

# No `from __future__ import annotations`: Dagster resolves the types of a component's attributes.
from dagster import Component, ComponentLoadContext, Definitions, Model, Resolvable

from fk_pipeline.definitions import definitions


class FkJoinComponent(Component, Model, Resolvable):
    """Foreign-key joins that are kept up to date, one per pipeline file.

    Attributes:
        pipelines: pipeline files, relative to the folder of the component.
        resources: whether the component defines the resources `spark` and `landing_zone`; false where the project or
            another component defines them.
    """

    pipelines: list[str]
    resources: bool = True

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Returns the assets, checks, jobs, schedules and sensors of the pipelines."""
        return definitions([context.path / file for file in self.pipelines], resources=self.resources)
