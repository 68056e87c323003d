"""Requests and answers that pass through a proxy: the same but for the opaque, and bodies are not
looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.avoided import AvoidedBrokers
from rocketmq_tw.proxy.brokers import IBrokers, IProxyClient
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds that a broker gets to answer. A client that waits for less gives up by itself.
_ANSWER_TIMEOUT = 15.0
#: Seconds that a broker gets beyond the time for which it may hold a request.
AFTER_HOLDING = 10.0
#: Milliseconds for which a request may be held at most: what is held for a client that is gone
#: takes room here and at the broker. Stock's clients ask for 15 to 30 s.
MAX_HOLD_MS = 120_000
#: Request code -> the field that says how many milliseconds the broker may hold the request.
_HOLD_FIELDS = {
    int(RequestCode.PULL_MESSAGE): "suspendTimeoutMillis",
    int(RequestCode.LITE_PULL_MESSAGE): "suspendTimeoutMillis",
    int(RequestCode.POP_MESSAGE): "pollTime",
    int(RequestCode.NOTIFICATION): "pollTime",
}
#: Seconds in which one of several brokers has to answer, and how many of them are asked.
ANY_TIMEOUT = 3.0
MAX_ASKED = 8
#: Seconds after which another one is asked as well: clients give up after 3 s.
NEXT_AFTER = 1.0
#: Requests for which a broker asks a client, which may take its time.
_ASKS_CLIENTS = frozenset(
    {int(RequestCode.GET_CONSUMER_RUNNING_INFO), int(RequestCode.CONSUME_MESSAGE_DIRECTLY)}
)


def pass_on(request: RemotingCommand, *, oneway: bool = False) -> RemotingCommand:
    """Returns the same request with an opaque of this process."""
    passed = RemotingCommand.request(request.code, body=request.body, oneway=oneway)
    passed.ext_fields = request.ext_fields
    passed.language, passed.version = request.language, request.version
    passed.serialization = request.serialization
    return passed


def answer_to(request: RemotingCommand, answer: RemotingCommand) -> RemotingCommand:
    """Returns what came as an answer as the answer to `request`."""
    response = request.response(answer.code, answer.remark, body=answer.body)
    response.ext_fields = answer.ext_fields
    response.language, response.version = answer.language, answer.version
    return response


def limit_hold(request: RemotingCommand) -> float:
    """Has a request be held for `MAX_HOLD_MS` at most, and returns the seconds that a broker gets
    to answer it; raises `RequestError` where it says wrongly how long it may be held."""
    field = _HOLD_FIELDS.get(request.code)
    if field is None:
        return _ANSWER_TIMEOUT
    text = request.ext_fields.get(field, "0")
    try:
        hold_ms = int(text)
    except ValueError:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"{field} is {text[:40]!r}: give milliseconds"
        ) from None
    if hold_ms > MAX_HOLD_MS:
        hold_ms = MAX_HOLD_MS
        request.ext_fields[field] = str(hold_ms)
    return max(0, hold_ms) / 1000 + AFTER_HOLDING


class Passing:
    """Passes requests of clients on to brokers, and answers back."""

    def __init__(self, brokers: IBrokers, clock: IReactorTime) -> None:
        self._brokers = brokers
        self._clock = clock
        self._avoided = AvoidedBrokers(clock)

    def to(
        self,
        broker_name: str,
        request: RemotingCommand,
        client: IProxyClient,
        timeout: float = _ANSWER_TIMEOUT,
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Returns the answer of a broker; fails with `RequestError` (SERVICE_NOT_AVAILABLE, with
        which producers try another broker) where it gives none."""
        if request.is_oneway:
            self._brokers.tell(broker_name, pass_on(request, oneway=True), client)
            return request.response()
        answer = self._brokers.ask(broker_name, pass_on(request), timeout, client)
        return answer.addCallbacks(
            lambda reply: answer_to(request, reply), _unreachable, errbackArgs=(broker_name,)
        )

    async def to_any(
        self,
        broker_names: Iterable[str],
        request: RemotingCommand,
        client: IProxyClient,
        is_wanted: Callable[[RemotingCommand], bool],
    ) -> RemotingCommand:
        """Returns the first wanted answer of one of several brokers, or the last of the others;
        those that failed lately are asked last. Raises `RequestError` (SERVICE_NOT_AVAILABLE) where
        none is there or answers."""
        avoided = self._avoided.now()
        names = sorted(broker_names, key=lambda name: name in avoided)[:MAX_ASKED]

        def ask(name: str, timeout: float) -> Deferred[RemotingCommand]:
            return self._brokers.ask(name, pass_on(request), timeout, client)

        if len(names) == 1 or request.code in _ASKS_CLIENTS:
            asking = _Asking(self._clock, names, ask, is_wanted)
        else:
            asking = _Asking(self._clock, names, ask, is_wanted, NEXT_AFTER, self._avoided.add)
        answer = await asking.answer()
        if answer is None:
            reasons = "; ".join(asking.reasons) or "none is known"
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"no broker answers; ask again later ({reasons})",
            )
        return answer_to(request, answer)


class _Asking:
    """Asks one broker after the other until one has a wanted answer: the next one where one fails,
    has another answer, or has none after `next_after` seconds. Those that were asked before may
    answer still."""

    def __init__(
        self,
        clock: IReactorTime,
        names: Iterable[str],
        ask: Callable[[str, float], Deferred[RemotingCommand]],
        is_wanted: Callable[[RemotingCommand], bool],
        next_after: float | None = None,
        avoid: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`avoid` is told the name of each that fails, or is not waited for."""
        self._clock = clock
        self._names = deque(names)
        self._ask = ask
        self._is_wanted = is_wanted
        self._next_after = next_after
        self._avoid = avoid
        self._began = clock.seconds()
        #: Those that were asked and have not answered.
        self._pending: set[str] = set()
        self._alarm = Alarm(clock, self._took_long)
        self._last: RemotingCommand | None = None
        self._found: Deferred[RemotingCommand | None] = Deferred()
        #: Why brokers gave no answer.
        self.reasons: list[str] = []

    def answer(self) -> Deferred[RemotingCommand | None]:
        """Fires with the first wanted answer, or the last of the others; with None where none
        answers."""
        self._next()
        return self._found

    def _next(self) -> None:
        self._alarm.cancel()
        timeout = ANY_TIMEOUT
        if self._next_after is not None:
            timeout -= self._clock.seconds() - self._began
        if not self._names or timeout <= 0:
            if not self._pending:
                self._end(self._last)
            return
        name = self._names.popleft()
        self._pending.add(name)
        if self._next_after is not None and self._names:
            self._alarm.set(self._next_after)
        asked = self._ask(name, timeout)
        asked.addCallbacks(self._came, self._failed, callbackArgs=(name,), errbackArgs=(name,))
        asked.addErrback(self._broke)

    def _took_long(self) -> None:
        for name in self._pending:
            self._avoid(name)
        self._next()

    def _came(self, answer: RemotingCommand, name: str) -> None:
        self._pending.discard(name)
        self._last = answer
        if self._found.called:
            return
        if self._is_wanted(answer):
            self._end(answer)
        else:
            self._next()

    def _failed(self, failure: Failure, name: str) -> None:
        failure.trap(RemotingError)
        self._pending.discard(name)
        if not self._found.called:
            self._avoid(name)
            self.reasons.append(f"{name}: {failure.value}")
            self._next()

    def _broke(self, failure: Failure) -> None:
        self._alarm.cancel()
        if not self._found.called:
            self._found.errback(failure)

    def _end(self, answer: RemotingCommand | None) -> None:
        self._alarm.cancel()
        self._found.callback(answer)


def _unreachable(failure: Failure, broker_name: str) -> RemotingCommand:
    failure.trap(RemotingError)
    raise RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"broker {broker_name} does not answer: try another broker, or again later"
        f" ({failure.value})",
    )
