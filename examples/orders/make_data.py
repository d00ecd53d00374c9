"""Makes the landing files of this example anew, the same every time.

    pip install -r benchmarks/requirements.txt        # brings tpchgen-cli
    python examples/orders/make_data.py

From TPC-H (`tpchgen-cli`, scale 0.002): the orders with their prices, dates, states and priorities, the customers with
their names, balances, segments and nations, and which customer an order is from. Made up with a fixed seed: the numbers
of the customers within their nation, the references of the orders, and everything that happens after batch 0.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

SCALE = "0.002"
CUSTOMER = ("op", "nation", "account", "name", "segment", "balance")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")

Row = dict[str, Any]


def tpch() -> tuple[list[Row], list[Row]]:
    """Orders and customers as they are before anything happens."""
    tool = Path(sys.executable).parent / "tpchgen-cli"
    with tempfile.TemporaryDirectory() as folder:
        tables = "--tables=orders,customer,nation"
        subprocess.run([tool, "csv", "-s", SCALE, tables, f"--output-dir={folder}"], check=True, capture_output=True)

        def rows(table: str) -> list[Row]:
            with (Path(folder) / f"{table}.csv").open(newline="") as file:
                return list(csv.DictReader(file))

        nations = {row["n_nationkey"]: row["n_name"] for row in rows("nation")}
        customers, references, numbers = [], {}, Counter[str]()
        for row in rows("customer"):
            nation = nations[row["c_nationkey"]]
            numbers[nation] += 1
            references[row["c_custkey"]] = f"{nation}/{numbers[nation]}"
            customers.append(
                {
                    "nation": nation,
                    "account": numbers[nation],
                    "name": row["c_name"],
                    "segment": row["c_mktsegment"],
                    "balance": row["c_acctbal"],
                }
            )
        orders = [
            {
                "order_key": int(row["o_orderkey"]),
                "customer_ref": references[row["o_custkey"]],
                "status": row["o_orderstatus"],
                "total": row["o_totalprice"],
                "ordered": row["o_orderdate"],
                "priority": row["o_orderpriority"],
            }
            for row in rows("orders")
        ]
    return orders, customers


def batches() -> list[tuple[list[Row], list[Row]]]:
    """Per batch the changes of orders and of customers."""
    chance = random.Random(4213)
    orders, customers = tpch()
    withheld = set(chance.sample(range(len(customers)), 15))

    def reference() -> str:
        one = chance.choice(customers)
        return f"{one['nation']}/{one['account']}"

    initial = (
        [{"op": "c"} | row for row in orders],
        [{"op": "c"} | row for number, row in enumerate(customers) if number not in withheld],
    )
    known = [row for number, row in enumerate(customers) if number not in withheld]

    changed = chance.sample(orders, 150)
    for row in changed[:60]:
        row["customer_ref"] = reference()
    for row in changed[60:]:
        row["status"] = "F" if row["status"] == "O" else "P"
    last = max(row["order_key"] for row in orders)
    new = [dict(chance.choice(orders), order_key=last + n, customer_ref=reference(), status="O") for n in range(1, 31)]
    first = ([{"op": "u"} | row for row in changed] + [{"op": "c"} | row for row in new], [])

    moved = chance.sample(known, 50)
    for row in moved[:25]:
        row["segment"] = SEGMENTS[(SEGMENTS.index(row["segment"]) + 1) % len(SEGMENTS)]
    for row in moved[25:40]:
        row["balance"] = f"{float(row['balance']) + 100:.2f}"
    gone = moved[40:]
    second = ([], [{"op": "u"} | row for row in moved[:40]] + [{"op": "d"} | key(row) for row in gone])

    rest = [row for row in orders if row not in changed]
    deleted, unclear, anonymous = rest[:50], rest[50:55], rest[55:58]
    third = (
        [{"op": "d", "order_key": row["order_key"]} for row in deleted]
        + [{"op": "u"} | row | {"customer_ref": "GERMANY/?"} for row in unclear]
        + [{"op": "u"} | row | {"customer_ref": None} for row in anonymous],
        [{"op": "c"} | customers[number] for number in sorted(withheld)],
    )

    back = gone[:5]
    theirs = {f"{row['nation']}/{row['account']}" for row in back}
    urgent = [row for row in new + rest[58:] if row["customer_ref"] in theirs][:20]
    fourth = ([{"op": "u"} | row | {"priority": "1-URGENT"} for row in urgent], [{"op": "c"} | row for row in back])
    return json.loads(json.dumps([initial, first, second, third, fourth]))


def key(customer: Row) -> Row:
    """What a deleted customer is known by."""
    return {"nation": customer["nation"], "account": customer["account"]}


def files() -> dict[str, bytes]:
    """The landing files, by path: orders as JSON lines, customers as CSV."""
    found = {}
    for number, (orders, customers) in enumerate(batches()):
        if orders:
            lines = "".join(json.dumps(row) + "\n" for row in orders)
            found[f"orders/{number:08d}.jsonl.gz"] = gzip.compress(lines.encode(), mtime=0)
        if customers:
            text = io.StringIO()
            writer = csv.DictWriter(text, CUSTOMER, lineterminator="\n")
            writer.writeheader()
            writer.writerows(customers)
            found[f"customers/{number:08d}.csv"] = text.getvalue().encode()
    return found


if __name__ == "__main__":
    landing = Path(__file__).parent / "landing"
    for path, content in files().items():
        (landing / path).parent.mkdir(parents=True, exist_ok=True)
        (landing / path).write_bytes(content)
        print(f"{path}: {len(content):,} bytes")
