"""What a broker is given: the machine, the network and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from rocketmq_tw.broker.assembly.config_file import ConfigFile
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.interfaces import IListener, IRemotingClient, IRemotingServer
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.paths import StorePaths


@attrs.frozen(kw_only=True)
class Host:
    """Handed in by whoever makes the broker; a part uses it and closes nothing of it.

    `now_ms` is the time of day in milliseconds since 1970, which may be set; `elapsed_ms` only
    lasts. Parts may add to `listener.before_request`, the checks that each request passes first.
    """

    reactor: Any
    config: BrokerConfig
    store_config: MessageStoreConfig
    net_config: NettyServerConfig
    #: Shown to administrators beside the three.
    other_configs: Sequence[Config] = ()
    files: IFiles
    client: IRemotingClient
    #: Makes more listeners than `listener`, which has the broker's port.
    server: IRemotingServer
    listener: IListener
    in_thread: InThread
    now_ms: Callable[[], int]
    #: Goes through long work, some 10 ms of it in each turn of the reactor.
    in_slices: Slices = attrs.field(init=False)

    @in_slices.default
    def _make_slices(self) -> Slices:
        return Slices(self.reactor)

    def elapsed_ms(self) -> int:
        return int(self.reactor.seconds() * 1000)

    def table_file(self, name: str) -> ConfigFile:
        """The file of a table in the store's `config/`."""
        return ConfigFile(self.files, f"{StorePaths(self.store_config).config}/{name}.json")


class Addresses:
    """Under which addresses the broker is reached; ports are known once they are listened on."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        #: The broker's own IP address, as stored messages have it.
        self.ip = ""
        self.port = 0
        self.ha_port = 0

    @property
    def broker(self) -> str:
        """`host:port` for clients."""
        return join_address(self._config.broker_ip1, self.port)

    @property
    def ha(self) -> str:
        """`host:port` for slaves."""
        return join_address(self._config.broker_ip2, self.ha_port)

    @property
    def store_host(self) -> tuple[str, int]:
        """What stored messages say of where they are."""
        return self.ip, self.port
