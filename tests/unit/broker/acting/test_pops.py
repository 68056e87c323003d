"""What was popped while the master lived, and while its slave acts for it, comes through another
group where it is not acknowledged."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random

import pytest

from rocketmq_tw.broker.pop.check_points import REVIVE_GROUP
from rocketmq_tw.broker.pop.part import Pop
from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody, PopCheckPoint
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import NotificationRequestHeader, PeekMessageRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import PoppedMessage, Popper, drain
from tests.support.sim.acting import ActingCluster

QUEUES = 4
HIDDEN_MS = 20_000


def two_groups(
    count: int, *, total_replicas: int = 1, **settings: object
) -> tuple[ActingCluster, list[bytes]]:
    """Groups a and b with a slave each; `count` messages in the queues of a."""
    cluster = ActingCluster(settings=settings, total_replicas=total_replicas)
    for name in ("a", "b"):
        master = cluster.start_group(name)
        master.add_topic("Topic", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        Popper(master)
    cluster.run(8)
    sent = [b"%d" % number for number in range(count)]
    for number, body in enumerate(sent):
        ok(cluster.broker("a", 0).send(body, queue_id=number % QUEUES))
    return cluster, sent


def lose_master(cluster: ActingCluster) -> BrokerInMemory:
    """Gets the slave that acts for it."""
    cluster.run_until(lambda: cluster.follows("a", 1))
    # Consumer offsets are copied at intervals.
    cluster.run(6)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    return cluster.broker("a", 1)


class Members:
    """Members of the group, who pop and acknowledge where the answers come later."""

    def __init__(self, cluster: ActingCluster) -> None:
        self.cluster = cluster
        #: How often each message was acknowledged.
        self.consumed: Counter[bytes] = Counter()

    def pop(self, broker: BrokerInMemory, **fields: object) -> list[PoppedMessage]:
        popper = self._at(broker)
        answer = self.answer(broker, popper.request(**fields), popper)
        return popper.messages(answer) if answer.code == 0 else []

    def ack(self, broker: BrokerInMemory, *messages: PoppedMessage) -> None:
        popper = self._at(broker)
        for message in messages:
            ok(self.answer(broker, popper.ack_request(message), popper))
            self.consumed[message.body] += 1

    def drain(self, broker: BrokerInMemory) -> None:
        while popped := self.pop(broker):
            self.ack(broker, *popped)

    def try_some(self, name: str, chance: Random) -> None:
        """Pops of the master of a group, or of its slave that acts, and acknowledges some; all may
        fail."""
        for number in (0, 1):
            process = self.cluster.processes[name, number]
            if process.broker is None or not process.broker.broker.role.delivers:
                continue
            popper = self._at(process.broker)
            answer = self.answer(process.broker, popper.request(max_msg_nums=6), popper)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                continue
            for message in popper.messages(answer):
                if chance.random() < 0.5 and process.broker.broker.role.delivers:
                    request = popper.ack_request(message)
                    answer = self.answer(process.broker, request, popper)
                    if answer is not None and answer.code == ResponseCode.SUCCESS:
                        self.consumed[message.body] += 1

    def answer(
        self, broker: BrokerInMemory, request: RemotingCommand, popper: Popper
    ) -> RemotingCommand:
        """The answer, some time later."""
        before = len(popper.peer.replies)
        answer = broker.request(request, popper.peer)
        if answer is None:
            self.cluster.run_until(lambda: len(popper.peer.replies) > before, limit=15)
            answer = popper.peer.replies[-1]
        return answer

    def _at(self, broker: BrokerInMemory) -> Popper:
        return Popper(broker, invisible_time=HIDDEN_MS)


def moved(message: PoppedMessage, fields: dict[str, str]) -> PoppedMessage:
    """The message with the extra info that follows from a new invisible time."""
    parts = message.extra_info.split(" ")
    parts[0] = str(message.queue_offset)
    parts[1:4] = fields["popTime"], fields["invisibleTime"], fields["reviveQid"]
    return message._replace(extra_info=" ".join(parts))


def test_all_that_is_not_acknowledged_comes_through_the_other_group() -> None:
    cluster, sent = two_groups(120)
    members = Members(cluster)
    a, b = cluster.broker("a", 0), cluster.broker("b", 0)
    before = [*members.pop(a), *members.pop(a)]
    members.ack(a, *before[:10])
    slave = lose_master(cluster)
    end = slave.store.end_offset
    # Popped of the master, acknowledged at the slave.
    members.ack(slave, *before[10:20])
    during = [*members.pop(slave), *members.pop(slave)]
    members.ack(slave, *during[::2])
    cluster.run(HIDDEN_MS / 1000 + 8)
    members.drain(b)
    members.drain(slave)
    assert members.consumed == Counter(sent)
    assert slave.store.end_offset == end, "its log stays a copy"


def test_the_offsets_of_the_revive_group_get_behind_what_escaped() -> None:
    """A master that takes them back revives nothing once more."""
    cluster, sent = two_groups(40)
    members = Members(cluster)
    a = cluster.broker("a", 0)
    popped = [*members.pop(a), *members.pop(a), *members.pop(a)]
    assert len(popped) == len(sent)
    members.ack(a, *popped[::3])
    slave = lose_master(cluster)
    cluster.run(3)
    topic = slave.broker[Reviving].log.topic
    ends = {queue: slave.store.max_queue_offset(topic, queue) for queue in range(8)}
    done = {queue: slave.offsets.query(REVIVE_GROUP, topic, queue) for queue in range(8)}
    assert sum(ends.values()) and {queue: end - 1 for queue, end in ends.items()} == done
    assert cluster.broker("b", 0).broker[Reviving].pending() > 0


def test_invisible_times_batches_peeks_and_notifications() -> None:
    cluster, sent = two_groups(40)
    members = Members(cluster)
    slave, b = lose_master(cluster), cluster.broker("b", 0)
    popper = Popper(slave, invisible_time=HIDDEN_MS)
    peek = PeekMessageRequestHeader(consumer_group="G", topic="Topic", queue_id=-1, max_msg_nums=32)
    assert ok(slave.ask(RequestCode.PEEK_MESSAGE, peek))["restNum"] == "40"
    notification = NotificationRequestHeader(
        consumer_group="G", topic="Topic", queue_id=-1, poll_time=0, born_time=0
    )
    assert ok(slave.ask(RequestCode.NOTIFICATION, notification))["hasMsg"] == "true"
    popped = members.pop(slave)
    # One is hidden for longer than the others, and then acknowledged.
    fields = ok(members.answer(slave, popper.hide_request(popped[0], 2 * HIDDEN_MS), popper))
    hidden = moved(popped[0], fields)
    batch = BatchAck(
        bits=(0b110).to_bytes(1, "little"),
        group="G",
        topic="Topic",
        pop_time=int(popped[1].extra_info.split(" ")[1]),
        queue_id=popped[1].queue_id,
        revive_queue_id=int(popped[1].extra_info.split(" ")[3]),
        start_offset=0,
    )
    body = encode_body(BatchAckMessageRequestBody(broker_name="a", acks=[batch]))
    request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=body)
    ok(members.answer(slave, request, popper))
    cluster.run(HIDDEN_MS / 1000 + 8)
    members.ack(slave, hidden)
    cluster.run(HIDDEN_MS / 1000 + 8)
    members.drain(b)
    members.drain(slave)
    in_batch = [message.body for message in popped if message.queue_id == popped[1].queue_id][1:3]
    assert members.consumed + Counter(in_batch) == Counter(sent)


def test_a_new_time_that_is_not_stored_leaves_the_former_one() -> None:
    """The message of a consumer that asks for more time, or for another try, comes again."""
    cluster, sent = two_groups(40)
    members = Members(cluster)
    popped = members.pop(cluster.broker("a", 0))
    hosts = [cluster.processes[place].host for place in (("a", 1), ("b", 0))]
    # The other group's master is there, and does not hear of this slave.
    cluster.network.cut |= set(permutations(hosts))
    slave, b = lose_master(cluster), cluster.broker("b", 0)
    popper = Popper(slave, invisible_time=HIDDEN_MS)
    answer = members.answer(slave, popper.hide_request(popped[0], HIDDEN_MS), popper)
    assert answer.code != ResponseCode.SUCCESS
    cluster.network.cut.clear()
    cluster.run(HIDDEN_MS / 1000 + 40)
    members.drain(b)
    members.drain(slave)
    assert members.consumed == Counter(sent)


def test_without_another_group_messages_wait_for_their_master() -> None:
    cluster, sent = two_groups(40, enable_remote_escape=False)
    members = Members(cluster)
    a = cluster.broker("a", 0)
    members.ack(a, *members.pop(a)[:5])
    slave = lose_master(cluster)
    popper = Popper(slave)
    answer = members.answer(slave, popper.request(), popper)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "enableRemoteEscape" in str(answer.remark)
    cluster.run(HIDDEN_MS / 1000)
    a = cluster.start("a", 0)
    cluster.run_until(lambda: not cluster.acts("a", 1))
    cluster.run(10)
    members.drain(a)
    assert members.consumed == Counter(sent)


def test_another_master_takes_over_where_the_first_one_dies() -> None:
    """What the first one has comes when it, or its slave, is there again."""
    cluster, sent = two_groups(80)
    third = cluster.start_group("c")
    third.add_topic("Topic", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    Popper(third)
    cluster.run(8)
    members = Members(cluster)
    slave = lose_master(cluster)
    members.ack(slave, *members.pop(slave)[:7])
    cluster.run(2)
    taken = [name for name in "bc" if cluster.broker(name, 0).broker[Reviving].pending()]
    assert len(taken) == 1, "one and the same while it lives"
    cluster.kill(taken[0], 0)
    while popped := members.pop(slave):
        members.ack(slave, *popped[::2])
    cluster.run(60)
    for name, number in (("b", 0), ("c", 0)):
        if cluster.processes[name, number].broker is not None:
            members.drain(cluster.broker(name, number))
    # Its own slave acts for it too: what it had escaped once more.
    assert members.consumed.keys() == set(sent)
    assert members.consumed.total() - len(sent) == 0


def test_a_killed_acting_slave_loses_nothing() -> None:
    cluster, sent = two_groups(80)
    members = Members(cluster)
    a, b = cluster.broker("a", 0), cluster.broker("b", 0)
    before = members.pop(a)
    slave = lose_master(cluster)
    members.ack(slave, *before[:8])
    during = members.pop(slave)
    members.ack(slave, *during[:8])
    cluster.kill("a", 1)
    cluster.run(3)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    slave = cluster.broker("a", 1)
    members.ack(slave, *before[8:12], *during[8:12])
    cluster.run(HIDDEN_MS / 1000 + 30)
    members.drain(b)
    members.drain(slave)
    assert members.consumed.keys() == set(sent)
    # Offsets are written every five seconds: what was popped since is popped once more.
    again = {body for body, count in members.consumed.items() if count > 1}
    assert again <= {message.body for message in (*before, *during)}


def test_an_orderly_group_goes_on_behind_what_it_committed() -> None:
    cluster, _ = two_groups(12)
    members = Members(cluster)
    fields = {"order": True, "queue_id": 0, "max_msg_nums": 2}
    a = cluster.broker("a", 0)
    members.ack(a, *members.pop(a, **fields))
    members.pop(a, **fields)
    slave = lose_master(cluster)
    # The order of a lost master is not copied: what it had given out comes again, in order.
    first = members.pop(slave, **fields)
    assert [message.queue_offset for message in first] == [2]
    assert members.pop(slave, **fields) == []
    members.ack(slave, first[0])
    cluster.start("a", 0)
    cluster.run_until(lambda: not cluster.acts("a", 1))
    assert not slave.broker[Pop].order.encode().count(b"popTime")


@pytest.mark.parametrize("acknowledged", [2, 1])
def test_a_master_that_is_back_hides_nothing_of_what_an_orderly_group_consumed(
    acknowledged: int,
) -> None:
    """It had given out two messages, for a long time yet."""
    cluster, _ = two_groups(64, total_replicas=2)
    members = Members(cluster)
    fields = {"order": True, "queue_id": 0, "max_msg_nums": 2, "invisible_time": 600_000}
    members.pop(cluster.broker("a", 0), **fields)
    slave = lose_master(cluster)
    members.ack(slave, *members.pop(slave, **fields)[:acknowledged])
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)
    cluster.run(1)
    found = members.pop(cluster.broker("a", 0), **fields)
    # The second one is still being consumed where it was not acknowledged.
    assert [message.queue_offset for message in found] == ([2, 3] if acknowledged == 2 else [])


def test_messages_that_escaped_count_as_in_flight() -> None:
    cluster, _ = two_groups(80, enable_pop_message_threshold=True, pop_inflight_message_threshold=4)
    members = Members(cluster)
    a = cluster.broker("a", 0)
    fields = {"queue_id": 0, "max_msg_nums": 3}
    before = members.pop(a, **fields)
    slave = lose_master(cluster)
    cluster.run(2)
    during = members.pop(slave, **fields)
    assert len(before) == len(during) == 3
    assert members.pop(slave, **fields) == []
    members.ack(slave, *before)
    assert len(members.pop(slave, **fields)) == 3


def test_a_master_that_comes_back_gives_nothing_out_twice() -> None:
    """It takes back the offsets of the group, and of the revival, before it is online."""
    cluster, sent = two_groups(120, total_replicas=2)
    members = Members(cluster)
    a, b = cluster.broker("a", 0), cluster.broker("b", 0)
    before = [*members.pop(a), *members.pop(a)]
    members.ack(a, *before[:10])
    slave = lose_master(cluster)
    members.ack(slave, *before[10:20])
    members.ack(slave, *members.pop(slave)[::2])
    cluster.run(8)
    a = cluster.start("a", 0)
    cluster.run_until(lambda: not cluster.acts("a", 1))
    cluster.run(HIDDEN_MS / 1000 + 8)
    members.drain(a)
    members.drain(b)
    assert members.consumed == Counter(sent)


def test_what_a_timer_of_stock_holds_escapes() -> None:
    """A stock master lets check points wait in its timer; its slave copied them."""
    cluster, _ = two_groups(8)
    a, b = cluster.broker("a", 0), cluster.broker("b", 0)
    now = a.now_ms()
    point = PopCheckPoint(
        broker_name="a",
        group="G",
        topic="Topic",
        offset_diffs=[0, 1],
        count=2,
        invisible_time=HIDDEN_MS,
        pop_time=now,
        revive_time=now + HIDDEN_MS,
    )
    due = str(point.revive_time - 1000)
    properties = {
        "TAGS": "ck",
        "TIMER_DELIVER_MS": due,
        "TIMER_OUT_MS": due,
        "REAL_TOPIC": a.broker[Reviving].log.topic,
        "REAL_QID": "3",
    }
    a.store.append(
        StoredMessage(
            topic=TIMER_TOPIC,
            queue_id=0,
            body=encode_body(point),
            properties=join_properties(properties),
        )
    )
    a.store.write_pending()
    a.store.dispatch()
    ok(a.send(b"behind it"))
    slave = lose_master(cluster)
    # As of a stock master, which passes nothing over.
    slave.offsets.commit(REVIVE_GROUP, TIMER_TOPIC, 0, 0)
    cluster.run(3)
    assert slave.offsets.query(REVIVE_GROUP, TIMER_TOPIC, 0) == 1
    assert b.broker[Reviving].pending() == 1
    cluster.run(HIDDEN_MS / 1000)
    assert drain(b) == [b"0", b"4"]


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_whatever_dies(seed: int) -> None:
    chance = Random(seed)
    cluster, sent = two_groups(60)
    members = Members(cluster)
    dead: set[tuple[str, int]] = set()
    for _ in range(25):
        move = chance.random()
        if move < 0.2:
            which = chance.choice([("a", 0), ("a", 0), ("a", 1), ("b", 0), ("b", 1)])
            if which in dead:
                cluster.start(*which)
                dead.remove(which)
            elif (which[0], 1 - which[1]) not in dead:
                cluster.kill(*which)
                dead.add(which)
        cluster.run(chance.choice([0.5, 2, 6]))
        for name in "ab":
            members.try_some(name, chance)
    for which in dead:
        cluster.start(*which)
    for _ in range(6):
        cluster.run(HIDDEN_MS / 1000)
        for name in "ab":
            members.drain(cluster.broker(name, 0))
    assert members.consumed.keys() == set(sent), f"seed {seed}"


def test_records_go_to_one_broker_whatever_goes_elsewhere() -> None:
    """Topics that only one of the other groups has part no check point from its
    acknowledgements."""
    cluster = ActingCluster(message_delay_level="1s 15s")
    for name in "abc":
        master = cluster.start_group(name)
        master.add_topic("Topic", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        Popper(master)
    for topic, names in (("OnlyB", "ab"), ("OnlyC", "ac")):
        for name in names:
            cluster.broker(name, 0).add_topic(topic, read_queue_nums=1, write_queue_nums=1)
    cluster.run(8)
    master = cluster.broker("a", 0)
    sent = [b"%d" % number for number in range(40)]
    for number, body in enumerate(sent):
        ok(master.send(body, queue_id=number % QUEUES))
    for number in range(60):
        topic, unique = ("OnlyB", "OnlyC")[number % 2], f"x{number}"
        ok(master.send(b"x", topic=topic, properties={"DELAY": "2", "UNIQ_KEY": unique}))
        cluster.run(0.2)
    members, slave = Members(cluster), lose_master(cluster)
    for _ in range(10):
        popped = members.pop(slave, max_msg_nums=4)
        cluster.run(0.5)
        members.ack(slave, *popped)
    assert members.consumed == Counter(sent)
    assert [records_of(cluster.broker(name, 0)) > 0 for name in "bc"].count(True) == 1
    assert all(
        cluster.broker(name, 0).consume(topic) for name, topic in (("b", "OnlyB"), ("c", "OnlyC"))
    )


def records_of(broker: BrokerInMemory) -> int:
    """How many check points and acknowledgements the log of a broker has."""
    topic = broker.broker[Reviving].log.topic
    return sum(broker.store.max_queue_offset(topic, queue_id) for queue_id in range(8))
