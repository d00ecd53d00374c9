"""Formats that users write themselves: a class on the import path, named in the pipeline file as `module:Class`."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from fk_pipeline.errors import PipelineFileError

NEEDED = ("sequence_type", "is_text", "has_holes", "read", "parse", "has_keys_once")
"""The attributes that a format must have (`fk_pipeline.cdc.records.Format`)."""


@functools.cache
def own_format(name: str) -> Any:
    """Returns an instance of the class.

    Raises:
        PipelineFileError: the class does not exist, cannot be created without arguments, or is not a format.
    """
    module, _, class_name = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), class_name)()
    except Exception as error:  # whatever the user's module does when it is imported
        raise PipelineFileError(
            f"format {name!r} cannot be used: {error}",
            fix="install the package that has the module where this command and Dagster run, or correct the name",
        ) from error
    lacking = [part for part in NEEDED if not hasattr(made, part)]
    if lacking:
        raise PipelineFileError(
            f"format {name!r} has no {', '.join(lacking)}",
            fix="let it inherit from fk_pipeline.cdc.rows.Rows, or have all that fk_pipeline.cdc.records.Format says",
        )
    return made
