"""Telemetry, heartbeats and requests of brokers to gRPC clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rocketmq_tw.broker.filters.compile_budget import CompileBudget
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.net.errors import ConnectError, RequestTimeout
from rocketmq_tw.proxy.clients import ProxyClient, ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus
from rocketmq_tw.proxy.messaging.asked_clients import MAX_OPEN
from rocketmq_tw.proxy.messaging.backoff import DEFAULT_DELAYS
from rocketmq_tw.proxy.messaging.expressions import Expressions
from rocketmq_tw.proxy.messaging.heartbeats import ClientHeartbeats
from rocketmq_tw.proxy.messaging.messages import duration_ms
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.messaging.telemetry import GROUP_SECONDS, Telemetry
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Duration
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketmq_tw.wire.bodies.groups import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from tests.support.broker import Threads
from tests.support.proxy import FakeCall, answer_of, asked_clients

STORED = StoredMessage(
    topic="Topic",
    queue_id=0,
    body=b"body",
    born_timestamp=1_700_000_000_000,
    born_host=("10.0.0.9", 40000),
    store_timestamp=1_700_000_000_001,
    store_host=("10.0.0.2", 10911),
)


def failure_of(deferred: Deferred[Any]) -> Failure:
    """What a Deferred failed with."""
    failed: list[Failure] = []
    deferred.addErrback(failed.append)
    (failure,) = failed
    return failure


class Groups:
    """The groups that brokers have."""

    def __init__(self) -> None:
        self.groups: dict[str, SubscriptionGroupConfig] = {}
        #: Where set, no broker says it.
        self.error: Exception | None = None

    async def group(self, name: str, topics: object) -> SubscriptionGroupConfig | None:
        if self.error is not None:
            raise self.error
        return self.groups.get(name)


class Desk:
    """The services of a proxy that know its clients."""

    def __init__(self, config: ProxyConfig | None = None, in_thread: InThread = at_once) -> None:
        self.clock = Clock()
        self.groups = Groups()
        self.recovered: list[ProxyClient] = []
        self.asked = asked_clients(self.clock, self.recover, in_thread)
        self.clients = ProxyClients(self.clock.seconds, self.asked.hand_on, lambda: 120.0)
        expressions = Expressions(CompileBudget(self.clock))
        telemetry = Telemetry(
            config or ProxyConfig(),
            self.clients,
            self.groups,  # type: ignore[arg-type]
            self.asked,
            expressions,
            self.clock,
        )
        self.methods = {**telemetry.methods(), **ClientHeartbeats(self.clients).methods()}

    def recover(self, client: ProxyClient, request: RemotingCommand) -> Deferred[RemotingCommand]:
        self.recovered.append(client)
        return succeed(request.response())

    def open(self, call: FakeCall) -> Any:
        return self.methods[path("Telemetry")].open(call)

    def tell(self, call: FakeCall, settings: pb.Settings) -> pb.Settings:
        """Sends settings over a new stream; returns the answer."""
        self.open(call)(pb.TelemetryCommand(settings=settings))
        (answer,) = call.sent
        assert answer.status.code == pb.OK
        call.sent.clear()
        return answer.settings

    def consumer(self, call: FakeCall) -> ProxyClient:
        self.tell(call, subscription())
        client = self.clients.get("client")
        assert client is not None
        return client

    def ask(self, name: str, request: Any, call: FakeCall) -> pb.Status:
        return answer_of(self.methods[path(name)].handler(request, call)).status


def subscription(
    group: str = "g", expression: str = "a||b", kind: pb.FilterType = pb.TAG
) -> pb.Settings:
    settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
    settings.subscription.group.name = group
    entry = settings.subscription.subscriptions.add()
    entry.topic.name = "Topic"
    entry.expression.type, entry.expression.expression = kind, expression
    return settings


def publishing(*topics: str) -> pb.Settings:
    settings = pb.Settings(client_type=pb.PRODUCER)
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    return settings


def test_a_producer_is_told_the_limits() -> None:
    desk = Desk(msgspec.structs.replace(ProxyConfig(), max_message_size=1000))
    answer = desk.tell(FakeCall(), publishing("Topic", "Other"))
    assert answer.publishing.max_body_size == 1000
    assert answer.publishing.validate_message_type
    assert [topic.name for topic in answer.publishing.topics] == ["Topic", "Other"]
    policy = answer.backoff_policy
    assert (policy.max_attempts, policy.exponential_backoff.multiplier) == (3, 2)
    assert policy.exponential_backoff.initial == Duration(nanos=10_000_000)
    assert not answer.metric.on
    client = desk.clients.get("client")
    assert client is not None and list(client.topics) == ["Topic", "Other"]


def test_what_clients_are_told_is_in_keys() -> None:
    config = ProxyConfig(
        grpc_client_producer_max_attempts=5,
        grpc_client_producer_backoff_initial_millis=20,
        grpc_client_producer_backoff_max_millis=3_000,
        grpc_client_producer_backoff_multiplier=4,
        grpc_client_consumer_long_polling_batch_size=8,
        grpc_client_consumer_max_long_polling_timeout_millis=9_000,
    )
    policy = Desk(config).tell(FakeCall(), publishing("Topic")).backoff_policy
    backoff = policy.exponential_backoff
    assert (policy.max_attempts, backoff.multiplier) == (5, 4)
    assert (duration_ms(backoff.initial), duration_ms(backoff.max)) == (20, 3_000)
    told = Desk(config).tell(FakeCall(), subscription()).subscription
    assert (told.receive_batch_size, duration_ms(told.long_polling_timeout)) == (8, 9_000)


def test_a_producer_may_name_no_topic() -> None:
    desk = Desk()
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.SetInParent()
    desk.tell(FakeCall(), settings)
    assert desk.clients.get("client") is not None


def test_a_consumer_is_told_its_groups_configuration() -> None:
    desk = Desk()
    answer = desk.tell(FakeCall(), subscription())
    assert not answer.subscription.fifo
    assert answer.subscription.receive_batch_size == 32
    assert answer.subscription.long_polling_timeout == Duration(seconds=20)
    assert answer.backoff_policy.max_attempts == 17
    delays = answer.backoff_policy.customized_backoff.next
    assert [duration_ms(delay) for delay in delays] == list(DEFAULT_DELAYS)

    growing = GroupRetryPolicy(
        type="EXPONENTIAL",
        exponential_retry_policy=ExponentialRetryPolicy(initial=10, max=20, multiplier=3),
    )
    desk.groups.groups["g"] = SubscriptionGroupConfig(
        consume_message_orderly=True, retry_max_times=4, group_retry_policy=growing
    )
    answer = desk.tell(FakeCall(), subscription())
    assert answer.subscription.fifo
    assert answer.backoff_policy.max_attempts == 5
    assert answer.backoff_policy.exponential_backoff.max == Duration(nanos=20_000_000)


def test_a_consumer_in_order_is_told_so_once_a_broker_answers() -> None:
    """Java's push consumers choose once how they consume."""
    desk, call = Desk(), FakeCall()
    desk.groups.groups["g"] = SubscriptionGroupConfig(consume_message_orderly=True)
    desk.groups.error = RequestTimeout("10.0.0.2:10911", 351, 3)
    take = desk.open(call)
    take(pb.TelemetryCommand(settings=subscription()))
    desk.clock.pump([1.0] * 10)
    assert call.sent == [] and not call.is_over
    desk.groups.error = None
    desk.clock.advance(1)
    (answer,) = call.sent
    assert answer.settings.subscription.fifo
    # Of several that came meanwhile the last one is answered.
    desk.groups.error = ConnectError("10.0.0.2:10911", "refused")
    for group in ("g", "other"):
        take(pb.TelemetryCommand(settings=subscription(group)))
    desk.groups.error = None
    desk.clock.advance(1)
    assert [each.settings.subscription.group.name for each in call.sent[1:]][-1] == "other"
    assert not call.sent[-1].settings.subscription.fifo


def test_a_stream_ends_where_no_broker_says_for_long_how_a_group_consumes() -> None:
    desk, call, gone = Desk(), FakeCall(), FakeCall("gone")
    desk.groups.error = RequestTimeout("10.0.0.2:10911", 351, 3)
    for each in (call, gone):
        desk.open(each)(pb.TelemetryCommand(settings=subscription()))
    gone.finish()
    desk.clock.pump([1.0] * 2)
    assert len(desk.clock.getDelayedCalls()) == 1, "nobody waits for the other"
    desk.clock.pump([1.0] * int(GROUP_SECONDS))
    assert call.error is not None and call.error.status is GrpcStatus.UNAVAILABLE
    assert "no answer to request 351" in str(call.error)
    assert call.sent == [] and not desk.clock.getDelayedCalls()


def test_a_group_may_be_tried_as_often_as_numbers_go() -> None:
    desk = Desk()
    desk.groups.groups["g"] = SubscriptionGroupConfig(group_name="g", retry_max_times=(1 << 31) - 1)
    answer = desk.tell(FakeCall(), subscription())
    assert answer.backoff_policy.max_attempts == (1 << 31) - 1


@pytest.mark.parametrize(
    ("mode", "address", "endpoint"),
    [("on", "metrics:1", ("metrics", 1)), ("proxy", "", ("proxy", 8081))],
)
def test_clients_are_told_where_their_metrics_go(
    mode: str, address: str, endpoint: tuple[str, int]
) -> None:
    config = msgspec.structs.replace(
        ProxyConfig(), metric_collector_mode=mode, metric_collector_address=address
    )
    settings = subscription()
    settings.access_point.addresses.add(host="proxy", port=8081)
    answer = Desk(config).tell(FakeCall(), settings)
    assert answer.metric.on
    (found,) = answer.metric.endpoints.addresses
    assert (found.host, found.port) == endpoint


def subscriptions(expressions: Iterable[str], kind: pb.FilterType = pb.TAG) -> pb.Settings:
    settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    for number, expression in enumerate(expressions):
        entry = settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.expression = f"t{number}", expression
        entry.expression.type = kind
    return settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (pb.Settings(client_type=pb.PRODUCER), "give one of them"),
        (publishing("no topic"), "no topic"),
        (publishing("SCHEDULE_TOPIC_XXXX"), "of the servers"),
        (subscription(group="a b"), "a b"),
        (subscription(group=""), "group"),
        (subscription(expression="||"), "Topic: "),
        (subscription(expression="a >", kind=pb.SQL), "Topic: the SQL92 expression: column 4"),
        (subscription(expression="", kind=pb.SQL), "Topic: the SQL92 expression"),
        (subscription(expression="a", kind=99), "Topic: 99 is no type of filters"),
        # Before its expressions are read, which takes long.
        (subscription(expression="|" * 300_000), "are the limit"),
        (publishing(*(f"t{number}" for number in range(4097))), "4096 are the limit"),
        (subscriptions("*" for _ in range(513)), "512 are the limit"),
        (subscriptions(["||".join("t" * 2049)] * 2), "4096 are the limit"),
    ],
)
def test_what_cannot_be_ends_the_stream(settings: pb.Settings, said: str) -> None:
    desk, call = Desk(), FakeCall()
    desk.open(call)(pb.TelemetryCommand(settings=settings))
    assert call.error is not None and call.error.status is GrpcStatus.INVALID_ARGUMENT
    assert said in str(call.error)
    assert len(desk.clients) == 0


@pytest.mark.parametrize("kind", [5, 6])
def test_consumers_of_lite_topics_are_not_served(kind: int) -> None:
    """As ordinary ones they would get, and acknowledge, all messages of the topic."""
    desk, call = Desk(), FakeCall()
    settings = subscription()
    settings.client_type = kind
    desk.open(call)(pb.TelemetryCommand(settings=settings))
    assert call.error is not None and call.error.status is GrpcStatus.UNIMPLEMENTED
    assert "use a PushConsumer" in str(call.error)
    assert len(desk.clients) == 0


def test_many_subscriptions_and_tags_are_taken() -> None:
    desk = Desk()
    desk.tell(FakeCall(), subscriptions(["||".join("t" * 8)] * 512))
    assert len(desk.clients) == 1


@pytest.mark.parametrize(("before", "is_taken"), [(0, False), (2, True)])
def test_sql_expressions_of_many_characters_are_read_by_receives(
    before: int, is_taken: bool
) -> None:
    """All of them would take the reactor half a second."""
    desk, call = Desk(), FakeCall()
    values = ",".join("'x'" for _ in range(300))
    long = [f"a{number} IN ({values})" for number in range(before)]
    # What was compiled before is known.
    settings = subscriptions([*long, f"b{before} >"], pb.SQL)
    desk.open(call)(pb.TelemetryCommand(settings=settings))
    assert (call.error is None) is is_taken


def test_a_client_without_an_id_is_refused() -> None:
    desk, call = Desk(), FakeCall("")
    desk.open(call)(pb.TelemetryCommand(settings=subscription()))
    assert call.error is not None and "x-mq-client-id" in str(call.error)
    status = desk.ask("Heartbeat", pb.HeartbeatRequest(), call)
    assert status.code == pb.CLIENT_ID_REQUIRED


def test_settings_are_answered_once_the_client_reads() -> None:
    desk, call = Desk(), FakeCall()
    call.ready = False
    take = desk.open(call)
    for number in range(100):
        settings = publishing("Topic")
        settings.user_agent.version = str(number)
        take(pb.TelemetryCommand(settings=settings))
    assert call.sent == []
    call.go_on()
    (answer,) = call.sent
    assert answer.settings.user_agent.version == "99"


def test_what_newer_clients_say_is_passed_over() -> None:
    desk, call = Desk(), FakeCall()
    take = desk.open(call)
    take(pb.TelemetryCommand())
    take(pb.TelemetryCommand(verify_message_result=pb.VerifyMessageResult(nonce="1")))
    assert not call.is_over and not call.sent


def test_a_client_lives_by_its_heartbeats_and_goes_when_it_says_so() -> None:
    desk, call = Desk(), FakeCall()
    request = pb.HeartbeatRequest(group=pb.Resource(name="g"), client_type=pb.PUSH_CONSUMER)
    assert desk.ask("Heartbeat", request, call).code == pb.UNRECOGNIZED_CLIENT_TYPE
    client = desk.consumer(call)
    desk.clock.advance(50)
    assert desk.ask("Heartbeat", request, call).code == pb.OK
    assert client.heard_at == 50
    other = pb.HeartbeatRequest(group=pb.Resource(name="other"))
    assert desk.ask("Heartbeat", other, call).code == pb.ILLEGAL_CONSUMER_GROUP
    going = pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
    assert desk.ask("NotifyClientTermination", going, call).code == pb.OK
    assert desk.clients.get("client") is None
    status = desk.ask("NotifyClientTermination", going, call)
    assert status.code == pb.UNRECOGNIZED_CLIENT_TYPE


def call_from(host: str) -> FakeCall:
    call = FakeCall()
    call.address = f"{host}:40000"
    return call


def test_a_client_is_ended_by_its_own_host_only() -> None:
    desk = Desk()
    desk.consumer(call_from("10.0.0.9"))
    going = pb.NotifyClientTerminationRequest()
    status = desk.ask("NotifyClientTermination", going, call_from("10.6.6.6"))
    assert (status.code, desk.clients.get("client") is None) == (pb.FORBIDDEN, False)
    assert "another host" in status.message
    # A load balancer may carry each call over another connection.
    call = call_from("10.0.0.9")
    call.address = "10.0.0.9:40001"
    assert desk.ask("NotifyClientTermination", going, call).code == pb.OK
    assert desk.clients.get("client") is None


def test_the_id_of_a_connected_client_is_not_taken_over() -> None:
    desk = Desk()
    owner, thief = call_from("10.0.0.9"), call_from("10.6.6.6")
    client = desk.consumer(owner)
    desk.open(thief)(pb.TelemetryCommand(settings=subscription("other")))
    assert thief.error is not None and thief.error.status == GrpcStatus.ALREADY_EXISTS
    assert desk.clients.get("client") is client
    assert (client.group, client.stream) == ("g", owner)
    # Its own host connects anew, where the former connection is not lost yet; so does any host
    # once it is.
    again = call_from("10.0.0.9")
    assert desk.consumer(again).stream is again
    again.finish()
    moved = call_from("10.0.0.8")
    assert desk.consumer(moved).stream is moved


def test_another_stream_answers_no_question_of_a_client() -> None:
    desk = Desk()
    owner, thief = FakeCall(), FakeCall()
    client = desk.consumer(owner)
    answer = client.ask(consume_directly(), 5.0)
    (question,) = owner.sent
    result = pb.TelemetryCommand(
        verify_message_result={"nonce": question.verify_message_command.nonce}
    )
    desk.open(thief)(result)
    assert not answer.called
    desk.open(owner)(result)
    assert answer.called


def running_info(*, jstack: bool) -> RemotingCommand:
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group="g", client_id="client", jstack_enable=jstack
    )
    return RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


def packed(body: bytes) -> StoredMessage:
    kind = CompressionType.ZSTD
    return msgspec.structs.replace(
        STORED, body=compress(body, kind), sys_flag=compression_flag(kind)
    )


def consume_directly(stored: StoredMessage = STORED) -> RemotingCommand:
    header = ConsumeMessageDirectlyResultRequestHeader(consumer_group="g", client_id="client")
    body = encode_record(stored)
    return RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body)


def test_a_consumer_says_what_it_does() -> None:
    desk = Desk()
    client = desk.consumer(FakeCall())
    answer = answer_of(client.ask(running_info(jstack=False), 5.0))
    info = decode_body(ConsumerRunningInfo, answer.body)
    (wanted,) = info.subscription_set
    assert (wanted.topic, wanted.tags_set) == ("Topic", ["a", "b"])
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"


def test_a_consumer_gives_its_stack() -> None:
    desk, call = Desk(), FakeCall()
    take = desk.open(call)
    client = desk.consumer(call)
    asked = client.ask(running_info(jstack=True), 5.0)
    (command,) = call.sent
    trace = pb.ThreadStackTrace(
        nonce=command.print_thread_stack_trace_command.nonce, thread_stack_trace="main()"
    )
    take(pb.TelemetryCommand(status=pb.Status(code=pb.OK), thread_stack_trace=trace))
    assert decode_body(ConsumerRunningInfo, answer_of(asked).body).jstack == "main()"


def test_a_consumer_tries_a_message_whose_body_is_packed() -> None:
    desk, call, body = Desk(), FakeCall(), bytes(2 << 20)
    desk.open(call)
    client = desk.consumer(call)
    client.ask(consume_directly(packed(body)), 5.0)
    (command,) = call.sent
    assert command.verify_message_command.message.body == body


def test_few_packed_messages_wait_for_a_consumer_to_try_them() -> None:
    threads = Threads(eager=False)
    desk, call = Desk(in_thread=threads), FakeCall()
    take = desk.open(call)
    client = desk.consumer(call)
    # Refused alike by the client that takes its time, and after the asker has given up.
    for seconds in (0, 5):
        desk.clock.advance(seconds)
        for _ in range(MAX_OPEN):
            client.ask(consume_directly(packed(bytes(2 << 20))), 5.0).addErrback(lambda _: None)
        error = failure_of(client.ask(consume_directly(), 5.0)).value
        assert isinstance(error, RequestError) and error.code == ResponseCode.SYSTEM_BUSY
    for _ in range(MAX_OPEN):
        assert threads.run() == 1
    assert threads.waiting == [] and call.sent == [], "nobody waits for an answer any more"
    asked = client.ask(consume_directly(), 5.0)
    (command,) = call.sent
    verified = pb.VerifyMessageResult(nonce=command.verify_message_command.nonce)
    take(pb.TelemetryCommand(status=pb.Status(code=pb.OK), verify_message_result=verified))
    answer_of(asked)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (pb.OK, "CR_SUCCESS"),
        (pb.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (pb.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (pb.INTERNAL_ERROR, "CR_THROW_EXCEPTION"),
    ],
)
def test_a_consumer_tries_a_message(code: int, result: str) -> None:
    desk, call = Desk(), FakeCall()
    take = desk.open(call)
    client = desk.consumer(call)
    asked = client.ask(consume_directly(), 5.0)
    (command,) = call.sent
    assert command.verify_message_command.message.body == b"body"
    verified = pb.VerifyMessageResult(nonce=command.verify_message_command.nonce)
    take(pb.TelemetryCommand(status=pb.Status(code=code), verify_message_result=verified))
    body = decode_body(ConsumeMessageDirectlyResult, answer_of(asked).body)
    assert body.consume_result == result


def test_a_client_that_does_not_answer_is_given_up() -> None:
    desk, call = Desk(), FakeCall()
    client = desk.consumer(call)
    asked = client.ask(consume_directly(), 5.0)
    desk.clock.advance(5)
    error = failure_of(asked).value
    assert isinstance(error, RequestError) and error.code == ResponseCode.CONSUME_MSG_TIMEOUT
    for _ in range(MAX_OPEN):
        client.ask(consume_directly(), 5.0).addErrback(lambda _: None)
    error = failure_of(client.ask(consume_directly(), 5.0)).value
    assert isinstance(error, RequestError) and error.code == ResponseCode.SYSTEM_BUSY
    desk.clock.advance(5)


def test_a_client_without_a_stream_cannot_be_asked() -> None:
    desk, call = Desk(), FakeCall()
    client = desk.consumer(call)
    call.finish()
    error = failure_of(client.ask(consume_directly(), 5.0)).value
    assert isinstance(error, RequestError) and "no open stream" in error.remark
    answer_of(client.ask(running_info(jstack=False), 5.0))


def test_requests_that_concern_no_grpc_client() -> None:
    desk = Desk()
    client = desk.consumer(FakeCall())
    changed = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    assert answer_of(client.ask(changed, 1.0)).code == ResponseCode.SUCCESS
    half = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE)
    answer_of(client.ask(half, 1.0))
    assert desk.recovered == [client]
    error = failure_of(client.ask(RemotingCommand.request(9), 1.0)).value
    assert isinstance(error, RequestError)
    broken = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, body=b"nonsense")
    assert isinstance(failure_of(client.ask(broken, 1.0)).value, RequestError)
