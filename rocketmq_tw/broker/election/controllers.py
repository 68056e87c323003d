"""Finds this broker's controllers, and sends heartbeats to all of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.election.identity import Identity
from rocketmq_tw.broker.replicas.switching import LogProgress
from rocketmq_tw.broker.role.candidacy import Candidacy
from rocketmq_tw.client.controller import ControllerClient
from rocketmq_tw.net.address import join_address, look_up_host, split_address
from rocketmq_tw.wire.bodies.controller import BrokerReplicasInfo, ReplicasInfo
from rocketmq_tw.wire.group_state import GroupState
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader

#: What the last heartbeat before a silence says of how long the broker counts as alive, in
#: milliseconds: the least that is heard.
FAREWELL_MS = 1

log = Logger()


class GroupControllers:
    """Keeps the addresses of `client` at those that controllerAddr of `host.config` stands for."""

    def __init__(self, host: Host, candidacy: Candidacy) -> None:
        #: Whether the broker may be elected: without that it sends no heartbeats.
        self.candidacy = candidacy
        #: Whether the controllers were told that they will hear no more of it.
        self._is_silent = False
        self._config = host.config
        self._logger = host.named(log)
        self._in_thread = host.in_thread
        #: Asks the controller that leads.
        self.client = ControllerClient(
            host.reactor, host.client, host.config.controller_addr, now_ms=host.now_ms
        )

    @inlineCallbacks
    def look_up(self) -> Generator[Any, Any, None]:
        """With fetchControllerAddrByDnsLookup takes all addresses that the name in controllerAddr
        has today. The old ones stay where the name cannot be looked up. (Names of several addresses
        are looked up at each connection.)"""
        if not self._config.fetch_controller_addr_by_dns_lookup:
            return
        name = self._config.controller_addr
        try:
            found = yield self._in_thread(lambda: _addresses_of(name))
        except (OSError, ValueError) as error:
            self._logger.warn(
                "controllerAddr={name} cannot be looked up, the former addresses stay: {error}",
                name=name,
                error=error,
            )
            return
        if found != self.client.addresses:
            self._logger.info("the controllers are at {addresses}", addresses=found)
            self.client.addresses = found
            # The known leader may be none of them.
            self.client.leader = None

    def replicas(self, broker_name: str) -> Deferred[ReplicasInfo]:
        """Fires with all brokers of the group, none where the controllers do not know it; fails
        where they cannot be asked."""

        def read(told: BrokerReplicasInfo) -> ReplicasInfo:
            return told.replicas_info_table.get(broker_name, ReplicasInfo())

        return self.client.sync_state_data([broker_name]).addCallback(read)

    def heartbeat(
        self, broker_id: int, address: str, progress: LogProgress, *, holds_on: bool = False
    ) -> None:
        """Tells every controller that the broker of this lasting id is alive at `address`, and how
        far its log is (904). One that does not stand for election says so once, and nothing after
        that; a master does once it no longer `holds_on` to its role."""
        config = self._config
        stands = holds_on or not self.candidacy.refusal
        if self._is_silent and not stands:
            return
        self._is_silent = not stands
        self.client.heartbeat(
            BrokerHeartbeatRequestHeader(
                cluster_name=config.broker_cluster_name,
                broker_name=config.broker_name,
                broker_addr=address,
                broker_id=broker_id,
                epoch=progress.epoch,
                max_offset=progress.end,
                confirm_offset=progress.confirmed,
                heartbeat_timeout_mills=(
                    config.controller_heart_beat_timeout_mills if stands else FAREWELL_MS
                ),
                election_priority=config.broker_election_priority,
            ),
            config.send_heartbeat_timeout_millis / 1000,
        )


@inlineCallbacks
def without_master(
    leader: ControllerClient, me: Identity, group: GroupState, *, never_begun: bool = False
) -> Generator[Any, Any, GroupState]:
    """Ends the epoch of the group's master; fires with the group as it is then. `never_begun`: the
    others are elected as if the epoch had not been."""
    yield leader.end_epoch(me.cluster, me.broker_name, group.master_epoch, never_begun=never_begun)
    return group._replace(master_id=None)


def _addresses_of(name: str) -> list[str]:
    """Returns all IP addresses behind `host:port`, sorted; blocks. Raises `OSError` or
    `ValueError`."""
    host, port = split_address(name)
    return sorted(join_address(address, port) for address in look_up_host(host))
