"""The controllers as a broker sees them: where they are, what it tells and asks."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

from rocketmq_tw.broker.election.controllers import GroupControllers
from rocketmq_tw.broker.replicas.switching import LogProgress
from rocketmq_tw.config.broker import BrokerConfig
from tests.support.broker import fired


class Names:
    """A name service: host to addresses, which may change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked = 0
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked += 1
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, None, 6, "", (each, port)) for each in self.addresses[host]]


class Asked:
    """A client that notes where heartbeats go."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.given_up = 0

    def send_oneway(self, address: str, command: Any) -> Deferred[None]:
        self.sent.append(address)
        return Deferred(self._give_up)

    def _give_up(self, _: object) -> None:
        self.given_up += 1


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


def controllers(
    client: Any, address: str, *, by_name: bool, clock: Clock | None = None, **keys: Any
) -> GroupControllers:
    config = BrokerConfig(
        broker_name="b",
        controller_addr=address,
        fetch_controller_addr_by_dns_lookup=by_name,
        **keys,
    )
    host: Any = SimpleNamespace(
        now_ms=lambda: 0,
        config=config,
        reactor=clock or Clock(),
        client=client,
        in_thread=lambda job: execute(job),
        named=lambda log: log,
    )
    candidacy: Any = SimpleNamespace(refusal="")
    return GroupControllers(host, candidacy)


def beaten(found: GroupControllers, client: Asked) -> list[str]:
    """Where a heartbeat goes now."""
    client.sent.clear()
    found.heartbeat(1, "10.0.0.1:10911", LogProgress(1, 0, 0))
    return client.sent


def test_a_name_is_looked_up_again_and_its_last_addresses_stay(names: Names) -> None:
    client = Asked()
    found = controllers(client, "controllers:9877", by_name=True)
    assert beaten(found, client) == ["controllers:9877"]
    names.addresses["controllers"] = ["10.0.0.2", "10.0.0.1", "10.0.0.2"]
    fired(found.look_up())
    assert beaten(found, client) == ["10.0.0.1:9877", "10.0.0.2:9877"]
    names.addresses["controllers"] = ["10.0.0.3"]
    fired(found.look_up())
    assert beaten(found, client) == ["10.0.0.3:9877"]
    names.addresses.clear()
    fired(found.look_up())
    assert beaten(found, client) == ["10.0.0.3:9877"]


def test_a_list_is_taken_as_it_is(names: Names) -> None:
    client = Asked()
    found = controllers(client, "one:9877;two:9877", by_name=False)
    fired(found.look_up())
    assert beaten(found, client) == ["one:9877", "two:9877"]
    assert not names.asked


@pytest.mark.parametrize("timeout", [300, 2000])
def test_a_heartbeat_that_finds_no_connection_is_given_up(timeout: int) -> None:
    client, clock = Asked(), Clock()
    found = controllers(
        client, "one:9877", by_name=False, clock=clock, send_heartbeat_timeout_millis=timeout
    )
    assert beaten(found, client) == ["one:9877"]
    clock.advance(timeout / 1000 - 0.01)
    assert client.given_up == 0
    clock.advance(0.02)
    assert client.given_up == 1
