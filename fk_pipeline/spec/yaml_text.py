"""Reads YAML whose aliases stand for a limited number of characters: a few lines of them may stand for billions.

Such a text is loaded in no time, because an alias is the value that it names. But what looks at every value afterwards,
a check or the message of an error, does not end. So the text is measured first, event by event.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from ruamel.yaml.nodes import ScalarNode

MOST_BY_ALIASES = 1_000_000
"""The largest number of characters that the aliases of a text may stand for, together; each value adds one."""

_SHOWN = 40
"""The largest number of characters of a value that an error shows."""


class YamlTextError(ValueError):
    """A text is no YAML, or none that is loaded; `line` is counted from 1."""

    def __init__(self, what: str, line: int) -> None:
        self.line = line
        super().__init__(what)


Scalars = Mapping[str, Callable[[str], Any]]
"""Per type of YAML (`int`, `float`, `timestamp`), what makes a value of the text of a scalar."""

_TYPE = "tag:yaml.org,2002:"


def load_yaml(text: str, typ: str = "rt", scalars: Scalars | None = None) -> Any:
    """Returns the document of a YAML text.

    Args:
        text: the text.
        typ: the type of ruamel.yaml's loader: `rt` returns values that know their line, `safe` plain ones.
        scalars: makes the values of some types, such as numbers with all their digits; default: ruamel.yaml does.

    Raises:
        YamlTextError: it is not valid YAML, or has a value that cannot be, such as 2024-02-30; its aliases stand for
            too much; or it is nested too deeply.
    """
    loader, seen = YAML(typ=typ), deque[Any](maxlen=1)
    loader.Constructor = _noting(loader.Constructor, seen, scalars or {})
    try:
        if "&" in text:
            _measure(text, typ)
        return loader.load(text)
    except YamlTextError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = str(error.problem or error.context).splitlines()[0]
        raise YamlTextError(f"not valid YAML: {what}", mark.line + 1 if mark else 1) from None
    except YAMLError as error:
        raise YamlTextError(f"not valid YAML: {error}", 1) from None
    except RecursionError:
        raise YamlTextError("its lists and mappings are nested too deeply", 1) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # Python's, about a value
        line = seen[-1].start_mark.line + 1 if seen else 1
        near = f" near {seen[-1].value[:_SHOWN]!r}" if seen and isinstance(seen[-1].value, str) else ""
        raise YamlTextError(f"not valid YAML{near}: {error}", line) from None


def literal_block(text: str) -> str:
    r"""Returns a text of several lines as the value of a key at the top of a YAML document, without blank lines around.

    >>> print("query: " + literal_block("SELECT id\nFROM orders\n"))
    query: |
      SELECT id
      FROM orders
    """
    lines = re.split("\r\n?|\n", text.rstrip())
    while lines and not lines[0].strip():
        del lines[0]
    indented = [f"  {line}" if line.strip() else "" for line in lines]
    return "\n".join(["|2" if lines and lines[0][0] == " " else "|", *indented])


def _noting(constructor: Any, seen: deque[Any], scalars: Scalars) -> type:
    """Returns a constructor of ruamel.yaml that notes each node before it makes its value: not all errors name it."""

    def construct_object(self: Any, node: Any, deep: bool = False) -> Any:
        seen.append(node)
        made = scalars.get(str(node.tag).removeprefix(_TYPE)) if isinstance(node, ScalarNode) else None
        return constructor.construct_object(self, node, deep) if made is None else made(node.value)

    return type("Noting", (constructor,), {"construct_object": construct_object})


def _measure(text: str, typ: str) -> None:
    """Refuses a text whose aliases stand for too much, or for a value that contains them.

    Raises:
        YamlTextError: it names the line of the alias.
    """
    sizes: dict[str, int] = {}  # per anchor, the characters of its value, whose own aliases are replaced
    around: list[tuple[str | None, int]] = []  # per list or mapping around an event: anchor, and characters before it
    size = by_aliases = 0
    for event in YAML(typ=typ).parse(text):
        if isinstance(event, AliasEvent):
            line = event.start_mark.line + 1
            if event.anchor in (anchor for anchor, _ in around):
                raise YamlTextError(f"the alias *{event.anchor} stands for a value that contains it", line)
            added = sizes.get(event.anchor, 0)
            by_aliases += added
            if by_aliases > MOST_BY_ALIASES:
                raise YamlTextError(
                    f"the aliases up to *{event.anchor} stand for more than {MOST_BY_ALIASES:,} characters", line
                )
            size += added
        elif isinstance(event, ScalarEvent):
            size += 1 + len(event.value)
            if event.anchor is not None:
                sizes[event.anchor] = 1 + len(event.value)
        elif isinstance(event, CollectionStartEvent):
            around.append((event.anchor, size))
            size += 1
        elif isinstance(event, CollectionEndEvent):
            anchor, before = around.pop()
            if anchor is not None:
                sizes[anchor] = size - before
