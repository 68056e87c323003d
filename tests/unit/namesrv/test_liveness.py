"""Brokers that go: with their connection at once, by silence within a scan."""

from __future__ import annotations

from typing import Any

from tests.support.network import FakePeer


def start(namesrv: Any) -> None:
    namesrv.server.liveness.start()


def test_a_lost_connection_takes_all_its_brokers_at_once(namesrv: Any) -> None:
    container = FakePeer()
    namesrv.register("broker-a", peer=container)
    namesrv.register("broker-b", port=10921, peer=container)
    namesrv.register("broker-c", port=10931)
    container.lose()
    assert list(namesrv.addresses("T1")) == ["broker-c"]


def names(namesrv: Any) -> set[str]:
    return set(namesrv.server.table.broker_names())


def with_many(namesrv: Any, peer: FakePeer | None = None, **fields: Any) -> list[str]:
    """Names of brokers of this connection, or of one each."""
    many = [f"broker-{n}" for n in range(300)]
    for n, name in enumerate(many):
        namesrv.register(name, port=n + 1, topics=(), peer=peer, **fields)
    return many


def test_very_many_brokers_go_bit_by_bit_and_who_comes_back_meanwhile_stays(
    namesrv: Any,
) -> None:
    lost = FakePeer()
    many = with_many(namesrv, lost)
    lost.lose()
    left = names(namesrv)
    assert 0 < len(left) < len(many)
    back = sorted(left)[-1]
    namesrv.register(back, port=many.index(back) + 1, topics=())
    namesrv.clock.pump([0] * 30)
    assert names(namesrv) == {back}


def test_very_many_silent_brokers_go_bit_by_bit_and_who_is_heard_meanwhile_stays(
    namesrv: Any,
) -> None:
    many = with_many(namesrv, heartbeatTimeoutMillis=1_000)
    namesrv.clock.advance(5)
    namesrv.server.liveness.scan()
    left = names(namesrv)
    assert 0 < len(left) < len(many)
    heard = sorted(left)[-1]
    address = f"127.0.0.1:{many.index(heard) + 1}"
    where = {"clusterName": "C", "brokerAddr": address, "brokerName": heard}
    namesrv.ask(904, where)
    namesrv.clock.pump([0] * 30)
    assert names(namesrv) == {heard}


def test_a_broker_that_came_back_survives_its_old_connection(namesrv: Any) -> None:
    old, new = FakePeer(), FakePeer()
    namesrv.register(peer=old)
    namesrv.register(peer=new)
    old.lose()
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10911"}}
    new.lose()
    assert namesrv.addresses("T1") == {}


def test_a_silent_broker_goes_with_the_first_scan_after_its_time_out(namesrv: Any) -> None:
    start(namesrv)
    peer = FakePeer()
    namesrv.register(peer=peer, heartbeatTimeoutMillis=10_000)
    namesrv.clock.pump([5, 5])
    assert namesrv.addresses("T1"), "10 s are not more than the time-out"
    namesrv.clock.advance(5)
    assert not namesrv.addresses("T1")
    assert peer.closed


def test_without_a_time_out_of_its_own_a_broker_has_two_minutes(namesrv: Any) -> None:
    start(namesrv)
    namesrv.register()
    namesrv.clock.pump([5] * 24)
    assert namesrv.addresses("T1")
    namesrv.clock.advance(5)
    assert not namesrv.addresses("T1")


class NoNetwork:
    """A server and its listener; nobody comes."""

    def listener(self) -> NoNetwork:
        return self

    def serve(self, handlers: Any) -> None:
        """Never asked for."""

    def observe(self, observer: Any) -> None:
        """Never told of anything."""

    def listen(self) -> int:
        return 9876


def test_who_was_silent_while_the_name_server_slept_stays(namesrv: Any) -> None:
    """Its process was paused or its machine asleep; what brokers said waits to be read."""
    namesrv.server.start(NoNetwork())
    namesrv.register(heartbeatTimeoutMillis=10_000)
    namesrv.clock.advance(3600)
    assert namesrv.addresses("T1")
    namesrv.clock.pump([0.5] * 40)
    assert not namesrv.addresses("T1")


def test_signs_of_life(namesrv: Any) -> None:
    start(namesrv)
    where = {"clusterName": "C", "brokerAddr": "127.0.0.1:10911", "brokerName": "broker-a"}
    namesrv.register(heartbeatTimeoutMillis=10_000)
    for _ in range(6):
        namesrv.clock.advance(5)
        namesrv.ask(904, where)
    assert namesrv.addresses("T1")
    for _ in range(6):
        namesrv.clock.advance(5)
        namesrv.ask(322, where | {"brokerId": 0}, b'{"counter":1,"timestamp":1}')
    assert namesrv.addresses("T1")
    namesrv.clock.pump([5, 5, 5])
    assert not namesrv.addresses("T1")


def test_another_host_cannot_say_that_a_broker_lives(namesrv: Any) -> None:
    start(namesrv)
    where = {"clusterName": "C", "brokerAddr": "127.0.0.1:10911", "brokerName": "broker-a"}
    namesrv.register(heartbeatTimeoutMillis=10_000)
    stranger = FakePeer("10.66.0.1:4000")
    for _ in range(4):
        namesrv.clock.advance(5)
        namesrv.ask(904, where, peer=stranger)
        namesrv.ask(322, where | {"brokerId": 0}, b'{"counter":1,"timestamp":1}', peer=stranger)
    assert not namesrv.addresses("T1")


def test_a_scan_that_fails_is_not_the_last(namesrv: Any, monkeypatch: Any) -> None:
    start(namesrv)
    namesrv.register(heartbeatTimeoutMillis=1_000)
    expire, calls = namesrv.server.table.expire, []

    def fail_once(now_ms: int) -> Any:
        calls.append(now_ms)
        if len(calls) == 1:
            raise ArithmeticError("once")
        return expire(now_ms)

    monkeypatch.setattr(namesrv.server.table, "expire", fail_once)
    namesrv.clock.pump([5, 5])
    assert len(calls) == 2
    assert not namesrv.addresses("T1")


def test_nothing_is_scanned_after_the_stop(namesrv: Any) -> None:
    start(namesrv)
    namesrv.server.stop()
    assert namesrv.clock.getDelayedCalls() == []
