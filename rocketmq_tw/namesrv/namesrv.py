"""A name server out of its parts."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.namesrv.kv_config import KvConfig
from rocketmq_tw.namesrv.live_config import NamesrvLiveConfig
from rocketmq_tw.namesrv.liveness import Liveness
from rocketmq_tw.namesrv.requests.admin import AdminRequests
from rocketmq_tw.namesrv.requests.kv import KvRequests
from rocketmq_tw.namesrv.requests.registration import RegistrationRequests
from rocketmq_tw.namesrv.requests.routes import RouteRequests
from rocketmq_tw.namesrv.route_table import MinIdChange, RouteTable
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.net.server import RemotingServer


class NameServer:
    """Tells clients which brokers have a topic.

    `handlers` is all that it answers, for tests without a network; `start` puts it on `server`.
    `on_min_id_change` hears of broker names whose smallest id changed.
    """

    def __init__(
        self,
        clock: Any,
        files: IFiles,
        config: NamesrvConfig,
        *,
        other_configs: Sequence[Config] = (),
        on_min_id_change: Callable[[MinIdChange], None] = lambda change: None,
    ) -> None:
        def now_ms() -> int:
            return int(clock.seconds() * 1000)

        self.config = config
        self.kv = KvConfig(files, config.kv_config_path)
        self.table = RouteTable(config, on_min_id_change=on_min_id_change)
        self.liveness = Liveness(
            clock, self.table, now_ms, config.scan_not_active_broker_interval / 1000
        )
        families = (
            KvRequests(self.kv),
            RegistrationRequests(config, self.table, self.kv, self.liveness, now_ms),
            RouteRequests(config, self.table, self.kv, now_ms),
            AdminRequests(self.table, NamesrvLiveConfig(files, config, other_configs)),
        )
        self.handlers: dict[int, Handler] = {}
        for family in families:
            self.handlers.update(family.handlers())
        self._server: RemotingServer | None = None

    def start(self, server: RemotingServer) -> int:
        """Loads what was kept, listens, scans; returns the port.

        Raises `DamagedStoreError`, or `CannotListenError` where the port is taken.
        """
        self.kv.load()
        for code, handler in self.handlers.items():
            server.register(code, handler)
        port = server.listen()
        self._server = server
        self.liveness.start()
        return port

    def stop(self) -> Deferred[None]:
        """Fires when all connections are closed."""
        self.liveness.stop()
        server, self._server = self._server, None
        done: Deferred[None] = Deferred()
        if server is None:
            done.callback(None)
            return done
        return server.stop()
