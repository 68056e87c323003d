"""What a request may have before it is parsed."""

from __future__ import annotations

import gzip
import random

import pytest

from rocketmq_tw.proxy.grpc.fields import check_fields
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus, RequestLimits, Unary
from rocketmq_tw.proxy.proto import messages as pb
from tests.support.http2 import GrpcInMemory, framed


def has_few_fields(data: bytes, most: int) -> bool:
    try:
        check_fields(data, RequestLimits(fields=most))
    except GrpcError:
        return False
    return True


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


def message(body: int, keys: int) -> pb.Message:
    made = pb.Message(body=b"x" * body)
    made.system_properties.keys.extend([""] * keys)
    return made


@pytest.mark.parametrize(
    ("messages", "is_taken"),
    [
        ([message(3_000_000, 100)], True),
        ([message(2_000, 100)] * 1024, True),
        ([message(0, 200_000)], False),
        ([message(3_000_000, 200_000)], False),
        ([message(0, 500)] * 1024, False),
        ([message(0, 20_000)] * 30, False),
    ],
)
def test_long_bodies_are_taken_and_many_small_fields_are_not(
    messages: list[pb.Message], is_taken: bool
) -> None:
    asked: list[int] = []

    def take(request: pb.SendMessageRequest, call: object) -> pb.SendMessageResponse:
        asked.append(len(request.messages))
        return pb.SendMessageResponse()

    limits = RequestLimits(bulk=(1, 4), beside=300_000)
    server = GrpcInMemory({"/t/Send": Unary(pb.SendMessageRequest, take, limits)})
    client = server.connect()
    packed = gzip.compress(pb.SendMessageRequest(messages=messages).SerializeToString())
    stream, response = client.open("/t/Send", {"grpc-encoding": "gzip"})
    client.send(stream, framed(packed, compressed=True), end=True)
    server.settle(100)
    expected = GrpcStatus.OK if is_taken else GrpcStatus.INVALID_ARGUMENT
    assert (response.status, len(asked)) == (expected, int(is_taken))


def test_fields_within_messages_are_looked_at_up_to_a_number() -> None:
    properties = {str(number): "value" for number in range(100)}
    request = pb.SendMessageRequest(messages=[pb.Message(user_properties=properties)] * 1000)
    limits = RequestLimits(bulk=(1, 4))
    with pytest.raises(GrpcError, match="fields in its messages"):
        check_fields(request.SerializeToString(), limits)
