"""Telemetry: the stream over which a client and the proxy tell each other their settings, and
brokers ask the client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.clients import (
    MAX_CLIENT_TOPICS,
    MAX_SETTINGS_BYTES,
    ProxyClient,
    ProxyClients,
    count_tags,
    settings_size,
)
from rocketmq_tw.proxy.grpc.interfaces import (
    BothStreams,
    GrpcError,
    GrpcStatus,
    ICall,
    Methods,
    RequestLimits,
)
from rocketmq_tw.proxy.messaging.asked_clients import MAX_TRACE, AskedClients
from rocketmq_tw.proxy.messaging.checks import client_group, client_id_of, client_topic
from rocketmq_tw.proxy.messaging.expressions import MAX_TAGS, Expressions
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.messaging.settings import answered_settings
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok
from rocketmq_tw.proxy.messaging.subscriptions import check_expressions
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import (
    ClientType,
    Resource,
    Settings,
    TelemetryCommand,
    ThreadStackTrace,
)
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.errors import RequestError

#: Settings, or stack traces.
_LIMITS = RequestLimits(
    largest=2 * MAX_TRACE,
    bulk=(
        TelemetryCommand.THREAD_STACK_TRACE_FIELD_NUMBER,
        ThreadStackTrace.THREAD_STACK_TRACE_FIELD_NUMBER,
    ),
    beside=2 * MAX_SETTINGS_BYTES,
)
#: Subscriptions of one consumer, which has a receive open for each.
_MAX_SUBSCRIPTIONS = 512

#: Seconds for which a group is asked for where no broker answers.
GROUP_SECONDS = 30.0

log = Logger()


class Telemetry:
    """Takes the settings of clients and answers with what they are to use."""

    def __init__(
        self,
        config: ProxyConfig,
        clients: ProxyClients,
        metadata: Metadata,
        asked_clients: AskedClients,
        expressions: Expressions,
        clock: IReactorTime,
    ) -> None:
        self._clock = clock
        self._config = config
        self._clients = clients
        self._metadata = metadata
        self._asked_clients = asked_clients
        self._expressions = expressions

    def methods(self) -> Methods:
        return {path("Telemetry"): BothStreams(TelemetryCommand, self._open, _LIMITS)}

    def _open(self, call: ICall) -> Callable[[TelemetryCommand], None]:
        answering = _Answering(call, partial(self._answer, call))

        def take(command: TelemetryCommand) -> None:
            try:
                self._take(command, call, answering)
            except StatusError as error:
                call.finish(GrpcError(GrpcStatus.INVALID_ARGUMENT, error.message))
            except GrpcError as error:
                call.finish(error)

        return take

    def _take(self, command: TelemetryCommand, call: ICall, answering: _Answering) -> None:
        kind = command.WhichOneof("command")
        client_id = client_id_of(call)
        if kind == "settings":
            answering.answer(self._settle(client_id, call, command.settings))
        elif kind in ("thread_stack_trace", "verify_message_result"):
            client = self._clients.get(client_id)
            if client is not None and client.stream is call:
                self._asked_clients.answered(client, command)
        # What stock's proxies do not know either is passed over: newer clients may say more.

    def _settle(self, client_id: str, call: ICall, settings: Settings) -> ProxyClient:
        # First: reading what is too much may take long.
        entries = settings.subscription.subscriptions
        _check_number("subscriptions", len(entries), _MAX_SUBSCRIPTIONS)
        settings_size(settings)
        kind = settings.WhichOneof("pub_sub")
        if kind == "publishing":
            resources = settings.publishing.topics
            _check_number("topics", len(resources), MAX_CLIENT_TOPICS)
            topics = _topics(resources)
            return self._clients.settle(client_id, call, settings, "", topics)
        if kind == "subscription":
            if settings.client_type > ClientType.PULL_CONSUMER:
                # As others, consumers of lite topics would get all messages of the topic.
                raise GrpcError(
                    GrpcStatus.UNIMPLEMENTED,
                    f"clients of the type {settings.client_type}, as those of lite topics, are not"
                    " served: use a PushConsumer or a SimpleConsumer",
                )
            group = client_group(settings.subscription.group)
            _check_number("tags", count_tags(settings), MAX_TAGS)
            topics = _topics([entry.topic for entry in entries])
            check_expressions(settings, self._expressions)
            return self._clients.settle(client_id, call, settings, group, topics)
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT,
            "the settings name neither topics to publish nor a subscription: give one of them",
        )

    async def _answer(self, call: ICall, client: ProxyClient) -> TelemetryCommand:
        group = await self._group_of(client, call) if client.group else None
        settings = client.settings or Settings()
        return TelemetryCommand(
            status=ok(), settings=answered_settings(settings, self._config, group)
        )

    async def _group_of(self, client: ProxyClient, call: ICall) -> SubscriptionGroupConfig | None:
        """Returns the configuration of a consumer's group, asked for again and again where brokers
        do not answer: clients choose once whether they consume in order. Raises `GrpcError`
        (UNAVAILABLE) where that lasts."""
        until = self._clock.seconds() + GROUP_SECONDS
        while True:
            try:
                return await self._metadata.group(client.group, client.topics)
            except (RemotingError, RequestError) as error:
                if call.is_over or self._clock.seconds() >= until:
                    raise GrpcError(
                        GrpcStatus.UNAVAILABLE,
                        f"no broker says how {client.group} consumes, connect again: {error}",
                    ) from None
            await deferLater(self._clock, RETRY_USUAL)


class _Answering:
    """Answers the settings of one stream: the last of those that come while the client does not
    read, or its group is asked for."""

    def __init__(self, call: ICall, make: Callable[[ProxyClient], object]) -> None:
        self._call = call
        self._make = make
        self._due: ProxyClient | None = None
        self._under_way = False

    def answer(self, client: ProxyClient) -> None:
        self._due = client
        if not self._under_way:
            self._under_way = True
            self._call.when_ready(self._begin)

    def _begin(self) -> None:
        client, self._due = self._due, None
        assert client is not None
        made: Deferred[TelemetryCommand] = Deferred.fromCoroutine(self._make(client))  # type: ignore[arg-type]
        made.addCallbacks(self._call.send, self._failed, errbackArgs=(client,))
        made.addCallback(lambda _: self._next())

    def _failed(self, failure: Failure, client: ProxyClient) -> None:
        if isinstance(failure.value, GrpcError):
            self._call.finish(failure.value)
            return
        log.failure(
            "answering {client}'s settings failed", failure=failure, client=client.client_id
        )
        self._call.finish(GrpcError(GrpcStatus.INTERNAL, "the proxy failed; its log says more"))

    def _next(self) -> None:
        self._under_way = False
        if self._due is not None:
            self.answer(self._due)


def _check_number(what: str, number: int, most: int) -> None:
    """Raises `GrpcError` where a client has too much of something."""
    if number > most:
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT,
            f"{number} {what}: {most} are the limit, use further instances",
        )


def _topics(resources: Iterable[Resource]) -> list[str]:
    return list(dict.fromkeys(map(client_topic, resources)))
