"""A pipeline whose ledger is read once: all that a report tells is of one moment, and looks at the ledger once."""

from __future__ import annotations

from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.store.ledger import Ledger


class Moment(ReadablePipeline):
    """A pipeline as its ledger is when this is made; nothing runs in it."""

    def __init__(self, pipeline: ReadablePipeline) -> None:
        """Reads the ledger.

        Raises:
            StateError: it is damaged, or another pipeline's.
        """
        super().__init__(pipeline.spec, zone=pipeline.zone, sizes=pipeline.sizes)
        self._ledger = pipeline.ledger()

    def ledger(self) -> Ledger:
        """Returns the ledger as it was read."""
        return self._ledger
