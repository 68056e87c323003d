"""The slave's side of HA on Twisted: connects to the master, appends what it pushes, reports."""

from collections.abc import Callable
from typing import Any

from twisted.application.internet import ClientService, backoffPolicy
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.replication.frames import LinkError, Transfer
from rocketmq_tw.replication.interfaces import IReplicatedLog
from rocketmq_tw.replication.service import HASettings
from rocketmq_tw.replication.slave_link import SlaveLink

TICK_SECONDS = 1.0
#: Stock's slave waits 5 s between two tries; the first ones are worth more haste.
RETRY = backoffPolicy(initialDelay=0.2, maxDelay=5.0, factor=1.6)


class MasterConnection(Protocol):
    """The link to the master; one append is under way at a time, in the order of arrival."""

    transport: Any
    _log = Logger()

    def __init__(self, client: "HAClient") -> None:
        self._client = client
        self._queue: list[Transfer] = []
        self._appending = False

    def connectionMade(self) -> None:
        self.link = self._client.opened(self)
        self.transport.setTcpNoDelay(True)
        self.transport.write(self.link.opening())

    def dataReceived(self, data: bytes) -> None:
        try:
            self._queue += self.link.receive(data, self._client.now_ms())
        except LinkError as error:
            self.close(str(error))
            return
        self._append_next()

    def tick(self, now_ms: int) -> None:
        """Repeats the report, and closes a link whose master is silent."""
        if self.link.expired(now_ms):
            self.close("the master has been silent for too long")
            return
        report = self.link.heartbeat(now_ms)
        if report is not None:
            self.transport.write(report)

    def close(self, reason: str) -> None:
        """Closes the link and logs why; it is made anew by the client's retry policy."""
        self._log.warn("HA link with the master closed: {reason}", reason=reason)
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._queue.clear()
        self._client.closed(self)

    def _append_next(self) -> None:
        if self._appending or not self._queue:
            return
        # What arrived together is appended and, where it must be, synced together.
        start = self._queue[0].offset
        data = b"".join(transfer.data for transfer in self._queue)
        self._queue.clear()
        self._appending = True
        self.transport.pauseProducing()
        self._client.append(start, data).addCallbacks(self._appended, self._failed)

    def _appended(self, log_end: int) -> None:
        self._appending = False
        if self._client.connection is not self:
            return
        report = self.link.appended(log_end, self._client.now_ms())
        if report is not None:
            self.transport.write(report)
        self.transport.resumeProducing()
        self._append_next()

    def _failed(self, failure: Failure) -> None:
        self._appending = False
        self._queue.clear()
        self.close(f"the log could not take the master's bytes: {failure.getErrorMessage()}")


class HAClient(Factory):
    """Keeps a link to the master at `endpoint` while it has one; `follow` changes masters."""

    noisy = False

    def __init__(
        self,
        log: IReplicatedLog,
        settings: HASettings,
        clock: IReactorTime,
        now_ms: Callable[[], int],
    ) -> None:
        self.connection: MasterConnection | None = None
        self.master_address = ""
        self.now_ms = now_ms
        self._log = log
        self._settings = settings
        self._clock = clock
        self._service: ClientService | None = None
        self._ticker = LoopingCall(self._tick)
        self._ticker.clock = clock

    def follow(self, address: str, endpoint: IStreamClientEndpoint) -> None:
        """Copies from the master at `address` from now on; the same address changes nothing."""
        if address == self.master_address:
            return
        self._leave()
        self.master_address = address
        self._service = ClientService(endpoint, self, retryPolicy=RETRY, clock=self._clock)
        self._service.startService()
        if not self._ticker.running:
            self._ticker.start(TICK_SECONDS, now=False)

    def stop(self) -> "Deferred[None]":
        """Closes the link and tries no more."""
        if self._ticker.running:
            self._ticker.stop()
        return self._leave()

    def buildProtocol(self, addr: object) -> MasterConnection:
        return MasterConnection(self)

    def opened(self, connection: MasterConnection) -> SlaveLink:
        self.connection = connection
        return SlaveLink(
            self._log.end_offset,
            now_ms=self.now_ms(),
            heartbeat_ms=self._settings.heartbeat_ms,
            housekeeping_ms=self._settings.housekeeping_ms,
        )

    def closed(self, connection: MasterConnection) -> None:
        if self.connection is connection:
            self.connection = None

    def append(self, offset: int, data: bytes) -> "Deferred[int]":
        return self._log.append(offset, data)

    def _leave(self) -> "Deferred[None]":
        service, self._service = self._service, None
        self.master_address = ""
        if service is None:
            return succeed(None)
        if self.connection is not None:
            self.connection.transport.abortConnection()
        return service.stopService()

    def _tick(self) -> None:
        if self.connection is not None:
            self.connection.tick(self.now_ms())
