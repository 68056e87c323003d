from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

CONTAINER = "10.0.0.7:10811"


class Asked:
    """A container that says `code` and `remark` to all, and keeps what it was asked."""

    def __init__(self, world: Any, code: int = 0, remark: str | None = None) -> None:
        self.fields: list[dict[str, str]] = []
        self._answer = code, remark
        codes = (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER)
        world.network.serve(CONTAINER, dict.fromkeys(codes, self._asked))

    def _asked(self, request: RemotingCommand, peer: object) -> RemotingCommand:
        self.fields.append({"code": str(request.code), **request.ext_fields})
        return request.response(*self._answer)


def test_a_broker_is_added(world) -> None:
    container = Asked(world)
    outcome = world.rmqadmin(f"addBroker -c {CONTAINER} -b /etc/b.conf --output json")
    assert outcome.json == {"container": CONTAINER, "brokerConfigPath": "/etc/b.conf"}
    assert container.fields == [{"code": "902", "configPath": "/etc/b.conf"}]


def test_no_name_server_is_needed(world, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    container = Asked(world)
    arguments = ["addBroker", "-c", CONTAINER, "-b", "/etc/b.conf"]
    assert world.bare(arguments, Tool(world.run)).status == 0
    assert len(container.fields) == 1


def test_a_broker_is_removed(world) -> None:
    container = Asked(world)
    shown = world.rmqadmin(f"removeBroker -c {CONTAINER} -b DefaultCluster:broker-a:1 --yes").out
    assert shown == f"DefaultCluster:broker-a:1 is removed from {CONTAINER}\n"
    assert container.fields == [
        {
            "code": "903",
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "1",
        }
    ]


def test_a_refusal_is_shown(world) -> None:
    Asked(world, ResponseCode.BROKER_NOT_EXIST, "Broker not exist")
    outcome = world.rmqadmin(f"removeBroker -c {CONTAINER} -b C:a:0 --yes")
    assert outcome.status == 1 and "Broker not exist" in outcome.err


@pytest.mark.parametrize("identity", ["broker-a", "C:a", "C:a:-1", "C:a:b", ":a:0", "C:a:0:1"])
def test_an_identity_has_three_parts(world, identity: str) -> None:
    outcome = world.rmqadmin(f"removeBroker -c {CONTAINER} -b {identity}")
    assert outcome.status == 2 and "CLUSTER:NAME:ID" in outcome.err
