"""What a block costs, and whether it is refreshed or computed whole: by rows, and by earlier runs. No Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fk_pipeline.blocks.refresh.costs import (
    ALWAYS_FEW,
    COSTS,
    RATES,
    REMEMBERED,
    Numbers,
    Run,
    Way,
    decide,
    decision_of,
    earlier_runs,
    facts_of,
    numbers_of,
    predicted,
    share_of,
    share_seen,
    strategy_of,
)
from fk_pipeline.blocks.select.block import Block
from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.spec.inputs import SideSpec
from fk_pipeline.store.logs import UNKNOWN_SIZE

ROWS = {"line": 1_000_000, "orders": 250_000, "nation": 25}
KEYS = {"line": ("order_id", "number"), "orders": ("order_id",), "nation": ("nation_id",)}
SCHEMAS = {
    "line": "order_id BIGINT, number INT, part BIGINT, price DECIMAL(15,2)",
    "orders": "order_id BIGINT, nation BIGINT, day DATE",
    "nation": "nation_id BIGINT, name STRING",
}
JOINED = "FROM line l JOIN orders o ON o.order_id = l.order_id JOIN nation n ON n.nation_id = o.nation"


def block_of(query: str) -> Block:
    columns = {
        name: SideSpec.model_validate({"path": "p", "format": "rows", "schema": schema, "key": [*KEYS[name]]}).columns
        for name, schema in SCHEMAS.items()
    }
    return parse_query(query, columns).blocks[-1]


def numbers(query: str, stored: int, *, adds: bool = False, **changed: int) -> Numbers:
    return numbers_of(block_of(query), ROWS, KEYS, changed, stored, adds=adds)


def touched(query: str, stored: int, *, adds: bool = False, **changed: int) -> int:
    return numbers(query, stored, adds=adds, **changed).touched


def again(query: str, stored: int, **changed: int) -> int:
    return numbers(query, stored, **changed).again


def test_a_changed_row_touches_the_anchors_that_hang_on_it() -> None:
    rows = f"SELECT l.order_id, n.name {JOINED}"
    assert touched(rows, 1_000_000, line=1_000) == 1_000
    assert touched(rows, 1_000_000, orders=1_000) == 4_000
    assert touched(rows, 1_000_000, nation=1) == 40_000
    assert touched(rows, 1_000_000, line=7, orders=5, nation=1) == 40_027
    assert touched(rows, 1_000_000, nation=25, line=9) == 1_000_000, "no more than there are"
    assert touched("SELECT x.part FROM line x JOIN line y ON y.order_id = x.part", 1_000_000, line=500) == 1_000
    assert numbers(rows, 5, line=3, nation=2) == Numbers(1_250_025, 80_003, 0, 5, changed=5)


def test_branches_are_added_and_a_table_of_one_row_is_joined_to_all() -> None:
    union = (
        "SELECT order_id FROM line UNION ALL SELECT o.order_id FROM orders o JOIN nation n ON n.nation_id = o.nation"
    )
    assert numbers(union, 1_250_000, line=5, orders=6, nation=1) == Numbers(1_250_025, 10_011, 0, 1_250_000, changed=12)
    single = "SELECT l.order_id, (SELECT MAX(day) FROM orders) AS last FROM line l"
    block = block_of(single)
    (name,) = [one.relation for one in block.aliases if one.is_single]
    rows, keys = {"line": 1_000_000, name: 1}, {"line": KEYS["line"], name: ()}
    assert numbers_of(block, rows, keys, {name: 1}, 1_000_000, adds=False).touched == 1_000_000
    block = block_of("SELECT order_id FROM line WHERE price > (SELECT AVG(price) FROM line)")
    (name,) = [one.relation for one in block.aliases if one.is_single]
    rows, keys = {"line": 1_000_000, name: 1}, {"line": KEYS["line"], name: ()}
    assert numbers_of(block, rows, keys, {name: 1}, 1_000, adds=False).touched == 1


def test_a_group_or_partition_is_touched_with_all_its_rows_unless_it_is_added_to() -> None:
    query = f"SELECT o.day, MAX(l.price) AS m {JOINED} GROUP BY o.day"
    assert (touched(query, 2_000, line=10), again(query, 2_000, line=10)) == (10, 10 * 500)
    assert (touched(query, 2_000, orders=10), again(query, 2_000, orders=10)) == (40, 40 * 500)
    assert again(query, 2_000, line=3_000) == 1_000_000
    assert numbers(query, 2_000, adds=True, line=10) == Numbers(1_250_025, 10, 0, 2_000, changed=10)
    ranked = "SELECT l.number, RANK() OVER (PARTITION BY {} ORDER BY l.price) AS r " + JOINED
    assert again(ranked.format("o.order_id"), 1_000_000, line=10) == 40, "a partition per order"
    assert again(ranked.format("l.order_id"), 1_000_000, line=10) == 40, "which is joined by its key"
    assert again(ranked.format("o.nation"), 1_000_000, line=10) == 400_000
    assert again(ranked.format("l.part"), 1_000_000, line=10) == 10, "nothing tells how many there are"
    assert again(ranked.format("o.order_id, o.day"), 1_000_000, line=10) == 40
    assert again(ranked.format("o.order_id % 8"), 1_000_000, line=10) == 10


def test_one_group_or_partition_of_all_rows_is_computed_whole_if_anything_changed() -> None:
    for query in ("SELECT MAX(price) AS m FROM line", "SELECT part, RANK() OVER (ORDER BY price) AS r FROM line"):
        assert again(query, 1, line=1) == 1_000_000
        assert decide(numbers(query, 1, line=1), []).way is Way.WHOLE
        assert decide(numbers(query, 1), []).way is Way.REFRESH, "nothing changed"
        assert decide(numbers(query, 1, line=1), [], may_be_whole=False).way is Way.REFRESH
    assert decide(numbers("SELECT SUM(price) AS s FROM line", 1, adds=True, line=1), []).way is Way.REFRESH


def test_rows_that_a_clock_passed_are_touched_too() -> None:
    found = numbers_of(block_of("SELECT part FROM line"), ROWS, KEYS, {"line": 3}, 5, adds=False, passed=4)
    assert (found.touched, found.changed, found.passed) == (7, 3, 4)
    assert decide(found, []).why == "3 changed rows and 4 that the clock passed touch about 7"


def test_a_table_whose_log_tells_no_numbers_is_refreshed() -> None:
    rows, changed = {**ROWS, "line": UNKNOWN_SIZE}, {"line": 700_000, "nation": 3}
    found = numbers_of(block_of(f"SELECT l.order_id {JOINED}"), rows, KEYS, changed, 1_000_000, adds=False)
    assert found.touched == 700_003
    assert decide(found, []).way is Way.REFRESH


def test_facts_of_a_commit_have_the_names_that_older_commits_have() -> None:
    stored = {"read": 9, "touched": 3, "again": 2, "stored": 5, "changed": 1, "alone": True, "passed": 0}
    facts = {"way": "refresh", "numbers": stored, "seconds": 1.5, "share": 1.0, "earlier": []}
    decision = decision_of({COSTS: facts})
    assert decision is not None
    assert decision.numbers == Numbers(9, 3, 2, 5, 1, single_group=True)
    assert facts_of(decision, [])["numbers"] == stored


def test_anchors_that_where_leaves_out_are_expected_less_and_never_all_at_once() -> None:
    query = f"SELECT o.day, MAX(l.price) AS m {JOINED} GROUP BY o.day"
    half = numbers_of(block_of(query), ROWS, KEYS, {"orders": 100}, 2_000, adds=False, share=0.5)
    assert (half.touched, half.again) == (200, 200 * 500)
    assert share_seen(0.5, 400, 200) == 0.5
    assert share_seen(0.5, 400, 160) == 0.4
    assert share_seen(0.5, 400, 0) == 0.25
    assert share_seen(0.5, 400, 300) == 0.75
    assert share_seen(0.5, 400, 10_000) == 1.0
    assert share_seen(0.5, 0, 7) == 0.5
    share = 0.5
    for _ in range(40):
        share = share_seen(share, 400, 0)
    few = numbers_of(block_of(query), ROWS, KEYS, {"orders": 1}, 2_000, adds=False, share=share)
    assert (few.touched > 0, share_seen(share, 400, 400)) == (True, 1.0), "however long nothing was found"
    facts = facts_of(decide(half, []), [], 0.25)
    assert (share_of({COSTS: facts}), share_of({})) == (0.25, 1.0)


def known(touched: int, read: int = 1_000_000, stored: int = 1_000_000) -> Numbers:
    return Numbers(read, touched, 0, stored, changed=touched)


def run(way: Way, touched: int, seconds: float) -> Run:
    return Run(way, known(touched), seconds)


def slow(way: Way, touched: int, times: float) -> Run:
    """Returns a run that took some times what was measured for it."""
    return run(way, touched, RATES[way].at(known(touched)) * times)


@pytest.mark.parametrize("way", Way)
def test_without_runs_the_measured_rates_predict(way: Way) -> None:
    assert predicted(way, known(1_000), []) == RATES[way].at(known(1_000))
    assert predicted(way, known(0), []) < predicted(way, known(900_000), [])


def test_a_refresh_of_many_groups_reads_all_and_one_of_rows_does_not() -> None:
    large = known(10, read=9_000_000)
    assert predicted(Way.REFRESH, large, []) == predicted(Way.REFRESH, known(10), [])
    assert predicted(Way.REFRESH, replace(large, again=900_000), []) > predicted(Way.REFRESH, large, []) + 10
    assert predicted(Way.REFRESH, replace(large, again=400), []) < predicted(Way.REFRESH, large, []) + 0.1
    assert predicted(Way.WHOLE, large, []) > predicted(Way.WHOLE, known(10), []) + 10


def test_the_median_of_runs_like_it_predicts_and_one_slow_run_does_not_count() -> None:
    runs = [run(Way.REFRESH, 1_000, seconds) for seconds in (9.0, 0.5, 0.7, 0.6)]
    assert predicted(Way.REFRESH, known(1_000), runs) == pytest.approx(0.65)
    assert predicted(Way.REFRESH, known(1_100), runs) == pytest.approx(0.65, rel=0.1)
    large = [slow(Way.REFRESH, 800_000, 3.0) for _ in range(3)]
    assert predicted(Way.REFRESH, known(1_000), runs + large) == pytest.approx(0.65), "of many rows are no guide"
    times = predicted(Way.REFRESH, known(900_000), runs + large) / RATES[Way.REFRESH].at(known(900_000))
    assert times == pytest.approx(3.0)


def test_a_way_without_runs_is_scaled_as_the_others_are() -> None:
    first = [slow(Way.FIRST, 0, 5.0)]
    for way in Way:
        assert predicted(way, known(50_000), first) == pytest.approx(5 * RATES[way].at(known(50_000)))
    both = [*first, slow(Way.WHOLE, 500_000, 2.0)]
    assert predicted(Way.WHOLE, known(400_000), both) == pytest.approx(2 * RATES[Way.WHOLE].at(known(400_000)))


def test_the_cheaper_way_is_taken_whatever_the_machine() -> None:
    most = known(900_000)
    assert decide(known(20_000), []).way is Way.REFRESH
    assert decide(most, []).way is Way.WHOLE
    for times in (0.2, 8.0):
        runs = [slow(Way.FIRST, 0, times)]
        assert [decide(one, runs).way for one in (known(20_000), most)] == [Way.REFRESH, Way.WHOLE]
    dear = [slow(Way.WHOLE, 900_000, 50.0)]
    assert decide(most, [*dear, slow(Way.REFRESH, 900_000, 1.0)]).way is Way.REFRESH
    cheap = [slow(Way.WHOLE, 20_000, 0.01), slow(Way.REFRESH, 20_000, 1.0)]
    found = decide(known(20_000), cheap)
    assert (found.way, "20,000 changed rows touch about 20,000, which should take" in found.why) == (Way.WHOLE, True)
    assert found.seconds == pytest.approx(RATES[Way.WHOLE].at(known(20_000)) * 0.01)


def test_few_rows_are_refreshed_though_the_whole_be_cheaper() -> None:
    cheap = [slow(Way.WHOLE, 20_000, 0.001), slow(Way.REFRESH, 20_000, 1.0)]
    assert decide(known(ALWAYS_FEW), cheap).way is Way.REFRESH
    assert decide(known(ALWAYS_FEW + 1), cheap).way is Way.WHOLE
    assert decide(known(ALWAYS_FEW, read=ALWAYS_FEW, stored=ALWAYS_FEW), []).way is Way.REFRESH
    assert decide(replace(known(10), again=ALWAYS_FEW), cheap).way is Way.REFRESH
    assert decide(replace(known(10), again=ALWAYS_FEW + 1), cheap).way is Way.WHOLE


def test_a_large_refresh_is_not_computed_whole_if_the_file_says_incremental() -> None:
    found = decide(known(1_000_000), [], may_be_whole=False)
    assert (found.way, found.seconds) == (Way.REFRESH, RATES[Way.REFRESH].at(known(1_000_000)))
    strategy, why = strategy_of(found)
    assert strategy == "incremental"
    assert why.endswith(f"and refresh is incremental; it should take {found.seconds:,.0f} s")


def test_a_commit_remembers_the_last_runs_of_each_way() -> None:
    facts: dict[str, object] = {}
    for number in range(3 * REMEMBERED):
        way = Way.WHOLE if number % 3 == 0 else Way.REFRESH
        decision = replace(decide(known(50_000), []), way=way)
        facts = {COSTS: facts_of(decision, earlier_runs(facts, None if number == 5 else float(number)))}
    found = earlier_runs(facts, 100.0)
    assert [one.seconds for one in found if one.way is Way.WHOLE] == [1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0]
    assert [one.seconds for one in found if one.way is Way.REFRESH][-3:] == [21.0, 23.0, 100.0]
    assert len(found) == 2 * REMEMBERED + 1
    assert replace(found[-1].numbers, changed=0) == replace(known(50_000), changed=0) == found[0].numbers
    assert earlier_runs({}, 3.0) == []


def test_a_refresh_that_touched_nothing_is_no_example() -> None:
    nothing = facts_of(decide(known(0), []), [])
    assert earlier_runs({COSTS: nothing}, 0.1) == []
    first = replace(decide(known(0), []), way=Way.FIRST)
    assert [one.way for one in earlier_runs({COSTS: facts_of(first, [])}, 0.1)] == [Way.FIRST]
