"""The slave's side of HA on Twisted: connects to the master, appends what it pushes, reports.

What is said when a link opens, and what is to be done with what comes, is the protocol's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.outbox import send_now
from rocketmq_tw.replication.interfaces import IReplicatedLog
from rocketmq_tw.replication.links.ends import LinkError, SlaveLink
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.named_log import named
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.retries import RETRY_SOON, RETRY_USUAL, GrowingPause
from rocketmq_tw.runtime.waiters import Waiters

SLAVE_TICK_SECONDS = 1.0

L = TypeVar("L", bound=SlaveLink)


class MasterConnection(Protocol, Generic[L]):
    """The link to the master; what comes is carried out in the order of arrival, what arrived
    together at once.

    `link` is None until this end may speak: no master says anything before it.
    """

    transport: Any

    def __init__(self, client: HAClient[L]) -> None:
        self.link: L | None = None
        self._client = client
        self._queue: list[Any] = []
        self._busy = False
        self._paused = False
        #: Whether this end has closed it, and said why.
        self.is_closing = False

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self._client.connected(self)

    def dataReceived(self, data: bytes) -> None:
        if self.link is None:
            self.close("the master spoke before it was asked")
            return
        try:
            self._queue += self.link.receive(data, self._client.now_ms())
        except LinkError as error:
            self.close(str(error))
            return
        if self.link.proven:
            self._client.proved()
        self._carry_on()

    def tick(self, now_ms: int) -> None:
        """Repeats the report, and closes a link whose master is silent."""
        if self.link is None:
            return
        if self.link.expired(now_ms):
            self.close("the master has been silent for too long")
            return
        report = self.link.heartbeat(now_ms)
        if report is not None:
            self.transport.write(report)

    def close(self, reason: str) -> None:
        """Closes the link; it is made anew by and by."""
        self.is_closing = True
        self._client.note(reason)
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._queue.clear()
        self._client.closed(self)

    def open(self, link: L) -> None:
        """Speaks from now on: `link` is the state of this end."""
        self.link = link
        self.transport.write(link.opening())

    def _carry_on(self) -> None:
        if self._busy or not self._queue or self.link is None:
            return
        steps, self._queue = self._queue, []
        self._busy = True
        done = self._client.carry_out(self.link, steps)
        if not done.called:
            self._paused = True
            self.transport.pauseProducing()
        done.addCallbacks(self._appended, self._failed)

    def _appended(self, log_end: int) -> None:
        self._busy = False
        if self.link is None or self._client.connection is not self:
            return
        report = self.link.appended(log_end, self._client.now_ms())
        if report is not None:
            send_now(self.transport, report)
        if self._paused:
            self._paused = False
            self.transport.resumeProducing()
        self._carry_on()

    def _failed(self, failure: Failure) -> None:
        self._busy = False
        self._queue.clear()
        if self._client.connection is self:
            self.close(f"the log could not take the master's bytes: {failure.getErrorMessage()}")


class HAClient(Factory, Generic[L]):
    """Keeps a link to the master while it has one to `follow`; a protocol derives from it.

    Tries come further apart until a link proves itself: until the master's first frame continues
    this log.
    """

    noisy = False
    _log = Logger()

    def __init__(self, log: IReplicatedLog, settings: HASettings, clock: IReactorTime) -> None:
        self.connection: MasterConnection[L] | None = None
        self.master_address = ""
        self._log = named(self._log, settings.log_name)
        self._log_file = log
        self._settings = settings
        self._clock = clock
        self._endpoint: IStreamClientEndpoint | None = None
        self._attempt: Deferred[Any] | None = None
        #: What `open_link` returned last, while that is under way, and the master it is for.
        self._opening: tuple[Deferred[L], str] | None = None
        self._retry = Alarm(clock, self._connect)
        self._pause = GrowingPause(RETRY_SOON, RETRY_USUAL)
        self._noted = ""
        self._closed = Waiters[None]()
        self._ticker = PeriodicCall(clock, "an HA link's timers", SLAVE_TICK_SECONDS, self._tick)

    def now_ms(self) -> int:
        """Returns the clock's time, which is never set: not the time of day."""
        return int(self._clock.seconds() * 1000)

    @property
    def linked(self) -> bool:
        """Whether the master has sent a frame that continues this log, on the present link."""
        connection = self.connection
        return connection is not None and connection.link is not None and connection.link.proven

    def follow(self, address: str, endpoint: IStreamClientEndpoint) -> None:
        """Copies from the master at `address` from now on; the same address changes nothing."""
        if address == self.master_address:
            return
        self._leave()
        self.master_address = address
        self._endpoint = endpoint
        self._pause.worked()
        self._log.info("following the master's HA address {address}", address=address)
        self._ticker.start()
        if self.connection is None:
            self._connect()

    def stop(self) -> Deferred[None]:
        """Closes the link and tries no more; fires once it is closed."""
        self._ticker.stop()
        self._leave()
        return succeed(None) if self.connection is None else self._closed.wait()

    def buildProtocol(self, addr: object) -> MasterConnection[L]:
        return MasterConnection(self)

    # What the protocols differ in

    @abstractmethod
    def open_link(self) -> Deferred[L]:
        """Fires with the state of a link that opens now, once this end may speak; fails with a
        `LinkError` that says why it may not."""

    @abstractmethod
    def carry_out(self, link: L, steps: Sequence[Any]) -> Deferred[int]:
        """Does what the link's `receive` returned; fires with the log's end once all of it is as
        safe as this replica's settings promise."""

    # What the link asks

    def connected(self, connection: MasterConnection[L]) -> None:
        """Opens a link on `connection` once this end may speak.

        A link that was closed meanwhile leaves that to the next one with the same master: masters
        close what is silent for some seconds, so what takes longer would begin anew for ever.
        """
        self.connection = connection
        if self._opening is None or self._opening[1] != self.master_address:
            opening = self.open_link()
            self._opening = opening, self.master_address
            opening.addBoth(self._opened, opening)

    def _opened(self, result: L | Failure, opening: Deferred[L]) -> None:
        if self._opening is None or self._opening[0] is not opening:
            # Of a former master.
            return
        _, address = self._opening
        self._opening = None
        connection = self.connection
        if connection is None or connection.is_closing or address != self.master_address:
            return
        if isinstance(result, Failure):
            connection.close(result.getErrorMessage())
        else:
            connection.open(result)

    def proved(self) -> None:
        """Notes that the master's frames continue this log."""
        self._pause.worked()
        if self._noted:
            self._log.info("the link with the master at {at} is back", at=self.master_address)
            self._noted = ""

    def note(self, reason: str) -> None:
        """Logs why there is no link, once for each reason."""
        if reason != self._noted:
            self._noted = reason
            self._log.warn(
                "no link with the master at {at}: {reason}", at=self.master_address, reason=reason
            )

    def closed(self, connection: MasterConnection[L]) -> None:
        if self.connection is not connection:
            return
        self.connection = None
        self._closed.fire(None)
        if self._endpoint is None:
            return
        link = connection.link
        if connection.is_closing or link is None or link.proven:
            self.note(self._noted or "the connection was lost")
        elif link.reported < 0:
            self.note("it closes the link without an answer; its log says why")
        else:
            self.note(
                "it closes the link at once; its log says why. Where it refuses this broker's log"
                f" end {link.reported}, the two logs are not one: see docs/replication.md"
            )
        self._connect_later()

    def _connect(self) -> None:
        if self._endpoint is None:
            return
        attempt = self._endpoint.connect(self)
        self._attempt = attempt
        attempt.addErrback(self._not_connected, attempt)

    def _not_connected(self, failure: Failure, attempt: Deferred[Any]) -> None:
        if attempt is self._attempt and self._endpoint is not None:
            self.note(failure.getErrorMessage())
            self._connect_later()

    def _connect_later(self) -> None:
        if not self._retry.is_set:
            # Stock's slave waits 5 s; a master that restarts is worth more haste.
            self._retry.set(self._pause.failed())

    def _leave(self) -> None:
        self.master_address = ""
        self._endpoint = None
        self._retry.cancel()
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        if self.connection is not None:
            self.connection.transport.abortConnection()

    def _tick(self) -> None:
        if self.connection is not None:
            self.connection.tick(self.now_ms())
