"""How many examples Hypothesis tries: few in `make test`, all in `make test-rest`, which runs these tests again."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("full", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("quick", settings.get_profile("full"), max_examples=15)
settings.load_profile("full")


def tries(full: int) -> int:
    """For ``@settings(max_examples=…)``, which would hold in every profile: the profile's share of so many."""
    assert settings.default is not None
    share = settings.default.max_examples / settings.get_profile("full").max_examples
    return max(10, int(full * share))
