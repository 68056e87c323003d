"""PullMessage, GetOffset, QueryOffset and UpdateOffset, before the real broker in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus
from rocketmq_tw.proxy.messaging.pulling import MAX_PULLED
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Code, PullMessageRequest
from tests.support.broker import START_MS
from tests.support.proxy import FakeCall
from tests.support.receiving import SERVICE, ReceivingWorld


def queue(topic: str = "Topic", broker: str = "broker-a", queue_id: int = 0) -> pb.MessageQueue:
    return pb.MessageQueue(
        topic=pb.Resource(name=topic), broker=pb.Broker(name=broker), id=queue_id
    )


def with_messages(count: int = 3, **config: Any) -> ReceivingWorld:
    world = ReceivingWorld(**config)
    for number in range(count):
        world.send(b"%d" % number, tag="A" if number % 2 else "B")
    return world


def zstd(body: bytes) -> bytes:
    return compress(body, CompressionType.ZSTD)


def begin(world: ReceivingWorld, call: FakeCall, **fields: Any) -> Deferred[None]:
    request = {
        "group": pb.Resource(name="G"),
        "message_queue": queue(),
        "batch_size": 32,
        **fields,
    }
    handler = world.methods[SERVICE + "PullMessage"].handler
    return Deferred.fromCoroutine(handler(PullMessageRequest(**request), call))


def pull(world: ReceivingWorld, **fields: Any) -> tuple[Any, list[bytes], int | None]:
    """Status, bodies and the next offset."""
    call = world.call()
    world.until(begin(world, call, **fields))
    return of(call)


def of(call: FakeCall) -> tuple[Any, list[bytes], int | None]:
    first, *rest = call.sent
    kinds = [response.WhichOneof("content") for response in rest]
    if not rest:
        return first.status, [], None
    assert kinds == ["message"] * (len(rest) - 1) + ["next_offset"]
    return first.status, [part.message.body for part in rest[:-1]], rest[-1].next_offset


class TestPull:
    def test_messages_from_an_offset_on(self) -> None:
        status, bodies, following = pull(with_messages(), offset=1)
        assert (status.code, bodies, following) == (Code.OK, [b"1", b"2"], 3)

    def test_a_message_has_no_receipt_handle(self) -> None:
        world, call = with_messages(1), None
        call = world.call()
        world.until(begin(world, call))
        system = call.sent[1].message.system_properties
        assert not system.HasField("receipt_handle")
        assert (system.message_id, system.queue_offset) == ("ID-0", 0)

    def test_new_expressions_of_sql92_take_several_turns(self) -> None:
        world = with_messages()
        ended = []
        for number in range(4):
            wanted = pb.FilterExpression(type=pb.SQL, expression=f"b = '{number:01500}'")
            ended.append(begin(world, world.call(), filter_expression=wanted))
        assert len(world.brokers.asked) == 2
        for done in ended:
            world.until(done)
        assert len(world.brokers.asked) == 4

    def test_as_many_as_were_asked_for(self) -> None:
        assert pull(with_messages(), batch_size=2)[1:] == ([b"0", b"1"], 2)

    def test_what_waits_for_a_slow_reader_is_counted(self) -> None:
        world = with_messages()
        call = world.call()
        call.ready = False
        done = begin(world, call)
        world.pass_time(1)
        all_of_them = call.held
        assert all_of_them > 0
        call.take()
        assert 0 < call.held < all_of_them
        call.go_on()
        world.until(done)
        assert call.held == 0
        assert of(call)[1] == [b"0", b"1", b"2"]

    def test_bodies_that_unpack_to_much_do_not_fill_the_memory(self) -> None:
        """1 KB each, 40 MiB unpacked; and 2 MiB, which a client may have all the same."""
        world = ReceivingWorld()
        bomb, large = (zstd(bytes(size << 20)) for size in (40, 2))
        for body in [bomb] * 4 + [large] * 4:
            world.broker.send(body, sys_flag=compression_flag(CompressionType.ZSTD))
        call = world.call()
        call.ready, call.most_held = False, 3 << 20
        done = begin(world, call)
        world.pass_time(1)
        assert call.held < 100_000
        call.go_on()
        world.until(done)
        assert of(call)[1] == [bomb] * 4 + [bytes(2 << 20)] * 4

    def test_an_unpacked_body_without_room_is_refused(self) -> None:
        world = ReceivingWorld()
        world.broker.send(zstd(bytes(2 << 20)), sys_flag=compression_flag(CompressionType.ZSTD))
        call = world.call()
        call.most_held = 2 << 20
        failed = world.until(begin(world, call)).value
        assert isinstance(failed, GrpcError)
        assert failed.status == GrpcStatus.RESOURCE_EXHAUSTED

    def test_the_end_of_the_queue(self) -> None:
        status, bodies, following = pull(with_messages(), offset=3)
        assert (status.code, bodies, following) == (Code.MESSAGE_NOT_FOUND, [], 3)

    def test_it_waits_for_a_message(self) -> None:
        world = with_messages()
        call = world.call()
        done = begin(world, call, offset=3, long_polling_timeout={"seconds": 10})
        world.pass_time(2)
        assert call.sent == []
        world.send(b"late")
        world.until(done)
        assert of(call)[1:] == ([b"late"], 4)

    def test_it_waits_no_longer_than_until_the_deadline(self) -> None:
        world = with_messages()
        call = world.call(seconds=3)
        done = begin(world, call, offset=3, long_polling_timeout={"seconds": 15})
        world.pass_time(3)
        assert done.called and of(call)[0].code == Code.MESSAGE_NOT_FOUND

    def test_a_filter(self) -> None:
        wanted = pb.FilterExpression(type=pb.TAG, expression="A")
        assert pull(with_messages(), filter_expression=wanted)[1:] == ([b"1"], 3)

    def test_a_filter_that_nothing_matches(self) -> None:
        wanted = pb.FilterExpression(type=pb.TAG, expression="Z")
        status, bodies, following = pull(with_messages(), filter_expression=wanted)
        assert (status.code, bodies, following) == (Code.MESSAGE_NOT_FOUND, [], 3)

    def test_an_offset_that_the_queue_does_not_have(self) -> None:
        status, bodies, following = pull(with_messages(), offset=99)
        assert (status.code, bodies, following) == (Code.ILLEGAL_OFFSET, [], 3)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"offset": -1}, Code.ILLEGAL_OFFSET),
            ({"batch_size": 0}, Code.BAD_REQUEST),
            ({"batch_size": MAX_PULLED + 1}, Code.BAD_REQUEST),
            ({"message_queue": queue(broker="")}, Code.BAD_REQUEST),
            ({"message_queue": queue(broker="broker-z")}, Code.BAD_REQUEST),
            ({"message_queue": queue(queue_id=-1)}, Code.BAD_REQUEST),
            ({"message_queue": queue(topic="")}, Code.ILLEGAL_TOPIC),
            ({"message_queue": queue(topic="Missing")}, Code.TOPIC_NOT_FOUND),
            ({"group": pb.Resource()}, Code.ILLEGAL_CONSUMER_GROUP),
            (
                {"filter_expression": pb.FilterExpression(type=pb.SQL, expression="a >")},
                Code.ILLEGAL_FILTER_EXPRESSION,
            ),
        ],
    )
    def test_what_cannot_be_pulled(self, fields: dict[str, Any], code: int) -> None:
        status = pull(with_messages(), **fields)[0]
        assert status.code == code, status
        assert status.message


class TestOffsets:
    def get(self, world: ReceivingWorld, group: str = "G", **fields: Any) -> Any:
        request = pb.GetOffsetRequest(group=pb.Resource(name=group), message_queue=queue(**fields))
        return world.ask("GetOffset", request)

    def update(self, world: ReceivingWorld, offset: int) -> Any:
        request = pb.UpdateOffsetRequest(
            group=pb.Resource(name="G"), message_queue=queue(), offset=offset
        )
        return world.ask("UpdateOffset", request)

    def query(self, world: ReceivingWorld, policy: int, **fields: Any) -> Any:
        request = pb.QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy, **fields)
        return world.ask("QueryOffset", request)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [({"topic": "Other"}, Code.TOPIC_NOT_FOUND), ({"queue_id": 1}, Code.BAD_REQUEST)],
    )
    def test_a_queue_that_is_not_there(self, fields: dict[str, Any], code: int) -> None:
        world = with_messages()
        wanted = queue(**fields)
        assert self.get(world, **fields).status.code == code
        query = pb.QueryOffsetRequest(message_queue=wanted, query_offset_policy=pb.END)
        assert world.ask("QueryOffset", query).status.code == code
        update = pb.UpdateOffsetRequest(group=pb.Resource(name="G"), message_queue=wanted, offset=1)
        assert world.ask("UpdateOffset", update).status.code == code

    def test_what_is_committed_is_found(self) -> None:
        world = with_messages()
        assert self.update(world, 2).status.code == Code.OK
        answer = self.get(world)
        assert (answer.status.code, answer.offset) == (Code.OK, 2)

    def test_nothing_is_committed(self) -> None:
        world = with_messages()
        assert self.get(world, group="Other", queue_id=0).status.code in (
            Code.OFFSET_NOT_FOUND,
            Code.OK,
        )

    def test_a_negative_offset(self) -> None:
        assert self.update(with_messages(), -1).status.code == Code.ILLEGAL_OFFSET

    def test_beginning_and_end(self) -> None:
        world = with_messages()
        assert self.query(world, pb.BEGINNING).offset == 0
        assert self.query(world, pb.END).offset == 3

    def test_a_time(self) -> None:
        world = with_messages()
        world.pass_time(10)
        world.send(b"later")
        at = {"seconds": START_MS // 1000 + 5}
        answer = self.query(world, pb.TIMESTAMP, timestamp=at)
        assert (answer.status.code, answer.offset) == (Code.OK, 3)

    @pytest.mark.parametrize("timestamp", [None, {"seconds": 1 << 60}])
    def test_a_time_that_is_none(self, timestamp: Any) -> None:
        status = self.query(with_messages(), pb.TIMESTAMP, timestamp=timestamp).status
        assert status.code == Code.BAD_REQUEST

    def test_a_policy_that_is_none(self) -> None:
        assert self.query(with_messages(), 9).status.code == Code.BAD_REQUEST

    def test_a_broker_that_is_not_known(self) -> None:
        status = self.get(with_messages(), broker="broker-z").status
        assert status.code == Code.BAD_REQUEST


def test_a_broker_that_filters_by_tags_only_refuses_sql92_as_the_client_s_mistake() -> None:
    world = with_messages(broker={"enable_property_filter": False})
    wanted = pb.FilterExpression(type=pb.SQL, expression="a > 1")
    for answer in (
        pull(world, filter_expression=wanted)[0],
        world.receive(filter_expression=wanted).status,
    ):
        assert answer.code == Code.ILLEGAL_FILTER_EXPRESSION
        assert "use tags, or set enablePropertyFilter=true" in answer.message
