"""Answers that are put together from many messages are ones that clients take: they end at 4 MiB,
unless their first message alone is larger."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import PeekMessageRequestHeader
from rocketmq_tw.wire.headers.pull import QueryMessageRequestHeader
from tests.support.broker import BrokerInMemory, messages_of, ok
from tests.support.pops import Popper, pass_time

MIB = 1 << 20
#: Bytes of all messages of an answer, and what their records have beside the bodies.
MOST = 4 * MIB + 1000


def with_messages(sizes: list[int], *, queues: int, **settings: Any) -> BrokerInMemory:
    """A broker whose queues have bodies of `sizes` in turn, with the key `all` and the tag `a`."""
    store = {
        "mapped_file_size_commit_log": 64 * MIB,
        "max_message_size": 12 * MIB,
        "max_transfer_bytes_on_message_in_memory": 64 * MIB,
        "max_transfer_count_on_message_in_memory": 64,
    }
    broker = BrokerInMemory(broker=settings, **store)
    broker.add_topic("Topic", read_queue_nums=queues, write_queue_nums=queues)
    for number, size in enumerate(sizes):
        body = bytes([number]) * size
        ok(broker.send(body, queue_id=number % queues, properties={"KEYS": "all", "TAGS": "a"}))
    return broker


def pops(popper: Popper, **fields: Any) -> Iterator[list[int]]:
    """The numbers of the messages of each pop, until there are none."""
    while True:
        answer = popper.ask(**fields)
        assert answer is not None
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer
            return
        messages = popper.messages(answer)
        assert len(answer.body) <= MOST or len(messages) == 1, len(answer.body)
        popper.ack(*messages)
        yield [message.body[0] for message in messages]


@pytest.mark.parametrize("exp", ["*", "a || b"])
def test_a_pop_of_any_queue(exp: str) -> None:
    broker = with_messages([MIB] * 12, queues=12)
    popper = Popper(broker, exp=exp)
    found = list(pops(popper))
    assert [len(numbers) for numbers in found] == [3, 3, 3, 3], "4 MiB are no room for 4 records"
    assert sorted(chain(*found)) == list(range(12))
    pass_time(broker, 70)
    assert list(pops(popper)) == [], "what was left out is not hidden, and comes once"


@pytest.mark.parametrize("order", [False, True])
def test_4_mib_in_each_of_32_queues_come_over_the_wire(order: bool) -> None:
    """All of them are 128 MiB, and a frame has 16."""
    broker = with_messages([4 * MIB] * 32, queues=32)
    popper, client = Popper(broker, order=order), broker.network.client("10.0.0.9")
    found: list[int] = []
    for _ in range(100):
        answers: list[RemotingCommand] = []
        client.request(broker.address, popper.request(), 5.0).addCallback(answers.append)
        for _ in range(1000):
            if answers:
                break
            # The network takes 64 KiB at a time.
            broker.clock.advance(0)
        (answer,) = answers
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            break
        assert len(answer.body) < 16 * MIB
        messages = popper.messages(answer)
        popper.ack(*messages)
        found += [message.body[0] for message in messages]
    assert sorted(found) == list(range(32))
    pass_time(broker, 70)
    assert list(pops(popper)) == []


def test_what_a_pop_leaves_out_is_told_and_wakes_another_one() -> None:
    broker = with_messages([], queues=2)
    one, other = (Popper(broker, poll_time=9_000) for _ in range(2))
    assert one.ask() is None and other.ask() is None
    for number in range(2):
        broker.request(broker.send_request(bytes(3 * MIB), queue_id=number))
    broker.clock.pump([0] * 5)
    replies = one.peer.replies + other.peer.replies
    assert [len(one.messages(reply)) for reply in replies] == [1, 1]


def test_a_message_that_is_larger_comes_alone() -> None:
    broker = with_messages([MIB, 10 * MIB, MIB], queues=3)
    found = list(pops(Popper(broker)))
    assert [1] in found and sorted(chain(*found)) == [0, 1, 2]


def test_a_pop_of_one_queue() -> None:
    broker = with_messages([MIB] * 6, queues=1)
    assert list(pops(Popper(broker), queue_id=0)) == [[0, 1, 2], [3, 4, 5]]


def test_what_is_not_given_out_is_not_counted() -> None:
    broker = with_messages([3 * MIB, 3 * MIB], queues=2)
    popper = Popper(broker)
    popper.ask()
    counted = [
        figure.value
        for figure in broker.broker.metrics()
        if figure.name == "rocketmq_messages_out_total"
    ]
    assert sum(counted) == 1  # type: ignore[arg-type]


def test_an_orderly_pop() -> None:
    broker = with_messages([MIB] * 12, queues=12)
    found = list(pops(Popper(broker), order=True))
    assert sorted(chain(*found)) == list(range(12))


def test_messages_that_come_again() -> None:
    broker = with_messages([MIB] * 6, queues=6)
    popper = Popper(broker, invisible_time=5_000)
    for _ in range(3):
        popper.ask()
    pass_time(broker, 9)
    assert sorted(chain(*pops(popper))) == list(range(6))


def test_a_pull() -> None:
    broker = with_messages([MIB] * 6 + [10 * MIB], queues=1)
    found = []
    offset = 0
    while offset < 7:
        answer = broker.pull(offset, max_msg_bytes=64 * MIB, max_msg_nums=64)
        assert answer is not None
        messages = messages_of(answer.body)
        found.append(len(messages))
        offset = int(ok(answer)["nextBeginOffset"])
    assert found == [3, 3, 1]


def test_a_peek() -> None:
    broker = with_messages([200_000] * 2 + [10 * MIB] * 2, queues=4)
    broker.add_topic("Topic", read_queue_nums=6, write_queue_nums=6)
    Popper(broker)
    header = PeekMessageRequestHeader(
        consumer_group="G", topic="Topic", queue_id=-1, max_msg_nums=32
    )
    for _ in range(20):
        answer = broker.request(RemotingCommand.request(RequestCode.PEEK_MESSAGE, header))
        assert answer is not None
        messages = messages_of(answer.body)
        assert len(messages) == 1 or len(answer.body) < 256 * 1024
        assert ok(answer)["restNum"] == "4"


def queried(broker: BrokerInMemory, key: str, *, is_id: bool = False) -> int:
    """How many messages the answer to a query has."""
    header = QueryMessageRequestHeader(
        topic="Topic", key=key, max_num=64, begin_timestamp=0, end_timestamp=1 << 60
    )
    request = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header)
    if is_id:
        request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    answer = broker.request(request)
    assert answer is not None
    found = len(messages_of(answer.body))
    assert len(answer.body) <= MOST or found == 1
    return found


def test_a_query_by_key() -> None:
    assert queried(with_messages([MIB] * 6, queues=1), "all") == 3


def test_a_query_by_key_of_messages_that_are_larger() -> None:
    assert queried(with_messages([10 * MIB] * 2, queues=1), "all") == 1


@pytest.mark.parametrize(("size", "most"), [(MIB, 3), (10 * MIB, 1)])
def test_a_query_by_an_id_that_many_messages_have(size: int, most: int) -> None:
    """No request names several ids: this one answers with all that have one, as those do that were
    sent again."""
    broker = with_messages([], queues=1)
    for _ in range(6):
        ok(broker.send(bytes(size), properties={"UNIQ_KEY": "sent-again"}))
    assert queried(broker, "sent-again", is_id=True) == most
