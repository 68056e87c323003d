"""What a request may have before it is parsed."""

from __future__ import annotations

import random

import pytest

from rocketmq_tw.proxy.grpc.fields import has_few_fields
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus, RequestLimits, Unary
from rocketmq_tw.proxy.proto import messaging_pb2 as pb
from tests.support.http2 import GrpcInMemory, framed


def entries(count: int) -> bytes:
    request = pb.AckMessageRequest(group=pb.Resource(name="G"), topic=pb.Resource(name="T"))
    for number in range(count):
        request.entries.add(message_id=str(number), receipt_handle="x" * (number % 300))
    data: bytes = request.SerializeToString()
    return data


@pytest.mark.parametrize(("count", "few"), [(0, True), (98, True), (99, False), (5000, False)])
def test_fields_are_counted(count: int, few: bool) -> None:
    assert has_few_fields(entries(count), 100) is few


def test_all_kinds_of_fields_are_passed_over() -> None:
    numbers = b"\x08\xff\xff\x03" + b"\x11" + bytes(8) + b"\x1d" + bytes(4)
    assert has_few_fields(numbers, 3)
    assert not has_few_fields(numbers * 2, 3)
    # A group.
    assert not has_few_fields(b"\x0b\x0c", 3)


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_end(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        has_few_fields(chance.randbytes(chance.randrange(40)), 10)
    assert not has_few_fields(b"\xff" * 1000, 1)


def test_a_request_with_too_much_is_not_parsed() -> None:
    asked: list[int] = []

    def take(request: pb.AckMessageRequest, call: object) -> pb.AckMessageResponse:
        asked.append(len(request.entries))
        return pb.AckMessageResponse()

    limits = RequestLimits(largest=1 << 20, fields=1026)
    server = GrpcInMemory({"/t/Ack": Unary(pb.AckMessageRequest, take, limits)})
    client = server.connect()
    responses = []
    for request in (entries(1024), b"\x1a\x00" * 100_000):
        responses.append(client.call("/t/Ack", request))
        server.settle(100)
    # One that is too large is refused by its first bytes.
    stream, response = client.open("/t/Ack")
    client.send(stream, framed(b"\x1a\x00" * 600_000)[:1000])
    server.settle()
    assert [response.status for response in (*responses, response)] == [
        GrpcStatus.OK,
        GrpcStatus.INVALID_ARGUMENT,
        GrpcStatus.RESOURCE_EXHAUSTED,
    ]
    assert asked == [1024]
