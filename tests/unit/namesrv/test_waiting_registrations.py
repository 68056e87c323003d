"""Large registrations that wait for their turn: no host keeps another one's broker out."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.namesrv.requests.waiting import MAX_WAITING_REGISTRATIONS
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.large_registrations import registration, send, topics_of
from tests.support.network import FakePeer
from tests.support.wait import go_on


@pytest.fixture
def slow(namesrv: Any) -> Any:
    """A name server whose threads have to be told to go on."""
    namesrv.threads.eager = False
    return namesrv


def strangers(namesrv: Any, hosts: list[str]) -> list[list[Any]]:
    """A large registration from each of these hosts, over a connection of its own."""
    return [
        send(
            namesrv,
            registration(name=f"{host}-{n}", port=n + 1, topics=9, compressed=True),
            FakePeer(f"{host}:{40_000 + n}"),
        )
        for n, host in enumerate(hosts)
    ]


def test_a_host_with_many_connections_waits_for_its_turn_as_others_do(slow: Any) -> None:
    """A broker gives its registration up after 24 s."""
    flood = strangers(slow, ["10.66.0.1"] * 50)
    broker = send(slow, registration(topics=300, compressed=True), FakePeer("10.0.0.1:40000"))
    assert go_on(slow, broker).code == 0
    assert sum(map(bool, flood)) <= 2, "the one that was read, and one turn of the others"
    assert go_on(slow, flood[-1]).code == 0 and all(flood)


def test_a_newer_registration_has_the_place_of_the_one_that_it_replaces(slow: Any) -> None:
    """Who says all again every 30 s went to the end each time, and was never taken in."""
    peer = FakePeer("10.0.0.1:40000")
    before = strangers(slow, ["10.66.0.1", "10.66.0.2"])
    first = send(slow, registration(topics=300, perm=2, compressed=True), peer)
    behind = strangers(slow, [f"10.66.1.{n}" for n in range(5)])
    second = send(slow, registration(topics=400, perm=6, compressed=True), peer)
    assert first[0].value.code == ResponseCode.SYSTEM_BUSY
    assert "a newer registration of 127.0.0.1:10911 came" in first[0].value.remark
    assert go_on(slow, second).code == 0
    assert all(before) and not any(behind)
    assert topics_of(slow) == 400
    assert slow.route("T1")["queueDatas"][0]["perm"] == 6


def test_what_a_broker_says_after_it_left_is_not_taken_in_before(slow: Any) -> None:
    peer, request = FakePeer(), registration(topics=300)
    strangers(slow, ["10.66.0.1"])
    first = send(slow, request, peer)
    left = send(slow, RemotingCommand(104, ext_fields=request.ext_fields), peer)
    second = send(slow, registration(topics=400), peer)
    assert first[0].value.code == ResponseCode.SYSTEM_BUSY
    assert go_on(slow, second).code == 0 and left[0].code == 0
    assert topics_of(slow) == 400 and "broker-a" in slow.addresses("T1")


def test_many_that_are_replaced_leave_room_for_others(slow: Any) -> None:
    """Of a connection's places none is lost to one that was given up."""
    peer = FakePeer()
    strangers(slow, ["10.66.0.1"])
    for _ in range(3):
        for topics in range(20, 0, -1):
            last = send(slow, registration(topics=topics, compressed=True), peer)
    for n in range(MAX_WAITING_REGISTRATIONS - 20):
        send(slow, registration(name=f"b{n}", port=n + 1, topics=2, compressed=True), peer)
    with pytest.raises(RequestError, match="wait for their answers"):
        send(slow, registration(name="more", port=99, compressed=True), peer)
    assert go_on(slow, last).code == 0


def test_what_waits_goes_with_its_connection(slow: Any) -> None:
    """Not when its turn comes: who comes and goes would fill the memory with what it sent."""
    reading = strangers(slow, ["10.0.0.1"])
    peer = FakePeer("10.66.0.1:40000")
    waiting = [
        send(slow, registration(name=f"b{n}", port=n + 99, topics=2, compressed=True), peer)
        for n in range(3)
    ]
    peer.lose()
    assert {answered[0].value.remark for answered in waiting} == {
        "its connection was lost while this one waited"
    }
    assert go_on(slow, reading[0]).code == 0
    assert slow.server.table.broker_names() == ["10.0.0.1-0"]


@pytest.mark.parametrize(("host", "lives"), [("127.0.0.1", True), ("10.66.0.1", False)])
def test_a_registration_that_waits_is_a_sign_of_life_of_its_host(
    slow: Any, host: str, lives: bool
) -> None:
    slow.server.liveness.start()
    slow.register(heartbeatTimeoutMillis=10_000)
    strangers(slow, ["10.66.0.1"])
    slow.clock.advance(8)
    waiting = send(slow, registration(compressed=True), FakePeer(f"{host}:40000"))
    slow.clock.advance(7)
    assert not waiting
    assert bool(slow.addresses("T1")) is lives
