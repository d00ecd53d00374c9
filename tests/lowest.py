"""Prints the requirements of an environment with the lowest accepted versions, for `make test-lowest`.

The test tools have the exact versions of the extra `dev`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_FOR_TESTS = ("ruff", "mypy", "playwright")


def lowest() -> list[str]:
    """Returns one exact requirement per dependency."""
    ranges = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["s3"]]
    exact = [re.sub(r">=([^,]+).*", r"==\1", one) for one in ranges]
    names = {re.split(r"[=\[]", one)[0] for one in exact}
    tools = [one for one in PROJECT["optional-dependencies"]["dev"] if re.split(r"[=\[]", one)[0] not in names]
    return [*exact, *(one for one in tools if not one.startswith(NOT_FOR_TESTS))]


if __name__ == "__main__":
    print("\n".join(lowest()))
