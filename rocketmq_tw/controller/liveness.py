"""Finds the brokers that are gone: at once with their connection, or by their silence."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.logger import Logger

from rocketmq_tw.controller.core.decisions import MAX_TEXT
from rocketmq_tw.controller.core.election import CandidateStanding
from rocketmq_tw.controller.core.live_brokers import LiveBrokers, ReplicaKey
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.networks import host_of, is_same_host
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader

#: Brokers that are named where many are lost at once; a connection may stand for thousands.
_MAX_LINES = 20


class BrokerLiveness:
    """Takes heartbeats (904) on every controller, so that the next leader knows which brokers are
    alive. `on_gone` is called with each broker that is lost."""

    log = Logger()

    def __init__(
        self,
        clock: Any,
        live: LiveBrokers[IPeer],
        interval: float,
        on_gone: Callable[[ReplicaKey], None],
        registered_at: Callable[[ReplicaKey], str] = lambda key: "",
    ) -> None:
        """`interval`: seconds between two looks for brokers that are silent. `registered_at`
        returns the address that a broker is registered with."""
        self._live = live
        self._registered_at = registered_at
        self._on_gone = on_gone
        self._watched: set[IPeer] = set()
        self._scan = PeriodicCall(clock, "the look for silent brokers", interval, self.scan)
        self.start, self.stop = self._scan.start, self._scan.stop

    def heartbeat(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 904; counts from the host only that a living broker's first one came from, or
        from that which it is registered at."""
        if not _is_number(request.ext_fields.get("brokerId", "")):
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REQUEST, "a heartbeat without brokerId"
            )
        header = request.header(BrokerHeartbeatRequestHeader)
        texts = header.cluster_name, header.broker_name, header.broker_addr
        if max(map(len, texts)) > MAX_TEXT:
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"clusterName, brokerName and brokerAddr have at most {MAX_TEXT} characters",
            )
        key = ReplicaKey(header.cluster_name, header.broker_name, header.broker_id or 0)
        standing = _standing(header)
        owner = self._live.owner(key)
        if owner is not None and not is_same_host(owner.address, peer.address):
            if not self._is_at_home(key, peer) or self._is_at_home(key, owner):
                # Another host cannot say that this one lives; one to which the broker has moved is
                # heard once this one is missed.
                return request.response(remark="Heart beat success")
            self.log.error(
                "{broker} is registered at the host of {peer}, and {owner} spoke for it: that one"
                " is heard no more",
                broker=key,
                peer=peer.address,
                owner=owner.address,
            )
            self._live.give_up(key)
        is_new = self._live.standing(*key) is None
        if not self._live.heartbeat(
            key,
            peer,
            standing,
            header.heartbeat_timeout_mills,
            header.broker_addr,
            host_of(peer.address),
        ):
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"broker-set {key.name} is not registered here"
            )
        if peer not in self._watched:
            self._watched.add(peer)
            peer.when_lost(self._lost)
        if is_new:
            self.log.info("{broker} is alive: {standing}", broker=key, standing=standing)
            if self._live.hears_strangers and self._live.speaks_from_elsewhere(*key):
                self.log.error(
                    "{broker} is registered at {registered}, and {peer} says that it is alive: it"
                    " is elected only where nobody else is there",
                    broker=key,
                    registered=self._registered_at(key),
                    peer=peer.address,
                )
        return request.response(remark="Heart beat success")

    def _is_at_home(self, key: ReplicaKey, peer: IPeer) -> bool:
        return is_same_host(self._registered_at(key), peer.address)

    @property
    def hears_strangers(self) -> bool:
        """See `BrokerLife`."""
        return self._live.hears_strangers

    def speaks_for(self, peer: IPeer, key: ReplicaKey) -> bool:
        """Returns whether the heartbeats of a broker come from the host of `peer`."""
        owner = self._live.owner(key)
        return owner is not None and is_same_host(owner.address, peer.address)

    def scan(self) -> None:
        """Takes out the brokers that were silent for too long."""
        gone = self._live.expire()
        self._log_gone([key for key, _ in gone], "silent for too long")
        for key, owner in gone:
            # Others on that connection may be well.
            if not self._live.owns_any(owner):
                owner.close("its broker was silent for too long")
            self._on_gone(key)

    def _lost(self, peer: IPeer) -> None:
        self._watched.discard(peer)
        gone = self._live.lose(peer)
        self._log_gone(gone, "without a connection")
        for key in gone:
            self._on_gone(key)

    def _log_gone(self, keys: Sequence[ReplicaKey], why: str) -> None:
        for key in keys[:_MAX_LINES]:
            self.log.warn("{broker} is {why}", broker=key, why=why)
        if len(keys) > _MAX_LINES:
            self.log.warn("{count} more brokers are {why}", count=len(keys) - _MAX_LINES, why=why)


def _is_number(text: str) -> bool:
    """Returns what is none counts as absent, as in stock."""
    return text.removeprefix("-").isdecimal()


def _standing(header: BrokerHeartbeatRequestHeader) -> CandidateStanding:
    unknown = CandidateStanding()
    return CandidateStanding(
        unknown.epoch if header.epoch is None else header.epoch,
        unknown.max_offset if header.max_offset is None else header.max_offset,
        unknown.priority if header.election_priority is None else header.election_priority,
    )
