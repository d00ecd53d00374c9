"""The layers of the packages, from the test that enforces them."""

from __future__ import annotations

from collections import defaultdict

from blocks.markdown import code

from tests.test_layers import LAYERS


def blocks() -> dict[str, str]:
    """One item per layer, the highest first."""
    packages: dict[int, list[str]] = defaultdict(list)
    for name in sorted(LAYERS):
        packages[LAYERS[name]].append(code(name.removeprefix("fk_pipeline.")))
    return {"layers": "\n".join(f"* {layer}: {', '.join(packages[layer])}" for layer in sorted(packages, reverse=True))}
