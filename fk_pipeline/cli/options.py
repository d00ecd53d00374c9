"""Options that all commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from fk_pipeline.console import OutputFormat

Format = Annotated[OutputFormat, typer.Option("--format", help="text for people, json for machines")]
Debug = Annotated[bool, typer.Option("--debug", help="show the whole trace of an error")]
