"""Writes the page of a report as a file: where somebody wants it, or beside the tables, where Dagster links it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.environment import storage
from fk_pipeline.environment.whole_files import write_whole
from fk_pipeline.spec import PipelineSpec

if TYPE_CHECKING:
    from fk_pipeline.readable import ReadablePipeline

NAME = "report.html"
"""The file beside the tables of a pipeline."""


def place_of_report(spec: PipelineSpec) -> str:
    """Returns the path or URI of the page beside the tables of a pipeline."""
    return f"{spec.home}/{NAME}"


def write_page(text: str, place: str) -> None:
    """Writes a page to a path or URI as a whole; makes the folder if it is not there, and replaces an earlier page."""
    if "://" in place:
        with storage.opened(place, "wb") as out:
            out.write(text.encode())
        return
    file = Path(place)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())


def renew(pipeline: ReadablePipeline) -> str:
    """Writes the page of a pipeline beside its tables, quickly; returns its path or URI."""
    from fk_pipeline.report.document import QUICK, document_of, facts_of
    from fk_pipeline.report.page import page_of

    begun, place = time.monotonic(), place_of_report(pipeline.spec)
    write_page(page_of(document_of([facts_of(pipeline, QUICK)], begun)), place)
    return place
