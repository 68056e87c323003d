"""After a kill, or at another master, groups go on behind what the log says they popped."""

from __future__ import annotations

from tests.support.broker import BrokerInMemory
from tests.support.killed_pops import HIDDEN_MS, killed, popping, send
from tests.support.pops import Popper, drain, pass_time
from tests.support.sim.group import ElectedGroup


def test_what_was_acknowledged_does_not_come_again() -> None:
    broker, popper = popping()
    for number in range(5):
        send(broker, f"a{number}", f"b{number}")
        popper.ack(*popper.pop(max_msg_nums=1), *popper.pop())
    send(broker, "new")
    again = killed(broker)
    assert drain(again) == [b"new"]


def test_what_was_not_acknowledged_comes_again_at_its_time() -> None:
    broker, popper = popping()
    send(broker, "a", "b", "c")
    first, *_ = popper.pop()
    popper.ack(first)
    again = killed(broker)
    assert drain(again) == []
    pass_time(again, 9)
    assert sorted(drain(again)) == [b"b", b"c"]


def test_again_and_again() -> None:
    broker, popper = popping()
    for number in range(4):
        send(broker, f"{number}")
        popper = Popper(broker, invisible_time=HIDDEN_MS)
        popped = popper.pop()
        assert [message.body for message in popped] == [b"%d" % number]
        popper.ack(*popped)
        broker = killed(broker)


def test_what_a_filter_left_out_is_no_gap() -> None:
    broker, _ = popping()
    popper = Popper(broker, invisible_time=HIDDEN_MS, exp="A", exp_type="TAG")
    for number in range(3):
        send(broker, f"x{number}", f"y{number}", tags="B")
        assert popper.pop() == []
        send(broker, f"z{number}", tags="B")
        send(broker, f"a{number}", tags="A")
        send(broker, f"z{number}", tags="B")
        popper.ack(*popper.pop())
    send(broker, "new", tags="A")
    assert drain(killed(broker)) == [b"new"]


def test_retried_messages_too() -> None:
    broker, popper = popping()
    send(broker, "first")
    popper.pop()
    pass_time(broker, 9)
    popper.ack(*popper.pop())
    pass_time(broker, 6)
    send(broker, "a")
    popper.pop()
    pass_time(broker, 9)
    popped = popper.pop()
    assert [message.topic for message in popped] == ["Topic"]
    assert popped[0].reconsume_times == 1
    popper.ack(*popped)
    again = killed(broker)
    pass_time(again, 9)
    assert drain(again) == []


def test_a_group_that_popped_for_the_first_time() -> None:
    broker, _ = popping()
    send(broker, "a")
    popper = Popper(broker, group="H", invisible_time=HIDDEN_MS)
    popper.ack(*popper.pop())
    send(broker, "new")
    assert drain(killed(broker), "H") == [b"new"]


def test_a_group_that_began_with_the_newest() -> None:
    """Why it did not begin with the first is not in the log: it begins as it asks to."""
    broker, _ = popping(init_pop_offset_by_check_msg_in_mem=False)
    send(broker, "a", "b")
    popper = Popper(broker, group="H", init_mode=1)
    assert popper.bodies() == [b"b"]
    send(broker, "new")
    assert drain(killed(broker), "H") == [b"old", b"a", b"b", b"new"]


def test_a_stop_leaves_the_offsets_as_they_are() -> None:
    """An administrator may write others into the file meanwhile."""
    broker, popper = popping()
    send(broker, "a")
    pass_time(broker, 1)
    path = "/store/config/consumerOffset.json"
    former = broker.files.read(path)
    assert b"logPlace" in former
    popper.ack(*popper.pop())
    broker.stop()
    file = broker.files.open(path)
    file.truncate(0)
    file.pwrite(former, 0)
    file.close()
    assert drain(BrokerInMemory(broker.files, clock=broker.clock)) == [b"a"]


def elected() -> tuple[ElectedGroup, BrokerInMemory, Popper]:
    group = ElectedGroup(all_ack_in_sync_state_set=True)
    group.controllers.leader()
    for number in (1, 2):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == 2)
    (number,) = group.masters()
    broker = group.brokers[number]
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    return group, broker, Popper(broker, invisible_time=60_000)


def test_another_master_goes_on_behind_what_was_popped() -> None:
    group, broker, popper = elected()
    (number,) = group.masters()

    def through(bodies: list[bytes]) -> None:
        for body in bodies:
            group.send(number, body)
        group.run_until(lambda: set(bodies) <= set(group.acknowledged))
        request = popper.request()
        group.run(0.1)
        peer = popper.peer
        before = len(peer.replies)
        answer = broker.request(request, peer)
        group.run_until(lambda: answer is not None or len(peer.replies) > before)
        popped = popper.messages(answer or peer.replies[-1])
        assert [message.body for message in popped] == bodies
        for message in popped:
            broker.request(popper.ack_request(message), peer)
        group.run(0.1)

    through([b"old"])
    group.run(30)
    through([b"a", b"b"])
    through([b"c"])
    group.send(number, b"new")
    group.run_until(lambda: b"new" in group.acknowledged)
    group.kill(number)
    group.run_until(lambda: group.masters() not in ([], [number]))
    (other,) = group.masters()
    group.run(2)
    successor = Popper(group.brokers[other], invisible_time=60_000)
    answer = successor.ask()
    group.run(1)
    assert answer is not None or successor.peer.replies
    popped = successor.messages(answer or successor.peer.replies[-1])
    assert [message.body for message in popped] == [b"new"]
