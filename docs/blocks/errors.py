"""Every error type with its exit status: from `fk_pipeline/errors.py`."""

from __future__ import annotations

import inspect

from blocks.markdown import cell, code, first_paragraph, table

from fk_pipeline import errors


def blocks() -> dict[str, str]:
    """The table of all types, by the name of its block."""
    return {
        "errors": table(
            ["type", "exit status", "what it says"],
            [[f"[{code(one.__name__)}](#{one.__name__.lower()})", str(one.exit_code), _told(one)] for one in types()],
        )
    }


def types() -> list[type[errors.FkPipelineError]]:
    """Every type of error that a user can meet, in the order of the module."""
    base = errors.FkPipelineError
    return [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, base) and one is not base]


def _told(one: type[errors.FkPipelineError]) -> str:
    return cell(first_paragraph(one.__doc__ or ""))
