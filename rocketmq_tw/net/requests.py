"""The requests that were sent over one connection and are not answered yet."""

from math import inf

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.command import RemotingCommand


class _Waiting(msgspec.Struct, frozen=True):
    code: int
    timeout: float
    deadline: float
    answer: Deferred[RemotingCommand]


class RequestTable:
    """Requests by their opaque, each with the Deferred of its response.

    One timer serves all: it stands at the earliest deadline known when it was set and looks
    through what still waits when it fires. Most requests are answered long before, so adding
    and answering cost a dictionary entry each and no timer.
    """

    def __init__(self, clock: IReactorTime, address: str) -> None:
        self._clock = clock
        self._address = address
        self._waiting: dict[int, _Waiting] = {}
        #: Made with the first request: most connections of a server never have one.
        self._timer: Alarm | None = None
        #: When it rings; infinity while it is not set.
        self._timer_at = inf

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        """Fires with the response; fails with `RequestTimeout` after `timeout` seconds.

        Cancelling it forgets the request. Raises `ValueError` where the same opaque waits already.
        """
        opaque = command.opaque
        if opaque in self._waiting:
            raise ValueError(f"a request with opaque {opaque} waits for {self._address} already")
        answer: Deferred[RemotingCommand] = Deferred(lambda _: self._forget(opaque))
        deadline = self._clock.seconds() + timeout
        self._waiting[opaque] = _Waiting(command.code, timeout, deadline, answer)
        if deadline < self._timer_at:
            self._set_timer(deadline)
        return answer

    def answer(self, response: RemotingCommand) -> bool:
        """Fires the Deferred of the request that is answered; False where there is none (any
        more)."""
        waiting = self._waiting.pop(response.opaque, None)
        if waiting is None:
            return False
        waiting.answer.callback(response)
        return True

    def fail_all(self, reason: str) -> None:
        """Fails all requests with `ConnectionLost`."""
        if self._timer is not None:
            self._timer.cancel()
            # Its call refers to this table.
            self._timer = None
        self._timer_at = inf
        waiting, self._waiting = self._waiting, {}
        for entry in waiting.values():
            entry.answer.errback(ConnectionLost(self._address, reason))

    def _forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is None:
            self._timer = Alarm(self._clock, self._expire)
        self._timer_at = deadline
        self._timer.set(max(0.0, deadline - self._clock.seconds()))

    def _expire(self) -> None:
        self._timer_at = inf
        now = self._clock.seconds()
        late = [opaque for opaque, entry in self._waiting.items() if entry.deadline <= now]
        expired = [self._waiting.pop(opaque) for opaque in late]
        if self._waiting:
            self._set_timer(min(entry.deadline for entry in self._waiting.values()))
        for entry in expired:
            entry.answer.errback(RequestTimeout(self._address, entry.code, entry.timeout))
