"""The 22 queries of TPC-H with its validation parameters, in SQL that Spark and DuckDB both run.

Joins are written with JOIN ... ON, the table that changes most first. Beyond that only what a table of results needs
differs from the specification: ORDER BY stays where LIMIT follows, and then tells rows apart; the view of query 15 is
a CTE; columns have names. The fraction of query 11 depends on the scale.
"""

from __future__ import annotations

KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}

_REVENUE = "l_extendedprice * (1 - l_discount)"


def queries(scale: float) -> dict[int, str]:
    """Returns the queries by number."""
    return {
        1: f"""
            SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty, SUM(l_extendedprice) AS sum_base_price,
                SUM({_REVENUE}) AS sum_disc_price, SUM({_REVENUE} * (1 + l_tax)) AS sum_charge,
                AVG(l_quantity) AS avg_qty, AVG(l_extendedprice) AS avg_price, AVG(l_discount) AS avg_disc,
                COUNT(*) AS count_order
            FROM lineitem
            WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAY
            GROUP BY l_returnflag, l_linestatus""",
        2: """
            SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
            FROM partsupp
            JOIN part ON p_partkey = ps_partkey
            JOIN supplier ON s_suppkey = ps_suppkey
            JOIN nation ON n_nationkey = s_nationkey
            JOIN region ON r_regionkey = n_regionkey
            WHERE p_size = 15 AND p_type LIKE '%BRASS' AND r_name = 'EUROPE' AND ps_supplycost = (
                SELECT MIN(ps2.ps_supplycost)
                FROM partsupp ps2
                JOIN supplier s2 ON s2.s_suppkey = ps2.ps_suppkey
                JOIN nation n2 ON n2.n_nationkey = s2.s_nationkey
                JOIN region r2 ON r2.r_regionkey = n2.n_regionkey
                WHERE ps2.ps_partkey = part.p_partkey AND r2.r_name = 'EUROPE'
            )
            ORDER BY s_acctbal DESC, n_name, s_name, p_partkey
            LIMIT 100""",
        3: f"""
            SELECT l_orderkey, SUM({_REVENUE}) AS revenue, o_orderdate, o_shippriority
            FROM lineitem
            JOIN orders ON o_orderkey = l_orderkey
            JOIN customer ON c_custkey = o_custkey
            WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
            GROUP BY l_orderkey, o_orderdate, o_shippriority
            ORDER BY revenue DESC, o_orderdate, l_orderkey
            LIMIT 10""",
        4: """
            SELECT o_orderpriority, COUNT(*) AS order_count
            FROM orders
            WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01' AND EXISTS (
                SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate
            )
            GROUP BY o_orderpriority""",
        5: f"""
            SELECT n_name, SUM({_REVENUE}) AS revenue
            FROM lineitem
            JOIN orders ON o_orderkey = l_orderkey
            JOIN customer ON c_custkey = o_custkey
            JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey
            JOIN nation ON n_nationkey = s_nationkey
            JOIN region ON r_regionkey = n_regionkey
            WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
            GROUP BY n_name""",
        6: """
            SELECT SUM(l_extendedprice * l_discount) AS revenue
            FROM lineitem
            WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
                AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
        7: f"""
            SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue
            FROM (
                SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, EXTRACT(YEAR FROM l_shipdate) AS l_year,
                    {_REVENUE} AS volume
                FROM lineitem
                JOIN supplier ON s_suppkey = l_suppkey
                JOIN orders ON o_orderkey = l_orderkey
                JOIN customer ON c_custkey = o_custkey
                JOIN nation n1 ON n1.n_nationkey = s_nationkey
                JOIN nation n2 ON n2.n_nationkey = c_nationkey
                WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' AND (
                    (n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE')
                )
            ) AS shipping
            GROUP BY supp_nation, cust_nation, l_year""",
        8: f"""
            SELECT o_year, SUM(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / SUM(volume) AS mkt_share
            FROM (
                SELECT EXTRACT(YEAR FROM o_orderdate) AS o_year, {_REVENUE} AS volume, n2.n_name AS nation
                FROM lineitem
                JOIN part ON p_partkey = l_partkey
                JOIN supplier ON s_suppkey = l_suppkey
                JOIN orders ON o_orderkey = l_orderkey
                JOIN customer ON c_custkey = o_custkey
                JOIN nation n1 ON n1.n_nationkey = c_nationkey
                JOIN region ON r_regionkey = n1.n_regionkey
                JOIN nation n2 ON n2.n_nationkey = s_nationkey
                WHERE r_name = 'AMERICA' AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
                    AND p_type = 'ECONOMY ANODIZED STEEL'
            ) AS all_nations
            GROUP BY o_year""",
        9: f"""
            SELECT nation, o_year, SUM(amount) AS sum_profit
            FROM (
                SELECT n_name AS nation, EXTRACT(YEAR FROM o_orderdate) AS o_year,
                    {_REVENUE} - ps_supplycost * l_quantity AS amount
                FROM lineitem
                JOIN part ON p_partkey = l_partkey
                JOIN supplier ON s_suppkey = l_suppkey
                JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
                JOIN orders ON o_orderkey = l_orderkey
                JOIN nation ON n_nationkey = s_nationkey
                WHERE p_name LIKE '%green%'
            ) AS profit
            GROUP BY nation, o_year""",
        10: f"""
            SELECT c_custkey, c_name, SUM({_REVENUE}) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment
            FROM lineitem
            JOIN orders ON o_orderkey = l_orderkey
            JOIN customer ON c_custkey = o_custkey
            JOIN nation ON n_nationkey = c_nationkey
            WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R'
            GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
            ORDER BY revenue DESC, c_custkey
            LIMIT 20""",
        11: f"""
            SELECT ps_partkey, SUM(ps_supplycost * ps_availqty) AS value
            FROM partsupp
            JOIN supplier ON s_suppkey = ps_suppkey
            JOIN nation ON n_nationkey = s_nationkey
            WHERE n_name = 'GERMANY'
            GROUP BY ps_partkey
            HAVING SUM(ps_supplycost * ps_availqty) > (
                SELECT SUM(ps2.ps_supplycost * ps2.ps_availqty) * {0.0001 / scale:.10f}
                FROM partsupp ps2
                JOIN supplier s2 ON s2.s_suppkey = ps2.ps_suppkey
                JOIN nation n2 ON n2.n_nationkey = s2.s_nationkey
                WHERE n2.n_name = 'GERMANY'
            )""",
        12: """
            SELECT l_shipmode,
                SUM(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high_line_count,
                SUM(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low_line_count
            FROM lineitem
            JOIN orders ON o_orderkey = l_orderkey
            WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
                AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
            GROUP BY l_shipmode""",
        13: """
            SELECT c_count, COUNT(*) AS custdist
            FROM (
                SELECT c_custkey, COUNT(o_orderkey) AS c_count
                FROM customer
                LEFT JOIN orders ON o_custkey = c_custkey AND o_comment NOT LIKE '%special%requests%'
                GROUP BY c_custkey
            ) AS c_orders
            GROUP BY c_count""",
        14: f"""
            SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN {_REVENUE} ELSE 0 END) / SUM({_REVENUE})
                AS promo_revenue
            FROM lineitem
            JOIN part ON p_partkey = l_partkey
            WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
        15: f"""
            WITH revenue AS (
                SELECT l_suppkey AS supplier_no, SUM({_REVENUE}) AS total_revenue
                FROM lineitem
                WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
                GROUP BY l_suppkey
            )
            SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
            FROM supplier
            JOIN revenue ON supplier_no = s_suppkey
            WHERE total_revenue = (SELECT MAX(total_revenue) FROM revenue)""",
        16: """
            SELECT p_brand, p_type, p_size, COUNT(DISTINCT ps_suppkey) AS supplier_cnt
            FROM partsupp
            JOIN part ON p_partkey = ps_partkey
            WHERE p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
                AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
                AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
            GROUP BY p_brand, p_type, p_size""",
        17: """
            SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly
            FROM lineitem
            JOIN part ON p_partkey = l_partkey
            WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX' AND l_quantity < (
                SELECT 0.2 * AVG(l2.l_quantity) FROM lineitem l2 WHERE l2.l_partkey = part.p_partkey
            )""",
        18: """
            SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, SUM(l_quantity) AS sum_qty
            FROM lineitem
            JOIN orders ON o_orderkey = l_orderkey
            JOIN customer ON c_custkey = o_custkey
            WHERE o_orderkey IN (
                SELECT l2.l_orderkey FROM lineitem l2 GROUP BY l2.l_orderkey HAVING SUM(l2.l_quantity) > 300
            )
            GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
            ORDER BY o_totalprice DESC, o_orderdate, o_orderkey
            LIMIT 100""",
        19: f"""
            SELECT SUM({_REVENUE}) AS revenue
            FROM lineitem
            JOIN part ON p_partkey = l_partkey
            WHERE l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
                (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
                    AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5)
                OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
                    AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10)
                OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
                    AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15)
            )""",
        20: """
            SELECT s_name, s_address
            FROM supplier
            JOIN nation ON n_nationkey = s_nationkey
            WHERE n_name = 'CANADA' AND s_suppkey IN (
                SELECT ps_suppkey
                FROM partsupp
                WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%') AND ps_availqty > (
                    SELECT 0.5 * SUM(l_quantity)
                    FROM lineitem
                    WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                        AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
                )
            )""",
        21: """
            SELECT s_name, COUNT(*) AS numwait
            FROM lineitem l1
            JOIN supplier ON s_suppkey = l1.l_suppkey
            JOIN orders ON o_orderkey = l1.l_orderkey
            JOIN nation ON n_nationkey = s_nationkey
            WHERE o_orderstatus = 'F' AND l1.l_receiptdate > l1.l_commitdate AND n_name = 'SAUDI ARABIA'
                AND EXISTS (
                    SELECT 1 FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey
                )
                AND NOT EXISTS (
                    SELECT 1 FROM lineitem l3
                    WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
                        AND l3.l_receiptdate > l3.l_commitdate
                )
            GROUP BY s_name
            ORDER BY numwait DESC, s_name
            LIMIT 100""",
        22: """
            SELECT cntrycode, COUNT(*) AS numcust, SUM(c_acctbal) AS totacctbal
            FROM (
                SELECT SUBSTRING(c_phone, 1, 2) AS cntrycode, c_acctbal
                FROM customer
                WHERE SUBSTRING(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
                    AND c_acctbal > (
                        SELECT AVG(c2.c_acctbal)
                        FROM customer c2
                        WHERE c2.c_acctbal > 0.00
                            AND SUBSTRING(c2.c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
                    )
                    AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)
            ) AS custsale
            GROUP BY cntrycode""",
    }


def tables_of(query: str) -> list[str]:
    """Returns the tables that a query reads."""
    words = {*query.replace("(", " ").replace(")", " ").split()}
    return [table for table in KEYS if table in words]
