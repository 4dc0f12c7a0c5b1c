"""What a client that asks for much costs the others, by the CPU time of the gateway's own process."""

from __future__ import annotations

from pathlib import Path

import pytest
from gateway_attacks import ATTACKS, paid_for

_ROUNDS = 6
"""Other work on the machine only adds: a round within the bound shows that it holds."""

MOST = 3.0
MORE = {"8 MiB requests": 4.5}
"""Times as much as alone. On a quiet machine it is 1.0 to 1.7 (2.3 for large requests: 64 KiB of one pass in each step
of the event loop), beside another test run up to 2.3. It was 3.5 to 10 when each client got whatever it asked for."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_request_waits_no_longer_than_it_takes_while_another_client_asks_for_much(
    attack: str, tmp_path: Path
) -> None:
    found: list[float] = []
    while not found or min(found) > MORE.get(attack, MOST):
        assert len(found) < _ROUNDS, f"{found} times as much"
        alone, attacked = paid_for(attack, tmp_path)
        found.append(attacked / alone)
