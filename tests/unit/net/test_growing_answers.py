"""How many answers about large tables may wait to be made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.net.growing_answers import MOST_WAITING_ANSWERS, GrowingAnswers
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError


def large(body: list[int]) -> Iterator[None]:
    body.append(1)
    yield
    body.append(2)


def small(body: list[int]) -> Iterator[None]:
    body.append(1)
    yield from ()


def test_what_waits_to_be_made_is_bounded() -> None:
    # None of them ends: clients may be gone, and their requests are kept all the same.
    growing = GrowingAnswers(lambda steps: Deferred(), lambda work: Deferred())
    request = RemotingCommand.request(RequestCode.GET_BROKER_CONSUME_STATS)
    for _ in range(1 + MOST_WAITING_ANSWERS):
        assert isinstance(growing.answer(request, list, large), Deferred)
    with pytest.raises(RequestError) as refused:
        growing.answer(request, list, large)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    answer = growing.answer(request, list, small)
    assert isinstance(answer, RemotingCommand) and answer.body == b"[1]"


@pytest.mark.parametrize("waiting", [0, 1 + MOST_WAITING_ANSWERS])
def test_the_first_try_of_a_large_answer_is_ended_at_once(waiting: int) -> None:
    """Not when the collector comes to it: it may hold a file."""
    growing = GrowingAnswers(lambda steps: Deferred(), lambda work: Deferred())
    request = RemotingCommand.request(RequestCode.GET_BROKER_CONSUME_STATS)
    for _ in range(waiting):
        growing.answer(request, list, large)
    tries: list[Iterator[None]] = []
    ended = []

    def steps() -> Iterator[None]:
        try:
            yield
        finally:
            ended.append(True)

    def fill(body: list[int]) -> Iterator[None]:
        # Kept, as a collector without reference counts keeps it.
        tries.append(steps())
        return tries[-1]

    with suppress(RequestError):
        growing.answer(request, list, fill)
    assert ended == [True]
