"""Requests and answers that pass through a proxy: the same but for the opaque, and bodies are not
looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.asking import AskingInTurn
from rocketmq_tw.proxy.avoided import AvoidedBrokers
from rocketmq_tw.proxy.brokers import IBrokers, IProxyClient
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
#: Brokers that are asked of those that may answer.
MAX_ASKED = 8
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
            asking = AskingInTurn(self._clock, names, ask, is_wanted, None)
        else:
            asking = AskingInTurn(self._clock, names, ask, is_wanted, avoid=self._avoided.add)
        answer = await asking.answer()
        if answer is None:
            errors = (f"{name}: {error}" for name, error in asking.errors.items())
            reasons = "; ".join(errors) or "none is known"
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"no broker answers; ask again later ({reasons})",
            )
        return answer_to(request, answer)


def _unreachable(failure: Failure, broker_name: str) -> RemotingCommand:
    failure.trap(RemotingError)
    raise RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"broker {broker_name} does not answer: try another broker, or again later"
        f" ({failure.value})",
    )
