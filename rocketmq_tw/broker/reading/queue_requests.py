"""321: the units of a consume queue, for who looks for a message that is missing."""

from __future__ import annotations

from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.topics import TopicTable
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.consumers import ConsumeQueueBody, ConsumeQueueUnit
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import QueryConsumeQueueRequestHeader

#: Units of one answer; stock has no limit, and a frame has.
MAX_UNITS = 10_000


class QueueRequests:
    def __init__(
        self,
        clients: ClientRegistry,
        filters: MessageFilters,
        store: IMessageStore,
        topics: TopicTable,
        role: RoleHolder,
    ) -> None:
        self._clients = clients
        self._filters = filters
        self._store = store
        self._topics = topics
        self._role = role

    def handlers(self) -> dict[int, Handler]:
        units = self._filters.turns.patient(self.units)
        return {RequestCode.QUERY_CONSUME_QUEUE: units}

    def units(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Up to `count` units from `index` on, and what the group that is named subscribes to."""
        header = request.header(QueryConsumeQueueRequestHeader)
        topic, queue_id, store = header.topic or "", header.queue_id, self._store
        unserved = self._role.is_copy and self._topics.get(topic) is None
        if unserved or queue_id not in store.queue_ids(topic):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"{topic} has no queue {queue_id} with messages here"
            )
        body = ConsumeQueueBody(
            max_queue_index=store.max_queue_offset(topic, queue_id),
            min_queue_index=store.min_queue_offset(topic, queue_id),
        )
        if header.consumer_group is not None:
            group = self._clients.consumer_group(header.consumer_group)
            if group is not None:
                body.subscription_data = group.subscriptions.get(topic)
            if body.subscription_data is None:
                body.filter_data = f"{header.consumer_group} does not subscribe to {topic} now"
            else:
                body.filter_data = self._filters.shown(topic, header.consumer_group)
        # Behind what may have to wait for another turn.
        body.queue_data = [
            ConsumeQueueUnit(
                physic_offset=unit.position, physic_size=unit.size, tags_code=unit.tags_code
            )
            for unit in store.queue_units(
                topic, queue_id, header.index, min(header.count, MAX_UNITS)
            )
        ]
        return request.response(body=encode_body(body))
