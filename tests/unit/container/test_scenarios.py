"""Three groups of three brokers in three containers: what stock's tests of containers check.

The table "Stock's tests of containers" in docs/container.md says which test is for which.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rocketmq_tw.broker.acting.part import Acting
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.container.neighbours import NearbyBrokers
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.names import dlq_topic, retry_topic
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import ConsumerIdList
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.clients import GetConsumerListByGroupRequestHeader
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.pops import Popper
from tests.support.sim.acting import ActingCluster
from tests.support.transactions import begin, connect, questions

NAMES = ("a", "b", "c")
#: The brokers of each container.
CONTAINERS = (
    (("a", 0), ("c", 1), ("b", 2)),
    (("b", 0), ("a", 1), ("c", 2)),
    (("c", 0), ("b", 1), ("a", 2)),
)
HIDDEN_MS = 8_000


class Containers(ActingCluster):
    """Brokers come and go in their containers by `start` and `kill`."""

    def __init__(self, keys: dict[str, Any] | None = None, **settings: Any) -> None:
        settings = {"transaction_time_out": 6_000, "transaction_check_interval": 8_000} | settings
        keys = {"total_replicas": 3, "ha_send_heartbeat_interval": 500} | (keys or {})
        super().__init__(settings=settings, **keys)
        self._nearby: dict[tuple[tuple[str, int], ...], list[Broker]] = {}
        for container in CONTAINERS:
            self._nearby[container] = []
            shared = NearbyBrokers(self.network.clock, self._nearby[container])
            self.neighbours |= dict.fromkeys(container, shared)
        for name in NAMES:
            master = self.start_group(name, slaves=2)
            for topic in ("Topic", "Popped"):
                master.add_topic(topic, read_queue_nums=1, write_queue_nums=1)
            Popper(master)
        self.run(8)

    def start(
        self, name: str, broker_id: int, files: MemoryFiles | None = None, **settings: Any
    ) -> BrokerInMemory:
        broker = super().start(name, broker_id, files, **settings)
        self._look()
        return broker

    def kill(self, name: str, broker_id: int) -> None:
        super().kill(name, broker_id)
        self._look()

    def _look(self) -> None:
        for container, brokers in self._nearby.items():
            running = [self.processes[its].broker for its in container if its in self.processes]
            brokers[:] = [each.broker for each in running if each is not None]

    def counts(self) -> list[int]:
        """How many brokers of each group the name server has."""
        return [len(self.members(name)) for name in NAMES]

    def known(self, name: str) -> set[int]:
        """The brokers of a group that its master knows."""
        return set(self.broker(name, 0).broker[Acting].living.members())

    def is_whole(self) -> bool:
        """Whether all groups have their master, and each slave its log."""
        return self.counts() == [3, 3, 3] and all(
            self.role(name, 0) is Role.MASTER
            and len(self.broker(name, 0).broker[Replicas].reported(60_000)) == 2
            and self.follows(name, 1)
            and self.follows(name, 2)
            for name in NAMES
        )

    def answer(
        self, broker: BrokerInMemory, request: RemotingCommand, popper: Popper
    ) -> RemotingCommand:
        """The answer, some time later."""
        before = len(popper.peer.replies)
        answer = broker.request(request, popper.peer)
        if answer is None:
            self.run_until(lambda: len(popper.peer.replies) > before, limit=15)
            answer = popper.peer.replies[-1]
        return answer

    def pop_all(self, name: str, broker_id: int, *, acknowledge: int) -> list[bytes]:
        """Pops what there is and acknowledges the first ones; returns the bodies."""
        broker = self.broker(name, broker_id)
        popper, found = Popper(broker, "Popped", invisible_time=HIDDEN_MS), []
        while (answer := self.answer(broker, popper.request(), popper)).code == 0:
            found += popper.messages(answer)
        for message in found[:acknowledge]:
            ok(self.answer(broker, popper.ack_request(message), popper))
        return [message.body for message in found]


def bodies(broker: BrokerInMemory) -> Counter[bytes]:
    return Counter(message.body for message in broker.consume("Topic", 0))


@pytest.mark.parametrize(
    ("gone", "acts", "takes"),
    [
        pytest.param([], 1, "b", id="beside it"),
        pytest.param([("b", 0)], 1, "c", id="elsewhere"),
        pytest.param([("a", 1), ("b", 0)], 2, "c", id="beside the second slave"),
    ],
)
def test_what_a_lost_master_had_under_way_comes_through_another_one(
    gone: list[tuple[str, int]], acts: int, takes: str
) -> None:
    """The acting master's own container has a master, or lost it too."""
    cluster = Containers()
    master = cluster.broker("a", 0)
    late = [b"late%d" % number for number in range(20)]
    at = str(master.now_ms() + 20_000)
    for number, body in enumerate(late):
        wanted = {"DELAY": "4"} if number % 2 else {"TIMER_DELIVER_MS": at}
        ok(master.send(body, properties=wanted))
    halves = [b"half%d" % number for number in range(16)]
    for body in halves:
        begin(master, body)
    sent = [b"pop%d" % number for number in range(16)]
    for body in sent:
        ok(master.send(body, topic="Popped"))
    cluster.run_until(lambda: cluster.follows("a", 1) and cluster.follows("a", 2))
    for name, number in [("a", 0), *gone]:
        cluster.kill(name, number)
    cluster.run_until(lambda: cluster.acts("a", acts))
    assert sorted(cluster.pop_all("a", acts, acknowledge=8)) == sorted(sent)
    other = cluster.broker(takes, 0)
    producer = connect(other)
    cluster.run(35)
    assert bodies(other) == Counter(late)
    asked = {question.transaction_id for question in questions(producer)}
    assert asked == {f"ID-{body.decode()}" for body in halves}
    assert len(cluster.pop_all(takes, 0, acknowledge=16)) == 8, "those without acknowledgement"
    for name, number in [("a", 0), *gone]:
        cluster.start(name, number)
    cluster.run_until(cluster.is_whole)
    producer = connect(cluster.broker("a", 0))
    cluster.run(15)
    assert not questions(producer), "another master asks about them"
    seen: Counter[bytes] = Counter()
    for name in NAMES:
        seen += bodies(cluster.broker(name, 0))
    assert seen == Counter(late), "nothing comes once more"
    assert not any(cluster.pop_all(name, 0, acknowledge=16) for name in NAMES)


@pytest.mark.parametrize("compatible", [False, True])
def test_brokers_whose_heartbeats_are_lost_are_gone_until_they_come_again(
    compatible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Containers(compatible_with_old_name_srv=compatible)
    assert cluster.counts() == [3, 3, 3]
    with monkeypatch.context() as patch:
        for its in CONTAINERS[0]:
            patch.setattr(cluster.broker(*its).broker[Cluster].membership.group, "beat", int)
        cluster.run_until(lambda: cluster.counts() == [2, 2, 2], limit=10)
    cluster.run_until(lambda: cluster.counts() == [3, 3, 3], limit=10)
    for _ in range(50):
        cluster.run(0.1)
        assert cluster.counts() == [3, 3, 3]
    cluster.run_until(cluster.is_whole)


def test_a_removed_slave_is_no_member_until_it_is_added_again() -> None:
    cluster = Containers()
    assert [cluster.known(name) for name in NAMES] == [{0, 1, 2}] * 3
    for name in NAMES:
        cluster.kill(name, 1)
    cluster.run_until(lambda: [cluster.known(name) for name in NAMES] == [{0, 2}] * 3, limit=5)
    for name in NAMES:
        ok(cluster.broker(name, 0).send(b"meanwhile"))
        assert len(cluster.broker(name, 0).broker[Replicas].reported(60_000)) == 1
        cluster.start(name, 1)
    cluster.run_until(cluster.is_whole, limit=15)
    cluster.run_until(lambda: [cluster.known(name) for name in NAMES] == [{0, 1, 2}] * 3, limit=5)


def test_both_slaves_have_messages_and_offsets() -> None:
    cluster = Containers()
    master = cluster.broker("a", 0)
    for number in range(100):
        ok(master.send(b"%d" % number))
    master.offsets.commit("G", "Topic", 0, 100)
    cluster.run(6)
    for number in (1, 2):
        slave = cluster.broker("a", number)
        assert sum(bodies(slave).values()) == 100
        assert slave.offsets.query("G", "Topic", 0) == 100


def test_a_send_wants_its_copies_unless_fewer_may_do() -> None:
    cluster = Containers({"master_role": "SYNC_MASTER", "in_sync_replicas": 2})
    master = cluster.broker("a", 0)
    popper = Popper(master)

    def send(**properties: str) -> RemotingCommand:
        return cluster.answer(master, master.send_request(b"x", properties=properties), popper)

    ok(send())
    for number in (1, 2):
        cluster.kill("a", number)
    cluster.run_until(lambda: not master.broker[Replicas].reported(60_000))
    end = master.store.end_offset
    refused = send()
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark.startswith(
        "in-sync replicas not enough: 1 with the master, and inSyncReplicas asks for 2: start"
    )
    assert master.store.end_offset == end, "what is refused is not stored"
    ok(send(WAIT="false"))
    master.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enableAutoInSyncReplicas=true")
    ok(send())
    master.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"minInSyncReplicas=2")
    assert send().code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("acts", [False, True])
def test_what_a_slave_is_given_back_comes_by_the_master_of_its_container(acts: bool) -> None:
    cluster = Containers()
    ok(cluster.broker("a", 0).send(b"again"))
    cluster.run_until(lambda: cluster.follows("a", 1))
    if acts:
        cluster.kill("a", 0)
        cluster.run_until(lambda: cluster.acts("a", 1))
    slave, other = cluster.broker("a", 1), cluster.broker("b", 0)
    cluster.run(1)
    (message,) = slave.consume("Topic", 0)
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.physical_offset, group="G", delay_level=1
    )
    popper = Popper(slave)
    for level in (1, -1):
        header.delay_level = level
        request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        ok(cluster.answer(slave, request, popper))
    cluster.run(3)
    for topic in (retry_topic("G"), dlq_topic("G")):
        (again,) = other.consume(topic, 0)
        assert again.body == b"again" and again.reconsume_times == 1
        assert again.properties["RETRY_TOPIC"] == "Topic"
        assert slave.topics.get(topic) is None


def test_members_share_the_queues_of_a_group_whose_master_is_gone() -> None:
    """With lockInStrictMode, as stock's tests have it; two of three brokers are enough."""
    cluster = Containers(lock_in_strict_mode=True)
    queues = [MessageQueue(topic="Topic", broker_name="a", queue_id=number) for number in range(24)]
    cluster.run_until(lambda: cluster.follows("a", 1) and cluster.follows("a", 2))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    acting = cluster.broker("a", 1)
    popper = Popper(acting)

    def ask(code: RequestCode, **fields: Any) -> RemotingCommand:
        return cluster.answer(acting, RemotingCommand.request(code, **fields), popper)

    def lock(client: str, wanted: list[MessageQueue]) -> list[MessageQueue]:
        body = LockBatchRequestBody(consumer_group="G", client_id=client, mq_set=wanted)
        answer = ask(RequestCode.LOCK_BATCH_MQ, body=encode_body(body))
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    for number, client in enumerate(("c1", "c2")):
        acting.heartbeat(client, FakePeer(f"127.0.0.1:{50001 + number}"))
    header = GetConsumerListByGroupRequestHeader(consumer_group="G")
    listed = ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header=header)
    assert decode_body(ConsumerIdList, listed.body).consumer_id_list == ["c1", "c2"]
    assert lock("c1", queues[:12]) == queues[:12]
    assert lock("c2", queues) == queues[12:]
    cluster.kill("a", 2)
    cluster.run_until(lambda: set(cluster.members("a")) == {1})
    assert lock("c1", queues[:12]) == []


def test_the_next_slave_acts_where_the_acting_master_is_removed() -> None:
    cluster = Containers()
    for gone, acts in ((0, 1), (1, 2)):
        cluster.kill("a", gone)
        cluster.run_until(lambda acts=acts: cluster.acts("a", acts), limit=10)  # type: ignore[misc]
        address = cluster.broker("a", acts).broker.addresses.broker
        (shown,) = (each for each in cluster.route("Topic").broker_datas if each.broker_name == "a")
        assert shown.broker_addrs[0] == address
        assert RequestCode.LOCK_BATCH_MQ in cluster.broker("a", acts).broker.listener.handlers
