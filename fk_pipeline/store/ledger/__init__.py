"""The ledger: small append-only tables beside the data. Other packages use `Ledger`."""

from fk_pipeline.store.ledger.ledger import CLAIM, FILE_THAT_RAN, Ledger, claimed, claimed_from_tables
from fk_pipeline.store.ledger.runs import LACKING, StageState

__all__ = ["CLAIM", "FILE_THAT_RAN", "LACKING", "Ledger", "StageState", "claimed", "claimed_from_tables"]
