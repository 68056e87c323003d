"""ReceiveMessage: messages are popped from a broker, and hidden from the rest of the group until
their receipt handles are acknowledged or their time is over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectError
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.checks import client_group, client_id_of, client_topic, no_route
from rocketmq_tw.proxy.messaging.delivery import Delivery, Receiver
from rocketmq_tw.proxy.messaging.expressions import Expressions
from rocketmq_tw.proxy.messaging.messages import duration_ms
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.messaging.polling import check_invisible_ms, poll_ms
from rocketmq_tw.proxy.messaging.polls import Polls
from rocketmq_tw.proxy.messaging.popped import PopClient, PoppedMessage
from rocketmq_tw.proxy.messaging.renewal import MAX_MESSAGES, MAX_OF_CLIENT, Renewal
from rocketmq_tw.proxy.messaging.routes import readable_brokers
from rocketmq_tw.proxy.messaging.statuses import StatusError, status_of
from rocketmq_tw.proxy.messaging.streams import server_stream
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messaging_pb2 import (
    Code,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader

#: Characters of the id by which a FIFO group gets the same messages again.
MAX_ATTEMPT_ID = 128
#: Where a group begins that has no offset: behind the messages that are there.
_AT_THE_END = 1
_ANY_QUEUE = -1


class Receiving:
    """Answers receives; a receive needs no settings of its client, but goes by them."""

    def __init__(
        self,
        brokers: IBrokers,
        renewal: Renewal,
        clients: ProxyClients,
        metadata: Metadata,
        unpacking: Unpacking,
        expressions: Expressions,
        times: BrokerTimes,
        clock: IReactorTime,
        config: ProxyConfig,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._brokers = brokers
        popped = PopClient(brokers)
        self._renewal = renewal
        self._clients = clients
        self._metadata = metadata
        self._expressions = expressions
        self._times = times
        self._clock = clock
        self._config = config
        self._delivery = Delivery(clock, clients, popped, renewal, unpacking, now_ms)
        self._polls = Polls(clock, brokers, popped, clients, config, self._delivery.bring_back)
        self._turns = count()

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
            if popped:
                info = popped[0].handle.info
                self._times.heard(info.broker_name, info.pop_time)
            await self._delivery.give(call, receiver, popped)
        except Exception as error:
            call.send(ReceiveMessageResponse(status=status_of(error)))
        self._delivery.end(call)

    async def _pop(
        self, request: ReceiveMessageRequest, call: ICall
    ) -> tuple[Receiver, list[PoppedMessage]]:
        client_id = client_id_of(call)
        topic = client_topic(request.message_queue.topic)
        group = client_group(request.group)
        wanted = await self._expressions.wanted(request.filter_expression, call)
        renews = (
            request.auto_renew and self._config.enable_proxy_auto_renew and self._renewal.has_room()
        )
        config = await self._metadata.group(group, [topic])
        is_fifo, max_attempts = self._rules(client_id, config)
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=_ANY_QUEUE,
            max_msg_nums=self._batch_size(request, client_id, renews=renews),
            invisible_time=self._invisible_ms(request, renews=renews),
            poll_time=0,
            init_mode=_AT_THE_END,
            exp_type=wanted.type,
            exp=wanted.text,
            order=is_fifo,
            attempt_id=_attempt_id(request),
        )
        client = self._clients.get(client_id)
        receiver = Receiver(client_id, client, topic, group, wanted, max_attempts, renews)
        poll_until = self._clock.seconds() + self._poll_ms(request, call, client_id) / 1000
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
        first = next(self._turns) % len(names)
        return names[first:] + names[:first]

    def _rules(self, client_id: str, group: SubscriptionGroupConfig | None) -> tuple[bool, int]:
        """Returns whether a group receives in order, and how often one message at most: as the
        group's configuration says, as the client does where there is none."""
        if group is not None:
            return bool(group.consume_message_orderly), group.retry_max_times + 1
        client = self._clients.get(client_id)
        settings = None if client is None else client.settings
        default = SubscriptionGroupConfig().retry_max_times + 1
        if settings is None:
            return False, default
        told = settings.backoff_policy.max_attempts
        return settings.subscription.fifo, told if told > 0 else default

    def _batch_size(self, request: ReceiveMessageRequest, client_id: str, *, renews: bool) -> int:
        if request.batch_size < 1:
            raise StatusError(
                Code.BAD_REQUEST,
                f"a batch size of {request.batch_size}: ask for 1 to {MAX_MESSAGES} messages",
            )
        size = min(request.batch_size, MAX_MESSAGES)
        if not renews:
            return size
        room = self._renewal.room_of(client_id)
        if not room:
            raise StatusError(
                Code.TOO_MANY_REQUESTS,
                f"the client has {MAX_OF_CLIENT} messages that are not acknowledged: acknowledge"
                " some of them first",
            )
        return min(size, room)

    def _invisible_ms(self, request: ReceiveMessageRequest, *, renews: bool) -> int:
        is_unsaid = request.auto_renew and not request.HasField("invisible_duration")
        if renews or is_unsaid:
            return self._config.default_invisible_time_mills
        least = self._config.min_invisible_time_mills_for_recv
        return check_invisible_ms(request.invisible_duration, least, self._config)

    def _poll_ms(self, request: ReceiveMessageRequest, call: ICall, client_id: str) -> int:
        asked = left = None
        if request.HasField("long_polling_timeout"):
            asked = duration_ms(request.long_polling_timeout)
        if call.deadline is not None:
            left = int((call.deadline - self._clock.seconds()) * 1000)
        client = self._clients.get(client_id)
        settings = None if client is None else client.settings
        timeout = 0 if settings is None else duration_ms(settings.request_timeout)
        version = call.metadata.get("x-mq-client-version", "")
        return poll_ms(asked, left, version, self._config, timeout)


def _attempt_id(request: ReceiveMessageRequest) -> str | None:
    if not request.attempt_id:
        return None
    if len(request.attempt_id) > MAX_ATTEMPT_ID:
        raise StatusError(
            Code.BAD_REQUEST,
            f"an attempt id of {len(request.attempt_id)} characters: use at most {MAX_ATTEMPT_ID}",
        )
    return request.attempt_id
