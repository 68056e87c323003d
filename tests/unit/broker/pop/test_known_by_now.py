"""What became of a popped message is known when it is asked for, however much of its revive queue
was not read yet."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from rocketmq_tw.broker.pop import revival
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import REVIVE, Popper, pass_time

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


def hide_later(site: Site) -> list[RemotingCommand]:
    """Asks for a message to be hidden again, which is not answered yet; the answers."""
    site.popper.peer.replies.clear()
    request = site.popper.hide_request(site.message, 5_000)
    assert site.broker.request(request, site.popper.peer) is None
    return site.popper.peer.replies


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_it_is_known_what_no_queue_has_yet(is_acknowledged: bool) -> None:
    """As on a master whose slaves have not confirmed the last records."""
    site = Site(0)
    site.broker.store.dispatch_limit = site.broker.store.end_offset
    other = Popper(site.broker, group="Others")
    (message,) = other.pop()
    if is_acknowledged:
        other.ack(message)
    for _ in range(2):
        answer = site.answer(other.hide_request(message, 5_000))
        wanted = ResponseCode.NO_MESSAGE if is_acknowledged else ResponseCode.SUCCESS
        assert answer.code == wanted
        # The first handle is void by then.
        is_acknowledged = True
        pass_time(site.broker, 3)


def test_of_two_requests_that_wait_the_first_is_carried_out() -> None:
    site = standing_still()
    requests = [site.popper.hide_request(site.message, 5_000) for _ in range(2)]
    site.popper.peer.replies.clear()
    for request in requests:
        assert site.broker.request(request, site.popper.peer) is None
    go_on(site)
    codes = sorted(answer.code for answer in site.popper.peer.replies)
    assert codes == [ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE]
    pass_time(site.broker, 10)
    assert site.popper.bodies().count(b"popped") == 1


def test_what_is_acknowledged_while_a_request_waits_is_not_hidden() -> None:
    site = standing_still()
    answers = hide_later(site)
    site.popper.ack(site.message)
    go_on(site)
    assert [answer.code for answer in answers] == [ResponseCode.NO_MESSAGE]


def test_who_waits_for_long_is_to_ask_again() -> None:
    site = standing_still()
    answers = hide_later(site)
    pass_time(site.broker, 2.25)
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_BUSY]
    assert "ask again" in (answers[0].remark or "")


def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revival, "_MOST_ASKING", 2)
    site = standing_still()
    for _ in range(2):
        hide_later(site)
    answer = site.broker.request(site.popper.hide_request(site.message, 5_000))
    assert answer is not None and answer.code == ResponseCode.SYSTEM_BUSY


def test_who_waits_when_the_role_ends_is_told_so() -> None:
    """And not that the message was acknowledged."""
    site = standing_still()
    answers = hide_later(site)
    site.broker.become(RoleState(Role.SLAVE, 1))
    pass_time(site.broker, 1)
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE]


def test_it_is_known_again_behind_more_than_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revival, "_MOST_UNREAD", 20)
    site = Site(30)
    site.popper.ack(site.message)
    site.go_by()
    assert site.answer(site.popper.hide_request(site.message, 5_000)).code == 208
    pass_time(site.broker, 3)
    assert site.answer(site.popper.hide_request(site.message, 5_000)).code == 208


@pytest.mark.parametrize("lags", [False, True])
def test_many_that_ask_as_a_role_begins_read_once(monkeypatch, lags: bool) -> None:
    site = standing_still() if lags else Site(500)
    site.go_by()
    if not lags:
        begin_anew(site)
    reads: list[Any] = []
    read_queue = site.broker.store.read_queue

    def read(*place: Any, **more: Any) -> Any:
        reads.append(place)
        return read_queue(*place, **more)

    monkeypatch.setattr(site.broker.store, "read_queue", read)
    for _ in range(200):
        site.broker.request(site.popper.hide_request(site.message, 5_000))
    # 32 of 1,000 records each time.
    assert len(reads) < (5 if lags else 60)


def test_what_is_popped_in_this_role_is_known_though_a_queue_cannot_be_read(monkeypatch) -> None:
    site = Site(0)
    begin_anew(site)
    read_queue, reads = site.broker.store.read_queue, []

    def read(topic: str, *place: Any, **more: Any) -> Any:
        if topic == REVIVE:
            reads.append(place)
            raise OSError(errno.EIO, "the disk cannot be read")
        return read_queue(topic, *place, **more)

    monkeypatch.setattr(site.broker.store, "read_queue", read)
    for _ in range(20):
        hide_later(site)
    assert len(reads) == 1
    new = Popper(site.broker, group="New")
    (message,) = new.pop()
    assert new.hide(message, 5_000).extra_info != message.extra_info


def test_names_of_one_millisecond_are_all_different() -> None:
    site = Site(0)
    handles = [site.message]
    for _ in range(4):
        answer = site.answer(site.popper.hide_request(handles[-1], 5_000))
        handles.append(site.popper.hidden(handles[-1], answer))
    assert len({handle.extra_info for handle in handles}) == 5
    site.popper.ack(handles[-1])
    pass_time(site.broker, 20)
    assert site.popper.bodies() == []


def test_a_client_s_words_are_no_properties_of_a_record() -> None:
    site = Site(0)
    parts = site.message.extra_info.split(" ")
    parts[5] = "x\x02TAGS\x01back\x02y\x01"
    forged = site.message._replace(extra_info=" ".join(parts))
    assert site.answer(site.popper.ack_request(forged)).code == ResponseCode.SUCCESS
    tags = [each.properties["TAGS"] for each in site.broker.consume(REVIVE)]
    assert tags == ["ck", "ack"]


def standing_still() -> Site:
    """A broker that has been the master before, and whose queues do not get the last records."""
    site = Site(0)
    site.broker.store.dispatch_limit = site.broker.store.end_offset
    ok(site.broker.send(b"not in a queue yet"))
    begin_anew(site)
    return site


def begin_anew(site: Site) -> None:
    """It is no master for a moment."""
    site.broker.become(RoleState(Role.ISOLATED, 1))
    site.broker.become(RoleState(Role.MASTER, 0))


def go_on(site: Site) -> None:
    """Has the queues get all."""
    site.broker.store.dispatch_limit = None
    site.broker.broker[Writing].dispatcher.dispatch()
    pass_time(site.broker, 1.5)
