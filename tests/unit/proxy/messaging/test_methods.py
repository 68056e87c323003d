import pytest

from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messaging_pb2 import Code, HeartbeatRequest, HeartbeatResponse
from tests.support.proxy import FakeCall, answer_of


def test_an_error_is_told_by_the_status_of_the_response() -> None:
    async def refuse(request: HeartbeatRequest, call: FakeCall) -> HeartbeatResponse:
        raise StatusError(Code.ILLEGAL_TOPIC, "no")

    method = unary(HeartbeatRequest, HeartbeatResponse, refuse)
    assert method.request is HeartbeatRequest
    response = answer_of(method.handler(HeartbeatRequest(), FakeCall()))
    assert (response.status.code, response.status.message) == (Code.ILLEGAL_TOPIC, "no")


def test_an_error_of_the_call_ends_the_call() -> None:
    async def refuse(request: HeartbeatRequest, call: FakeCall) -> HeartbeatResponse:
        raise GrpcError(GrpcStatus.UNAVAILABLE, "later")

    method = unary(HeartbeatRequest, HeartbeatResponse, refuse)
    with pytest.raises(GrpcError, match="later"):
        answer_of(method.handler(HeartbeatRequest(), FakeCall()))


def test_paths() -> None:
    assert path("Heartbeat") == "/apache.rocketmq.v2.MessagingService/Heartbeat"
