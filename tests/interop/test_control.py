"""Groups under an administrator's hand: stock's tools against our broker and against the broker of
their own version see and do the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import ConsumeStats, CorrectionOffsetBody, OffsetWrapper
from rocketmq_tw.wire.bodies.stats import BrokerStatsData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.broker import ViewBrokerStatsDataRequestHeader
from rocketmq_tw.wire.headers.clients import GetConsumeStatsRequestHeader
from rocketmq_tw.wire.headers.offsets import QueryCorrectionOffsetHeader
from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, Json, PushConsumer
from tests.support.remoting import ask
from tests.support.wait import wait_until

QUEUES = 2


Stocks = Callable[[str], Cluster]


@pytest.fixture(scope="module")
def stocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stocks]:
    """Gives a broker of a version of stock with a name server of ours; the first to ask starts
    it."""
    home = tmp_path_factory.mktemp("control")
    with ExitStack() as stack:

        @cache
        def started(version: str) -> Cluster:
            cluster = Cluster.of(home / version, name_servers=[OURS], brokers=[version])
            return stack.enter_context(cluster)

        yield started


@pytest.fixture(params=[OURS, pytest.param("stock", marks=pytest.mark.stock_only)])
def site(
    request: pytest.FixtureRequest, java: JavaClients, cluster: Cluster, stocks: Stocks
) -> Cluster:
    """Our broker, and a stock broker of the clients' version."""
    return cluster if request.param == OURS else stocks(java.version)


class Group:
    """A group that consumes a topic of two queues, and the tools that look at it."""

    def __init__(self, java: JavaClients, site: Cluster, topic: str, name: str) -> None:
        self.java = java
        self.namesrv = site.namesrv
        self.broker = site.broker
        self.topic = site.create_topic(java, topic, queues=QUEUES)
        self.name = name

    def consumer(self, **options: Any) -> PushConsumer:
        return self.java.consumer(self.namesrv, self.name, {self.topic: "*"}, **options)

    def mqadmin(self, command: str, *more: str) -> str:
        """What it printed; raises where that is a failure."""
        shown = self.java.mqadmin(*command.split(), *more, "-n", self.namesrv)
        assert "Exception:" not in shown, f"mqadmin {command}:\n{shown}"
        return shown

    def configure(self, options: str = "", *more: str) -> None:
        made = self.mqadmin(
            f"updateSubGroup -b {self.broker.address} -g {self.name} {options}", *more
        )
        assert f"to {self.broker.address} success" in made

    def admin(self, method: str, *arguments: Any) -> Any:
        return self.java.admin(self.namesrv, method, *arguments)

    def send(self, *bodies: str) -> list[Json]:
        with self.java.producer(self.namesrv) as producer:
            return [
                producer.send({"topic": self.topic, "body": body}, queue=number % QUEUES)[0]
                for number, body in enumerate(bodies)
            ]

    def counted(self, name: str, key: str) -> RemotingCommand:
        """What request 315 is answered with."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        request = RemotingCommand.request(RequestCode.VIEW_BROKER_STATS_DATA, header)
        return ask(self.broker.address, request)

    def client_id(self) -> str:
        """The client id of the group's only member."""

        def connected() -> list[Json]:
            found: list[Json] = self.admin("examineConsumerConnectionInfo", self.name)[
                "connectionSet"
            ]
            return found

        (member,) = wait_until(connected, "the member")
        client_id: str = member["clientId"]
        return client_id

    def offsets(self) -> list[int]:
        """What the group has committed, queue by queue."""
        return [queue.consumer_offset for queue in self._queues()]

    def _queues(self) -> list[OffsetWrapper]:
        header = GetConsumeStatsRequestHeader(consumer_group=self.name, topic=self.topic)
        answer = ask(
            self.broker.address, RemotingCommand.request(RequestCode.GET_CONSUME_STATS, header)
        )
        queues = decode_body(ConsumeStats, answer.body).offset_table
        return [queues[queue] for queue in sorted(queues)]

    def wait_offsets(self, *offsets: int) -> None:
        wait_until(lambda: self.offsets() == list(offsets), f"offsets {offsets}", interval=0.2)

    def wait_readable(self, *ends: int) -> None:
        """Stock fills its queues behind the back of who was answered."""
        wait_until(
            lambda: [queue.broker_offset for queue in self._queues()] == list(ends),
            f"queues that end at {ends}",
        )


@pytest.fixture
def group(java: JavaClients, site: Cluster, names) -> Group:
    return Group(java, site, names.topic, names.group)


def test_what_a_member_says_of_itself(group: Group) -> None:
    with group.consumer() as consumer:
        sent = group.send("a", "b", "c")
        consumer.received(3)
        client_id = group.client_id()
        info = group.admin("getConsumerRunningInfo", group.name, client_id, True)
        assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "ConsumeMessageThread" in info["jstack"]
        assert sum(f"topic={group.topic}," in queue for queue in info["mqTable"]) == QUEUES
        shown = group.mqadmin(f"consumerStatus -g {group.name} -i {client_id}")
        assert group.topic in shown
        group.wait_offsets(2, 1)
        told = group.admin("getConsumeStatus", group.topic, group.name, "")
        (queues,) = told.values()
        assert sorted(queues.values()) == [1, 2]
        # One message is consumed once more, by the member that is named.
        again = group.admin(
            "consumeMessageDirectly", group.name, client_id, group.topic, sent[0]["offsetMsgId"]
        )
        assert again["consumeResult"] == "CR_SUCCESS"
        assert consumer.bodies(4)[3] == "a"
        shown = group.mqadmin(
            f"queryMsgById -i {sent[1]['offsetMsgId']} -g {group.name} -d {client_id}"
            # 4.9.7's exits at an option that it does not know.
            + (f" -t {group.topic}" if group.java.version == "5.3.3" else "")
        )
        assert "CR_SUCCESS" in shown
        assert consumer.bodies(5)[4] == "b"
        assert group.offsets() == [2, 1]


def test_latencies_and_connections_are_counted(group: Group) -> None:
    """By the keys that stock gives them; what nothing is counted of is refused."""
    group.send("a", "b", "c")
    with group.consumer() as consumer:
        consumer.received(3)
    keys = [("GROUP_GET_LATENCY", f"0@{group.topic}@{group.name}")]
    if group.java.version == "5.3.3":
        # Stock 4.9 does not count these.
        keys += [("TOPIC_PUT_LATENCY", f"1@{group.topic}"), ("CHANNEL_ACTIVITY", "CONNECT")]
    for name, key in keys:
        counted = decode_body(BrokerStatsData, group.counted(name, key).body)
        assert counted.stats_minute is not None and counted.stats_minute.sum >= 0
    for name, key in [
        ("GROUP_GET_LATENCY", f"{QUEUES}@{group.topic}@{group.name}"),
        ("TOPIC_PUT_LATENCY", f"{QUEUES}@{group.topic}"),
        ("CHANNEL_ACTIVITY", "OTHER"),
    ]:
        assert group.counted(name, key).code == ResponseCode.SYSTEM_ERROR


def test_how_far_a_group_is_in_time(group: Group) -> None:
    with group.consumer() as consumer:
        group.send("a", "b")
        consumer.received(2)
        group.wait_offsets(1, 1)
        consumer.stop()
    group.send("later")
    group.wait_readable(2, 1)
    spans = {
        span["messageQueue"]["queueId"]: span
        for span in group.admin("queryConsumeTimeSpan", group.topic, group.name)
    }
    assert sorted(spans) == [0, 1]
    assert spans[0]["minTimeStamp"] == spans[0]["consumeTimeStamp"] < spans[0]["maxTimeStamp"]
    assert spans[0]["delayTime"] >= 0
    assert spans[1]["minTimeStamp"] == spans[1]["consumeTimeStamp"] == spans[1]["maxTimeStamp"]
    assert spans[1]["delayTime"] == 0


def test_a_group_that_runs_is_reset_to_a_time(group: Group) -> None:
    with group.consumer() as consumer:
        group.send("a", "b", "c")
        consumer.received(3)
        group.wait_offsets(2, 1)
        group.mqadmin(f"resetOffsetByTime -g {group.name} -t {group.topic} -s 0")
        assert sorted(consumer.bodies(6)[3:]) == ["a", "b", "c"]
        group.wait_offsets(2, 1)


@pytest.mark.parametrize(
    "java", [pytest.param("4.9.7", marks=pytest.mark.more), "5.3.3"], indirect=True
)
def test_a_group_that_is_away_is_reset_to_a_time(group: Group) -> None:
    with group.consumer() as consumer:
        group.send("a", "b", "c")
        consumer.received(3)
        group.wait_offsets(2, 1)
        consumer.stop()
    group.mqadmin(f"resetOffsetByTime -g {group.name} -t {group.topic} -s 0")
    assert group.offsets() == [0, 0]
    with group.consumer() as consumer:
        assert sorted(consumer.bodies(3)) == ["a", "b", "c"]
        group.wait_offsets(2, 1)


def test_what_has_piled_up_is_passed_over(group: Group) -> None:
    with group.consumer() as consumer:
        group.send("a", "b")
        consumer.received(2)
        group.wait_offsets(1, 1)
        consumer.stop()
    group.send(*(f"piled-{number}" for number in range(10)))
    group.wait_readable(6, 6)
    group.mqadmin(f"skipAccumulatedMessage -g {group.name} -t {group.topic}")
    assert group.offsets() == [6, 6]
    with group.consumer() as consumer:
        group.send("new")
        assert consumer.bodies(1) == ["new"]


def test_a_group_gets_the_offsets_of_another(group: Group, names) -> None:
    with group.consumer() as consumer:
        group.send("a", "b", "c")
        consumer.received(3)
        group.wait_offsets(2, 1)
        other = names.group
        group.mqadmin(f"updateSubGroup -b {group.broker.address} -g {other}")
        group.mqadmin(f"cloneGroupOffset -s {group.name} -d {other} -t {group.topic}")
        copied = Group.__new__(Group)
        copied.__dict__ |= group.__dict__ | {"name": other}
        assert copied.offsets() == [2, 1]
        # What the command above does with single commits, 314 does on the broker.
        third = names.group
        group.mqadmin(f"updateSubGroup -b {group.broker.address} -g {third}")
        group.admin("cloneGroupOffset", group.name, third, group.topic, False)
        copied.name = third
        assert copied.offsets() == [2, 1]


def test_a_group_that_may_not_consume(group: Group) -> None:
    group.configure("-s true")
    with group.consumer() as consumer:
        group.send("a", "b")
        consumer.received(2)
        group.configure("-s false")
        sent = group.send("c", "d")
        assert len(sent) == 2
        group.wait_offsets(1, 1)
        group.configure("-s true")
        assert sorted(consumer.bodies(4)[2:]) == ["c", "d"]


def test_a_group_that_may_not_broadcast(group: Group) -> None:
    group.configure("-d false")
    with group.consumer(broadcast=True) as consumer:
        group.client_id()
        group.send("a", "b")
        group.configure("-d true")
        # It was refused as long as it might not, and lost nothing by it.
        received = consumer.received(2)
        assert sorted(message["body"] for message in received) == ["a", "b"]


@pytest.mark.parametrize("kind", [OURS, "5.3.3"])
def test_a_topic_that_a_group_may_not_read(
    kind: str, jvms: dict[str, JavaClients], cluster: Cluster, stocks: Stocks, names
) -> None:
    """The tools of 4.9.7 do not know it."""
    site = cluster if kind == OURS else stocks(kind)
    group = Group(jvms["5.3.3"], site, names.topic, names.group)
    group.configure()
    address = group.broker.address

    def readable(value: bool | None) -> bool:
        told = group.admin(
            "updateAndGetGroupReadForbidden", address, group.name, group.topic, value
        )
        assert (told["group"], told["topic"]) == (group.name, group.topic)
        answer: bool = told["readable"]
        return answer

    with group.consumer() as consumer:
        group.send("a", "b")
        consumer.received(2)
        assert readable(None)
        assert not readable(False)
        assert not readable(None)
        group.send("c", "d")
        group.wait_offsets(1, 1)
        assert readable(True)
        assert sorted(consumer.bodies(4)[2:]) == ["c", "d"]


def test_corrections_of_offsets(group: Group, names) -> None:
    """No tool asks for them."""
    other = names.group
    with group.consumer() as consumer:
        group.send("a", "b", "c")
        consumer.received(3)
        group.wait_offsets(2, 1)
    address, queue = group.broker.address, {"brokerName": group.broker.name, "topic": group.topic}
    group.mqadmin(f"updateSubGroup -b {address} -g {other}")
    for queue_id, offset in enumerate((1, 1)):
        group.admin("updateConsumeOffset", address, other, queue | {"queueId": queue_id}, offset)

    def corrections(compare_group: str, filter_groups: str | None = None) -> dict[int, int]:
        header = QueryCorrectionOffsetHeader(
            topic=group.topic, compare_group=compare_group, filter_groups=filter_groups
        )
        answer = ask(address, RemotingCommand.request(RequestCode.QUERY_CORRECTION_OFFSET, header))
        assert answer.code == ResponseCode.SUCCESS, answer
        return decode_body(CorrectionOffsetBody, answer.body).correction_offsets

    assert corrections(group.name) == {0: 1, 1: 1}
    assert corrections(other) == {0: 1, 1: 1}
    # Stock forgets the offsets of groups that are left out, so it is asked for one that is gone.
    assert corrections(group.name, other) == {0: 2, 1: 1}


POLICIES = [
    {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 5000, "max": 60000, "multiplier": 3},
    },
    {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000, 10000]}},
]


@pytest.mark.parametrize("policy", POLICIES, ids=["exponential", "customized"])
def test_how_long_a_group_waits_between_tries(
    policy: Json, jvms: dict[str, JavaClients], cluster: Cluster, stocks: Stocks, names
) -> None:
    """Brokers keep it and tell it; those who wait are stock's proxies."""
    told = []
    for site in (cluster, stocks("5.3.3")):
        group = Group(jvms["5.3.3"], site, names.topic, names.group)
        group.configure("-r 7", "-p", json.dumps(policy))
        config = group.admin("examineSubscriptionGroupConfig", site.broker.address, group.name)
        assert config.pop("groupName") == group.name
        assert config["retryMaxTimes"] == 7
        told.append(config)
    assert told[0] == told[1]
    assert told[0]["groupRetryPolicy"]["type"] == policy["type"]
