"""Answers request 321: shows administrators the units of a consume queue
(docs/formats/consumequeue.md), as when they look for a message that is missing."""

from __future__ import annotations

from base64 import b64encode

from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import ExtraMatch, IMessageStore, QueueUnit
from rocketmq_tw.store.queue_extension import is_address
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import ConsumeQueueBody, ConsumeQueueUnit
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import QueryConsumeQueueRequestHeader

#: Units of one answer; stock has no limit, and a frame has.
MAX_UNITS = 10_000
#: Bytes of bits of one answer; each takes ten or so there.
MAX_BITS = 1 << 18


class QueueRequests:
    """Shows units of consume queues to administrators."""

    def __init__(
        self,
        clients: ClientRegistry,
        filters: Filters,
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
        """Returns the handlers by request code."""
        units = self._filters.filters.budget.retrying(self.units)
        return {RequestCode.QUERY_CONSUME_QUEUE: units}

    def units(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 321: up to `count` units from `index` on, and what the named group subscribes
        to."""
        header = request.header(QueryConsumeQueueRequestHeader)
        topic, queue_id, store = header.topic or "", header.queue_id, self._store
        unserved = self._role.copies_log and self._topics.get(topic) is None
        if unserved or queue_id not in store.queue_ids(topic):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"{topic} has no queue {queue_id} with messages here"
            )
        body = ConsumeQueueBody(
            max_queue_index=store.max_queue_offset(topic, queue_id),
            min_queue_index=store.min_queue_offset(topic, queue_id),
        )
        by_extra: ExtraMatch | None = None
        if header.consumer_group is not None:
            group = self._clients.consumer_group(header.consumer_group)
            if group is not None:
                body.subscription_data = group.subscriptions.get(topic)
            if body.subscription_data is None:
                body.filter_data = f"{header.consumer_group} does not subscribe to {topic} now"
            else:
                body.filter_data = self._filters.filters.shown(topic, header.consumer_group)
            if group is not None and topic in group.subscriptions:
                by_extra = self._filters.filters.by_extra(group, topic)
        # Behind what may raise `BudgetSpent`, so that the units are read once.
        units = store.queue_units(topic, queue_id, header.index, min(header.count, MAX_UNITS))
        room = MAX_BITS
        for unit in units:
            room -= len(unit.extra.bits) if unit.extra else 0
            if room < 0:
                break
            body.queue_data.append(_shown(unit, by_extra))
        return request.response(body=encode_body(body))


def _shown(unit: QueueUnit, by_extra: ExtraMatch | None) -> ConsumeQueueUnit:
    """Returns a unit with what the queue's extension has of it, and whether a group's filter takes
    that."""
    shown = ConsumeQueueUnit(
        physic_offset=unit.position, physic_size=unit.size, tags_code=unit.tags_code
    )
    extra = unit.extra
    if extra is not None:
        in_json: dict[str, str | int] = {}
        if extra.bits:
            in_json["filterBitMap"] = b64encode(extra.bits).decode()
            shown.bit_map = bits_text(extra.bits)
        in_json["msgStoreTime"] = extra.store_timestamp
        in_json |= {"size": extra.size, "tagsCode": extra.tags_code}
        shown.extend_data_json = msgspec.json.encode(in_json).decode()
        shown.eval = by_extra is not None and by_extra(extra, unit.position)
    elif is_address(unit.tags_code):
        shown.msg = f"the queue's extension has nothing at {unit.tags_code}"
    return shown


def bits_text(bits: bytes) -> str:
    """Bits in stock's rendering for people: the highest one first, 64 in a line."""
    parts = [f"{byte:08b}" + "\n" * (number % 8 == 0) for number, byte in enumerate(bits)]
    return "".join(reversed(parts))
