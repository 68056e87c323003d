"""The conversation of tools/controller_goldens: our answers and events are stock's."""

import json
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.election import CandidateStanding
from rocketmq_tw.controller.core.events import decode_event, encode_event
from rocketmq_tw.controller.core.live_brokers import LiveBrokers, ReplicaKey
from rocketmq_tw.controller.core.requests import make_election, read_requests, write_requests
from rocketmq_tw.controller.core.state import ControllerState
from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import header_to_fields
from rocketmq_tw.wire.headers.controller import ElectMasterRequestHeader
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.sim.controllers import PEERS, Controllers

RECORDED = json.loads((Path(__file__).parent / "goldens" / "5.3.3.json").read_text())
#: Their answers have no header: stock has failed before.
FAILED = (ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_INVALID_REQUEST)
#: Answered by what is around the rules.
SHELL = {
    RequestCode.CONTROLLER_GET_METADATA_INFO,
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.GET_BROKER_LIVE_INFO_REQUEST,
}


class Rules:
    """The rules alone: what is decided is applied at once."""

    def __init__(self) -> None:
        self.state = ControllerState()
        self.life = LiveBrokers(lambda: 0, lambda key: True)
        self.events: list[bytes] = []
        config = ControllerConfig()
        self._parse = write_requests(config) | read_requests()
        self._reelect = lambda name: make_election(
            ElectMasterRequestHeader(broker_name=name), config
        )

    def decide(self, make: Any) -> Decision:
        decision = make(self.state, self.life)
        for event in decision.events:
            body = encode_event(event)
            self.events.append(body)
            assert decode_event(body) == event
            self.state.apply(event)
        return decision

    def ask(self, step: dict[str, Any]) -> Decision:
        command = RemotingCommand(
            step["code"], ext_fields=step["fields"], body=step["body"].encode()
        )
        try:
            if command.code == RequestCode.BROKER_HEARTBEAT:
                return self.heartbeat(step["over"], command)
            return self.decide(self._parse[command.code](command))
        except RequestError as error:
            return Decision(code=error.code, remark=error.remark)

    def heartbeat(self, over: str, command: RemotingCommand) -> Decision:
        if not command.ext_fields.get("brokerId", "").isdigit():
            return Decision(code=ResponseCode.CONTROLLER_INVALID_REQUEST, remark="no id")
        header = command.header(BrokerHeartbeatRequestHeader)
        standing = CandidateStanding(header.epoch or 0, header.max_offset or 0)
        if header.election_priority is not None:
            standing = standing._replace(priority=header.election_priority)
        key = ReplicaKey(header.cluster_name, header.broker_name, header.broker_id or 0)
        self.life.heartbeat(key, over, standing, header.heartbeat_timeout_mills)
        return Decision()

    def close(self, over: str) -> None:
        for key in self.life.lose(over):
            group = self.state.group(key.name)
            if group is not None and group.sync.master == key.broker_id:
                self.decide(self._reelect(key.name))


#: Ours refuse a foreign cluster, which stock does not look at (docs/formats/controller.md).
REFUSED = {
    "an id for a foreign cluster": ResponseCode.CONTROLLER_BROKER_ID_INVALID,
    "registration by a foreign cluster": ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    "election by a foreign cluster": ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    "cleaning by a foreign cluster": ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
}
#: Stock takes what is no number for nothing, and says that nobody has that id.
NO_NUMBER = {
    "a set of a master that is no number",
    "election by one who is no number",
    "registration of one who is no number",
    "an id that is no number",
}
#: What changes the state though it refuses.
CHANGING = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE)


def fields_of(decision: Decision) -> dict[str, str]:
    return {} if decision.header is None else header_to_fields(decision.header)


def comparable(body: bytes) -> Any:
    """A body whose replicas stand in the order of their ids."""
    value = fastjson.loads(body) if body else None
    for group in (value or {}).get("replicasInfoTable", {}).values():
        for name in ("inSyncReplicas", "notInSyncReplicas"):
            group[name].sort(key=lambda replica: replica["brokerId"])
    return value


def test_the_whole_conversation() -> None:
    rules = Rules()
    for step in RECORDED["steps"]:
        if "close" in step:
            rules.close(step["close"])
            continue
        if step["code"] in SHELL:
            continue
        if step["name"] in REFUSED:
            break
        decision, stock = rules.ask(step), step["answer"]
        if step["name"] in NO_NUMBER:
            assert decision.code == ResponseCode.SYSTEM_ERROR, step["name"]
            continue
        assert decision.code == stock["code"], step["name"]
        if decision.code not in (
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.CONTROLLER_INVALID_REQUEST,
        ):
            assert fields_of(decision) == stock["fields"], step["name"]
        body = b"" if decision.body is None else encode_body(decision.body)
        assert comparable(body) == comparable(stock["body"].encode()), step["name"]
        if decision.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            assert decision.remark, step["name"]
    # Stock's log begins with an empty entry: a new leader's.
    entries = [body.encode("latin-1") for body in RECORDED["entries"][1:]]
    assert rules.events == entries[: len(rules.events)]
    left = [json.loads(body[2:]) for body in entries[len(rules.events) :]]
    assert {event["brokerName"] for event in left} <= {"third"}, left


@pytest.mark.parametrize("entry", sorted(set(RECORDED["entries"][1:])))
def test_stocks_events_are_read_and_written_byte_by_byte(entry: str) -> None:
    body = entry.encode("latin-1")
    assert encode_event(decode_event(body)) == body


class OverTheWire:
    """Three controllers that are asked by remoting clients, one for each connection."""

    def __init__(self) -> None:
        self.controllers = Controllers(
            elect_master_max_retry_count=1, scan_inactive_master_interval=10**8
        )
        self.leader = self.controllers.leader()
        self.at = PEERS[self.controllers.leader_id()]
        self._clients: dict[str, Any] = {}

    def ask(self, step: dict[str, Any]) -> RemotingCommand:
        client = self._clients.setdefault(step["over"], self.controllers.network.client("10.9.9.9"))
        command = RemotingCommand.request(step["code"], body=step["body"].encode())
        command.ext_fields = dict(step["fields"])
        return self.controllers.result(client.request(self.at, command, 9))

    def close(self, over: str) -> None:
        self._clients.pop(over).close()
        self.controllers.run(0.5)

    @property
    def state(self) -> tuple[str, int]:
        return repr(self.leader.machine.state), self.leader.node.core.log.end_index


def test_every_answer_over_the_wire() -> None:
    wire = OverTheWire()
    for step in RECORDED["steps"]:
        if "close" in step:
            wire.close(step["close"])
            continue
        before, name = wire.state, step["name"]
        answer, stock = wire.ask(step), step["answer"]
        expected = ResponseCode.SYSTEM_ERROR if name in NO_NUMBER else stock["code"]
        assert answer.code == REFUSED.get(name, expected), name
        if answer.code not in CHANGING:
            assert answer.remark, name
            assert wire.state == before, name
        if name in NO_NUMBER:
            continue
        if step["code"] == RequestCode.CONTROLLER_GET_METADATA_INFO:
            assert answer.ext_fields.keys() == stock["fields"].keys()
            continue
        if name in REFUSED:
            break
        if answer.code not in FAILED:
            assert answer.ext_fields == stock["fields"], name
        assert comparable(answer.body) == comparable(stock["body"].encode()), name


def test_a_foreign_cluster_changes_nothing() -> None:
    wire = OverTheWire()
    steps = {step["name"]: step for step in RECORDED["steps"] if "answer" in step}
    for name in ("a third group's first id", "a third group's first master"):
        assert wire.ask(steps[name]).code == ResponseCode.SUCCESS
    for name, code in REFUSED.items():
        before = wire.state
        with capturedLogs() as logs:
            answer = wire.ask(steps[name])
        assert (answer.code, wire.state) == (code, before), name
        assert answer.remark
        said = [formatEvent(event) or "" for event in logs]
        assert any("of 10.9.9.9" in line and f"with {code}" in line for line in said), said
    for name in (
        "a heartbeat of a foreign cluster",
        "a foreign cluster's heartbeat keeps nobody alive",
    ):
        assert wire.ask(steps[name]).code == steps[name]["answer"]["code"], name
