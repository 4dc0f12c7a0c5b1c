"""Every setting of reading over HTTP, with the value that suits an object store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from segreader.storage.guard import AddressPolicy
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.storage.options import StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How ranges are requested.

    Args:
        range_size: bytes of one request. Stores advise 8 to 16 MiB.
        in_flight: requests under way at once; memory is this times ``range_size``.
        small_in_flight: besides these, requests for at most 256 KiB: indexes, snapshots, the ends of logs.
        max_gap: bytes between two wanted ranges that are fetched rather than asked around.
        connect_timeout_s: for the connection, TLS included.
        idle_timeout_s: without a byte; there is no limit on a whole request, but see ``floor_rate``.
        floor_rate: bytes per second below which a connection is given up, measured over ``idle_timeout_s``.
        tries: requests for one range at most; they go on where the last one stopped. They begin anew with progress: 64
            KiB since they last did, at ``floor_rate`` or faster, waits included.
        range_timeout_s: for a range, waits included; begins anew with the tries. An answer that keeps to
            ``floor_rate`` may take longer.
        retry_budget: retries of a whole job, as a share of its ranges; those after progress do not count.
        retry_reserve: retries that a job has however few its ranges are.
        backoff_start_s, backoff_max_s: the bound of the random wait before a try, at first and at most.
        hedge_after_s: when a second request is sent for an answer that is late: after this, or after the time that 95
            of 100 answers took, if that is more.
        hedge_share: second requests per request at most; 0 sends none.
        ca_file: a file of certificates to trust in place of the system's.
        verify: ``False`` trusts any certificate, with a warning.
        allow_http: whether plain http is allowed, where there is no ``policy``.
        policy: what URLs from outside may name; ``None`` where the user named the store, and is trusted.
        extra_headers: sent with every request.
    """

    range_size: int = 16 << 20
    in_flight: int = 8
    small_in_flight: int = 64
    max_gap: int = 64 << 10
    connect_timeout_s: float = 5.0
    idle_timeout_s: float = 10.0
    floor_rate: int = 16 << 10
    tries: int = 6
    range_timeout_s: float = 55.0
    retry_budget: float = 0.1
    retry_reserve: int = 32
    backoff_start_s: float = 0.1
    backoff_max_s: float = 5.0
    hedge_after_s: float = 0.25
    hedge_share: float = 0.05
    ca_file: str | None = None
    verify: bool = True
    allow_http: bool = False
    policy: AddressPolicy | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_options(self, options: StorageOptions) -> HttpSettings:
        """These, but for what the options of a location say otherwise."""
        return replace(
            self,
            ca_file=options.ca_file or self.ca_file,
            verify=self.verify and options.verify is not False,
            in_flight=options.in_flight or self.in_flight,
            range_size=options.range_size or self.range_size,
        )

    def __post_init__(self) -> None:
        positive = ("range_size", "in_flight", "small_in_flight", "tries", "connect_timeout_s", "idle_timeout_s")
        for name in (*positive, "range_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")
        for name in ("max_gap", "floor_rate", "retry_budget", "retry_reserve", "backoff_start_s", "hedge_after_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be less than 0, as {getattr(self, name)} is")
        if not 0 <= self.hedge_share <= 1:
            raise ValueError(f"hedge_share is a share from 0 to 1, not {self.hedge_share}")
