"""The queues of a topic on all brokers of the cluster, as name servers know them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.client.routes import subscribe_queues
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.address import split_addresses
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.permissions import is_readable

#: Topics whose queues are remembered; those asked for longest ago are forgotten first.
MAX_TOPICS = 10_000

Queues = Sequence[MessageQueue]

log = Logger()


class ClusterQueues:
    """Asks name servers, and remembers what they say for `loadBalancePollNameServerInterval`. A
    broker without name servers has only its own queues."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        client: IRemotingClient,
        elapsed_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._elapsed_ms = elapsed_ms
        addresses = split_addresses(config.namesrv_addr)
        self._names = NameServers(client, addresses) if addresses else None
        self._known: OrderedDict[str, tuple[int, Queues]] = OrderedDict()
        self._asking: dict[str, list[Deferred[Queues | None]]] = {}

    def of(self, topic: str) -> Deferred[Queues | None]:
        """All readable queues, sorted; None where no name server knows the topic."""
        if self._names is None:
            return succeed(self._own(topic))
        known = self._known.get(topic)
        interval = self._config.load_balance_poll_name_server_interval
        if known is not None and self._elapsed_ms() - known[0] < interval:
            self._known.move_to_end(topic)
            return succeed(known[1])
        caller: Deferred[Queues | None] = Deferred()
        waiting = self._asking.get(topic)
        if waiting is not None:
            waiting.append(caller)
        else:
            self._asking[topic] = [caller]
            self._names.route(topic).addBoth(self._answered, topic)
        return caller

    def _answered(self, result: Any, topic: str) -> None:
        if isinstance(result, TopicRouteData):
            self._known[topic] = self._elapsed_ms(), subscribe_queues(topic, result)
            if len(self._known) > MAX_TOPICS:
                self._known.popitem(last=False)
        elif isinstance(result, Failure):
            # What was known stays in use: brokers may well be there.
            log.warn("the queues of {topic}: {why}", topic=topic, why=result.getErrorMessage())
        else:
            self._known.pop(topic, None)
        known = self._known.get(topic)
        for caller in self._asking.pop(topic):
            caller.callback(None if known is None else known[1])

    def _own(self, topic: str) -> Queues | None:
        config = self._topics.get(topic)
        if config is None or not is_readable(config.perm):
            return None
        name = self._config.broker_name
        return [
            MessageQueue(topic=topic, broker_name=name, queue_id=queue_id)
            for queue_id in range(config.read_queue_nums)
        ]
