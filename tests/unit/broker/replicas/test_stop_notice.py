"""A master that stops lets its slaves copy what changed since their last copy."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.replicas.stop_notice import LAST_COPY_SECONDS
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.broker import ExchangeHAInfoRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.master_and_slaves import HA, MASTER, MasterAndSlaves, Slave
from tests.support.network import FakePeer


def copied() -> tuple[MasterAndSlaves, Slave]:
    group = MasterAndSlaves()
    slave = group.add_slave()
    slave.copy()
    group.settle()
    return group, slave


def stop(group: MasterAndSlaves) -> float:
    """Stops the master; the seconds that this takes."""
    began = group.clock.seconds()
    stopped = group.master.plane.broker.stop()
    for _ in range(500):
        if stopped.called:
            break
        group.clock.advance(0.01)
    assert stopped.called
    took = group.clock.seconds() - began
    group.network.stop(HA)
    group.network.stop(MASTER)
    return took


def test_what_changed_just_before_the_master_stops_is_at_its_slave() -> None:
    group, slave = copied()
    master = group.master.plane
    master.add_topic("Made", read_queue_nums=7, write_queue_nums=7)
    master.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    ok(master.send(b"first", topic="Made"))
    master.offsets.commit("G", "Made", 0, 1)
    assert stop(group) < 1
    slave.stop()
    new = BrokerInMemory(slave.plane.files, clock=group.clock, **group.store)
    made, known = new.topics.get("Made"), new.groups.get("G")
    assert made is not None and made.read_queue_nums == 7
    assert known is not None and known.retry_max_times == 3
    assert new.offsets.query("G", "Made", 0) == 1
    assert [message.body for message in new.consume("Made")] == [b"first"]


def held(group: MasterAndSlaves) -> FakePeer:
    """Another slave, which asked and says nothing more."""
    peer = FakePeer("10.0.1.9:4000")
    answer = group.master.plane.ask(
        RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader(until_stop=True), peer=peer
    )
    assert isinstance(answer, Deferred)
    return peer


def test_a_slave_that_does_not_copy_holds_no_stop_up_for_long() -> None:
    group, _ = copied()
    held(group)
    assert LAST_COPY_SECONDS <= stop(group) < LAST_COPY_SECONDS + 1


def test_a_slave_that_is_gone_holds_no_stop_up() -> None:
    group, _ = copied()
    held(group).lose()
    assert stop(group) < 1


def test_a_slave_that_is_lost_meanwhile_holds_no_stop_up() -> None:
    group, _ = copied()
    group.clock.callLater(0.5, held(group).lose)
    assert 0.4 < stop(group) < 1


def test_a_master_of_stock_answers_at_once_and_is_asked_behind_the_next_copy() -> None:
    group, slave = copied()
    asked: list[Any] = []

    def answer(request: Any, peer: Any) -> Any:
        asked.append(request.header(ExchangeHAInfoRequestHeader))
        return request.response()

    stop(group)
    group.master = group.new_master(**group.store)
    group.master.plane.handlers[RequestCode.EXCHANGE_BROKER_HA_INFO] = answer
    group.settle()
    slave.copy()
    slave.copy()
    assert len(asked) > 1 and all(header.until_stop for header in asked)


def test_who_asks_without_waiting_is_answered_at_once() -> None:
    group, _ = copied()
    answer = group.master.plane.ask(
        RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader()
    )
    assert ok(answer)["masterAddress"] == MASTER


def ask_until_stop(group: MasterAndSlaves, peer: FakePeer) -> Any:
    return group.master.plane.ask(
        RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader(until_stop=True), peer=peer
    )


def test_asking_again_and_again_leaves_nothing_behind() -> None:
    """What each question left with the connection made the next one take longer."""
    group, _ = copied()
    peer = FakePeer("10.0.1.9:4000")
    for _ in range(20):
        ask_until_stop(group, peer)
    assert peer.watchers == 1


def test_one_host_does_not_take_the_places_of_others() -> None:
    group, _ = copied()
    strangers = [FakePeer(f"10.0.1.9:{port}") for port in range(4000, 4200)]
    for peer in strangers:
        ask_until_stop(group, peer)
    assert isinstance(ask_until_stop(group, FakePeer("10.0.1.10:4000")), Deferred)
    for peer in strangers:
        peer.lose()
    assert isinstance(ask_until_stop(group, FakePeer("10.0.1.9:5000")), Deferred)
