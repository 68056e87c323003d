"""All services of producers of a proxy, before brokers of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.grpc.interfaces import Unary
from rocketmq_tw.proxy.messaging.checks import TopicTypes
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.messaging.orphans import OrphanQuestions
from rocketmq_tw.proxy.messaging.outgoing import OutgoingMessages
from rocketmq_tw.proxy.messaging.recalls import Recalls
from rocketmq_tw.proxy.messaging.sends import Sends
from rocketmq_tw.proxy.messaging.transactions import HalfPlaces, TransactionDecisions
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import Message, SendMessageRequest, SendMessageResponse
from rocketmq_tw.runtime.threads import InThread, at_once
from tests.support.proxy import FakeCall, PlayedBrokers, answer_of

#: The time of day where the test does not say.
NOW = 1_790_000_000_000


class SendingProxy:
    """Answers SendMessage, EndTransaction and RecallMessage; `config` are keys of the proxy."""

    def __init__(
        self,
        brokers: PlayedBrokers,
        clock: Clock,
        now_ms: Callable[[], int] = lambda: NOW,
        in_thread: InThread = at_once,
        **config: Any,
    ) -> None:
        self.brokers = brokers
        self.clock = clock
        settings = ProxyConfig(**config)
        self.metadata = Metadata(clock, brokers)
        self.halves = HalfPlaces(clock, settings.transaction_data_expire_millis / 1000)
        self.transactions = TransactionDecisions(clock, brokers, self.halves)
        unpacking = Unpacking(settings, in_thread)
        self.questions = OrphanQuestions(brokers, self.halves, unpacking)
        types = TopicTypes(self.metadata, settings)
        outgoing = OutgoingMessages(settings, now_ms, in_thread)
        self.methods = {
            **Sends(clock, brokers, types, outgoing).methods(),
            **self.transactions.methods(),
            **Recalls(clock, brokers, types).methods(),
        }

    def begin(self, method: str, request: Any, call: FakeCall | None = None) -> Any:
        """What the handler of a method returns."""
        found = self.methods[path(method)]
        assert isinstance(found, Unary)
        return found.handler(request, call or FakeCall())

    def call(self, method: str, request: Any, call: FakeCall | None = None) -> Any:
        """The response."""
        return answer_of(self.begin(method, request, call), self.clock)

    def send(self, *messages: Message, call: FakeCall | None = None) -> SendMessageResponse:
        """The response to SendMessage."""
        response = self.call("SendMessage", SendMessageRequest(messages=messages), call)
        assert isinstance(response, SendMessageResponse)
        return response
