"""Both joins in one Dagster project.

    FK_EXAMPLE=examples/chained dagster dev -f examples/chained/definitions.py

`fk.definitions` sees that the second pipeline reads `<warehouse>/priced_lines/resolved_join`, and makes its
`left_changelog` depend on that asset. Switch both sensors on: the first looks for files, the second for new versions of
the first one's result as well.
"""

import os
from pathlib import Path

import fk_pipeline as fk

FOLDER = Path(os.environ.get("FK_EXAMPLE", Path(__file__).parent))

defs = fk.definitions([FOLDER / "priced_lines.yaml", FOLDER / "supplied_lines.yaml"])
