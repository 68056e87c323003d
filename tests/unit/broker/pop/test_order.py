"""Orderly pops: one attempt at a time for each queue."""

from __future__ import annotations

import errno
import re
from typing import Any

import pytest

from rocketmq_tw.broker.pop.part import Pop
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import (
    ENDS_ATTEMPT_FLAG,
    REFUSES_MISSING_FLAG,
    UNDELIVERED_FLAG,
)
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import PoppedMessage, Popper, pass_time


def with_messages(
    count: int = 4,
    queues: int = 1,
    keys: dict[str, Any] | None = None,
    files: IFiles | None = None,
    **fields: Any,
) -> tuple[BrokerInMemory, Popper]:
    broker = BrokerInMemory(files, broker=keys)
    broker.add_topic("Topic", read_queue_nums=queues, write_queue_nums=queues)
    for queue_id in range(queues):
        for n in range(count):
            ok(broker.send(b"%d.%d" % (queue_id, n), queue_id=queue_id))
    return broker, Popper(broker, order=True, **fields)


def test_a_queue_is_blocked_until_all_is_acknowledged() -> None:
    broker, popper = with_messages()
    answer = popper.ask(max_msg_nums=2)
    assert answer is not None
    fields = ok(answer)
    assert fields["reviveQid"] == "999" and fields["orderCountInfo"] == "0 0 0"
    first = popper.messages(answer)
    assert broker.offsets.query("G", "Topic", 0) == 0
    assert popper.bodies() == []
    popper.ack(first[0])
    assert broker.offsets.query("G", "Topic", 0) == 1
    assert popper.bodies() == []
    popper.ack(first[1])
    assert broker.offsets.query("G", "Topic", 0) == 2
    assert popper.bodies() == [b"0.2", b"0.3"]


def test_what_is_not_acknowledged_comes_again_from_there() -> None:
    broker, popper = with_messages(invisible_time=5_000)
    first = popper.pop()
    popper.ack(first[0], first[2])
    pass_time(broker, 6)
    answer = popper.ask()
    assert answer is not None
    assert [m.body for m in popper.messages(answer)] == [b"0.1", b"0.2", b"0.3"]
    assert answer.ext_fields["orderCountInfo"] == "0 qo0%1 1;0 qo0%2 1;0 qo0%3 1;0 0 1"


def test_the_same_attempt_may_ask_again() -> None:
    _, popper = with_messages(max_msg_nums=2)
    assert popper.bodies(attempt_id="a") == [b"0.0", b"0.1"]
    assert popper.bodies(attempt_id="b") == []
    assert popper.bodies(attempt_id="a") == [b"0.0", b"0.1"]


def test_an_attempt_that_was_held_takes_nothing_from_its_later_try() -> None:
    """Its client, which had no answer, has asked another proxy meanwhile."""
    fields: dict[str, Any] = {"max_msg_nums": 1, "poll_time": 20_000}
    broker, popper = with_messages(2, **fields)
    (other,) = popper.pop(attempt_id="other")
    first, second = (Popper(broker, order=True, **fields) for _ in range(2))
    for each in (first, second):
        assert each.ask(attempt_id="a") is None
    pass_time(broker, 1)
    popper.ack(other)
    pass_time(broker, 1)
    assert len(first.peer.replies) == 1
    (message,) = popper.pop(attempt_id="a")
    assert message.body == b"0.1"
    ok(broker.send(b"0.2"))
    pass_time(broker, 1)
    assert second.peer.replies == []
    popper.ack(message)
    assert broker.offsets.query("G", "Topic", 0) == 2
    pass_time(broker, 1)
    assert [each.body for each in second.messages(second.peer.replies[0])] == [b"0.2"]


def test_an_attempt_that_was_held_later_takes_what_its_former_try_has() -> None:
    """The client asked again since the former one's proxy hangs: it gives nothing to anybody."""
    fields: dict[str, Any] = {"max_msg_nums": 1, "poll_time": 20_000}
    broker, popper = with_messages(0, **fields)
    former, later = (Popper(broker, order=True, **fields) for _ in range(2))
    for each in (former, later):
        assert each.ask(attempt_id="a") is None
        pass_time(broker, 1)
    ok(broker.send(b"new"))
    pass_time(broker, 1)
    assert [each.body for each in former.messages(former.peer.replies[0])] == [b"new"]
    assert later.peer.replies == []
    pass_time(broker, 19)
    (message,) = later.messages(later.peer.replies[0])
    assert message.body == b"new"
    popper.ack(message)
    assert broker.offsets.query("G", "Topic", 0) == 1


def test_an_attempt_that_is_ended_may_not_ask_again() -> None:
    """A proxy has given what it popped to another consumer."""
    broker, popper = with_messages(1)
    (message,) = popper.pop(attempt_id="a")
    pass_time(broker, 1)
    given = popper.hidden(message, broker.request(ends_attempt(popper, message)))
    assert popper.bodies(attempt_id="a") == []
    pass_time(broker, 20)
    popper.ack(given)
    assert broker.offsets.query("G", "Topic", 0) == 1


def test_an_attempt_that_has_asked_again_is_not_ended() -> None:
    broker, popper = with_messages(1)
    (former,) = popper.pop(attempt_id="a")
    pass_time(broker, 1)
    (message,) = popper.pop(attempt_id="a")
    # As where it was acknowledged before.
    assert ok(broker.request(ends_attempt(popper, former)))["popTime"] == "0"
    assert popper.bodies(attempt_id="a") == [message.body]


def ends_attempt(popper: Popper, message: PoppedMessage) -> RemotingCommand:
    request = popper.hide_request(message, 30_000)
    request.ext_fields[ENDS_ATTEMPT_FLAG] = "true"
    return request


def test_what_no_consumer_got_comes_at_once_and_is_not_counted() -> None:
    broker, popper = with_messages(2)
    for given_back in popper.pop(attempt_id="a"):
        assert popper.bodies() == []
        ok(broker.request(undelivered(popper, given_back)))
        pass_time(broker, 0.25)
    answer = popper.ask()
    assert answer is not None
    assert [each.body for each in popper.messages(answer)] == [b"0.0", b"0.1"]
    assert answer.ext_fields["orderCountInfo"] == "0 0 0"


def test_what_no_consumer_got_keeps_its_count() -> None:
    """Here of a queue whose second message was consumed once, and the first one twice."""
    broker, popper = with_messages(2, invisible_time=5_000)
    popper.pop(max_msg_nums=1)
    pass_time(broker, 6)
    popper.pop()
    pass_time(broker, 6)
    for given_back in popper.pop():
        ok(broker.request(undelivered(popper, given_back)))
    pass_time(broker, 0.25)
    answer = popper.ask()
    assert answer is not None
    assert answer.ext_fields["orderCountInfo"] == "0 qo0%0 2;0 qo0%1 1;0 0 1"


def test_what_no_consumer_got_counts_for_those_before_it() -> None:
    broker, popper = with_messages(2, invisible_time=5_000)
    _, given_back = popper.pop()
    ok(broker.request(undelivered(popper, given_back)))
    assert popper.bodies() == []
    pass_time(broker, 6)
    answer = popper.ask()
    assert answer is not None
    assert [each.body for each in popper.messages(answer)] == [b"0.0", b"0.1"]
    assert answer.ext_fields["orderCountInfo"] == "0 qo0%0 1;0 0 0"


def test_who_waits_gets_what_no_consumer_got() -> None:
    broker, popper = with_messages(1)
    (given_back,) = popper.pop(attempt_id="a")
    other = Popper(broker, order=True, poll_time=15_000)
    assert other.ask(attempt_id="b") is None
    ok(broker.request(undelivered(popper, given_back)))
    pass_time(broker, 0.5)
    (reply,) = other.peer.replies
    assert [each.body for each in other.messages(reply)] == [b"0.0"]


def test_what_was_popped_again_since_has_a_consumer() -> None:
    broker, popper = with_messages(1)
    (former,) = popper.pop()
    ok(broker.request(undelivered(popper, former)))
    pass_time(broker, 0.25)
    popper.pop()
    ok(broker.request(undelivered(popper, former)))
    pass_time(broker, 0.25)
    assert popper.bodies() == []
    pass_time(broker, 61)
    answer = popper.ask()
    assert answer is not None and answer.ext_fields["orderCountInfo"] == "0 qo0%0 1;0 0 1"


def test_each_pop_of_what_no_consumer_got_has_a_time_of_its_own() -> None:
    """By which an acknowledgement names it."""
    broker, popper = with_messages(1)
    (former,) = popper.pop()
    ok(broker.request(undelivered(popper, former)))
    assert popper.bodies() == []
    broker.clock.advance(0.001)
    (message,) = popper.pop()
    assert message.extra_info != former.extra_info
    popper.ack(former)
    assert broker.offsets.query("G", "Topic", 0) == 0
    popper.ack(message)
    assert broker.offsets.query("G", "Topic", 0) == 1


def undelivered(popper: Popper, message: PoppedMessage) -> RemotingCommand:
    request = popper.hide_request(message, 30_000)
    request.ext_fields[UNDELIVERED_FLAG] = "true"
    return request


def test_another_queue_is_free() -> None:
    _, popper = with_messages(2, queues=2, max_msg_nums=2)
    bodies = popper.bodies() + popper.bodies()
    assert sorted(bodies) == [b"0.0", b"0.1", b"1.0", b"1.1"]


def test_hidden_for_another_time() -> None:
    broker, popper = with_messages(1)
    popper.hide(popper.pop()[0], 3_000)
    pass_time(broker, 2)
    assert popper.bodies() == []
    pass_time(broker, 2)
    assert popper.bodies() == [b"0.0"]


def test_times_of_messages_that_were_not_popped_are_not_kept() -> None:
    broker, popper = with_messages()
    first = popper.pop(max_msg_nums=2)
    before = broker.broker[Pop].order.encode()
    for offset in (2, 3):
        popper.hide(first[1]._replace(queue_offset=offset), 3_000)
    assert broker.broker[Pop].order.encode() == before
    popper.hide(first[1], 3_000)
    assert broker.broker[Pop].order.encode() != before


def test_an_acknowledgement_of_something_else() -> None:
    broker, popper = with_messages()
    first = popper.pop(max_msg_nums=2)
    answer = broker.request(popper.ack_request(first[1]._replace(queue_offset=3)))
    assert answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "did not pop message 3" in (answer.remark or "")


def test_a_late_acknowledgement_changes_nothing() -> None:
    broker, popper = with_messages(2, invisible_time=5_000)
    first = popper.pop()
    pass_time(broker, 6)
    again = popper.pop()
    popper.ack(*first)
    assert broker.offsets.query("G", "Topic", 0) == 0
    popper.ack(*again)
    assert broker.offsets.query("G", "Topic", 0) == 2


def test_what_is_delivered_again_is_not_hidden_by_its_first_pop() -> None:
    broker, popper = with_messages(1, invisible_time=5_000)
    (former,) = popper.pop()
    pass_time(broker, 6)
    (again,) = popper.pop()
    assert ok(broker.request(popper.hide_request(former, 60_000)))["popTime"] == "0"
    assert ok(broker.request(popper.hide_request(again, 5_000)))["popTime"] != "0"
    pass_time(broker, 6)
    assert popper.bodies() == [b"0.0"]


def test_what_is_acknowledged_behind_a_gap_is_not_hidden() -> None:
    broker, popper = with_messages(2)
    first, second = popper.pop()
    popper.ack(second)
    assert ok(broker.request(popper.hide_request(second, 60_000)))["popTime"] == "0"
    assert ok(broker.request(popper.hide_request(first, 60_000)))["popTime"] != "0"


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_proxy_is_told_that_an_acknowledgement_comes_to_nothing(is_batch: bool) -> None:
    broker, popper = with_messages(2, invisible_time=5_000)
    (former, _) = popper.pop()
    pass_time(broker, 6)
    again, other = popper.pop()

    def acknowledge(message: PoppedMessage) -> int:
        request = popper.batch_ack_request(message) if is_batch else popper.ack_request(message)
        request.ext_fields[REFUSES_MISSING_FLAG] = "true"
        answer = broker.request(request)
        assert answer is not None
        return answer.code

    assert acknowledge(former) == ResponseCode.NO_MESSAGE
    # Once more by a client that did not get the answer.
    assert [acknowledge(each) for each in (again, again, other, again)] == [0, 0, 0, 0]
    # What the group is behind of is acknowledged, by whichever pop.
    assert acknowledge(former) == ResponseCode.SUCCESS


@pytest.mark.parametrize("is_batch", [False, True])
def test_nothing_is_consumed_where_offsets_are_written_no_more(is_batch: bool) -> None:
    """A restart would know nothing of it."""
    files = FaultyFiles(MemoryFiles())
    broker, popper = with_messages(2, files=files)
    other = Popper(broker, group="Other", order=True)
    (first, _) = popper.pop()
    files.faults = [Fault("pwrite", "commitlog")]
    refused = broker.send(b"the disk fails")
    assert refused is not None and refused.code != ResponseCode.SUCCESS
    request = popper.batch_ack_request(first) if is_batch else popper.ack_request(first)
    for each in (request, other.request()):
        answer = broker.request(each)
        assert answer is not None and answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "check the disk and restart" in (answer.remark or "")
    assert broker.offsets.query("G", "Topic", 0) == 0


def test_a_full_disk_keeps_nobody_from_consuming() -> None:
    files = FaultyFiles(MemoryFiles())
    broker, popper = with_messages(2, files=files)
    (first, second) = popper.pop()
    files.faults = [Fault("pwrite", "commitlog", errno.ENOSPC)]
    refused = broker.send(b"no room")
    assert refused is not None and refused.code != ResponseCode.SUCCESS
    popper.ack(first, second)
    assert broker.offsets.query("G", "Topic", 0) == 2


def test_who_waits_is_woken_by_the_acknowledgement() -> None:
    broker, popper = with_messages(2, max_msg_nums=1)
    (first,) = popper.pop()
    other = Popper(broker, order=True, poll_time=15_000)
    assert other.ask() is None
    popper.ack(first)
    broker.clock.pump([0] * 3)
    (reply,) = other.peer.replies
    assert [m.body for m in other.messages(reply)] == [b"0.1"]


def test_who_waits_is_woken_at_the_end_of_the_time() -> None:
    broker, popper = with_messages(1, invisible_time=4_000)
    popper.pop()
    other = Popper(broker, order=True, poll_time=15_000)
    assert other.ask() is None
    pass_time(broker, 3.5)
    assert not other.peer.replies
    pass_time(broker, 1)
    (reply,) = other.peer.replies
    assert [m.body for m in other.messages(reply)] == [b"0.0"]


def test_a_restart_keeps_the_order() -> None:
    broker, popper = with_messages()
    first = popper.pop(max_msg_nums=2)
    popper.ack(first[0])
    broker.stop()
    again = BrokerInMemory(broker.files, clock=broker.clock)
    popper.broker = again
    assert popper.bodies() == []
    popper.ack(first[1])
    assert popper.bodies() == [b"0.2", b"0.3"]


def test_the_file() -> None:
    broker, popper = with_messages(3)
    now = broker.now_ms()
    first = popper.pop(attempt_id="a")
    popper.ack(first[0])
    pass_time(broker, 6)
    path = f"{broker.store.paths.config}/consumerOrderInfo.json"
    assert broker.files.read(path) == (
        b'{"table":{"Topic@G":{0:{"a":"a","cm":1,"i":60000,"l":%d,"o":[0,1,2],"popTime":%d}}}}'
        % (now, now)
    )


def test_a_reset_frees_the_queue() -> None:
    broker, popper = with_messages()
    popper.pop()
    broker.offsets.reset("G", "Topic", 0, 2)
    assert popper.bodies() == [b"0.2", b"0.3"]


def test_what_is_hidden_for_ever_is_a_number_that_stock_can_read() -> None:
    largest = (1 << 63) - 1
    broker, popper = with_messages(1, keys={"max_invisible_time_mills": largest})
    later = popper.hide(popper.pop()[0], largest)
    popped_ms, invisible_ms = map(int, later.extra_info.split(" ")[1:3])
    assert popped_ms + invisible_ms == largest
    pass_time(broker, 100)
    assert popper.bodies() == []
    popper.ack(later)
    assert broker.offsets.query("G", "Topic", 0) == 1
    info = broker.broker[Pop].order.encode()
    assert all(int(number) <= largest for number in re.findall(rb"[0-9]+", info))


def test_what_a_former_master_popped_holds_nothing_back_when_it_leads_again() -> None:
    broker, popper = with_messages(2)
    assert popper.bodies() == [b"0.0", b"0.1"]
    led_by_another(broker)
    assert Popper(broker, order=True).bodies() == [b"0.0", b"0.1"]


def led_by_another(broker: BrokerInMemory) -> None:
    """Makes it the master anew, which knows nothing of what its predecessor gave out."""
    broker.become(RoleState(Role.SLAVE, 1))
    broker.become(RoleState(Role.MASTER, 0))


def test_of_what_a_former_master_popped_only_the_next_message_moves_the_group_on() -> None:
    broker, popper = with_messages(4)
    first = popper.pop()
    led_by_another(broker)
    popper.ack(first[2])
    assert broker.offsets.query("G", "Topic", 0) == 0
    popper.ack(first[0], first[1])
    assert broker.offsets.query("G", "Topic", 0) == 2
    # Not blocked, and the third one comes again: that it is acknowledged is not known here.
    again = popper.pop()
    assert [m.body for m in again] == [b"0.2", b"0.3"]
    popper.ack(*first[3:], *again)
    assert broker.offsets.query("G", "Topic", 0) == 4


def test_a_batch_of_what_a_former_master_popped_moves_the_group_on() -> None:
    broker, popper = with_messages(4)
    popped_ms = int(popper.pop()[0].extra_info.split(" ")[1])
    led_by_another(broker)
    ack = BatchAck(
        bits=b"\x0b",
        group="G",
        pop_time=popped_ms,
        revive_queue_id=999,
        topic="Topic",
    )
    body = BatchAckMessageRequestBody(broker_name="broker-a", acks=[ack])
    request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=encode_body(body))
    ok(broker.request(request))
    assert broker.offsets.query("G", "Topic", 0) == 2
    assert popper.bodies() == [b"0.2", b"0.3"]


@pytest.mark.parametrize("acknowledged", [0, 2])
def test_a_group_whose_offset_was_not_copied_goes_on_where_its_pop_began(
    acknowledged: int,
) -> None:
    broker, popper = with_messages(3, init_mode=1)
    broker.offsets.commit("G", "Topic", 0, 0)
    first = popper.pop()
    led_by_another(broker)
    for _ in broker.offsets.remove_group("G"):
        pass
    popper.ack(first[acknowledged])
    assert popper.bodies() == [b"0.0", b"0.1", b"0.2"][acknowledged == 0 :]


def test_after_a_kill_an_acknowledgement_passes_over_no_message() -> None:
    broker, popper = with_messages(3)
    first = popper.pop()
    killed = BrokerInMemory(broker.files.kill(), clock=broker.clock)
    popper.broker = killed
    popper.ack(first[2])
    assert popper.bodies() == [b"0.0", b"0.1", b"0.2"]


def test_what_another_broker_acknowledged_of_a_pop_is_not_waited_for() -> None:
    """A slave acted for the master, and moved the group on by the first two of them."""
    broker, popper = with_messages(5)
    first = popper.pop(max_msg_nums=4)
    broker.offsets.commit("G", "Topic", 0, 2)
    popper.ack(first[3])
    assert broker.offsets.query("G", "Topic", 0) == 2
    popper.ack(first[2])
    assert broker.offsets.query("G", "Topic", 0) == 4
    assert popper.bodies() == [b"0.4"]
