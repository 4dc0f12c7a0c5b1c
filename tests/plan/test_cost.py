"""A plan's cost is counted as the store will ask, and told in money only by prices that somebody gave."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from segreader.errors import OptionError
from segreader.plan.cost import RANGE_SIZE, PriceTable, estimate, parse_prices
from segreader.plan.split import ReadPlan, Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import cut

MIB = 1 << 20


def plan_of(*splits: tuple[str, int, int]) -> ReadPlan:
    """A plan of splits: log, start and stop position."""
    return ReadPlan(
        "s3://logs/",
        tuple(
            Split(
                partition=TopicIdPartition("t", 0),
                log=log,
                log_size=1 << 40,
                positions=ByteRange(start, stop),
                offsets=OffsetRange(),
            )
            for log, start, stop in splits
        ),
    )


def test_a_split_costs_a_request_for_every_range_that_it_begins() -> None:
    plan = plan_of(("a", 0, 16 * MIB), ("a", 16 * MIB, 48 * MIB + 1), ("b", 5, 6))
    cost = estimate(plan)

    assert (cost.objects, cost.requests, cost.size) == (2, 1 + 3 + 1, 48 * MIB + 2)


def test_ranges_are_counted_as_the_store_cuts_them() -> None:
    assert HttpSettings().range_size == RANGE_SIZE
    for start, stop in ((0, 1), (7, 16 * MIB + 7), (7, 16 * MIB + 8), (3, 100 * MIB)):
        wanted = ByteRange(start, stop)
        assert estimate(plan_of(("a", start, stop))).requests == len(list(cut(wanted, RANGE_SIZE)))


def test_nothing_to_read_costs_nothing() -> None:
    cost = estimate(plan_of(), parse_prices({"get_per_1000": 1, "gib_out": 1}))

    assert (cost.objects, cost.requests, cost.size, cost.money) == (0, 0, 0, Decimal(0))


def test_without_prices_there_is_no_money() -> None:
    cost = estimate(plan_of(("a", 0, 1)))

    assert (cost.prices, cost.money, cost.money_for_bytes, cost.money_for_requests) == (None, None, None, None)


def test_money_is_exact_and_counts_the_requests_of_planning_apart() -> None:
    prices = parse_prices({"get_per_1000": "0.0004", "gib_out": 0.09, "currency": "USD"})
    cost = estimate(plan_of(("a", 0, 1 << 30)), prices, planning_requests=36)

    assert (cost.requests, cost.planning_requests) == (64, 36)
    assert cost.money_for_requests == Decimal("0.00004")
    assert cost.money_for_bytes == Decimal("0.09")
    assert cost.money == Decimal("0.09004")
    assert pickle.loads(pickle.dumps(cost)) == cost


def test_what_a_price_table_leaves_out_costs_nothing() -> None:
    assert parse_prices({"gib_out": "0.02"}) == PriceTable(gib_out=Decimal("0.02"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"get_per_100": 1}, "Did you mean 'get_per_1000'"),
        ({}, "without a price"),
        ({"currency": "USD"}, "without a price"),
        ({"gib_out": -1}, "gib_out"),
        ({"gib_out": "cheap"}, "gib_out"),
        ({"gib_out": None}, "gib_out"),
        ({"gib_out": True}, "gib_out"),
        ({"gib_out": [1]}, "gib_out"),
        ({"gib_out": "NaN"}, "gib_out"),
        ({"gib_out": "sNaN"}, "gib_out"),
        ({"gib_out": float("inf")}, "gib_out"),
        ({"gib_out": "1e999999"}, "gib_out"),
        ({"gib_out": "1e-999999"}, "gib_out"),
        ({"gib_out": 10**5000}, "gib_out"),
        ({"gib_out": "1" * 100_000}, "gib_out"),
        ({"gib_out": 1, "currency": 7}, "currency"),
        ({"gib_out": 1, "currency": "\x1b[31m"}, "currency"),
    ],
)
def test_a_price_that_is_none_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=r"price|currency") as caught:
        parse_prices(given)
    assert said in str(caught.value)
