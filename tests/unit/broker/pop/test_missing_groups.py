"""What a group popped that is not in the table when its messages are due again: a former master
made it, or it was deleted."""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.names import pop_retry_topic
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import PoppedMessage, Popper, pass_time
from tests.support.sim.group import ElectedGroup

GROUP = "H"
HIDDEN_MS = 20_000


def elected() -> tuple[ElectedGroup, int]:
    """A group of two brokers, and the number of the master."""
    group = ElectedGroup(
        {"init_pop_offset_by_check_msg_in_mem": False}, all_ack_in_sync_state_set=True
    )
    group.controllers.leader()
    for number in (1, 2):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == 2)
    (number,) = group.masters()
    group.brokers[number].add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for body in (b"old", b"new"):
        group.send(number, body)
    group.run_until(lambda: len(group.acknowledged) == 2)
    group.run(15)
    return group, number


def popped(group: ElectedGroup, number: int) -> list[PoppedMessage]:
    """What a consumer pops of a broker that begins with the newest message."""
    popper = Popper(group.brokers[number], group=GROUP, invisible_time=HIDDEN_MS, init_mode=1)
    answer = popper.ask()
    group.run_until(lambda: answer is not None or popper.peer.replies)
    answer = answer or popper.peer.replies[-1]
    return popper.messages(answer) if answer.body else []


def another_master(group: ElectedGroup, number: int) -> BrokerInMemory:
    group.kill(number)
    group.run_until(lambda: group.masters() not in ([], [number]))
    return group.master()


def test_a_group_that_a_former_master_made_gets_what_it_popped() -> None:
    group, number = elected()
    assert [message.body for message in popped(group, number)] == [b"new"]
    group.send(number, b"newer")
    group.run_until(lambda: b"newer" in group.acknowledged)
    successor = another_master(group, number)
    assert GROUP not in successor.groups
    group.run(HIDDEN_MS / 1000 + 10)
    (other,) = group.masters()
    found = [(message.body, message.reconsume_times) for message in popped(group, other)]
    assert sorted(found) == [(b"new", 1), (b"newer", 0)]


def killed_with_a_group(*, was_made: bool) -> BrokerInMemory:
    """A broker whose group popped once, and that was killed before the group was in its file;
    or after it `was_made` long before, and deleted."""
    files = MemoryFiles()
    broker = BrokerInMemory(files)
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for body in (b"a", b"b"):
        ok(broker.send(body))
    Popper(broker, group="Other", invisible_time=HIDDEN_MS).pop(max_msg_nums=1)
    pass_time(broker, 10)
    path = "/store/config/subscriptionGroup.json"
    without = files.read(path)
    (message,) = Popper(broker, group=GROUP, invisible_time=HIDDEN_MS).pop(max_msg_nums=1)
    assert message.body == b"a"
    if was_made:
        broker.groups.delete(GROUP)
        pass_time(broker, 10)
    after = files.kill()
    after.open(path).pwrite(without, 0)
    after.open(path).truncate(len(without))
    return BrokerInMemory(after, clock=broker.clock)


def test_a_group_that_a_killed_broker_had_not_written_gets_what_it_popped() -> None:
    broker = killed_with_a_group(was_made=False)
    assert GROUP not in broker.groups
    pass_time(broker, HIDDEN_MS / 1000 + 10)
    found = Popper(broker, group=GROUP, invisible_time=HIDDEN_MS).pop(max_msg_nums=32)
    assert (b"a", 1) in [(message.body, message.reconsume_times) for message in found]


def test_a_group_that_was_deleted_before_a_kill_does_not_come_back() -> None:
    broker = killed_with_a_group(was_made=True)
    pass_time(broker, HIDDEN_MS / 1000 + 10)
    assert GROUP not in broker.groups


def test_a_group_that_was_deleted_before_does_not_come_back() -> None:
    group, number = elected()
    assert popped(group, number)
    group.brokers[number].groups.delete(GROUP)
    group.run(10)
    successor = another_master(group, number)
    group.run(HIDDEN_MS / 1000 + 10)
    assert GROUP not in successor.groups
    assert pop_retry_topic("Topic", GROUP, 1) not in successor.topics


def test_what_a_group_popped_that_was_deleted_is_dropped_with_a_line() -> None:
    broker = BrokerInMemory()
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for name in (GROUP, "Other"):
        for _ in range(2):
            ok(broker.send(b"a"))
            Popper(broker, group=name, invisible_time=5_000).pop(max_msg_nums=1)
        broker.groups.delete(name)
    with capturedLogs() as logs:
        pass_time(broker, 20)
    lines = [line for line in map(formatEvent, logs) if line and "not revived" in line]
    assert [line for line in lines if "what H popped of Topic" in line] == lines[:1]
    assert len(lines) == 2 and "has no group H" in lines[0]
    assert GROUP not in broker.groups


def test_a_group_that_is_deleted_under_this_master_does_not_come_back() -> None:
    group, number = elected()
    successor = another_master(group, number)
    (other,) = group.masters()
    assert popped(group, other)
    successor.groups.delete(GROUP)
    group.run(HIDDEN_MS / 1000 + 10)
    assert GROUP not in successor.groups
