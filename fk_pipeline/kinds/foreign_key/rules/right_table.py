"""Rules for the right table: one row per right key, from its last writer, with its payload and its own hash."""

from __future__ import annotations

from fk_pipeline.blocks.changelog import content_columns, passing
from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.rules.reading import ends_of
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.logs import has_values
from fk_pipeline.rules.scan import ROW, Rule, View, hex_of
from fk_pipeline.rules.states import LOGGED, beside_changelog, excused_by, state_view, version_rules
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s


def right_table_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the view of the right table joined to its changelog."""
    spec = reader.spec
    log = passing(reader.of_batches(k.RIGHT_CHANGELOG, s.BATCH), spec.right)
    keys = spec.definition.keys_in_log(spec, Side.RIGHT, k.keys_of(spec, k.RIGHT_TABLE).keys)
    types = {f.name: f.dataType for f in log.schema.fields}
    types |= {key: types[name] for key, name in keys.items()}
    tombstone = f"{s.HASH} IS NULL" if spec.as_of is None else s.DELETED
    values = [c.name for c in spec.right.value_columns]
    whole_row = row_hash((name, types[name]) for name in values)
    content = row_hash((name, types[name]) for name in content_columns(spec, Side.RIGHT))
    facts = {"_fk_log_row": whole_row, "_fk_log_deleted": s.DELETED}
    columns = [
        f"{whole_row} AS _fk_whole",
        f"IF({s.HASH} IS NULL, NULL, {content}) AS _fk_content",
        f"({has_values(spec.right)}) AS _fk_values",
        f"({tombstone}) AS _fk_tombstone",
    ]
    replaces = not spec.as_of_batch  # else it ends versions, and replaces none
    rows = beside_changelog(reader, k.RIGHT_TABLE, Stage.RIGHT_TABLE, log, keys, facts, columns, truncates=replaces)
    removed, horizon = f"{s.HASH} IS NULL", ends_of(reader).horizon
    if horizon is not None:
        removed += f" OR {s.VALID_FROM} <= {horizon}"
    rules = (
        *version_rules("one_row_per_right_key", reader.batches, reader.ledger.folds.of(Stage.RIGHT_TABLE), removed),
        Rule(
            "hash_is_that_of_the_row",
            f"{ROW} IS NOT NULL AND {s.HASH} IS NOT NULL AND NOT ({s.HASH} <=> _fk_content)",
            hex_of(s.HASH),
            hex_of("_fk_content"),
            may_be_pending=False,
        ),
        Rule(
            "row_is_that_of_the_changelog",
            f"{LOGGED} AND (NOT (_fk_whole <=> _fk_log_row) OR NOT (_fk_tombstone <=> _fk_log_deleted))",
            f"CONCAT(IF(_fk_tombstone, 'tombstone ', 'row '), {hex_of('_fk_whole')})",
            f"CONCAT(IF(_fk_log_deleted, 'tombstone ', 'row '), {hex_of('_fk_log_row')})",
        ),
        Rule(
            "no_payload_in_a_tombstone",
            f"{ROW} IS NOT NULL AND COALESCE(_fk_tombstone, TRUE) AND _fk_values",
            "'values'",
            "'no values'",
            may_be_pending=False,
        ),
    )
    since = [] if spec.as_of is None else [f"{s.VALID_FROM} AS valid_from"]
    key = f"STRUCT({', '.join([*(c.quoted for c in spec.right.key_columns), *since])})"
    due = reader.due[Stage.RIGHT_TABLE]
    return [state_view(rows, key, rules, excused_by(reader, k.RIGHT_CHANGELOG, k.RIGHT_TABLE, keys, due))]
