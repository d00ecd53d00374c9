"""The ledger: small append-only tables beside the data. Other packages use `Ledger`."""

from fk_pipeline.store.ledger.ledger import Ledger
from fk_pipeline.store.ledger.names import (
    FILE_THAT_RAN,
    LandingPlace,
    Names,
    claimed,
    claimed_from_tables,
    claimed_name,
    is_claim,
)
from fk_pipeline.store.ledger.runs import LACKING, StageState

__all__ = [
    "FILE_THAT_RAN",
    "LACKING",
    "LandingPlace",
    "Ledger",
    "Names",
    "StageState",
    "claimed",
    "claimed_from_tables",
    "claimed_name",
    "is_claim",
]
