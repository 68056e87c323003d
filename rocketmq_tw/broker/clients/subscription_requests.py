"""Requests 300 and 343: the groups that consume a topic, the topics that a group consumes."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.topics import GroupList, TopicList
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.topics import (
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)

#: Topics that one step sorts or lists.
RUN = 2_000


class SubscriptionRequests:
    """Answers from subscriptions of connected consumers and from consumer offsets."""

    def __init__(
        self,
        clients: ClientRegistry,
        offsets: OffsetTable,
        in_slices: InSlices,
        growing: GrowingAnswers,
    ) -> None:
        self._growing = growing
        self._in_slices = in_slices
        self._clients = clients
        self._offsets = offsets

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumers,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.consumed_by,
        }

    def consumers(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 300: the groups that subscribe to a topic or have offsets in it."""
        topic = request.header(QueryTopicConsumeByWhoRequestHeader).topic
        groups = self._offsets.groups_of(topic)

        def answer(_: None) -> RemotingCommand:
            return request.response(body=encode_body(GroupList(group_list=sorted(groups))))

        added = self._in_slices(self._clients.add_subscribers(topic, groups))
        return added.addCallback(answer)

    def consumed_by(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 343: the topics in which a group has offsets."""
        group = request.header(QueryTopicsByConsumerRequestHeader).group

        def fill(body: TopicList) -> Iterator[None]:
            runs = []
            topics = iter(self._offsets.topics_of(group))
            while run := sorted(islice(topics, RUN)):
                runs.append(run)
                if len(run) == RUN:
                    yield
            for number, topic in enumerate(merge(*runs)):
                body.topic_list.append(topic)
                if number % RUN == RUN - 1:
                    yield

        return self._growing.answer(
            request, lambda: TopicList(broker_addr=peer.local_address), fill
        )
