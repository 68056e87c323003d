"""The slave's side of HA on Twisted: connects to the master, appends what it pushes, reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.outbox import send_now
from rocketmq_tw.replication.frames import LinkError, Transfer
from rocketmq_tw.replication.interfaces import IReplicatedLog
from rocketmq_tw.replication.service import HASettings
from rocketmq_tw.replication.slave_link import SlaveLink

SLAVE_TICK_SECONDS = 1.0
#: Stock's slave waits 5 s between two tries; a master that restarts is worth more haste.
FIRST_RETRY = 0.2
LAST_RETRY = 1.0

#: Fires where this log may follow the master's; fails with a `LinkError` that says why not.
Agree = Callable[[], "Deferred[None]"]


class MasterConnection(Protocol):
    """The link to the master; one append is under way at a time, in the order of arrival.

    `link` is None until the opening report is due: no master says anything before it.
    """

    transport: Any

    def __init__(self, client: HAClient) -> None:
        self.link: SlaveLink | None = None
        self._client = client
        self._queue: list[Transfer] = []
        self._appending = False
        self._paused = False

    def connectionMade(self) -> None:
        self._client.connection = self
        self.transport.setTcpNoDelay(True)
        self._client.opening().addCallbacks(self._open, self._refused)

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
        self._append_next()

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
        self._client.note(reason)
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._queue.clear()
        self._client.closed(self)

    def _open(self, log_end: int) -> None:
        if self._client.connection is not self:
            return
        self.link = self._client.new_link(log_end)
        self.transport.write(self.link.opening())

    def _refused(self, failure: Failure) -> None:
        if self._client.connection is self:
            self.close(failure.getErrorMessage())

    def _append_next(self) -> None:
        if self._appending or not self._queue:
            return
        # What arrived together is appended and, where it must be, synced together.
        start = self._queue[0].offset
        data = b"".join(transfer.data for transfer in self._queue)
        self._queue.clear()
        self._appending = True
        appended = self._client.append(start, data)
        if not appended.called:
            self._paused = True
            self.transport.pauseProducing()
        appended.addCallbacks(self._appended, self._failed)

    def _appended(self, log_end: int) -> None:
        self._appending = False
        if self.link is None or self._client.connection is not self:
            return
        report = self.link.appended(log_end, self._client.now_ms())
        if report is not None:
            send_now(self.transport, report)
        if self._paused:
            self._paused = False
            self.transport.resumeProducing()
        self._append_next()

    def _failed(self, failure: Failure) -> None:
        self._appending = False
        self._queue.clear()
        if self._client.connection is self:
            self.close(f"the log could not take the master's bytes: {failure.getErrorMessage()}")


class HAClient(Factory):
    """Keeps a link to the master while it has one to `follow`.

    Before each link `agree` is asked whether this log may follow that master's. Tries come further
    apart until a link proves itself: until the master's first frame continues this log.
    """

    noisy = False
    _log = Logger()

    def __init__(
        self,
        log: IReplicatedLog,
        settings: HASettings,
        clock: IReactorTime,
        agree: Agree = lambda: succeed(None),
    ) -> None:
        self.connection: MasterConnection | None = None
        self.master_address = ""
        self._log_file = log
        self._settings = settings
        self._clock = clock
        self._agree = agree
        self._endpoint: IStreamClientEndpoint | None = None
        self._attempt: Deferred[Any] | None = None
        self._retry: IDelayedCall | None = None
        self._delay = FIRST_RETRY
        self._noted = ""
        self._stopped: list[Deferred[None]] = []
        self._ticker = LoopingCall(self._tick)
        self._ticker.clock = clock

    def now_ms(self) -> int:
        """The clock's time, which nobody sets: not the time of day."""
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
        self._delay = FIRST_RETRY
        self._log.info("following the master's HA address {address}", address=address)
        if not self._ticker.running:
            self._ticker.start(SLAVE_TICK_SECONDS, now=False)
        if self.connection is None:
            self._connect()

    def stop(self) -> Deferred[None]:
        """Closes the link and tries no more; fires once it is closed."""
        if self._ticker.running:
            self._ticker.stop()
        self._leave()
        if self.connection is None:
            return succeed(None)
        stopped: Deferred[None] = Deferred()
        self._stopped.append(stopped)
        return stopped

    def buildProtocol(self, addr: object) -> MasterConnection:
        return MasterConnection(self)

    # What the link asks

    def opening(self) -> Deferred[int]:
        """Fires with what the opening report says."""
        return self._agree().addCallback(lambda _: self._log_file.settled())

    def new_link(self, log_end: int) -> SlaveLink:
        return SlaveLink(
            log_end,
            now_ms=self.now_ms(),
            heartbeat_ms=self._settings.heartbeat_ms,
            housekeeping_ms=self._settings.housekeeping_ms,
        )

    def append(self, offset: int, data: bytes) -> Deferred[int]:
        return self._log_file.append(offset, data)

    def proved(self) -> None:
        """The master's frames continue this log."""
        self._delay = FIRST_RETRY
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

    def closed(self, connection: MasterConnection) -> None:
        if self.connection is not connection:
            return
        self.connection = None
        stopped, self._stopped = self._stopped, []
        for waiter in stopped:
            waiter.callback(None)
        if self._endpoint is None:
            return
        if connection.link is not None and not connection.link.proven:
            self.note(
                "it closes the link at once; its log says why. Where it refuses this broker's log"
                f" end {connection.link.reported}, the two logs are not one: see"
                " docs/replication.md"
            )
            self._connect_later()
        else:
            self.note(self._noted or "the connection was lost")
            self._connect_later()

    def _connect(self) -> None:
        self._retry = None
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
        if self._retry is None:
            self._retry = self._clock.callLater(self._delay, self._connect)
            self._delay = min(self._delay * 2, LAST_RETRY)

    def _leave(self) -> None:
        self.master_address = ""
        self._endpoint = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        if self.connection is not None:
            self.connection.transport.abortConnection()

    def _tick(self) -> None:
        if self.connection is not None:
            self.connection.tick(self.now_ms())
