"""What is expected of every stage: from `fk_pipeline/kinds/foreign_key/rules/suites.py`."""

from __future__ import annotations

from blocks.markdown import code, table

from fk_pipeline.kinds.foreign_key.rules.suites import SUITES


def blocks() -> dict[str, str]:
    """The suite of each stage, by the names of their blocks."""
    return {
        f"suite: {stage}": table(
            ["expectation", "severity", "mended by", "depth", "what it asks for"],
            [
                [
                    code(one.name),
                    one.severity,
                    one.remedy,
                    "both" if len(one.depths) == 2 else one.depths[0],
                    one.description
                    + (f" Bound: `{one.threshold}`." if one.threshold else "")
                    + (f" ({one.only})" if one.only else ""),
                ]
                for one in suite
            ],
        )
        for stage, suite in SUITES.items()
    }
