"""A name server out of its parts."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.properties import StartFile
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.metrics.instruments import Metric, gauge, labelled
from rocketmq_tw.namesrv.kv_config import KvConfig
from rocketmq_tw.namesrv.liveness import Liveness
from rocketmq_tw.namesrv.notifications import MinIdNotifier
from rocketmq_tw.namesrv.requests.admin import NamesrvAdminRequests
from rocketmq_tw.namesrv.requests.kv_config import KvRequests
from rocketmq_tw.namesrv.requests.registration import RegistrationRequests
from rocketmq_tw.namesrv.requests.routes import RouteRequests
from rocketmq_tw.namesrv.requests.topic_lists import TopicListRequests
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import (
    Handler,
    IListener,
    IRemotingClient,
    IRemotingServer,
)
from rocketmq_tw.net.live_config import kept_config
from rocketmq_tw.net.server_metrics import MetricsLog, request_latency
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.runtime.waking_time import WakingTime


class NameServer:
    """Tells clients which brokers have a topic.

    `handlers` is all that it answers, for tests without a network; `start` gives it a listener of
    a server. Brokers are told of a new smallest id of their group through `client`. `in_thread`
    runs what blocks, and what takes long. `start_file`: what its keys were read from, if anything.
    """

    def __init__(
        self,
        clock: Any,
        files: IFiles,
        config: NamesrvConfig,
        *,
        other_configs: Sequence[Config] = (),
        client: IRemotingClient | None = None,
        in_thread: InThread = at_once,
        start_file: StartFile | None = None,
    ) -> None:
        self.config = config
        self._waking_time = WakingTime(clock)
        now_ms = self._waking_time.now_ms
        in_slices = Slices(clock)
        self.kv = KvConfig(files, config.kv_config_path, in_thread)
        self.table = RouteTable(
            config,
            on_min_id_change=(
                (lambda change: None) if client is None else MinIdNotifier(config, client).changed
            ),
            in_slices=partial(in_slices.unwatched, purpose="forgetting topics of a broker"),
        )
        self.liveness = Liveness(
            clock, self.table, now_ms, config.scan_not_active_broker_interval / 1000, in_slices
        )
        self.registrations = RegistrationRequests(
            config, self.table, self.kv, self.liveness, clock, now_ms, in_slices, in_thread
        )
        live_config = kept_config(files, config, other_configs, in_thread, start=start_file)
        self._routes = RouteRequests(
            config, self.table, self.kv, now_ms, GrowingAnswers(in_slices, in_thread)
        )
        families = (
            KvRequests(self.kv),
            self.registrations,
            self._routes,
            TopicListRequests(config, self.table, in_slices, in_thread),
            NamesrvAdminRequests(self.table, live_config, in_slices),
        )
        self.handlers: dict[int, Handler] = {}
        for family in families:
            self.handlers.update(family.handlers())
        self._listener: IListener | None = None
        self._request_latency = request_latency()
        self._metrics_log = MetricsLog(clock, self.metrics)

    def start(self, server: IRemotingServer) -> int:
        """Loads what was kept, listens, scans; returns the port.

        Raises `DamagedStoreError`, or `CannotListenError` where the port is taken.
        """
        self.kv.load()
        listener = server.listener()
        listener.serve(self.handlers)
        listener.observe(self._request_latency.record)
        port = listener.listen()
        self._listener = listener
        self._waking_time.start()
        self.liveness.start()
        self._metrics_log.start()
        return port

    def stop(self) -> Deferred[None]:
        """Fires when all its connections are closed; the server goes on."""
        self._metrics_log.stop()
        self.liveness.stop()
        self._waking_time.stop()
        listener, self._listener = self._listener, None
        return succeed(None) if listener is None else listener.stop()

    def not_ready(self) -> str:
        """Returns why clients cannot be served yet; an empty text once they can."""
        return self._routes.not_ready()

    def metrics(self) -> Iterator[Metric]:
        """Yields what the name server measures: its topics, each once for each of its brokers, and
        its requests. Stock's has no metrics; these have the names of a broker's."""
        figures = [gauge("rocketmq_topic_number", len(self.table.queues))]
        return labelled(chain(figures, self._request_latency.metrics()), {"node_type": "namesrv"})
