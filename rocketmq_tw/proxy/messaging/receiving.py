"""ReceiveMessage: messages are popped from a broker, and hidden from the rest of the group until
their receipt handles are acknowledged or their time is over."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.client.topic_turns import TopicTurns
from rocketmq_tw.net.errors import ConnectError
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import no_route
from rocketmq_tw.proxy.messaging.delivery import Delivery, Receiver
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.messaging.polls import Polls
from rocketmq_tw.proxy.messaging.popped import PoppedMessage
from rocketmq_tw.proxy.messaging.receive_requests import ReceiveRequests
from rocketmq_tw.proxy.messaging.routes import readable_brokers
from rocketmq_tw.proxy.messaging.statuses import StatusError, status_of
from rocketmq_tw.proxy.messaging.streams import server_stream
from rocketmq_tw.proxy.proto.messages import (
    Code,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader


class Receiving:
    """Answers receives."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        requests: ReceiveRequests,
        polls: Polls,
        delivery: Delivery,
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._requests = requests
        self._polls = polls
        self._delivery = delivery
        self._turns = TopicTurns.by_chance()

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {
            path("ReceiveMessage"): server_stream(
                ReceiveMessageRequest, ReceiveMessageResponse, self.receive
            )
        }

    async def receive(self, request: ReceiveMessageRequest, call: ICall) -> None:
        """Sends a status, the messages that were popped, and the time of their delivery."""
        try:
            receiver, popped = await self._pop(request, call)
            await self._delivery.give(call, receiver, popped)
        except Exception as error:
            call.send(ReceiveMessageResponse(status=status_of(error)))
        self._delivery.end(call)

    async def _pop(
        self, request: ReceiveMessageRequest, call: ICall
    ) -> tuple[Receiver, list[PoppedMessage]]:
        header, receiver, poll_until = await self._requests.read(request, call)
        topic = receiver.topic
        names = await self._choose(topic, request.message_queue.broker.name)
        for name in names[:-1]:
            try:
                return receiver, await self._ask(name, header, receiver, poll_until, call)
            except ConnectError:
                # Nothing was popped: another broker may have messages.
                continue
        return receiver, await self._ask(names[-1], header, receiver, poll_until, call)

    def _ask(
        self,
        name: str,
        header: PopMessageRequestHeader,
        receiver: Receiver,
        poll_until: float,
        call: ICall,
    ) -> Deferred[list[PoppedMessage]]:
        # Without a bornTime brokers count from when the pop comes to them, whatever our clock says.
        header.bname = name
        header.poll_time = max(int((poll_until - self._clock.seconds()) * 1000), 0)
        return self._polls.pop(name, header, receiver, call)

    async def _choose(self, topic: str, wanted: str) -> list[str]:
        """Returns the brokers to ask, one after the other where they cannot be reached: the one
        that the client wants alone, where it has the topic."""
        route = await self._brokers.route(topic)
        if route is None:
            raise no_route(self._brokers, topic)
        names = readable_brokers(route)
        if not names:
            raise StatusError(
                Code.FORBIDDEN, f"{topic} has no readable queue: give it the permission to read"
            )
        if wanted in names:
            return [wanted]
        first = self._turns.next_number(topic) % len(names)
        return names[first:] + names[:first]
