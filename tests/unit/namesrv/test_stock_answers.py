"""The conversation of tools/namesrv_goldens: our answers are those that stock gave."""

import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import fired
from tests.support.network import FakePeer

GOLDENS = Path(__file__).parent / "goldens"
#: What 4.9.7 does not have in its bodies.
SINCE_5 = {"enableActingMaster", "stateVersion", "zoneName"}
#: Stock gives bare numeric keys here even to a client that cannot read them; we do not.
BETTER = {"one zone"}


def steps(version: str) -> list[dict[str, Any]]:
    recorded = json.loads((GOLDENS / f"{version}.json").read_text())
    assert recorded["stock"] == version
    return list(recorded["steps"])


def body_of(part: dict[str, Any]) -> bytes:
    return bytes.fromhex(part["hex"]) if "hex" in part else part.get("body", "").encode()


class Replay:
    """Our name server, asked as stock was."""

    def __init__(self) -> None:
        config = NamesrvConfig(order_message_enable=True, kv_config_path="/ns/kvConfig.json")
        self._handlers = NameServer(Clock(), MemoryFiles(), config).handlers
        self._peer = FakePeer()

    def ask(self, request: dict[str, Any]) -> RemotingCommand:
        command = RemotingCommand(
            request["code"],
            ext_fields=request["fields"],
            body=body_of(request),
            version=request["version"],
        )
        handler = self._handlers.get(command.code)
        if handler is None:
            return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        try:
            answer = handler(command, self._peer)
            if isinstance(answer, Deferred):
                answer = fired(answer)
        except RequestError as error:
            return command.response(error.code, error.remark)
        assert isinstance(answer, RemotingCommand)
        return answer


def comparable(body: bytes) -> Any:
    """A body whose lists of names, which are sets in stock, are sorted."""
    value = fastjson.loads(body) if body else None
    if isinstance(value, dict) and "clusterAddrTable" in value:
        for names in value["clusterAddrTable"].values():
            names.sort()
    if isinstance(value, dict) and "topicList" in value:
        value["topicList"] = sorted(value["topicList"])
    return value


def without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {k: without(item, names) for k, item in value.items() if k not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value


def test_answers_are_those_of_5_3_3() -> None:
    replay = Replay()
    for step in steps("5.3.3"):
        answer, golden = replay.ask(step["request"]), step["answer"]
        assert (answer.code, answer.ext_fields) == (golden["code"], golden["fields"]), step["name"]
        if step["name"] in BETTER:
            assert json.loads(answer.body)
            ours = decode_body(TopicRouteData, answer.body)
            assert ours == decode_body(TopicRouteData, body_of(golden)), step["name"]
        elif b'"topicList"' in answer.body or b'"clusterAddrTable"' in answer.body:
            assert comparable(answer.body) == comparable(body_of(golden)), step["name"]
        else:
            assert answer.body == body_of(golden), step["name"]


def test_answers_are_those_of_4_9_7_with_what_5_added() -> None:
    replay = Replay()
    for step in steps("4.9.7"):
        answer, golden = replay.ask(step["request"]), step["answer"]
        assert (answer.code, answer.ext_fields) == (golden["code"], golden["fields"]), step["name"]
        ours, theirs = without(comparable(answer.body), SINCE_5), comparable(body_of(golden))
        for route in (ours, theirs):
            # 4.9.7 fills the table of brokers one by one, which makes 12 or 24 stand otherwise.
            if isinstance(route, dict) and "brokerDatas" in route:
                route["brokerDatas"].sort(key=lambda broker: broker["brokerName"])
        assert ours == theirs, step["name"]


def test_every_request_is_in_the_conversation() -> None:
    asked = {step["request"]["code"] for step in steps("5.3.3")}
    ours = set(NameServer(Clock(), MemoryFiles(), NamesrvConfig()).handlers)
    assert ours - asked == {RequestCode.GET_NAMESRV_CONFIG}
