"""Messages and bytes of topics and groups, and request 315."""

from types import SimpleNamespace

import pytest
from twisted.internet.protocol import Factory

from rocketmq_tw.broker.stats import totals
from rocketmq_tw.broker.stats import traffic as module
from rocketmq_tw.broker.stats.traffic import GROUP_GET, TOPIC_PUT, Traffic
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.stats import BrokerStatsData, BrokerStatsItem
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.broker import ViewBrokerStatsDataRequestHeader
from rocketmq_tw.wire.headers.clients import DeleteSubscriptionGroupRequestHeader
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory, Threads
from tests.support.memory_server import RawClient
from tests.support.pops import Popper
from tests.support.stores import ManualClock

STEP_MS = 10_000


def arrive(traffic: Traffic, *topics: str) -> None:
    traffic.arrived(
        [
            SimpleNamespace(topic=topic, queue_id=0, queue_offset=number, count=1, size=100)
            for number, topic in enumerate(topics)
        ]
    )


def test_a_batch_counts_with_all_its_messages() -> None:
    traffic = Traffic(ManualClock())
    batch = SimpleNamespace(topic="A", queue_id=0, queue_offset=0, count=3, size=270)
    one = SimpleNamespace(topic="A", queue_id=0, queue_offset=3, count=1, size=100)
    traffic.arrived([batch])
    traffic.arrived([batch, one, one])
    found = traffic.of(TOPIC_PUT, "A")
    assert found is not None and found.stats_minute.sum == 8
    sizes = traffic.of("TOPIC_PUT_SIZE", "A")
    assert sizes is not None
    assert sizes.stats_minute == BrokerStatsItem(sum=740, tps=740_000, avgpt=370)


def pass_time(traffic: Traffic, now: ManualClock, looks: int) -> None:
    for _ in range(looks):
        now.now_ms += STEP_MS
        for _ in traffic.sample():
            pass


def test_messages_are_counted_by_topic_and_by_group() -> None:
    now = ManualClock()
    traffic = Traffic(now)
    arrive(traffic, "A")
    arrive(traffic, "A", "B", "A")
    traffic.pulled("A", "G", 3, 30)
    now.now_ms += 2_000
    found = traffic.of(TOPIC_PUT, "A")
    assert found is not None
    assert found.stats_minute == BrokerStatsItem(sum=3, tps=1.5, avgpt=1.5)
    assert found.stats_day == found.stats_hour == found.stats_minute
    sizes = traffic.of("TOPIC_PUT_SIZE", "A")
    assert sizes is not None
    assert sizes.stats_minute == BrokerStatsItem(sum=300, tps=150, avgpt=150)
    pulled = traffic.of(GROUP_GET, "A@G")
    assert pulled is not None and pulled.stats_minute is not None
    assert (pulled.stats_minute.sum, pulled.stats_minute.avgpt) == (3, 3.0)
    assert traffic.of("GROUP_GET_SIZE", "A@G").stats_minute.sum == 30


def test_what_groups_give_back_is_counted_by_the_topic_that_it_came_from() -> None:
    traffic = Traffic(ManualClock())
    for _ in range(2):
        traffic.given_back("A", "G")
    found = traffic.of("SNDBCK_PUT_NUMS", "A@G")
    assert found is not None and found.stats_minute.sum == 2
    assert traffic.of("SNDBCK_PUT_NUMS", "A@H") is None


@pytest.mark.parametrize(
    ("name", "key"), [(TOPIC_PUT, "B"), (GROUP_GET, "A"), ("TOPIC_PUT_SIZE", "B"), ("", "")]
)
def test_what_is_not_counted_is_none(name: str, key: str) -> None:
    traffic = Traffic(ManualClock())
    arrive(traffic, "A")
    assert traffic.of(name, key) is None


def test_the_windows_move_on() -> None:
    now = ManualClock()
    traffic = Traffic(now)

    def sums() -> tuple[int, int, int]:
        found = traffic.of(TOPIC_PUT, "A")
        assert found and found.stats_minute and found.stats_hour and found.stats_day
        return found.stats_minute.sum, found.stats_hour.sum, found.stats_day.sum

    arrive(traffic, "A", "A")
    pass_time(traffic, now, 5)
    assert sums() == (2, 2, 2)
    pass_time(traffic, now, 1)
    assert sums() == (0, 2, 2)
    pass_time(traffic, now, 360)
    assert sums() == (0, 0, 2)
    arrive(traffic, "A")
    assert sums() == (1, 1, 3)


def test_a_day_without_a_message_is_forgotten() -> None:
    now = ManualClock()
    traffic = Traffic(now)
    arrive(traffic, "A", "B")
    pass_time(traffic, now, 24 * 360)
    arrive(traffic, "B")
    pass_time(traffic, now, 360)
    assert traffic.of(TOPIC_PUT, "A") is None
    assert traffic.of(TOPIC_PUT, "B") is not None


def read(traffic: Traffic, *topics: str) -> None:
    """The group G reads a message of each topic."""
    for topic in topics:
        traffic.pulled(topic, "G", 1, 10)


def total(traffic: Traffic) -> dict[str | None, int]:
    """By topic, of the group G."""
    return {
        key and key.removesuffix("@G"): total.messages for key, total in traffic.totals(GROUP_GET)
    }


def test_the_total_grows_over_a_day_that_the_windows_forget() -> None:
    now = ManualClock()
    traffic = Traffic(now)
    read(traffic, "A", "A")
    pass_time(traffic, now, 25 * 360)
    assert traffic.of(GROUP_GET, "A@G") is None
    assert total(traffic) == {"A": 2}
    read(traffic, "A")
    assert list(traffic.totals(GROUP_GET)) == [("A@G", (3, 30))]


def test_the_total_of_a_removed_topic_ends_and_begins_at_0() -> None:
    now = ManualClock()
    traffic = Traffic(now)
    read(traffic, "A", "B", "B")
    pass_time(traffic, now, 25 * 360)
    read(traffic, "A", "B", "C", "C")
    traffic.forget(["A", "B"])
    now.now_ms += 1
    read(traffic, "B")
    pass_time(traffic, now, 1)
    assert total(traffic) == {"C": 2}
    read(traffic, "A")
    traffic.forget(["C"])
    pass_time(traffic, now, 1)
    read(traffic, "B")
    assert total(traffic) == {"A": 1, "B": 1}


def test_totals_without_a_series_only_grow_together(monkeypatch) -> None:
    monkeypatch.setattr(totals, "MAX_SERIES", 1)
    monkeypatch.setattr(module, "MAX_KEYS", 2)
    now = ManualClock()
    traffic = Traffic(now)
    read(traffic, "A", "B", "C")
    assert total(traffic) == {"A": 1, None: 2}
    pass_time(traffic, now, 25 * 360)
    read(traffic, "B", "C")
    traffic.forget(["A"])
    pass_time(traffic, now, 1)
    # There is room now, but what B had counted is with the others.
    read(traffic, "B")
    assert total(traffic) == {None: 5}
    pass_time(traffic, now, 25 * 360)
    read(traffic, "B")
    assert total(traffic) == {"B": 1, None: 5}


def test_names_that_anybody_makes_up_are_not_all_counted(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 2)
    traffic = Traffic(ManualClock())
    arrive(traffic, "A", "B", "C")
    arrive(traffic, "A")
    assert traffic.of(TOPIC_PUT, "C") is None
    found = traffic.of(TOPIC_PUT, "A")
    assert found is not None and found.stats_day is not None
    assert found.stats_day.sum == 2


def counted(traffic: Traffic) -> set[str]:
    """The keys of topics, and of topics and groups."""
    known = {(TOPIC_PUT, topic) for topic in "AB"}
    known |= {(GROUP_GET, f"{topic}@{group}") for topic in "AB" for group in "GH"}
    return {key for name, key in known if traffic.of(name, key) is not None}


def test_what_was_counted_of_a_removed_topic_or_group_is_forgotten() -> None:
    now = ManualClock()
    traffic = Traffic(now)
    arrive(traffic, "A", "B")
    for topic, group in ("AG", "AH", "BG", "BH"):
        traffic.pulled(topic, group, 1, 10)
    traffic.forget(["A", "H"])
    pass_time(traffic, now, 1)
    assert counted(traffic) == {"B", "B@G"}
    # Made again: counted anew.
    arrive(traffic, "A")
    pass_time(traffic, now, 2)
    assert counted(traffic) == {"A", "B", "B@G"}


def test_a_deletion_has_the_statistics_forgotten() -> None:
    broker = BrokerInMemory()
    for topic in ("A", "B"):
        broker.send(topic=topic)
        broker.pull(topic=topic)
    assert counted(broker.traffic) == {"A", "B", "A@G", "B@G"}
    broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="A"))
    broker.clock.pump([1.0] * 11)
    assert counted(broker.traffic) == {"B", "B@G"}
    header = DeleteSubscriptionGroupRequestHeader(group_name="G")
    broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    broker.clock.pump([1.0] * 11)
    assert counted(broker.traffic) == {"B"}
    assert list(broker.traffic._flows["TOPIC_PUT_LATENCY"]) == ["0@B"]
    assert not broker.traffic._flows["GROUP_GET_LATENCY"]


def shown(broker: BrokerInMemory, name: str, key: str) -> BrokerStatsItem:
    """The minute of what request 315 answers."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    answer = broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    minute = decode_body(BrokerStatsData, answer.body).stats_minute
    assert minute is not None
    return minute


def test_the_latency_of_a_send_lasts_until_it_is_stored() -> None:
    threads = Threads(eager=False)
    broker = BrokerInMemory(threads=threads, flush_disk_type="SYNC_FLUSH")
    broker.send(queue_id=2)
    broker.clock.advance(0.25)
    with refused(ResponseCode.SYSTEM_ERROR):
        shown(broker, "TOPIC_PUT_LATENCY", "2@Topic")
    threads.run()
    stored = shown(broker, "TOPIC_PUT_LATENCY", "2@Topic")
    assert (stored.sum, stored.avgpt) == (250, 250)


def test_the_latency_of_pulls_is_that_of_answers_with_messages() -> None:
    broker = BrokerInMemory()
    broker.send(queue_id=2)
    broker.pull(1, queue_id=2)
    with refused(ResponseCode.SYSTEM_ERROR):
        shown(broker, "GROUP_GET_LATENCY", "2@Topic@G")
    broker.pull(queue_id=2)
    assert shown(broker, "GROUP_GET_LATENCY", "2@Topic@G") == BrokerStatsItem()


def test_latencies_are_the_milliseconds_of_a_request() -> None:
    traffic = Traffic(ManualClock())
    traffic.stored("T", 3, 10)
    traffic.stored("T", 3, 30)
    traffic.answered("T", "G", -1, 5)
    stored, answered = (
        traffic.of("TOPIC_PUT_LATENCY", "3@T"),
        traffic.of("GROUP_GET_LATENCY", "-1@T@G"),
    )
    assert stored is not None and answered is not None
    assert stored.stats_minute == BrokerStatsItem(sum=40, tps=40_000, avgpt=20)
    assert answered.stats_minute == BrokerStatsItem(sum=5, tps=5_000, avgpt=5)


def test_a_pop_is_counted_by_the_queue_that_it_asked_for() -> None:
    broker = BrokerInMemory()
    broker.send(queue_id=1)
    assert Popper(broker).pop()
    assert list(broker.traffic._flows["GROUP_GET_LATENCY"]) == ["-1@Topic@G"]


def test_connections_are_counted() -> None:
    broker = BrokerInMemory()
    clients: list[RawClient] = []
    for _ in range(2):
        connecting = broker.network.connect(
            "10.0.0.9", broker.address, Factory.forProtocol(RawClient)
        )
        connecting.addCallback(clients.append)
    clients[0].transport.loseConnection()  # type: ignore[union-attr]
    broker.clock.advance(0.1)
    assert shown(broker, "CHANNEL_ACTIVITY", "CONNECT").sum == 2
    assert shown(broker, "CHANNEL_ACTIVITY", "CLOSE").sum == 1


def test_latencies_have_room_for_fewer_keys(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUE_KEYS", 2)
    traffic = Traffic(ManualClock())
    for queue_id in range(3):
        traffic.stored("T", queue_id, 1)
    assert traffic.of("TOPIC_PUT_LATENCY", "1@T") is not None
    assert traffic.of("TOPIC_PUT_LATENCY", "2@T") is None


def test_very_many_keys_are_sampled_in_steps() -> None:
    traffic = Traffic(ManualClock())
    arrive(traffic, *map(str, range(5_000)))
    assert len(list(traffic.sample())) == 5


def test_the_traffic_of_a_topic_is_shown(plane: BrokerInMemory) -> None:
    plane.traffic.pulled("T", "G", 4, 40)
    header = ViewBrokerStatsDataRequestHeader(stats_name="GROUP_GET_NUMS", stats_key="T@G")
    answer = plane.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    found = decode_body(BrokerStatsData, answer.body)
    assert found.stats_minute is not None and found.stats_minute.sum == 4
    header = ViewBrokerStatsDataRequestHeader(stats_name="GROUP_GET_NUMS", stats_key="T@H")
    with refused(ResponseCode.SYSTEM_ERROR) as refusal:
        plane.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert "GROUP_GET_NUMS of T@H" in refusal.value.remark


def test_a_clock_that_is_set_back_makes_no_flood() -> None:
    broker = BrokerInMemory()
    for _ in range(3):
        broker.send(topic="A")
    broker.shift_ms = -86_400_000
    broker.clock.pump([1.0] * 30)
    assert shown(broker, TOPIC_PUT, "A").tps <= 1
