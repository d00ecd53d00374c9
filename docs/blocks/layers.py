"""The layers of the packages, from the test that enforces them."""

from __future__ import annotations

from collections import defaultdict

from blocks.markdown import code

from tests.test_layers import LAYERS, ROOT


def blocks() -> dict[str, str]:
    """The packages that are folders, the highest layer first; kinds are told by `kinds.*`."""
    packages: dict[int, list[str]] = defaultdict(list)
    for name in sorted(LAYERS):
        _, *parts = name.split(".")
        if (ROOT / "fk_pipeline" / "/".join(parts)).is_dir():
            package = code("kinds.*" if parts[0] == "kinds" and len(parts) > 1 else ".".join(parts))
            packages[LAYERS[name]] += [package] if package not in packages[LAYERS[name]] else []
    layers = (", ".join(packages[layer]) for layer in sorted(packages, reverse=True))
    return {"layers": f"{'; '.join(layers)}."}
