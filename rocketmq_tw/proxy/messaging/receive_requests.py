"""Reads what a ReceiveMessage asks for: the pop that it becomes, and who gets what that brings."""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.checks import client_group, client_id_of, client_topic
from rocketmq_tw.proxy.messaging.delivery import Receiver
from rocketmq_tw.proxy.messaging.expressions import Expressions
from rocketmq_tw.proxy.messaging.messages import duration_ms
from rocketmq_tw.proxy.messaging.polling import check_invisible_ms, poll_ms
from rocketmq_tw.proxy.messaging.renewal import MAX_MESSAGES, MAX_OF_CLIENT, Renewal
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import Code, ReceiveMessageRequest
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader

#: Characters of the id by which a FIFO group gets the same messages again.
MAX_ATTEMPT_ID = 128
#: Where a group begins that has no offset: behind the messages that are there.
_AT_THE_END = 1
_ANY_QUEUE = -1


class WantedPop(NamedTuple):
    """A pop for a receive, and who gets what it brings. `poll_until`: when its broker is to hold it
    no more, in seconds of the clock."""

    header: PopMessageRequestHeader
    receiver: Receiver
    poll_until: float


class ReceiveRequests:
    """Reads receives by the configuration of their groups and the settings of their clients, which
    they need not have."""

    def __init__(
        self,
        clock: IReactorTime,
        renewal: Renewal,
        clients: ProxyClients,
        metadata: Metadata,
        expressions: Expressions,
        config: ProxyConfig,
    ) -> None:
        self._clock = clock
        self._renewal = renewal
        self._clients = clients
        self._metadata = metadata
        self._expressions = expressions
        self._config = config

    async def read(self, request: ReceiveMessageRequest, call: ICall) -> WantedPop:
        """Returns the pop for a receive; raises `StatusError` for what cannot be had, and what
        asking for the group's configuration fails with."""
        client_id = client_id_of(call)
        topic = client_topic(request.message_queue.topic)
        group = client_group(request.group)
        wanted = await self._expressions.wanted(request.filter_expression, call)
        may_renew = request.auto_renew and self._config.enable_proxy_auto_renew
        renews = may_renew and self._renewal.has_room(MAX_MESSAGES)
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
        return WantedPop(header, receiver, poll_until)

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
