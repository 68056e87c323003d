"""Finds the brokers that are gone: at once with their connection, or by their silence."""

from collections.abc import Callable
from typing import Any

from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.controller.core.decisions import MAX_TEXT
from rocketmq_tw.controller.core.election import CandidateStanding
from rocketmq_tw.controller.core.live_brokers import LiveBrokers, ReplicaKey
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader


class BrokerLiveness:
    """Takes heartbeats (904) on every controller, so that whoever leads next knows who lives.
    `on_gone` hears of each broker that is lost."""

    log = Logger()

    def __init__(
        self,
        clock: Any,
        live: LiveBrokers[IPeer],
        interval: float,
        on_gone: Callable[[ReplicaKey], None],
    ) -> None:
        """`interval` is what passes between two looks at who is silent, in seconds."""
        self._live = live
        self._interval = interval
        self._on_gone = on_gone
        self._watched: set[IPeer] = set()
        self._scan = LoopingCall(self.scan)
        self._scan.clock = clock

    def start(self) -> None:
        self._scan.start(self._interval, now=False).addErrback(self._failed)

    def stop(self) -> None:
        if self._scan.running:
            self._scan.stop()

    def heartbeat(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """904."""
        if not request.ext_fields.get("brokerId"):
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REQUEST, "a heartbeat without brokerId"
            )
        header = request.header(BrokerHeartbeatRequestHeader)
        if max(len(header.cluster_name), len(header.broker_name)) > MAX_TEXT:
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"clusterName and brokerName have at most {MAX_TEXT} characters",
            )
        key = ReplicaKey(header.cluster_name, header.broker_name, header.broker_id or 0)
        standing = _standing(header)
        is_new = self._live.standing(*key) is None
        if not self._live.heartbeat(key, peer, standing, header.heartbeat_timeout_mills):
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"broker-set {key.name} is not registered here"
            )
        if peer not in self._watched:
            self._watched.add(peer)
            peer.when_lost(self._lost)
        if is_new:
            self.log.info("{broker} is alive: {standing}", broker=key, standing=standing)
        return request.response(remark="Heart beat success")

    def scan(self) -> None:
        """Takes out who was silent for too long."""
        for key, owner in self._live.expire():
            self.log.warn("{broker} was silent for too long", broker=key)
            # Others on that connection may be well.
            if not self._live.owns_any(owner):
                owner.close("its broker was silent for too long")
            self._on_gone(key)

    def _lost(self, peer: IPeer) -> None:
        self._watched.discard(peer)
        for key in self._live.lose(peer):
            self.log.warn("{broker} lost its connection", broker=key)
            self._on_gone(key)

    def _failed(self, failure: Failure) -> None:
        self.log.failure("while looking for silent brokers", failure)
        self.start()


def _standing(header: BrokerHeartbeatRequestHeader) -> CandidateStanding:
    unknown = CandidateStanding()
    return CandidateStanding(
        unknown.epoch if header.epoch is None else header.epoch,
        unknown.max_offset if header.max_offset is None else header.max_offset,
        unknown.priority if header.election_priority is None else header.election_priority,
    )
