"""Holds what a broker is given: machine, network and configuration, and the files of its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.neighbours import INeighbours, NoNeighbours
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.client import EndpointFor
from rocketmq_tw.net.interfaces import IListener, IRemotingClient, IRemotingServer
from rocketmq_tw.net.live_config import WriteChanges, only_until_stop
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.runtime.named_log import named
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread, in_pool
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.store.table_files import read_table_file, write_table_file

T = TypeVar("T")

log = Logger()


class ConfigFile:
    """One of the files in the store's `config/`, with its `.bak`."""

    def __init__(self, files: IFiles, path: str) -> None:
        self._files = files
        self.path = path

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        return read_table_file(
            self._files, self.path, parse, lambda text: log.warn("{text}", text=text)
        )

    def write(self, data: bytes) -> None:
        write_table_file(self._files, self.path, data)


@attrs.frozen(kw_only=True)
class Surroundings:
    """What a broker is given by its maker, and closes nothing of: several brokers may share it.

    `now_ms` is the time of day in milliseconds since 1970, which may be set. `in_thread` uses the
    reactor's thread pool where it is not given.
    """

    reactor: Any
    config: BrokerConfig
    store_config: MessageStoreConfig
    net_config: NettyServerConfig
    #: Shown to administrators beside the three.
    other_configs: Sequence[Config] = ()
    files: IFiles
    client: IRemotingClient
    #: Makes the listeners.
    server: IRemotingServer
    #: Keeps changes of the configuration that are made while the broker runs.
    keep_config: WriteChanges = only_until_stop
    #: How a slave reaches its master's HA port; None: by TCP.
    ha_endpoint_for: EndpointFor | None = None
    #: The masters of the same container.
    neighbours: INeighbours = attrs.field(factory=NoNeighbours)
    #: What the broker's lines in the log begin with; empty where no other broker writes into it.
    log_name: str = ""
    #: Whether somebody may ask for figures: what costs something for each message is measured only
    #: then.
    is_monitored: bool = False
    now_ms: Callable[[], int] = wall_clock_ms
    in_thread: InThread = attrs.field()

    @in_thread.default
    def _make_in_thread(self) -> InThread:
        return in_pool(self.reactor)


@attrs.frozen(kw_only=True)
class Host(Surroundings):
    """What the parts of a broker are given: its surroundings and what it has made of them.

    `elapsed_ms` is a time in milliseconds that only lasts. Parts may add to the checks that
    requests pass first, by `listener.add_check`.
    """

    #: The listener on the broker's port.
    listener: IListener
    #: Goes through long work, some 10 ms of it in each turn of the reactor.
    in_slices: Slices = attrs.field(init=False)

    @in_slices.default
    def _make_slices(self) -> Slices:
        return Slices(self.reactor)

    @classmethod
    def of(cls, surroundings: Surroundings, config: BrokerConfig, listener: IListener) -> Host:
        """Returns a host in `surroundings`, with `config` instead of what these have."""
        given = attrs.asdict(surroundings, recurse=False)
        return cls(**given | {"config": config}, listener=listener)

    def named(self, log: Logger) -> Logger:
        """Returns `log` with lines that say which broker they are of, where there are several."""
        return named(log, self.log_name)

    def elapsed_ms(self) -> int:
        """Returns the reactor's monotonic time in ms."""
        return round(self.reactor.seconds() * 1000)

    def table_file(self, name: str) -> ConfigFile:
        """Returns the file of a table in the store's `config/`."""
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
