import pytest
from google.protobuf.message import Message as AnyMessage
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.grpc.fields import check_fields
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Code, HeartbeatRequest, HeartbeatResponse
from rocketmq_tw.proxy.proxy import Proxy
from tests.support.proxy import FakeCall, PlayedBrokers, answer_of


def test_an_error_is_told_by_the_status_of_the_response() -> None:
    async def refuse(request: HeartbeatRequest, call: FakeCall) -> HeartbeatResponse:
        raise StatusError(Code.ILLEGAL_TOPIC, "no")

    method = unary(HeartbeatRequest, HeartbeatResponse, refuse)
    assert method.request is HeartbeatRequest
    response = answer_of(method.handler(HeartbeatRequest(), FakeCall()))
    status = response.status
    assert (status.code, status.message) == (Code.ILLEGAL_TOPIC, "ILLEGAL_TOPIC: no")


def test_an_error_of_the_call_ends_the_call() -> None:
    async def refuse(request: HeartbeatRequest, call: FakeCall) -> HeartbeatResponse:
        raise GrpcError(GrpcStatus.UNAVAILABLE, "later")

    method = unary(HeartbeatRequest, HeartbeatResponse, refuse)
    with pytest.raises(GrpcError, match="later"):
        answer_of(method.handler(HeartbeatRequest(), FakeCall()))


def test_paths() -> None:
    assert path("Heartbeat") == "/apache.rocketmq.v2.MessagingService/Heartbeat"


def send_of(**message: object) -> AnyMessage:
    return pb.SendMessageRequest(messages=[pb.Message(**message)])


def settings_of(topics: int) -> AnyMessage:
    publishing = pb.Publishing(topics=[pb.Resource()] * topics)
    return pb.TelemetryCommand(settings=pb.Settings(publishing=publishing))


@pytest.mark.parametrize(
    ("method", "request_", "is_taken"),
    [
        ("SendMessage", send_of(body=b"x" * 4_000_000), True),
        ("SendMessage", send_of(system_properties={"keys": [""] * 2_000_000}), False),
        ("SendMessage", send_of(user_properties={str(i): "" for i in range(50_000)}), False),
        ("Telemetry", settings_of(10_000), True),
        ("Telemetry", settings_of(500_000), False),
        (
            "Telemetry",
            pb.TelemetryCommand(thread_stack_trace={"thread_stack_trace": "x" * 1_500_000}),
            True,
        ),
    ],
)
def test_what_would_be_parsed_for_long_is_not(
    method: str, request_: AnyMessage, is_taken: bool
) -> None:
    proxy = Proxy(Clock(), ProxyConfig(), PlayedBrokers(), lambda work: work())
    limits = proxy.methods[path(method)].limits
    data = request_.SerializeToString()
    assert len(data) <= limits.largest
    if is_taken:
        check_fields(data, limits)
    else:
        with pytest.raises(GrpcError):
            check_fields(data, limits)
