"""The controllers as the broker of one group asks them."""

from __future__ import annotations

import socket
from collections.abc import Collection, Generator
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.election.interfaces import GroupState, HeartbeatReport
from rocketmq_tw.client.controller import ControllerClient, Elected, Registered
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.net.address import join_address, split_address, split_addresses
from rocketmq_tw.wire.bodies.controller import SyncStateSetBody
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader

T = TypeVar("T")

#: In place of a broker's id: no broker.
NOBODY = -1

log = Logger()


class GroupControllers:
    """The `IController` of the group that `host.config` names."""

    def __init__(self, host: Host) -> None:
        config = host.config
        self._config = config
        self._in_thread = host.in_thread
        self._cluster, self._name = config.broker_cluster_name, config.broker_name
        #: What controllerAddr said when it was looked up last.
        self._looked_up = config.controller_addr
        self._client = ControllerClient(host.reactor, host.client, self._looked_up)

    @inlineCallbacks
    def look_up(self) -> Generator[Any, Any, None]:
        """Takes the addresses of controllerAddr; with fetchControllerAddrByDnsLookup all that the
        name in it has today. The old ones stay where there are none, or where the name cannot be
        looked up. (Names of several addresses are looked up at each connection.)"""
        name = self._looked_up = self._config.controller_addr
        try:
            if self._config.fetch_controller_addr_by_dns_lookup:
                found = yield self._in_thread(lambda: _addresses_of(name))
            else:
                found = split_addresses(name)
        except (OSError, ValueError) as error:
            log.warn("controllerAddr={name}: {error}", name=name, error=error)
            return
        if not found:
            log.warn(
                "controllerAddr is empty: the controllers are taken to be at {addresses} still",
                addresses=self._client.addresses,
            )
        elif found != self._client.addresses:
            log.info("the controllers are at {addresses}", addresses=found)
            self._client.addresses = found
            # It may be none of them.
            self._client.leader = None

    def find_leader(self) -> Deferred[str]:
        """Asks who leads; fails where nobody knows."""
        return self._client.find_leader()

    def next_broker_id(self) -> Deferred[int]:
        """See `IController`."""
        return self._asked(self._client.next_broker_id(self._cluster, self._name))

    def apply_broker_id(self, broker_id: int, check_code: str) -> Deferred[None]:
        """See `IController`."""
        return self._asked(
            self._client.apply_broker_id(self._cluster, self._name, broker_id, check_code)
        )

    def register(self, broker_id: int, address: str) -> Deferred[GroupState]:
        """See `IController`."""
        asked = self._client.register_broker(self._cluster, self._name, broker_id, address)
        return self._asked(asked).addCallback(_group)

    def group(self) -> Deferred[GroupState]:
        """See `IController`."""
        return self._asked(self._client.replica_info(self._name)).addCallback(_group)

    def elect(self, broker_id: int) -> Deferred[GroupState]:
        """See `IController`."""
        asked = self._client.elect_master(self._cluster, self._name, broker_id)
        return self._asked(asked).addCallback(_elected_group)

    def depose(self, epoch: int) -> Deferred[None]:
        """See `IController`."""
        asked = self._client.elect_master(
            self._cluster, self._name, NOBODY, designate=True, ended_epoch=epoch
        )
        return self._asked(asked).addCallbacks(lambda _: None, _is_deposed)

    def alter_sync_state_set(
        self,
        broker_id: int,
        master_epoch: int,
        members: Collection[int],
        sync_state_set_epoch: int,
    ) -> Deferred[SyncStateSet]:
        """See `IController`."""
        altered = self._client.alter_sync_state_set(
            self._name, broker_id, master_epoch, members, sync_state_set_epoch
        )
        return self._asked(altered).addCallback(_members)

    def heartbeat(self, liveness: HeartbeatReport) -> None:
        """See `IController`; a controllerAddr that was changed is looked up by then."""
        if self._config.controller_addr != self._looked_up:
            looking = self.look_up()
            looking.addErrback(lambda failure: log.failure("looking up controllers", failure))
        self._client.heartbeat(
            BrokerHeartbeatRequestHeader(
                cluster_name=self._cluster,
                broker_name=self._name,
                broker_addr=liveness.address,
                broker_id=liveness.broker_id,
                epoch=liveness.epoch,
                max_offset=liveness.max_offset,
                confirm_offset=liveness.confirm_offset,
                heartbeat_timeout_mills=liveness.timeout_ms,
                election_priority=liveness.election_priority,
            ),
            self._config.send_heartbeat_timeout_millis / 1000,
        )

    def _asked(self, asked: Deferred[T]) -> Deferred[T]:
        return asked.addErrback(_as_refusal)


def _as_refusal(failure: Failure) -> Any:
    """A refusal by its code, as everywhere on the broker's side of the protocol."""
    failure.trap(BrokerError)
    error = failure.value
    assert isinstance(error, BrokerError)
    raise RequestError(error.code, str(error)) from error


def _is_deposed(failure: Failure) -> None:
    """Nobody is elected, as was wished, or that epoch is over already."""
    failure.trap(RequestError)
    error = failure.value
    assert isinstance(error, RequestError)
    if error.code not in (
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    ):
        failure.raiseException()


def _group(registered: Registered) -> GroupState:
    members = registered.sync_state_set
    return GroupState(
        registered.master_broker_id,
        registered.master_address or "",
        registered.master_epoch,
        frozenset(members.sync_state_set),
        members.sync_state_set_epoch,
    )


def _members(altered: SyncStateSetBody) -> SyncStateSet:
    return SyncStateSet(frozenset(altered.sync_state_set), altered.sync_state_set_epoch)


def _elected_group(elected: Elected) -> GroupState:
    header = elected.header
    return GroupState(
        header.master_broker_id,
        header.master_address or "",
        header.master_epoch or 0,
        frozenset(elected.body.sync_state_set),
        header.sync_state_set_epoch or 0,
    )


def _addresses_of(name: str) -> list[str]:
    """All IP addresses behind `host:port`, sorted; blocks. Raises `OSError` or `ValueError`."""
    host, port = split_address(name)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({join_address(str(address[4][0]), port) for address in found})
