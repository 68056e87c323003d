"""New expressions of many connections are compiled a few in each turn."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from weakref import ref

import pytest

from rocketmq_tw.broker.filters import compile_budget
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.message.sql92 import compiled
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import CheckClientBody, ConsumeQueueBody, SubscriptionData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pull import QueryConsumeQueueRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.interpreter import free_as_cpython_has
from tests.support.network import FakePeer
from tests.support.pops import Popper

LENGTH = 1_900


class Counted:
    """A broker, and how many characters of expressions were read so far."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.characters = 0
        make = compiled._compile

        def counted(text: str) -> Any:
            self.characters += len(text)
            return make(text)

        monkeypatch.setattr(compiled, "_compile", counted)
        monkeypatch.setattr(compiled, "_memory", compiled._Memory(1 << 18))
        self.broker = BrokerInMemory(broker={"enable_property_filter": True})
        self.broker.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        ok(self.broker.send(b"one", properties={"a": "1"}))

    def ask(self, request: RemotingCommand, peer: FakePeer | None = None) -> Any:
        """What the handler returns in this turn."""
        return self.broker.handlers[request.code](request, peer or self.broker.peer)

    def turn(self) -> int:
        """One turn of the reactor; returns the characters that it read."""
        before, clock = self.characters, self.broker.clock
        for call in list(clock.calls):
            if call.getTime() <= clock.seconds() and call in clock.calls:
                clock.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
        return self.characters - before


def expression(number: int) -> str:
    return f"a <> '{number}' AND b IS NULL OR c = '{'x' * LENGTH}'"[:LENGTH] + "'"


def test_checks_of_many_connections_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    peers = [FakePeer(f"127.0.0.1:{port}") for port in range(20_000, 20_030)]
    late = []
    for number, peer in enumerate(peers):
        data = SubscriptionData(
            topic="Topic", sub_string=expression(number), expression_type="SQL92"
        )
        body = encode_body(CheckClientBody(client_id="c", group="G", subscription_data=data))
        request = RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body)
        answer = counted.broker.handlers[request.code](request, peer)
        late += [peer] if answer is None else []
    assert len(late) == 28 and counted.characters <= 2 * (LENGTH + 1)
    read = [counted.turn() for _ in range(20)]
    assert max(read) <= 2 * (LENGTH + 1) and sum(map(bool, read)) == 14
    for peer in late:
        (reply,) = peer.replies
        assert reply.code == ResponseCode.SUCCESS


def test_pulls_and_pops_wait_for_their_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    broker = counted.broker
    poppers = [Popper(broker, group=f"G{n}", exp=expression(n), exp_type="SQL92") for n in range(6)]
    for popper in poppers:
        counted.ask(popper.request(), popper.peer)
    fields = {"expression_type": "SQL92"}
    assert counted.ask(broker.pull_request(subscription=expression(50), **fields)) is None
    assert counted.ask(broker.pull_request(subscription=expression(0), **fields)), "it is known"
    assert counted.characters == 2 * (LENGTH + 1)
    read = [counted.turn() for _ in range(6)]
    assert max(read) <= 2 * (LENGTH + 1)
    assert counted.characters == 7 * (LENGTH + 1)
    for popper in poppers[2:]:
        (reply,) = popper.peer.replies
        assert [message.body for message in popper.messages(reply)] == [b"one"]
    assert broker.peer.replies[-1].code == ResponseCode.SUCCESS


def test_slow_reads_of_many_connections_take_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    broker = counted.broker
    slow = " OR ".join(f"a = '{number}'" for number in range(100))
    peers = [FakePeer(f"127.0.0.1:{port}") for port in range(20_000, 20_020)]
    counted.turn()
    compiled.compile_expression(slow)
    answers = [
        counted.ask(broker.pull_request(subscription=slow, expression_type="SQL92"), peer)
        for peer in peers
    ]
    assert sum(answer is not None for answer in answers) == 2
    answered = []
    for _ in range(12):
        counted.turn()
        answered.append(sum(len(peer.replies) for peer in peers))
    assert max(after - before for before, after in pairwise([0, *answered])) == 2
    assert answered[-1] == 18
    assert all(reply.code == ResponseCode.SUCCESS for peer in peers for reply in peer.replies)


def test_a_subscription_that_is_read_first_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    broker = counted.broker
    broker.subscribe(
        "G", broker.peer, topic="Topic", sub_string=expression(3), expression_type="SQL92"
    )
    budget = broker.broker[Filters].filters.budget
    budget._left = 0
    budget._postponed.schedule()
    assert counted.ask(broker.pull_request(sys_flag=0)) is None
    assert not counted.characters
    assert counted.turn() == LENGTH + 1
    assert broker.peer.replies[-1].code == ResponseCode.SUCCESS


def test_what_a_subscription_is_shown_with_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """321 is the first who asks for what the groups' heartbeats brought."""
    counted = Counted(monkeypatch)
    broker = counted.broker
    asked = []
    for number in range(8):
        group, peer = f"G{number}", FakePeer(f"127.0.0.1:{20_000 + number}")
        broker.subscribe(
            group, peer, topic="Topic", sub_string=expression(number), expression_type="SQL92"
        )
        header = QueryConsumeQueueRequestHeader(
            topic="Topic", queue_id=0, consumer_group=group, count=9
        )
        asked.append((RemotingCommand.request(RequestCode.QUERY_CONSUME_QUEUE, header), peer))
    answers = [counted.ask(request, peer) for request, peer in asked]
    assert [answer is not None for answer in answers] == [True] * 2 + [False] * 6
    assert counted.characters == 2 * (LENGTH + 1)
    assert [counted.turn() for _ in range(4)] == [2 * (LENGTH + 1)] * 3 + [0]
    for number, (answer, (_, peer)) in enumerate(zip(answers, asked, strict=True)):
        (reply,) = [answer] if answer else peer.replies
        body = decode_body(ConsumeQueueBody, reply.body)
        assert f"a <> '{number}'" in (body.filter_data or "")
        assert len(body.queue_data) == 1


def test_connections_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_budget, "CHARACTERS_PER_TURN", 1)
    counted = Counted(monkeypatch)
    budget = counted.broker.broker[Filters].filters.budget
    done: list[str] = []

    def work(name: str) -> None:
        budget.admit(name)
        compiled.compile_expression(name)
        done.append(name)

    flooding, other, gone = FakePeer("127.0.0.1:1"), FakePeer("127.0.0.1:2"), FakePeer()
    for name in ("a = 1", "a = 2", "a = 3"):
        budget.postpone(flooding, lambda name=name: work(name))
    budget.postpone(gone, lambda: work("a = 9"))
    budget.postpone(other, lambda: work("b = 1"))
    gone.lose()
    budget.postpone(other, lambda: 1 / 0)
    for _ in range(8):
        counted.turn()
    assert done == ["a = 1", "b = 1", "a = 2", "a = 3"]


def test_what_a_lost_connection_asked_for_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn would come late where many connections come and go, and nobody counts it."""
    budget = Counted(monkeypatch).broker.broker[Filters].filters.budget
    peer = FakePeer()

    class Asked:
        """What a request is kept by."""

        def work(self) -> None:
            raise AssertionError("nobody waits for it")

    asked = Asked()
    kept = ref(asked)
    for _ in range(20):
        budget.postpone(peer, asked.work)
    peer.lose()
    budget.postpone(peer, asked.work)
    del asked
    free_as_cpython_has()
    assert kept() is None


def test_a_held_pull_is_resumed_though_its_expression_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    broker = counted.broker
    pull = broker.pull_request(1, subscription="a = 2", expression_type="SQL92", suspend_ms=15_000)
    assert counted.ask(pull) is None and len(broker.held_pulls) == 1
    budget = broker.broker[Filters].filters.budget
    refusals = [compile_budget.BudgetSpent, compile_budget.BudgetSpent]

    def admit(text: str) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(budget, "admit", admit)
    ok(broker.send(b"two", properties={"a": "2"}))
    for _ in range(3):
        counted.turn()
    assert not refusals
    assert broker.peer.replies[-1].code == ResponseCode.SUCCESS
