"""Expressions of SQL92 that were not met before are read a few in each turn."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.broker.filters.compile_budget import CompileBudget
from rocketmq_tw.message.sql92 import is_remembered
from rocketmq_tw.proxy.messaging.expressions import (
    MAX_TAGS,
    Expressions,
    WantedMessages,
    wanted_messages,
)
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto import messages as pb
from tests.support.proxy import FakeCall
from tests.support.traced_memory import traced_memory


def sql(name: str, number: int) -> pb.FilterExpression:
    return pb.FilterExpression(type=pb.SQL, expression=f"{name} = '{number:01900}'")


class Reader:
    """Calls whose expressions are read; `read` are the names of the calls, in order."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.expressions = Expressions(CompileBudget(self.clock))
        self.read: list[str] = []

    def begin(
        self, name: str, address: str, expression: pb.FilterExpression
    ) -> tuple[FakeCall, Deferred[Any]]:
        call = FakeCall()
        call.address = address

        def done(wanted: WantedMessages) -> None:
            self.read.append(name)

        reading = Deferred.fromCoroutine(self.expressions.wanted(expression, call))
        return call, reading.addCallback(done)


def test_connections_take_turns() -> None:
    reader = Reader()
    for number in range(4):
        reader.begin(f"first-{number}", "10.0.0.1:1", sql("turns", number))
    reader.begin("second", "10.0.0.2:1", sql("turns", 9))
    assert reader.read == ["first-0", "first-1"]
    reader.clock.advance(0)
    assert reader.read == ["first-0", "first-1", "first-2", "second", "first-3"]


def test_what_is_known_and_tags_wait_for_nothing() -> None:
    reader = Reader()
    for number in range(3):
        reader.begin(f"{number}", "10.0.0.1:1", sql("known", number))
    reader.begin("again", "10.0.0.1:1", sql("known", 0))
    reader.begin("tag", "10.0.0.1:1", pb.FilterExpression(type=pb.TAG, expression="a"))
    assert reader.read == ["0", "1", "again", "tag"]


def test_nothing_is_read_for_a_call_that_is_over() -> None:
    reader, late = Reader(), sql("over", 2)
    for number in range(2):
        reader.begin(f"{number}", "10.0.0.1:1", sql("over", number))
    call, reading = reader.begin("over", "10.0.0.1:1", late)
    call.finish()
    failures: list[Any] = []
    reading.addErrback(failures.append)
    reader.clock.advance(0)
    assert failures[0].check(StatusError)
    assert not is_remembered(late.expression)


def test_settings_leave_to_receives_what_there_is_no_time_for() -> None:
    reader = Reader()
    wrong = pb.FilterExpression(type=pb.SQL, expression="settings >")
    with pytest.raises(StatusError):
        reader.expressions.check(wrong)
    reader.expressions.check(sql("settings", 0)), reader.expressions.check(sql("settings", 1))
    reader.expressions.check(pb.FilterExpression(type=pb.SQL, expression="settings < "))


def test_an_expression_has_so_many_tags_at_most() -> None:
    reader = Reader()
    most = "||".join(["a"] * MAX_TAGS)
    reader.begin("most", "10.0.0.1:1", pb.FilterExpression(type=pb.TAG, expression=most))
    _, refused = reader.begin(
        "more", "10.0.0.1:1", pb.FilterExpression(type=pb.TAG, expression=most + "||a")
    )
    failures: list[Any] = []
    refused.addErrback(failures.append)
    assert reader.read == ["most"]
    assert failures[0].check(StatusError)
    assert "4097 tags" in str(failures[0].value)


def test_a_receive_that_waits_holds_no_more_than_the_text() -> None:
    """What a long expression is parsed to takes thirty times its memory."""
    text = "||".join(f"tag-{number}" for number in range(MAX_TAGS))
    with traced_memory() as traced:
        waiting = [
            wanted_messages(pb.FilterExpression(type=pb.TAG, expression=text)) for _ in range(20)
        ]
        held = traced.held
    assert held < 20 * 2 * len(text)
    assert waiting[0].matches("tag-7") and not waiting[0].matches("tag")
