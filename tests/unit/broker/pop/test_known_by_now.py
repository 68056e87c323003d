"""What became of a popped message is known when it is asked for, however much of its revive queue
was not read yet."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import Popper, pass_time

#: Messages of others that are popped and acknowledged meanwhile: a read brings 32 records.
OTHERS = [0, 50, 1000]


class Site:
    """A broker with one revive queue, and a group that has popped one message."""

    def __init__(self, others: int, *, is_read: bool = True) -> None:
        self.broker = BrokerInMemory(
            broker={"revive_queue_num": 1}, mapped_file_size_consume_queue=200_000
        )
        self.broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
        if is_read:
            pass_time(self.broker, 5)
        self.others = others
        self.popper = Popper(self.broker)
        ok(self.broker.send(b"popped"))
        (self.message,) = self.popper.pop()

    def go_by(self) -> None:
        """Others pop and acknowledge, before the revive queue is read."""
        group = Popper(self.broker, group="Others")
        for _ in range(self.others):
            ok(self.broker.send(b"other"))
            group.ack(*group.pop(max_msg_nums=1))

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """The answer to a request, which may be held for some turns."""
        self.popper.peer.replies.clear()
        answer = self.broker.request(request, self.popper.peer)
        for _ in range(200):
            if answer is not None:
                return answer
            if self.popper.peer.replies:
                return self.popper.peer.replies.pop()
            self.broker.clock.advance(0)
        raise AssertionError("it is not answered")


@pytest.fixture(params=OTHERS)
def site(request: Any) -> Site:
    return Site(request.param)


def test_what_is_acknowledged_is_not_hidden(site: Site) -> None:
    site.popper.ack(site.message)
    site.go_by()
    answer = site.answer(site.popper.hide_request(site.message, 5_000))
    assert (answer.code, "it was acknowledged" in (answer.remark or "")) == (
        ResponseCode.NO_MESSAGE,
        True,
    )
    pass_time(site.broker, 70)
    assert site.popper.bodies(max_msg_nums=1) != [b"popped"]


def test_what_is_acknowledged_as_a_role_begins_is_not_hidden() -> None:
    site = Site(0, is_read=False)
    site.popper.ack(site.message)
    assert site.answer(site.popper.hide_request(site.message, 5_000)).code == 208


def test_what_is_hidden_anew_is_not_hidden_by_its_first_name(site: Site) -> None:
    later = site.popper.hide(site.message, 30_000)
    site.go_by()
    assert site.answer(site.popper.hide_request(site.message, 5_000)).code == 208
    again = site.answer(site.popper.hide_request(later, 20_000))
    assert again.code == ResponseCode.SUCCESS


def test_what_waits_is_hidden(site: Site) -> None:
    site.go_by()
    assert site.answer(site.popper.hide_request(site.message, 5_000)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("is_batch", [False, True])
def test_another_group_cannot_acknowledge_it(site: Site, is_batch: bool) -> None:
    site.go_by()
    other = Popper(site.broker, group="H")
    request = other.batch_ack_request(site.message) if is_batch else other.ack_request(site.message)
    answer = site.answer(request)
    assert answer.code == ResponseCode.NO_MESSAGE
    assert "H did not pop the message" in (answer.remark or "")


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_late_acknowledgement_is_taken(site: Site, is_batch: bool) -> None:
    site.popper.ack(site.message)
    site.go_by()
    request = (
        site.popper.batch_ack_request(site.message)
        if is_batch
        else site.popper.ack_request(site.message)
    )
    assert site.answer(request).code == ResponseCode.SUCCESS


def test_it_is_asked_for_what_no_queue_has_yet() -> None:
    """As on a master whose slaves have not confirmed the last records."""
    site = Site(0)
    site.broker.store.dispatch_limit = site.broker.store.end_offset
    site.popper.ack(site.message)
    request = site.popper.hide_request(site.message, 5_000)
    site.popper.peer.replies.clear()
    assert site.broker.request(request, site.popper.peer) is None
    pass_time(site.broker, 1)
    assert site.popper.peer.replies == []
    site.broker.store.dispatch_limit = None
    site.broker.broker[Writing].dispatcher.dispatch()
    site.broker.clock.advance(0)
    assert [answer.code for answer in site.popper.peer.replies] == [ResponseCode.NO_MESSAGE]
