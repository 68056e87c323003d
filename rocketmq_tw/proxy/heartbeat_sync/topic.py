"""The topic by which proxies tell each other of the consumers that are connected to them, so that
each knows all of a group: created here, one queue at each broker, and written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.client.commands import SEND_STATUSES
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.preparing import Prepared, send_command
from rocketmq_tw.client.routes import publish_queues, subscribe_queues
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.topics import CreateTopicRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE

ASK_SECONDS = 3.0
#: Queues that are read.
_MAX_QUEUES = 256
#: Seconds after which a broker without the topic is asked again to create it.
_CREATE_AGAIN_SECONDS = 600.0

log = Logger()


class HeartbeatSyncTopic:
    """Creates the topic where brokers lack it, finds its queues, and sends to them. `cluster` is
    the name of the brokers' cluster; without such a one all brokers are taken."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        name: str,
        cluster: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._brokers = brokers
        self._name = name
        self._cluster = cluster
        self.readers = f"CID_{name}"
        self._writers = f"PID_{name}"
        #: Broker name -> when it was asked to create the topic.
        self._created: dict[str, float] = {}

    async def find_queues(self) -> Sequence[MessageQueue]:
        """Returns the queues to read. Has brokers create the topic that lack it; they are among the
        next ones. Raises `RequestError` where no name server answers."""
        route = await self._brokers.route(self._name)
        found = set() if route is None else {data.broker_name for data in route.queue_datas}
        created = False
        for name in await self._names():
            if name not in found and self._is_due(name):
                created = await self._create(name) or created
        if created:
            route = await self._brokers.refresh_route(self._name)
        return [] if route is None else subscribe_queues(self._name, route)[:_MAX_QUEUES]

    async def send(self, body: bytes, source: str) -> None:
        """Sends a message; those of one `source` go to one queue, so that they are read in their
        order. Raises `RequestError`, `RemotingError` or `BrokerError`."""
        route = await self._brokers.route(self._name)
        queues = [] if route is None else publish_queues(self._name, route)
        if not queues:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"no broker has {self._name}")
        queue = queues[java_hash_code(source) % len(queues)]
        prepared = Prepared(self._name, body, "", 0, 0, "", False)
        command = send_command(prepared, self._writers, queue, self._now_ms())
        answer = await self._brokers.ask(queue.broker_name, command, ASK_SECONDS)
        if answer.code not in SEND_STATUSES:
            raise BrokerError(queue.broker_name, answer.code, answer.remark)

    async def create_group(self, broker_name: str) -> None:
        """Has a broker know the group of the readers, where it takes none by itself."""
        body = encode_body(SubscriptionGroupConfig(group_name=self.readers))
        request = RemotingCommand.request(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body
        )
        await self._ask_to_create(broker_name, request, f"the group {self.readers}")

    async def _names(self) -> Iterable[str]:
        route: TopicRouteData | None = None
        if self._cluster:
            route = await self._brokers.route(self._cluster)
        if route is None:
            return list(self._brokers.names())
        return [data.broker_name for data in route.broker_datas]

    def _is_due(self, broker_name: str) -> bool:
        at = self._created.get(broker_name)
        return at is None or self._clock.seconds() - at >= _CREATE_AGAIN_SECONDS

    async def _create(self, broker_name: str) -> bool:
        self._created[broker_name] = self._clock.seconds()
        header = CreateTopicRequestHeader(
            topic=self._name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=1,
            write_queue_nums=1,
            perm=READ | WRITE,
            topic_filter_type="SINGLE_TAG",
            order=False,
            topic_sys_flag=0,
        )
        request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        return await self._ask_to_create(broker_name, request, f"the topic {self._name}")

    async def _ask_to_create(self, broker_name: str, request: RemotingCommand, what: str) -> bool:
        try:
            answer = await self._brokers.ask(broker_name, request, ASK_SECONDS)
        except RemotingError as error:
            log.info(
                "broker {name} cannot be asked to create {what}: {error}",
                what=what,
                name=broker_name,
                error=error,
            )
            self._created.pop(broker_name, None)
            return False
        if answer.code != ResponseCode.SUCCESS:
            log.warn(
                "broker {name} does not create {what}, by which proxies know each other's"
                " consumers: {why}. Create it there",
                what=what,
                name=broker_name,
                why=answer.remark,
            )
        return answer.code == ResponseCode.SUCCESS
