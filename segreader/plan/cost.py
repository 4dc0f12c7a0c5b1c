"""What reading a plan will cost: objects, requests, bytes, and money by the user's own prices. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from segreader.errors import OptionError
from segreader.plan.split import ReadPlan
from segreader.values import dataclass

RANGE_SIZE: Final = 16 << 20
"""Bytes of one request for a body, as ``storage`` asks for them over HTTP."""

_GIB: Final = 1 << 30
_NUMBERS: Final = ("get_per_1000", "gib_out", "gib_month")
_NAMES: Final = (*_NUMBERS, "currency")
_LONGEST: Final = 40
_LARGEST: Final = Decimal(10) ** 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """What a store charges. No prices are built in: they differ by region and contract, and they change.

    Args:
        get_per_1000: for a thousand GET requests.
        gib_out: for a GiB that leaves the store; 0 within a region of most clouds.
        gib_month: for a GiB that is kept for a month; only ``segreader report`` asks for it.
        currency: what the numbers are in, as they are to be shown.
    """

    get_per_1000: Decimal = Decimal(0)
    gib_out: Decimal = Decimal(0)
    gib_month: Decimal = Decimal(0)
    currency: str = ""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What one read of a plan asks of its store.

    Requests are those over HTTP when nothing fails; a directory costs none. Bytes are those of plain segments: where
    they are stored compressed, fewer move.

    Args:
        objects: how many logs are read from.
        requests: GETs for the bodies.
        size: bytes of the bodies.
        planning_requests: requests that making the plan took, where they were counted: they are not among
            ``requests``, and their answers not in ``size``.
        prices: to show the cost in money; ``None`` if none were given.
    """

    objects: int
    requests: int
    size: int
    planning_requests: int | None = None
    prices: PriceTable | None = None

    @property
    def money_for_requests(self) -> Decimal | None:
        """For all requests, those of planning too; ``None`` without prices."""
        if self.prices is None:
            return None
        return self.prices.get_per_1000 * (self.requests + (self.planning_requests or 0)) / 1000

    @property
    def money_for_bytes(self) -> Decimal | None:
        """For the bytes that leave the store; ``None`` without prices."""
        return None if self.prices is None else self.prices.gib_out * self.size / _GIB

    @property
    def money(self) -> Decimal | None:
        """Both together; ``None`` without prices."""
        if self.money_for_requests is None or self.money_for_bytes is None:
            return None
        return self.money_for_requests + self.money_for_bytes

    @property
    def money_text(self) -> str | None:
        """The amount, its currency and its parts, for people; ``None`` without prices."""
        if self.prices is None:
            return None
        parts = f"requests {_shown(self.money_for_requests)}, bytes {_shown(self.money_for_bytes)}"
        return f"{_shown(self.money)} {self.prices.currency}".rstrip() + f" ({parts})"


def _shown(amount: Decimal | None) -> str:
    """An amount without an exponent, to six digits behind the point."""
    return "" if amount is None else f"{amount:.6f}".rstrip("0").rstrip(".")


def estimate(
    plan: ReadPlan,
    prices: PriceTable | None = None,
    *,
    planning_requests: int | None = None,
) -> CostEstimate:
    """What reading the plan once will cost.

    Args:
        plan: what will be read.
        prices: to tell it in money.
        planning_requests: how many requests making the plan took, where that is known.
    """
    return CostEstimate(
        objects=len({split.log for split in plan.splits}),
        requests=sum(-(-split.positions.size // RANGE_SIZE) for split in plan.splits),
        size=plan.size,
        planning_requests=planning_requests,
        prices=prices,
    )


def parse_prices(given: Mapping[str, object]) -> PriceTable:
    """A price table from what a file or a command line says; what is left out costs nothing.

    Args:
        given: ``get_per_1000``, ``gib_out`` and ``gib_month`` as numbers or decimal text, ``currency`` as text.

    Raises:
        OptionError: a name is unknown, a number is none or negative, or nothing is given.
    """
    for name in given:
        if name not in _NAMES:
            near = difflib.get_close_matches(name[:_LONGEST], _NAMES, 1)
            raise OptionError(
                "unknown price",
                found=repr(name[:_LONGEST]),
                expected=", ".join(_NAMES),
                hint=f"Did you mean {near[0]!r}?" if near else None,
            )
    if not any(name in given for name in _NUMBERS):
        raise OptionError("a price table without a price", expected=" or ".join(_NUMBERS))
    currency = given.get("currency", "")
    if not isinstance(currency, str) or len(currency) > _LONGEST or not currency.isprintable():
        raise OptionError("the currency is a short text", expected="such as USD")
    numbers = {name: _price(name, given[name]) for name in _NUMBERS if name in given}
    return PriceTable(**numbers, currency=currency)


def _price(name: str, value: object) -> Decimal:
    """A price as an exact number. A binary float is taken as it is written."""
    is_number = isinstance(value, int | float | Decimal | str) and not isinstance(value, bool)
    text = str(value) if is_number and not isinstance(value, int) else ""
    try:
        if isinstance(value, int) and is_number and abs(value) <= _LARGEST:
            number = Decimal(value)
        elif len(text) <= _LONGEST:
            number = Decimal(text)
        else:
            raise InvalidOperation
    except InvalidOperation:
        raise OptionError(f"the price {name} is not a number", expected="a number such as 0.0004") from None
    if not number.is_finite() or not 0 <= number <= _LARGEST or (number and number.adjusted() < -_LONGEST):
        raise OptionError(f"the price {name} is out of bounds", expected="0 or more")
    return number
