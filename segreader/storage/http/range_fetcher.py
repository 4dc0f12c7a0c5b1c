"""One range of one object over HTTP, verified: as many requests as it needs, each byte fetched once.

Every answer is checked against the request and against what is known of the object before a byte of its body is read.
Transient failures are retried from the last good byte.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable
from dataclasses import replace
from email.utils import parsedate_to_datetime

import urllib3

from segreader.errors import (
    AccessDeniedError,
    LocationExpiredError,
    SegreaderError,
    ShortReadError,
    StorageError,
    UntrustedLocationError,
    WrongAnswerError,
)
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, find_listed, replaced
from segreader.storage.guard import check_url, peer_check
from segreader.storage.http.answer import ERROR_BODY_SIZE, Identity, changed, check_head, refusal
from segreader.storage.http.connections import (
    Connections,
    Exchange,
    SomeReader,
    Stop,
    Stopped,
    Timers,
    transport_failure,
)
from segreader.storage.http.pacing import ConcurrencyLimiter, HedgePolicy, Race
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.url_leases import Lease, UrlLeases
from segreader.storage.metrics import StorageMetrics
from segreader.storage.retry import BackOff, Clock, Remedy, RequestFailed, RetryBudget
from segreader.values import dataclass

_USER_AGENT = "segreader"
_SMALL = 256 << 10
"""A request for no more than this costs a round trip and little memory: many are under way at once."""
_REPORTED_EACH = 1 << 20
_PROGRESS = 64 << 10
"""A range gets new tries after this many bytes. With one byte a try it would otherwise never end."""


@dataclass(slots=True, eq=False)
class _Answer:
    """An answer with a good head, whose body was not read yet."""

    exchange: Exchange
    response: urllib3.BaseHTTPResponse
    reader: SomeReader

    def keep_connection(self) -> None:
        """The body was read to its end: the connection may serve the next request."""
        self.exchange.detach()
        self.response.release_conn()

    def discard(self) -> None:
        """Close the connection with whatever is still in it."""
        self.exchange.detach()
        self.response.close()


@dataclass(slots=True, eq=False)
class _Task:
    """One range on its way into a buffer; ``done`` bytes of it are good."""

    name: str
    start: int
    buffer: memoryview
    expected_size: int | None
    expected_tag: str | None
    stop: Stop
    since: float
    """When its tries began, or last began again."""
    tell: Callable[[int], object] | None = None
    may_end: bool = False
    done: int = 0
    done_then: int = 0
    """Of ``done``, what was there at ``since``."""
    source: str = ""

    @property
    def rest(self) -> ByteRange:
        return ByteRange(self.start + self.done, self.start + len(self.buffer))

    def renew(self, now: float, floor_rate: int) -> bool:
        """Begin new tries if enough has arrived since the last ones began; returns whether they did."""
        come = self.done - self.done_then
        if come < _PROGRESS or come < floor_rate * (now - self.since):
            return False
        self.since, self.done_then = now, self.done
        return True


class _Watch:
    """Ends a request when its body falls below the floor rate; a blocked read cannot see that.

    A line between chunks may come byte by byte, without an end and without one byte of the body.

    Args:
        seconds: until it looks for the first time; then it looks after every idle time.
    """

    def __init__(
        self, task: _Task, exchange: Exchange, seconds: float, settings: HttpSettings, timers: Timers, clock: Clock
    ) -> None:
        self._task = task
        self._exchange = exchange
        self._settings = settings
        self._timers = timers
        self._clock = clock
        self._is_over = False
        self._look_after(seconds)

    def cancel(self) -> None:
        """The body is over."""
        self._is_over = True
        self._timer.cancel()

    def _look_after(self, seconds: float) -> None:
        self._at, self._done = self._clock.monotonic(), self._task.done
        self._timer = self._timers.call_later(seconds, self._look)

    def _look(self) -> None:
        if self._is_over:
            return
        expected = max(1.0, self._settings.floor_rate * (self._clock.monotonic() - self._at))
        if self._task.done - self._done < expected:
            self._exchange.end()
        else:
            self._look_after(self._settings.idle_timeout_s)


class RangeFetcher:
    """Fetches ranges; used by many threads of one process.

    Args:
        pins: what is known of objects already, by name; grows.
        names: lists the objects whose names begin so, as the store lists them for a plan.
    """

    def __init__(
        self,
        leases: UrlLeases,
        settings: HttpSettings,
        metrics: StorageMetrics,
        clock: Clock,
        *,
        pins: dict[str, Identity] | None = None,
        names: Callable[[str], Iterable[ObjectInfo]] = lambda _: (),
    ) -> None:
        self._leases = leases
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self.pins: dict[str, Identity] = {} if pins is None else pins
        self._names = names
        most = settings.in_flight + settings.small_in_flight + 1
        self._connections = Connections(ca_file=settings.ca_file, verify=settings.verify, size=most)
        self._limiter = ConcurrencyLimiter(settings.in_flight)
        self._small_limiter = ConcurrencyLimiter(settings.small_in_flight)
        self._budget = RetryBudget(settings.retry_budget, settings.retry_reserve)
        self._back_off = BackOff(settings.backoff_start_s, settings.backoff_max_s)
        self._hedges = HedgePolicy(metrics, after_s=settings.hedge_after_s, share=settings.hedge_share)
        self._timers = Timers()

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return self._limiter.limit

    def close(self) -> None:
        """Give back threads and idle connections."""
        self._timers.close()
        self._connections.close()

    def fetch(
        self,
        name: str,
        start: int,
        buffer: memoryview,
        *,
        expected_size: int | None = None,
        expected_tag: str | None = None,
        stop: Stop | None = None,
        tell: Callable[[int], object] | None = None,
        may_end: bool = False,
    ) -> None:
        """Fill ``buffer`` with the object's bytes from ``start`` on.

        Args:
            expected_size: bytes of the whole object as it was listed.
            expected_tag: its tag as it was listed: another version that was read before is forgotten.
            stop: ends the fetch from another thread.
            tell: called with how many bytes of the buffer are good, each time that some more are.
            may_end: the object may end inside the buffer, the rest of which is left as it is.

        Raises:
            StorageError: its class gives the reason.
            Stopped: ``stop`` was set.
        """
        task = _Task(
            name, start, buffer, expected_size, expected_tag, stop or Stop(), self._clock.monotonic(), tell, may_end
        )
        if expected_tag is not None and (pin := self.pins.get(name)) is not None and not pin.has(expected_tag):
            self.pins.pop(name, None)
        self._budget.earn()
        failures, renewed_at = 0, -1
        while True:
            lease = self._leases.get(name)
            task.source = str(lease.url)
            failed = self._try(task, lease)
            if failed is None:
                return
            if task.stop.event.is_set():
                raise Stopped
            if failed.remedy is Remedy.REFRESH and renewed_at != task.done:
                self._renew(task, lease, failed.error)
                renewed_at = task.done
                continue
            has_progress = task.renew(self._clock.monotonic(), self._settings.floor_rate)
            failures = 1 if has_progress else failures + 1
            is_over = failures >= self._settings.tries or self._left_s(task) <= 0
            if failed.remedy not in (Remedy.RETRY, Remedy.SLOW_DOWN) or is_over:
                raise self._final(failed, lease).with_traceback(None)  # its frames held the request's headers
            self._wait(task, failed, failures, is_free=has_progress)

    def _left_s(self, task: _Task) -> float:
        """Seconds that the range may still take, unless it makes progress."""
        return task.since + self._settings.range_timeout_s - self._clock.monotonic()

    def _try(self, task: _Task, lease: Lease) -> RequestFailed | None:
        """One request and as much of its body as comes. The failure is a value: raised errors hold no URL then."""
        asked = self._clock.monotonic()
        limiter = self._limiter_of(task)
        place = limiter.acquire(task.stop.event)
        if place is None:
            raise Stopped
        task.since += self._clock.monotonic() - asked  # other ranges had the place
        failed: RequestFailed | None = None
        before = task.done
        try:
            answer = self._first_head(task, lease)
            self._metrics.add_body(1)
            try:
                with task.stop.ends(answer.exchange):
                    self._read_body(task, answer)
            finally:
                self._metrics.add_body(-1)
        except RequestFailed as error:
            failed = error
        except StorageError as error:
            failed = RequestFailed(error, Remedy.NONE)
        finally:
            is_throttled = failed is not None and failed.remedy is Remedy.SLOW_DOWN
            limiter.release(place, is_good=failed is None, is_throttled=is_throttled)
            self._metrics.add(bytes_got=task.done - before, throttles=is_throttled)
        return failed

    def _limiter_of(self, task: _Task) -> ConcurrencyLimiter:
        is_small = len(task.buffer) <= min(_SMALL, self._settings.range_size - 1)  # and no piece of a large one
        return self._small_limiter if is_small else self._limiter

    def _renew(self, task: _Task, lease: Lease, refused: StorageError) -> None:
        try:
            self._leases.renew(task.name, lease)
            return
        except SegreaderError as error:
            reason = error.hint or error.message
        if self._leases.has_expired(lease) and not isinstance(refused, LocationExpiredError):
            refused = LocationExpiredError("the URL has expired", source=refused.source, found=refused.found)
        refused.hint = ". ".join(part for part in (refused.hint, reason) if part)
        raise refused

    def _final(self, failed: RequestFailed, lease: Lease) -> StorageError:
        error = failed.error
        if type(error) is AccessDeniedError and failed.remedy is Remedy.REFRESH and self._leases.has_expired(lease):
            return LocationExpiredError(
                "the URL has expired", source=error.source, found=error.found, hint="Sign URLs with a longer life"
            )
        return error

    def _wait(self, task: _Task, failed: RequestFailed, failures: int, *, is_free: bool) -> None:
        seconds = self._back_off.seconds(failures, failed.retry_after_s)
        if seconds is None or seconds >= self._left_s(task):
            if failed.retry_after_s is not None:
                failed.error.hint = f"It asks to come back in {failed.retry_after_s:.0f} s: read later"
            raise failed.error
        if not is_free and not self._budget.spend():
            failed.error.hint = "The retries of this job are spent: the store fails too often"
            raise failed.error
        self._metrics.add(retries=1)
        if self._clock.wait(task.stop.event, seconds):
            raise Stopped

    def _first_head(self, task: _Task, lease: Lease) -> _Answer:
        """The head that comes first, of one request or of two."""
        first = self._exchange(lease)
        race: Race[_Answer] = Race(first.end)

        def send_second() -> None:
            if not self._limiter_of(task).is_lowered and self._hedges.allow():
                second = self._exchange(lease)
                if race.start_second(lambda: self._run_second(race, task, lease, second), second.end):
                    self._metrics.add(hedges=1)

        patience = min(
            self._settings.connect_timeout_s + 2 * self._settings.idle_timeout_s, max(0.0, self._left_s(task))
        )
        timers = [self._timers.call_later(patience, first.end)]
        delay = self._hedges.delay_s()
        if delay is not None:
            timers.append(self._timers.call_later(delay, send_second))
        answer: _Answer | None = None
        failed: RequestFailed | StorageError | None = None
        try:
            with task.stop.ends(first):
                answer = self._send(task, lease, first)
        except (RequestFailed, StorageError) as error:
            failed = error
        finally:
            for timer in timers:
                timer.cancel()
            second_answer = race.first_is_here()
        if second_answer is not None:
            if answer is not None:
                answer.discard()
            return second_answer
        if failed is not None:
            raise failed
        assert answer is not None
        return answer

    def _run_second(self, race: Race[_Answer], task: _Task, lease: Lease, exchange: Exchange) -> None:
        try:
            answer = self._send(task, lease, exchange)
        except (RequestFailed, StorageError):
            return  # the first one is still under way and reports its own outcome
        if not race.second_is_here(answer):
            answer.discard()

    def _send(self, task: _Task, lease: Lease, exchange: Exchange) -> _Answer:
        """Send one request for what is left of the range, and check the head of its answer."""
        wanted = task.rest
        self._check_url(lease, task.source)
        pin = self.pins.get(task.name)
        headers = {
            **self._settings.extra_headers,
            "User-Agent": _USER_AGENT,
            "Accept-Encoding": "identity",
            "Range": wanted.http_header(),
        }
        if pin is not None and pin.if_match is not None:
            headers["If-Match"] = pin.if_match
        self._metrics.add_request(f"GET {task.name} {wanted.http_header()}")
        began = self._clock.monotonic()
        failed: RequestFailed | None = None
        try:
            response = self._connections.get(
                lease.url,
                headers,
                exchange,
                connect_s=self._settings.connect_timeout_s,
                idle_s=self._settings.idle_timeout_s,
            )
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            failed = transport_failure(error, exchange, task.source)
        if failed is not None:
            raise failed
        self._metrics.add_first_byte(self._clock.monotonic() - began)
        assert exchange.reader is not None
        answer = _Answer(exchange, response, exchange.reader)
        try:
            self._check_answer(task, answer, wanted)
        except BaseException:
            answer.discard()
            raise
        return answer

    def _exchange(self, lease: Lease) -> Exchange:
        policy = self._settings.policy
        return Exchange(None if policy is None else peer_check(lease.url, policy))

    def _check_url(self, lease: Lease, source: str) -> None:
        if self._settings.policy is not None:
            check_url(lease.url, self._settings.policy)
            return
        scheme = lease.url.reveal().partition(":")[0].lower()
        if scheme != "https" and not (scheme == "http" and self._settings.allow_http):
            raise UntrustedLocationError(
                "only https is allowed",
                source=source,
                found=scheme[:20],
                expected="https",
                hint="Plain http shows URL and data to everyone on the way; allow_http=true allows it",
            )

    def _check_answer(self, task: _Task, answer: _Answer, wanted: ByteRange) -> None:
        status, headers = answer.response.status, answer.response.headers
        pin = self.pins.get(task.name)
        known_size = task.expected_size if pin is None else pin.size
        if pin is not None and task.expected_size not in (None, pin.size):
            raise changed(task.source, found=f"{pin.size} bytes", expected=f"{task.expected_size} bytes")
        if status not in (200, 206):
            raise refusal(
                status,
                headers,
                _read_error_body(answer.reader),
                wanted=wanted,
                known_size=known_size,
                source=task.source,
                now=self._clock.now(),
            )
        try:
            identity = check_head(status, headers, wanted, known_size=known_size, source=task.source)
        except ShortReadError as error:
            if not task.may_end or not error.position:
                raise
            rest = ByteRange(wanted.start, error.position)
            identity = check_head(status, headers, rest, known_size=known_size, source=task.source)
            if identity.size != error.position:
                raise
            task.buffer = task.buffer[: error.position - task.start]
        pinned = self.pins.setdefault(task.name, identity)
        if pinned is not identity:
            pinned.check_same(identity, task.source)
        if task.expected_tag is not None and not pinned.has(task.expected_tag):
            self._require_listed(task, pinned, task.expected_tag)

    def _require_listed(self, task: _Task, found: Identity, tag: str) -> None:
        """Raise unless the listing still gives the object the tag that answers lack."""
        try:
            info = find_listed(self._names(task.name), task.name, tag)
        except SegreaderError:  # the right to read an object does not include listing it
            info = None
        if info is None or not _may_be_same(found, info):
            raise replaced(task.source, found=found.tag or "no tag", expected=tag)
        self.pins[task.name] = replace(found, listed_tag=tag)

    def _read_body(self, task: _Task, answer: _Answer) -> None:
        """Read the body to the end of the buffer, noting each byte that is good."""
        buffer, size, read_some = task.buffer, len(task.buffer), answer.reader.read_some
        window, floor_rate = self._settings.idle_timeout_s, self._settings.floor_rate
        mark, marked = began, had = self._clock.monotonic(), task.done
        failed: RequestFailed | None = None
        reported = task.done
        is_whole = False
        watch = self._watch(task, answer)
        try:
            while task.done < size:
                count = read_some(buffer[task.done :])
                if not count:
                    failed = _broken_body(task, "the answer ends early")
                    break
                task.done += count
                if task.tell is not None and task.done - reported >= _REPORTED_EACH:
                    reported = task.done
                    task.tell(reported)
                if floor_rate and (now := self._clock.monotonic()) - mark >= window:
                    if task.done - marked < floor_rate * (now - mark) and task.done < size:
                        failed = _too_slow(task, (task.done - marked) / (now - mark))
                        break
                    mark, marked = now, task.done
            else:
                is_whole = answer.reader.isclosed() or self._ends_here(answer)
        except TimeoutError:
            failed = _broken_body(task, f"no byte came for {window:g} s")
        except (OSError, http.client.HTTPException, ValueError):
            failed = _broken_body(task, "the connection broke")
        finally:
            if watch is not None:
                watch.cancel()
            if is_whole:
                answer.keep_connection()
            else:
                answer.discard()
        if failed is not None and task.done < size:
            if answer.exchange.is_ended:
                failed = _too_slow(task, (task.done - had) / max(self._clock.monotonic() - began, 0.001))
            raise failed
        if not is_whole and failed is None:
            raise WrongAnswerError("the answer is longer than the range", source=task.source, expected=f"{size} bytes")

    def _watch(self, task: _Task, answer: _Answer) -> _Watch | None:
        """What ends a body that its reader would wait for too long: one in chunks, or one that began late."""
        seconds = min(self._settings.idle_timeout_s, max(0.0, self._left_s(task)))
        if answer.reader.length is not None and seconds == self._settings.idle_timeout_s:
            return None  # each read gives what has come, or ends after the idle time
        return _Watch(task, answer.exchange, seconds, self._settings, self._timers, self._clock)

    def _ends_here(self, answer: _Answer) -> bool:
        """Whether a body without a length has no more bytes; the trailer is bounded."""
        timer = self._timers.call_later(self._settings.idle_timeout_s, answer.exchange.end)
        try:
            return not answer.reader.read_some(memoryview(bytearray(1)))
        finally:
            timer.cancel()


def _may_be_same(found: Identity, listed: ObjectInfo) -> bool:
    """Whether an answer's time is the listed one, to the second; also where one of them is not known."""
    if found.last_modified is None or listed.modified_ms is None:
        return True
    try:
        answered_s = parsedate_to_datetime(found.last_modified).timestamp()
    except ValueError:
        return True
    return abs(answered_s - listed.modified_ms / 1000) <= 1


def _read_error_body(reader: SomeReader) -> bytes:
    """The first bytes of an error's body, as many as come."""
    body = memoryview(bytearray(ERROR_BODY_SIZE))
    done = 0
    try:
        while done < len(body) and (count := reader.read_some(body[done:])):
            done += count
    except (OSError, http.client.HTTPException, ValueError):
        pass
    return bytes(body[:done])


def _broken_body(task: _Task, what: str) -> RequestFailed:
    error = ShortReadError(
        what,
        source=task.source,
        position=task.start + task.done,
        found=f"{task.done} bytes",
        expected=f"{len(task.buffer)} bytes from byte {task.start}",
        hint="Every try ended so: check the network and the store's status",
    )
    return RequestFailed(error, Remedy.RETRY)


def _too_slow(task: _Task, rate: float) -> RequestFailed:
    error = StorageError(
        "the bytes come too slowly",
        source=task.source,
        position=task.start + task.done,
        found=f"{rate:.0f} bytes/s",
        hint="Lower floor_rate if the link is as slow as that",
    )
    return RequestFailed(error, Remedy.SLOW_DOWN)
