"""The base of every part of the pipeline file: frozen models, lists of texts, problems with their place."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


def as_tuple(value: Any) -> Any:
    """Returns one text, or a list, as a tuple; anything else unchanged, for pydantic to refuse."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Strings = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]

StringList = Annotated[Strings, Field(min_length=1)]


def problem(message: str, *path: str | int) -> PydanticCustomError:
    """Returns an error at a path below the model that found it."""
    return PydanticCustomError("pipeline_file", "{message}", {"message": message, "path": path})


class Frozen(BaseModel):
    """A part of the file; what stands below a field is its description in the reference (`docs/generate.py`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
