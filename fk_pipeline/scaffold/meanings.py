"""What samples may be meant to become, as `--kind` of `init` names it. Imports nothing: the command begins quickly."""

from __future__ import annotations

from enum import StrEnum


class Meant(StrEnum):
    """The values of `--kind`: the kinds of pipelines, and `as_of`, a foreign-key join with versions of right rows."""

    FOREIGN_KEY = "foreign_key"
    AS_OF = "as_of"
    WINDOW = "window"
    AGGREGATE = "aggregate"
    TABLE = "table"
    QUERY = "query"
