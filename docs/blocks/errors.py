"""Every error type with its exit status: from `fk_pipeline/errors.py`."""

from __future__ import annotations

import inspect

from blocks.markdown import code, table

from fk_pipeline import errors


def blocks() -> dict[str, str]:
    """The table of all types, by the name of its block."""
    return {
        "errors": table(
            ["exit status", "types"],
            [[str(status), ", ".join(map(_linked, names))] for status, names in _by_status().items()],
        )
    }


def types() -> list[type[errors.FkPipelineError]]:
    """Every type of error that a user can meet, in the order of the module."""
    base = errors.FkPipelineError
    return [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, base) and one is not base]


def _by_status() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for one in types():
        found.setdefault(one.exit_code, []).append(one.__name__)
    return dict(sorted(found.items()))


def _linked(name: str) -> str:
    return f"[{code(name)}](#{name.lower()})"
