"""What requests may have whose answer is a stream."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.proxy.grpc.fields import check_fields
from rocketmq_tw.proxy.grpc.interfaces import GrpcError
from rocketmq_tw.proxy.messaging.streams import server_stream
from rocketmq_tw.proxy.proto import messages as pb


async def _nothing(request: Any, call: Any) -> None:
    """Is never called here."""


REQUESTS: list[tuple[Any, Any]] = [
    (pb.ReceiveMessageRequest, pb.ReceiveMessageResponse),
    (pb.PullMessageRequest, pb.PullMessageResponse),
]


@pytest.mark.parametrize(("request_type", "response_type"), REQUESTS)
def test_a_long_expression_is_taken_and_many_small_parts_are_not(
    request_type: Any, response_type: Any
) -> None:
    """They would take fifty times their bytes, for as long as the client waits for messages."""
    limits = server_stream(request_type, response_type, _nothing).limits
    long = request_type(filter_expression=pb.FilterExpression(expression="ü" * 65_536))
    check_fields(long.SerializeToString(), limits)
    many = request_type()
    for _ in range(50_000):
        many.message_queue.broker.endpoints.addresses.add()
    with pytest.raises(GrpcError, match="beside its longest texts"):
        check_fields(many.SerializeToString(), limits)
