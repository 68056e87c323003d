"""Where this broker's controllers are, and the heartbeats that it sends to all of them."""

from __future__ import annotations

import socket
from collections.abc import Generator
from typing import Any

from twisted.internet.defer import inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.replicas.switching import LogProgress
from rocketmq_tw.client.controller import ControllerClient
from rocketmq_tw.net.address import join_address, split_address, split_addresses
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader

log = Logger()


class GroupControllers:
    """Keeps the addresses of `client` at what controllerAddr of `host.config` says."""

    def __init__(self, host: Host) -> None:
        self._config = host.config
        self._in_thread = host.in_thread
        #: What controllerAddr said when it was looked up last.
        self._looked_up = host.config.controller_addr
        #: Asks the controller that leads.
        self.client = ControllerClient(host.reactor, host.client, self._looked_up)

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
                addresses=self.client.addresses,
            )
        elif found != self.client.addresses:
            log.info("the controllers are at {addresses}", addresses=found)
            self.client.addresses = found
            # The known leader may be none of them.
            self.client.leader = None

    def heartbeat(self, broker_id: int, address: str, progress: LogProgress) -> None:
        """Tells every controller that the broker of this lasting id is alive at `address`, and how
        far its log is (904); a controllerAddr that was changed is looked up by then."""
        config = self._config
        if config.controller_addr != self._looked_up:
            looking = self.look_up()
            looking.addErrback(lambda failure: log.failure("looking up controllers", failure))
        self.client.heartbeat(
            BrokerHeartbeatRequestHeader(
                cluster_name=config.broker_cluster_name,
                broker_name=config.broker_name,
                broker_addr=address,
                broker_id=broker_id,
                epoch=progress.epoch,
                max_offset=progress.end,
                confirm_offset=progress.confirmed,
                heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
                election_priority=config.broker_election_priority,
            ),
            config.send_heartbeat_timeout_millis / 1000,
        )


def _addresses_of(name: str) -> list[str]:
    """All IP addresses behind `host:port`, sorted; blocks. Raises `OSError` or `ValueError`."""
    host, port = split_address(name)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({join_address(str(address[4][0]), port) for address in found})
