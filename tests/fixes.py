"""What an error proposes as its fix, and how a test follows it."""

from __future__ import annotations

import re
from typing import Any

_WITH_VALUE = "batches|stages|from|waive"
COMMAND = re.compile(
    rf"fk-pipeline (?:spark )?[a-z-]+(?: (?:/[^\s;,'()]*[^\s;,'().]|\d[\d.,]*(?<=\d)|--(?!{_WITH_VALUE})[a-z-]+"
    rf"|--(?:{_WITH_VALUE}) [^\s;,']+(?:,[^\s;,']+)*))*"
)
"""A command in a fix: its name, paths, numbers and options; what follows are words about it."""


class Met:
    """An error that a command ended with."""

    def __init__(self, err: str) -> None:
        found = re.findall(r"^(\w+Error): (.*?)(?:\n  (?=Fix:)|\Z)", err, re.MULTILINE | re.DOTALL)
        assert len(found) == 1, err
        (self.kind, self.said), self.fix = found[0], err.partition("\n  Fix: ")[2]

    @property
    def commands(self) -> list[list[str]]:
        """The commands of the fix, each as its words; a reason is given where one is asked for."""
        return [found.replace("REASON", "agreed").split()[1:] for found in COMMAND.findall(self.fix)]


def follow(command: Any, *args: Any, again: bool = True) -> list[str]:
    """Calls a command that fails, then the first command of its fix, and so on until the first one goes on.

    Args:
        command: calls a command.
        args: the command that fails.
        again: whether it is called again; otherwise what its fix names stands in its place.

    Returns:
        The commands that were followed, each without the path of the pipeline file.
    """
    ended, met, helped = command(*args), set[str](), list[str]()
    while ended.status:
        error = Met(ended.err)
        assert error.said not in met, f"what was named did not help: {error.said}; {error.fix}"
        assert error.commands, f"no command helps: {error.said}; {error.fix}"
        met.add(error.said)
        helps = error.commands[0]
        helped.append(" ".join(word for word in helps if not word.endswith(".yaml")))
        ended = command(*helps)
        if again and not ended.status:
            ended = command(*args)
    assert helped, ended.out
    return helped
