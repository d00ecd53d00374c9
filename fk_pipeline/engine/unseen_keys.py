"""What cannot be seen of keys that change: updates that name no old key, and old images that are ignored. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fk_pipeline.identity import OLD_IMAGE, WITHOUT_OLD_KEY, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger


@dataclass(frozen=True)
class UnseenKeys:
    """Records of a side that may have changed a key without telling which row must go.

    Attributes:
        what: the records, and what becomes of the old row.
        fix: what makes such changes visible.
    """

    what: str
    fix: str


def unseen_keys(spec: PipelineSpec, side: Side, counts: Mapping[str, int]) -> list[UnseenKeys]:
    """Returns what cannot be seen of keys by the counts of a batch, or their sum over some."""
    declared, unseen = spec.side(side), []
    if updates := counts.get(WITHOUT_OLD_KEY, 0):
        what = (
            f"{updates:,} update(s) of {side} do not have the old key, and {side}.key ({', '.join(declared.key)}) is "
            "not the key of their messages: where one changed it, the old row stays"
        )
        fix = "Let the source send old images (PostgreSQL: REPLICA IDENTITY FULL), or name its key"
        unseen.append(UnseenKeys(what, fix))
    images = counts.get(f"ignored: {OLD_IMAGE}", 0)
    if images and declared.contents == "changes" and declared.valid_from is None:
        what = f"{images:,} old image(s) of {side} were ignored: where an update changed the key, the old row stays"
        fix = f"Say what orders the commits: {side}.op_column: _change_type, {side}.sequence_by: _commit_version"
        unseen.append(UnseenKeys(what, fix))
    return unseen


def all_unseen_keys(spec: PipelineSpec, ledger: Ledger) -> list[UnseenKeys]:
    """Returns what cannot be seen of keys by the counts of every batch in the ledger."""
    unseen = []
    for stage, side in ledger.inputs.items():
        total: dict[str, int] = {}
        for counts in (ledger.state(stage, batch).counts for batch in ledger.batches):
            for name, number in counts.items():
                total[name] = total.get(name, 0) + number
        unseen += unseen_keys(spec, side, total)
    return unseen
