"""A master that comes back takes over what its slaves have, and only then is the master."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest
from twisted.internet.error import CannotListenError
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.files.faulty import Fault
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import Popper
from tests.support.sim.acting import ActingCluster
from tests.support.sim.clock import ProcessClock
from tests.support.transactions import begin, connect, questions


def group_of(slaves: int = 1, **keys: Any) -> ActingCluster:
    """A group whose master has `Topic`, 100 messages in it, and a group of consumers `G`."""
    settings = keys.pop("settings", {})
    cluster = ActingCluster(settings=settings, total_replicas=slaves + 1, **keys)
    master = cluster.start_group("a", slaves)
    master.add_topic("Topic", read_queue_nums=2, write_queue_nums=2)
    master.groups.update(SubscriptionGroupConfig(group_name="G"))
    for number in range(100):
        ok(master.send(b"%d" % number, queue_id=number % 2))
    master.offsets.commit("G", "Topic", 0, 10)
    master.offsets.commit("G", "Topic", 1, 10)
    cluster.run(12)
    for number in range(1, slaves + 1):
        assert cluster.broker("a", number).offsets.query("G", "Topic", 0) == 10
    return cluster


def lose_master(cluster: ActingCluster, by: int = 1) -> None:
    """Kills the master; returns once its slave acts."""
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", by))


def offset(cluster: ActingCluster, number: int, queue_id: int = 0) -> int:
    return cluster.broker("a", number).offsets.query("G", "Topic", queue_id)


def is_back(cluster: ActingCluster) -> bool:
    return cluster.role("a", 0) is Role.MASTER and 0 in cluster.members("a")


@pytest.mark.parametrize("compatible", [True, False])
def test_a_master_takes_the_offsets_of_its_slave_before_it_is_registered(compatible: bool) -> None:
    cluster = group_of(settings={"compatible_with_old_name_srv": compatible})
    lose_master(cluster)
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    cluster.start("a", 0)
    while not is_back(cluster):
        assert cluster.role("a", 0) is Role.ISOLATED or not cluster.acts("a", 1)
        if cluster.role("a", 0) is Role.ISOLATED:
            assert 0 not in cluster.members("a")
        cluster.run(0.02)
    assert (offset(cluster, 0), offset(cluster, 0, 1)) == (40, 10)
    cluster.run(15)
    assert cluster.role("a", 1) is Role.SLAVE
    assert (offset(cluster, 1), offset(cluster, 1, 1)) == (40, 10)
    cluster.broker("a", 0).offsets.commit("G", "Topic", 0, 5)
    cluster.run(6)
    assert offset(cluster, 1) == 5, "the master's are followed again, smaller ones too"


def test_an_isolated_master_serves_nobody_and_lets_nobody_copy() -> None:
    cluster = group_of()
    lose_master(cluster)
    cluster.network.cut |= {("10.1.0.1", "10.1.0.2"), ("10.1.0.2", "10.1.0.1")}
    master = cluster.start("a", 0)
    cluster.run(2)
    assert cluster.role("a", 0) is Role.ISOLATED
    refused = master.send(b"x")
    assert refused.code == ResponseCode.SYSTEM_BUSY and "starting" in (refused.remark or "")
    assert asked(cluster) == ResponseCode.SYSTEM_BUSY
    cluster.network.heal()
    cluster.run_until(lambda: is_back(cluster))
    ok(master.send(b"x"))
    assert asked(cluster) == ResponseCode.SUCCESS


def asked(cluster: ActingCluster) -> int:
    """What the master answers to somebody who would copy its offsets."""
    client = cluster.network.client("10.1.0.7", clock=cluster.clock)
    command = RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET)
    return int(cluster.result(client.request("10.1.0.1:10911", command, 3.0)).code)


def test_an_offset_of_the_master_that_its_slave_never_heard_of_stays() -> None:
    cluster = group_of()
    master = cluster.broker("a", 0)
    master.offsets.commit("G", "Topic", 1, 30)
    cluster.result(master.broker.parts[Tables]._write_offsets())
    lose_master(cluster)
    slave = cluster.broker("a", 1)
    assert slave.offsets.query("G", "Topic", 1) == 10
    for number in range(600):
        slave.offsets.commit("G", "Topic", 0, 11 + number // 20)
    slave.offsets.commit("G", "Topic", 1, 12)
    cluster.start("a", 0)
    cluster.run_until(lambda: is_back(cluster))
    assert (offset(cluster, 0), offset(cluster, 0, 1)) == (40, 30)
    cluster.run(12)
    assert offset(cluster, 1, 1) == 30


@pytest.mark.parametrize("restarted", [False, True])
def test_a_reset_while_the_slave_acted_counts(restarted: bool) -> None:
    cluster = group_of(slaves=2)
    lose_master(cluster)
    slave = cluster.broker("a", 1)
    slave.offsets.reset("G", "Topic", 0, 2)
    slave.offsets.take_reset("G", "Topic", 0)
    slave.offsets.commit("G", "Topic", 0, 4)
    cluster.run(6)
    if restarted:
        cluster.kill("a", 1)
        cluster.start("a", 1)
        cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.start("a", 0)
    cluster.run_until(lambda: is_back(cluster))
    assert offset(cluster, 0) == 4
    cluster.run(12)
    assert [offset(cluster, number) for number in (1, 2)] == [4, 4]


def test_a_reset_while_the_slave_acted_is_later_than_what_the_master_popped() -> None:
    cluster = group_of()
    master = cluster.broker("a", 0)
    popper = Popper(master)

    def pop(count: int) -> None:
        before = len(popper.peer.replies)
        request = popper.request(queue_id=0, max_msg_nums=count)
        answer = master.request(request, popper.peer)
        cluster.run_until(lambda: answer is not None or len(popper.peer.replies) > before)

    pop(5)
    cluster.run(7)
    pop(5)
    assert offset(cluster, 0) == 20
    lose_master(cluster)
    slave = cluster.broker("a", 1)
    assert offset(cluster, 1) == 15
    slave.offsets.commit("G", "Topic", 0, 30)
    slave.offsets.reset("G", "Topic", 0, 18)
    cluster.start("a", 0)
    cluster.run_until(lambda: is_back(cluster))
    cluster.run(1)
    assert offset(cluster, 0) == 18


def test_what_was_delivered_while_the_master_was_away_is_not_delivered_by_it() -> None:
    cluster = group_of(settings={"enable_remote_escape": True})
    other = cluster.start_group("b")
    other.add_topic("Topic", read_queue_nums=2, write_queue_nums=2)
    master = cluster.broker("a", 0)
    for number in range(20):
        ok(master.send(b"late %d" % number, properties={"DELAY": "3"}))
    now = master.now_ms()
    for number in range(20):
        at = str(now + 12_000 + number)
        ok(master.send(b"timed %d" % number, properties={"TIMER_DELIVER_MS": at}))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.run(6)
    before = len(bodies(cluster, "a"))
    lose_master(cluster)
    cluster.run(25)
    assert len(bodies(cluster, "b")) == 40
    cluster.start("a", 0)
    cluster.run_until(lambda: is_back(cluster))
    cluster.run(20)
    assert len(bodies(cluster, "a")) == before
    assert len(bodies(cluster, "b")) == 40
    assert cluster.broker("a", 0).broker[Timer].progress.checkpoint is not None


@pytest.mark.parametrize("after", [0.0, 1.3, 2.7])
def test_what_falls_due_while_the_master_comes_back_is_delivered_once(after: float) -> None:
    """The level is 30 s; one message falls due each 50 ms while the master is away, and later."""
    cluster = group_of(settings={"enable_remote_escape": True})
    other = cluster.start_group("b")
    other.add_topic("Topic", read_queue_nums=2, write_queue_nums=2)
    cluster.run(6)
    master = cluster.broker("a", 0)
    for number in range(300):
        ok(master.send(b"late %d" % number, properties={"DELAY": "4"}))
        cluster.run(0.05)
    cluster.run_until(lambda: cluster.follows("a", 1))
    lose_master(cluster)
    cluster.run_until(lambda: b"late 20" in bodies(cluster, "b"))
    cluster.run(after)
    cluster.start("a", 0)
    cluster.run_until(lambda: is_back(cluster))
    cluster.run(30)
    late = Counter(body for name in "ab" for body in bodies(cluster, name) if b"late" in body)
    assert late == Counter(b"late %d" % number for number in range(300))
    assert any(b"late" in body for body in bodies(cluster, "a"))


def bodies(cluster: ActingCluster, name: str) -> list[bytes]:
    broker = cluster.broker(name, 0)
    return [message.body for queue in range(2) for message in broker.consume("Topic", queue)]


def test_a_master_whose_name_servers_are_away_waits_and_says_why() -> None:
    cluster = group_of()
    lose_master(cluster)
    cluster.network.cut |= {("10.1.0.1", "10.9.0.1"), ("10.9.0.1", "10.1.0.1")}
    with capturedLogs() as logs:
        cluster.start("a", 0)
        cluster.run(95)
    said = [formatEvent(event) for event in logs]
    lines = [line for line in said if line and "not registered yet" in line]
    assert 3 <= len(lines) <= 6 and "no name server tells" in lines[0]
    assert cluster.role("a", 0) is Role.ISOLATED
    assert cluster.acts("a", 1)
    cluster.network.heal()
    cluster.run_until(lambda: is_back(cluster))


def test_a_slave_that_dies_in_the_middle_is_passed_over() -> None:
    cluster = group_of(slaves=2)
    lose_master(cluster)
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    cut = {("10.1.0.1", "10.1.0.3"), ("10.1.0.3", "10.1.0.1")}
    cluster.network.cut |= cut
    cluster.start("a", 0)
    cluster.run(7)
    assert cluster.role("a", 0) is Role.ISOLATED, "slave 2 lives"
    assert cluster.acts("a", 1), "nobody is disturbed before all can follow"
    cluster.kill("a", 2)
    cluster.run_until(lambda: is_back(cluster))
    assert offset(cluster, 0) == 40


def test_a_slave_that_is_started_again_in_the_middle_is_asked_again() -> None:
    cluster = group_of()
    lose_master(cluster)
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    cluster.run(6)
    cluster.processes["a", 1].pause()
    cluster.start("a", 0)
    cluster.run(1)
    assert cluster.role("a", 0) is Role.ISOLATED
    cluster.kill("a", 1)
    cluster.start("a", 1)
    cluster.run_until(lambda: is_back(cluster))
    cluster.run(15)
    assert max(offset(cluster, 0), offset(cluster, 1)) == 40


def test_a_master_alone_starts_at_once() -> None:
    cluster = ActingCluster(total_replicas=2)
    cluster.start("a", 0)
    assert cluster.run_until(lambda: is_back(cluster)) < 1


@pytest.mark.parametrize(
    "settings", [{"skip_pre_online": True}, {"enable_slave_acting_master": False}]
)
def test_it_can_be_switched_off(settings: dict[str, Any]) -> None:
    cluster = ActingCluster(settings=settings, total_replicas=2)
    cluster.network.cut |= {("10.1.0.1", "10.9.0.1"), ("10.9.0.1", "10.1.0.1")}
    cluster.start("a", 0)
    assert cluster.role("a", 0) is Role.MASTER


def test_one_replica_has_nobody_to_ask() -> None:
    cluster = ActingCluster()
    cluster.network.cut |= {("10.1.0.1", "10.9.0.1"), ("10.9.0.1", "10.1.0.1")}
    cluster.start("a", 0)
    assert cluster.role("a", 0) is Role.MASTER


def test_a_master_whose_ha_port_is_taken_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = group_of()
    lose_master(cluster)

    listen = ProcessClock.listenTCP

    def taken(clock: ProcessClock, port: int, *args: Any, **keys: Any) -> Any:
        if port == 10912:
            raise CannotListenError("10.1.0.1", port, OSError(98, "Address already in use"))
        return listen(clock, port, *args, **keys)

    with monkeypatch.context() as patch, capturedLogs() as logs:
        patch.setattr(ProcessClock, "listenTCP", taken)
        cluster.start("a", 0)
        cluster.run(3)
        said = [formatEvent(event) or "" for event in logs]
    assert any("not registered yet" in line and "haListenPort" in line for line in said)
    assert cluster.role("a", 0) is Role.ISOLATED
    cluster.run_until(lambda: is_back(cluster), limit=3)


def test_a_master_that_gave_its_role_up_takes_over_too() -> None:
    """It could not write for a while."""
    cluster = group_of()
    disk = cluster.processes["a", 0].disk
    disk.faults = [Fault("create", "", errno.ENOSPC)]
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    disk.faults.clear()
    cluster.run_until(lambda: is_back(cluster))
    assert offset(cluster, 0) == 40


def test_a_master_that_stops_while_it_waits_closes_its_ports() -> None:
    cluster = group_of()
    lose_master(cluster)
    cluster.network.cut |= {("10.1.0.1", "10.1.0.2"), ("10.1.0.2", "10.1.0.1")}
    master = cluster.start("a", 0)
    cluster.run(2)
    cluster.result(master.broker.stop())
    cluster.run(5)
    assert cluster.role("a", 0) is Role.ISOLATED


def test_a_slave_is_registered_once_it_follows_the_master() -> None:
    cluster = group_of()
    cluster.kill("a", 1)
    cluster.run_until(lambda: 1 not in cluster.members("a"))
    cut = {("10.1.0.1", "10.1.0.2"), ("10.1.0.2", "10.1.0.1")}
    cluster.network.cut |= cut
    cluster.start("a", 1)
    cluster.run(5)
    assert 1 not in cluster.members("a")
    cluster.network.heal()
    cluster.run_until(lambda: 1 in cluster.members("a"))
    assert cluster.follows("a", 1)


def test_a_slave_without_a_master_is_registered_at_once_and_acts() -> None:
    cluster = ActingCluster(total_replicas=2)
    cluster.start("a", 1)
    cluster.run_until(lambda: 1 in cluster.members("a"), limit=1)
    cluster.run_until(lambda: cluster.acts("a", 1), limit=2)


def test_a_master_without_pre_online_does_not_put_its_slave_back() -> None:
    cluster = group_of(settings={"skip_pre_online": True})
    lose_master(cluster)
    slave = cluster.broker("a", 1)
    slave.offsets.commit("G", "Topic", 0, 40)
    cluster.start("a", 0)
    cluster.run(15)
    assert cluster.role("a", 0) is Role.MASTER and cluster.role("a", 1) is Role.SLAVE
    assert (offset(cluster, 0), offset(cluster, 1)) == (10, 40)
    master = cluster.broker("a", 0)
    master.offsets.commit("G", "Topic", 0, 20)
    cluster.run(6)
    assert offset(cluster, 1) == 40
    master.offsets.commit("G", "Topic", 0, 41)
    cluster.run(6)
    assert offset(cluster, 1) == 41
    master.offsets.commit("G", "Topic", 0, 3)
    cluster.run(6)
    assert offset(cluster, 1) == 3


def test_a_reset_by_a_master_without_pre_online_reaches_the_slave() -> None:
    cluster = group_of(settings={"skip_pre_online": True})
    lose_master(cluster)
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    cluster.start("a", 0)
    cluster.run(15)
    cluster.broker("a", 0).offsets.reset("G", "Topic", 0, 2)
    cluster.run(6)
    assert offset(cluster, 1) == 2


def test_a_slave_keeps_its_progress_while_its_master_waits_for_another() -> None:
    """A slave copies its master's tables every 5 seconds."""
    cluster = group_of(slaves=2)
    cluster.start_group("b").add_topic("Topic")
    for number in range(7):
        ok(cluster.broker("a", 0).send(b"late", properties={"DELAY": "3"}))
        # The first is delivered, and the master's file says so.
        cluster.run(1 if number else 25)
    lose_master(cluster)
    slave = cluster.broker("a", 1)
    slave.offsets.commit("G", "Topic", 0, 40)
    cluster.run(15)
    assert len(bodies(cluster, "b")) == 6
    other: Any = cluster.broker("a", 2).broker[Replicas].slave
    follow = other.client.follow
    other.client.stop()
    other.client.follow = lambda *_: None
    cluster.start("a", 0)
    cluster.run(8)
    assert cluster.role("a", 0) is Role.ISOLATED and cluster.role("a", 1) is Role.SLAVE
    cluster.run(8)
    assert cluster.role("a", 0) is Role.ISOLATED and cluster.acts("a", 1), "it gave up for a while"
    assert (offset(cluster, 1), slave.delay_offsets.get(3)) == (40, 7)
    assert len(bodies(cluster, "b")) == 6
    other.client.follow = follow
    cluster.run_until(lambda: is_back(cluster))
    cluster.run(6)
    for number in range(3):
        assert (offset(cluster, number), delay_offset(cluster, number)) == (40, 7)


def delay_offset(cluster: ActingCluster, number: int) -> int:
    return cluster.broker("a", number).delay_offsets.get(3)


class Consumer:
    """Consumes `Topic` for `G` where the route says, and commits what it consumed."""

    def __init__(self, cluster: ActingCluster, seen: Counter[bytes]) -> None:
        self._cluster = cluster
        self._seen = seen
        self._next: dict[int, int] = {}

    def turn(self, most: int) -> None:
        """Commits what the last turn consumed, and consumes up to `most` messages of each queue."""
        brokers = self._cluster.route("Topic").broker_datas
        address = next((one.broker_addrs.get(0) for one in brokers), None)
        for number in (0, 1):
            process = self._cluster.processes["a", number]
            if process.broker is not None and process.broker.address == address:
                self._consume(process.broker, most)

    def _consume(self, broker: BrokerInMemory, most: int) -> None:
        for queue_id in range(2):
            if queue_id in self._next:
                broker.offsets.commit("G", "Topic", queue_id, self._next[queue_id])
            else:
                self._next[queue_id] = broker.offsets.query("G", "Topic", queue_id)
            begin = self._next[queue_id]
            for message in broker.consume("Topic", queue_id)[begin : begin + most]:
                self._seen[message.body] += 1
                self._next[queue_id] = message.queue_offset + 1


def test_consumers_that_went_on_for_a_minute_see_only_again_what_was_in_flight() -> None:
    """Both times that the broker changes, the consumers are new and have the offsets only."""
    cluster = group_of()
    master = cluster.broker("a", 0)
    for number in range(100, 2000):
        ok(master.send(b"%d" % number, queue_id=number % 2))
    cluster.run_until(lambda: cluster.follows("a", 1))
    seen: Counter[bytes] = Counter()
    consumer = Consumer(cluster, seen)
    for _ in range(10):
        consumer.turn(5)
        cluster.run(1)
    cluster.run(6)
    lose_master(cluster)
    consumer = Consumer(cluster, seen)
    for _ in range(60):
        consumer.turn(11)
        cluster.run(1)
    assert len(seen) > 1200
    before = seen.total() - len(seen)
    cluster.start("a", 0)
    cluster.run_until(lambda: is_back(cluster))
    consumer = Consumer(cluster, seen)
    for _ in range(100):
        consumer.turn(20)
        cluster.run(1)
    assert seen.keys() == {b"%d" % number for number in range(20, 2000)}
    again = seen.total() - len(seen) - before
    assert again <= 22, "a turn of 11 messages of each queue was not committed"


def test_half_messages_that_moved_to_another_group_are_asked_about_there_only() -> None:
    settings = {"transaction_time_out": 6_000, "transaction_check_interval": 10_000}
    cluster = ActingCluster(settings=settings, total_replicas=2)
    for name in ("a", "b"):
        cluster.start_group(name).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    for number in range(20):
        begin(cluster.broker("a", 0), b"%d" % number)
    cluster.run_until(lambda: cluster.follows("a", 1))
    lose_master(cluster)
    cluster.run(3)
    master = cluster.start("a", 0)
    cluster.run_until(lambda: is_back(cluster))
    begin(master, b"new")
    producers = [connect(cluster.broker(name, 0)) for name in ("a", "b")]
    cluster.run(25)
    asked = [{each.msg_id for each in questions(producer)} for producer in producers]
    assert [len(messages) for messages in asked] == [1, 20]
