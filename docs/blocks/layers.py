"""The layers of the packages, from the test that enforces them, and the first sentence of each."""

from __future__ import annotations

import ast
from pathlib import Path

from blocks.markdown import code, table

from tests.test_layers import LAYERS, ROOT


def blocks() -> dict[str, str]:
    """One row per package, the highest layer first."""
    ordered = sorted(LAYERS, key=lambda name: (-LAYERS[name], name))
    rows = [[str(LAYERS[name]), code(name.removeprefix("fk_pipeline.")), _sentence(name)] for name in ordered]
    return {"layers": table(["layer", "package", "what it is"], rows)}


def _sentence(name: str) -> str:
    place = ROOT / name.replace(".", "/")
    file: Path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").splitlines()[0]
