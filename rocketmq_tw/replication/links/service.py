"""The master's side of HA on Twisted: slaves connect, the log streams out, sends are answered.

One `MasterLink` holds what there is to know of each slave; this module moves its bytes, keeps its
timers and answers the sends that wait in the `GroupTransfer`. What a send waits for, and what a
link says, is the protocol's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.address import format_address
from rocketmq_tw.net.interfaces import ANONYMOUS, IIdentified
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.net.outbox import send_now
from rocketmq_tw.replication.interfaces import IReplicatedLog, IReplicator
from rocketmq_tw.replication.links.ends import LinkError, MasterLink
from rocketmq_tw.replication.links.group_transfer import GroupTransfer
from rocketmq_tw.replication.links.members import RegisteredReplicas
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.runtime.named_log import named
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.stats import HAConnectionInfo, HARuntimeInfo
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

MASTER_TICK_SECONDS = 0.1
#: How long a stop waits for slaves that are behind.
STOP_MS = 3000
#: Between two lines in the log that a slave which stays linked is no replica.
WARN_AGAIN_MS = 60_000
#: Links of one master; more are closed at once.
MAX_SLAVES = 256


def too_few(available: int, wanted: int, key: str) -> str:
    """Says why a send is refused, in stock's words and with what to do. `available` replicas, with
    the master, are in sync; `key` asks for `wanted`."""
    return (
        f"in-sync replicas not enough: {available} with the master, and {key} asks for {wanted}:"
        f" start a slave (rmqadmin haStatus shows who copies), or lower {key}"
    )


L = TypeVar("L", bound=MasterLink)


@implementer(IPushProducer, IIdentified)
class SlaveConnection(Protocol, Generic[L]):
    """One slave; pushes log bytes for as long as its transport takes them."""

    transport: Any
    identity = ANONYMOUS
    _log = Logger()

    link: L

    def __init__(self, service: HAService[L]) -> None:
        self._service = service
        self._log = named(self._log, service.log_name)
        #: What the log says of it: that it is no replica.
        self.said = LogThrottle[None](WARN_AGAIN_MS)
        self._writable = True
        #: What a check of the connection waits for; nothing is read or written meanwhile.
        self._check: Deferred[None] | None = None
        self.is_closing = False
        self.address = self.host = ""

    def connectionMade(self) -> None:
        self.address = format_address(self.transport.getPeer())
        self.host = host_of(self.address)
        self.link = self._service.new_link()
        self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(self, True)
        self._service.connected(self)
        try:
            self._check = self._service.check(self)
        except RequestError as refusal:
            self._check_refused(Failure(refusal))
        if self._check is not None:
            self._writable = False
            self.transport.pauseProducing()
            self._check.addCallbacks(self._check_passed, self._check_refused)

    def _check_passed(self, _: None) -> None:
        self._check = None
        if not self.is_closing:
            self.transport.resumeProducing()
            self.resumeProducing()

    def _check_refused(self, failure: Failure) -> None:
        self._check = None
        error = failure.value
        if isinstance(error, RequestError):
            self.close(f"it is refused: {error.remark}")
        elif not failure.check(CancelledError):
            self._log.failure(
                "the check of the HA link with {peer} failed", failure=failure, peer=self.address
            )
            self.close("it could not be checked")

    def dataReceived(self, data: bytes) -> None:
        try:
            changed = self._service.received(self, data)
        except LinkError as error:
            self.close(str(error))
            return
        if changed:
            self._service.acknowledged()
        self.pump()

    def pump(self) -> None:
        """Sends what the log has for this slave: a frame at once, and a slave that is behind the
        others through the transport, which knows when it has had enough."""
        write = partial(send_now, self.transport)
        while self._writable:
            try:
                frame = self._service.next_frame(self.link)
            except (LinkError, OSError) as error:
                self.close(f"it cannot be served: {error}")
                return
            if frame is None:
                return
            write(frame)
            write = self.transport.write

    def tick(self, now_ms: int) -> None:
        """Heartbeats, and closes a link whose slave is silent."""
        if self.link.expired(now_ms):
            self.close("the slave has been silent for too long")
            return
        self.pump()
        frame = self.link.heartbeat(now_ms) if self._writable else None
        if frame is not None:
            self.transport.write(frame)

    def close(self, reason: str) -> None:
        """Closes the link and logs why."""
        self._writable = False
        self.is_closing = True
        self._log.warn(
            "HA link with slave {peer} closed: {reason}", peer=self.address, reason=reason
        )
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_closing = True
        self._log.info("HA link with {peer} ended", peer=self.address)
        if self._check is not None:
            self._check.cancel()
        self._service.lost(self)

    def pauseProducing(self) -> None:
        self._writable = False

    def resumeProducing(self) -> None:
        self._writable = True
        self.pump()

    def stopProducing(self) -> None:
        self._writable = False


@implementer(IReplicator)
class HAService(Factory, Generic[L]):
    """Accepts slaves and implements the broker's `IReplicator`; a protocol derives from it.

    `log` is what is replicated. All times are `clock`'s: setting the system's clock must neither
    end a link nor a wait.
    """

    noisy = False
    _logger = Logger()

    def __init__(
        self,
        log: IReplicatedLog,
        settings: HASettings,
        clock: IReactorTime,
        members: RegisteredReplicas | None = None,
    ) -> None:
        """Without `members` every slave is a replica."""
        self.slaves: list[SlaveConnection[L]] = []
        #: Looks at each connection before it is served; see `IRemotingServer.check`.
        self.check: Callable[[IIdentified], Deferred[None] | None] = lambda connection: None
        self._log = log
        self.log_name = settings.log_name
        self._logger = named(self._logger, settings.log_name)
        self._settings = settings
        self._clock = clock
        self._members = members or RegisteredReplicas(self._now_ms)
        self._members.on_news = self._judge_all
        self._waiting: GroupTransfer[Deferred[int]] = GroupTransfer()
        self._stopping: Deferred[None] | None = None
        self._stop_at = 0
        self._ticker = PeriodicCall(clock, "the HA links' timers", MASTER_TICK_SECONDS, self._tick)

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def doStart(self) -> None:
        super().doStart()
        self._ticker.start()
        self._members.refresh()

    def stop(self) -> Deferred[None]:
        """Waits a moment until every slave has the whole log, so that each may take over; then
        closes all links and answers who still waits with FLUSH_SLAVE_TIMEOUT."""
        stopped: Deferred[None] = Deferred()
        self._stopping = stopped
        self._stop_at = self._now_ms() + STOP_MS
        self._finish_stop()
        return stopped

    def _finish_stop(self) -> None:
        stopped = self._stopping
        if stopped is None:
            return
        end = self._log.end_offset
        links = [slave.link for slave in self.slaves if slave.link.counts]
        behind = any(0 <= link.acknowledged < end for link in links)
        if behind and self._ticker.is_running and self._now_ms() < self._stop_at:
            return
        self._stopping = None
        self._ticker.stop()
        for slave in list(self.slaves):
            slave.transport.abortConnection()
        self._answer(self._waiting.drain(), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        stopped.callback(None)

    def buildProtocol(self, addr: object) -> SlaveConnection[L] | None:
        if len(self.slaves) >= MAX_SLAVES and not self._make_room():
            self._logger.warn("more than {n} slaves: refused {addr}", n=MAX_SLAVES, addr=addr)
            return None
        return SlaveConnection(self)

    def _make_room(self) -> bool:
        """Closes the oldest link that has not reported yet, or of one that is no replica; whether
        there is one: connections of strangers must not keep slaves out."""
        open_ones = [slave for slave in self.slaves if not slave.is_closing]
        silent = [slave for slave in open_ones if slave.link.next_offset < 0]
        for slave in [*silent, *(each for each in open_ones if not each.link.counts)]:
            slave.close("others wait for its place, and it has not reported or is no replica")
            return True
        return False

    # What the broker asks

    def wait(self, end_offset: int) -> Deferred[int]:
        """Fires once the log up to `end_offset` is on as many replicas as the settings demand.

        SLAVE_NOT_AVAILABLE at once where too few slaves are near enough to be waited for;
        FLUSH_SLAVE_TIMEOUT after slaveTimeout.
        """
        replicas = self._required()
        if replicas is None:
            return succeed(int(ResponseCode.SLAVE_NOT_AVAILABLE))
        if replicas == 1 or self._reached(replicas) >= end_offset:
            return succeed(int(ResponseCode.SUCCESS))
        waiter: Deferred[int] = Deferred()
        deadline = self._now_ms() + self._settings.slave_timeout_ms
        self._waiting.wait(end_offset, replicas, deadline, waiter)
        return waiter

    def reported(self, within_ms: int) -> list[str]:
        """Returns the host of each slave that has said where its log ends, so that it gets the
        rest, and has said something in the last `within_ms`."""
        since = self._now_ms() - within_ms
        return [
            slave.host
            for slave in self.slaves
            if slave.link.next_offset >= 0
            and slave.link.last_read >= since
            and not slave.is_closing
        ]

    def refusal(self) -> str:
        """See `IReplicator`."""
        return ""

    def log_grew(self) -> None:
        """Sends the log's new bytes on disk to every slave that can take them."""
        for slave in list(self.slaves):
            slave.pump()

    def runtime_info(self) -> HARuntimeInfo:
        """Returns what request 907 shows of a master."""
        now_ms, log_end = self._now_ms(), self._log.end_offset
        links = [(slave.address, slave.link) for slave in self.slaves]
        slaves = [
            HAConnectionInfo(
                addr=address,
                slave_ack_offset=link.acknowledged,
                diff=log_end - link.acknowledged,
                in_sync=self._is_in_sync(link),
                transferred_byte_in_second=link.flow.bytes_per_second(now_ms),
                transfer_from_where=link.next_offset,
            )
            for address, link in links
        ]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=log_end,
            in_sync_slave_nums=self._slaves_in_sync(),
            ha_connection_info=slaves,
        )

    # What the protocols differ in

    @abstractmethod
    def new_link(self) -> L:
        """Makes the state of a link that opens now."""

    @abstractmethod
    def _required(self) -> int | None:
        """Returns how many replicas, with the master, a send waits for now: a number or
        `EVERY_REPLICA`; None where too few are near enough to be waited for."""

    @abstractmethod
    def _reached(self, replicas: int) -> int:
        """Returns the log offset up to which that many replicas have the log; -1 for none."""

    @abstractmethod
    def _is_in_sync(self, link: L) -> bool:
        """Returns whether the slave of a link counts."""

    def _slaves_in_sync(self) -> int:
        return sum(self._is_in_sync(slave.link) for slave in self.slaves)

    # What the links ask

    def connected(self, slave: SlaveConnection[L]) -> None:
        self.slaves.append(slave)
        self._logger.info("HA link with {peer} opened", peer=slave.address)
        self.judge(slave)
        if not slave.link.is_registered:
            self._members.refresh(for_new=True)

    def lost(self, slave: SlaveConnection[L]) -> None:
        self.slaves.remove(slave)

    def received(self, slave: SlaveConnection[L], data: bytes) -> bool:
        """Returns whether the slave has acknowledged more than before; raises `LinkError`."""
        log = self._log
        return slave.link.receive(data, log.start_offset, log.end_offset, self._now_ms())

    def next_frame(self, link: L) -> bytes | None:
        """Returns the next frame; None where the slave was sent all there is. Raises `LinkError`
        where retention has overtaken it."""
        end = self._log.end_offset
        if link.next_offset == end:
            return None
        start = self._log.start_offset
        if 0 <= link.next_offset < start:
            raise LinkError(f"it is at {link.next_offset}, the log starts at {start} by now")
        return link.next_transfer(end, self._now_ms())

    def acknowledged(self) -> None:
        """Answers the sends that the slaves' offsets satisfy."""
        if len(self._waiting):
            answered = self._waiting.acknowledged(self._reached)
            self._answer(answered, ResponseCode.SUCCESS)
        self._finish_stop()

    # Which links are replicas

    def id_of(self, link: L) -> int | None:
        """Returns the id that the slave of a link says it has; None in protocols without ids."""
        return None

    def judge(self, slave: SlaveConnection[L]) -> None:
        """Notes whether a slave counts: it does where it is a registered member of the group, or
        where the members are not known."""
        link = slave.link
        if link.is_registered:
            return
        members = self._members
        is_member = members.is_known and members.has(slave.host, self.id_of(link))
        if is_member or not members.is_known:
            link.is_registered = is_member
            if is_member:
                self._logger.info(
                    "the slave {peer} is a registered member of the group and counts",
                    peer=slave.address,
                )
            self._set_counts(slave, True)
        else:
            if slave.said.is_due(None, self._now_ms()):
                self._logger.warn(
                    "the slave {peer}{named} is no registered member of the group: no send waits"
                    " for it, and it is in sync with nobody, until it is registered from that"
                    " address. The members are: {members}. Where it is one of them behind another"
                    " address, name that in haAddresses of this broker",
                    peer=slave.address,
                    named="" if self.id_of(link) is None else f" with id {self.id_of(link)}",
                    members=members,
                )
            self._set_counts(slave, False)

    def _judge_all(self) -> None:
        for slave in list(self.slaves):
            self.judge(slave)
        self.acknowledged()

    def _set_counts(self, slave: SlaveConnection[L], counts: bool) -> None:
        """Sets whether a slave counts from now on."""
        slave.link.counts = counts

    def _tick(self) -> None:
        now_ms = self._now_ms()
        if not all(slave.link.is_registered for slave in self.slaves):
            self._members.refresh()
        for slave in list(self.slaves):
            slave.tick(now_ms)
        self._answer(self._waiting.expired(now_ms), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self._finish_stop()

    @staticmethod
    def _answer(waiters: list[Deferred[int]], code: ResponseCode) -> None:
        for waiter in waiters:
            waiter.callback(int(code))
