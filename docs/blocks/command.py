"""Usage, arguments and options of every command: from the typer app."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import typer
from blocks.markdown import code, first_paragraph, table

from fk_pipeline.cli.main import app

COMMON = ("format_", "debug")
"""Options that every command has: they are told once."""

PIPELINE = "PIPELINE.yaml"
"""The argument that most commands have: it needs no line."""

SERVERS = ("home",)
"""Options of `up` that the other commands for servers have too: they are told there."""


def blocks() -> dict[str, str]:
    """The usage of each command with a table of its arguments and options, by the names of their blocks."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    every = [one for one in commands["run"].params if one.name in COMMON]
    for name, command in commands.items():
        if [vars(one)["help"] for one in command.params if one.name in COMMON] != [one.help for one in every]:
            raise LookupError(f"{name} has other options in common than run")
    found = {f"command.{name}": _of_command(name, command) for name, command in commands.items()}
    return {"options": _options(every), **found}


def _of_command(name: str, command: Any) -> str:
    own = [one for one in command.params if one.name not in COMMON]
    usage = " ".join(["fk-pipeline", name, *map(_usage, own)])
    told = re.sub(r"(?<!\w)'([^']+)'", r"`\1`", first_paragraph(command.callback.__doc__))
    parts = [f"```\n{_wrapped(usage)}\n```", told]
    rows = [one for one in own if one.metavar != PIPELINE and (name == "up" or one.name not in SERVERS)]
    return "\n\n".join([*parts, _options(rows)] if rows else parts)


def _wrapped(usage: str) -> str:
    """A usage in lines of at most 120 characters; an option is not broken."""
    lines = [""]
    for word in usage.replace(" [", "\n[").replace(" --", "\n--").split("\n"):
        if len(lines[-1]) + len(word) > 118:
            lines.append(" " * 4)
        lines[-1] += f" {word}" if lines[-1].strip() else word
    return "\n".join(lines)


def _options(options: list[Any]) -> str:
    return table(
        ["argument or option", "default", "meaning"],
        [[code(_told(one)), *_default_and_meaning(one)] for one in options],
    )


def _is_argument(one: Any) -> bool:
    return type(one).__name__ == "TyperArgument"


def _told(one: Any) -> str:
    """As it is written on the command line: `--batches BATCHES`."""
    if _is_argument(one):
        return str(one.metavar)
    names = "/".join([*one.opts, *one.secondary_opts])
    return names if one.is_flag else f"{names} {one.metavar or '|'.join(_choices(one))}"


def _usage(one: Any) -> str:
    if _is_argument(one):
        return str(one.metavar)
    often = " ..." if one.multiple else ""
    return f"{_told(one)}{often}" if one.required else f"[{_told(one).replace('/', '|')}{often}]"


def _choices(one: Any) -> list[str]:
    kind = one.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(choice.value) for choice in kind]
    raise LookupError(f"{one.opts[0]} has no metavar")


def _default_and_meaning(one: Any) -> list[str]:
    meaning, _, told = str(one.help).partition("; default: ")
    return [told or _default(one), f"{meaning}{_limits(one)}"]


def _default(one: Any) -> str:
    if one.required:
        return "required"
    if getattr(one, "is_flag", False):
        return code((one.opts if one.default else one.secondary_opts)[0]) if one.secondary_opts else "no"
    value = one.default.value if isinstance(one.default, Enum) else one.default
    return "none" if value is None else code(value)


def _limits(one: Any) -> str:
    if getattr(one, "max", None) is not None:
        return f"; {one.min:,} to {one.max:,}"
    return f"; at least {one.min:,}" if getattr(one, "min", None) is not None else ""
