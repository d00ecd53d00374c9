"""The ledger: small append-only tables beside the data. `Ledger` is the way in."""

from fk_pipeline.store.ledger.ledger import CLAIM, PIPELINE_FILE, Ledger, claimed, claimed_from_tables
from fk_pipeline.store.ledger.runs import LACKING, StageState

__all__ = ["CLAIM", "LACKING", "PIPELINE_FILE", "Ledger", "StageState", "claimed", "claimed_from_tables"]
