"""Each change by an administrator is one line in the log of the controllers."""

from __future__ import annotations

import json

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.raft.bodies import DLedgerRequestCode
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from tests.support.sim.controllers import PEERS, Controllers
from tests.unit.controller.conftest import group_of_three

ADMINISTRATOR = "127.0.0.1"
ELECT, CLEAN = RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CLEAN_BROKER_DATA
HAND_OVER = DLedgerRequestCode.LEADERSHIP_TRANSFER

DESIGNATE = {"clusterName": "C", "brokerName": "g", "brokerId": 2, "designateElect": "true"}
CHANGES: list[tuple[int, dict[str, object], bytes]] = [
    (ELECT, DESIGNATE, b""),
    (CLEAN, {"clusterName": "C", "brokerName": "g", "isCleanLivingBroker": "true"}, b""),
    (RequestCode.UPDATE_CONTROLLER_CONFIG, {}, b"enableElectUncleanMaster=true"),
    (HAND_OVER, {}, b""),
]
#: What brokers say of themselves, and ask for themselves.
OF_BROKERS = {
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
    RequestCode.CONTROLLER_REGISTER_BROKER,
}
OF_CONTROLLERS = {
    DLedgerRequestCode.VOTE,
    DLedgerRequestCode.HEART_BEAT,
    DLedgerRequestCode.PULL,
    DLedgerRequestCode.PUSH,
    DLedgerRequestCode.INSTALL_SNAPSHOT,
}
LOOKS = {
    RequestCode.CONTROLLER_GET_METADATA_INFO,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    RequestCode.CONTROLLER_GET_REPLICA_INFO,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    RequestCode.GET_CONTROLLER_CONFIG,
    DLedgerRequestCode.METADATA,
}


@pytest.fixture
def asked(controllers: Controllers) -> Controllers:
    group_of_three(controllers)
    controllers.asker = ADMINISTRATOR
    return controllers


def hand_over(controllers: Controllers) -> bytes:
    """The body of an order to the leader that another one lead."""
    leader = controllers.leader_id()
    target = min(set(PEERS) - {leader})
    body = {"group": "controllers", "remoteId": leader, "transferId": leader}
    term = controllers.leader().node.core.term
    return json.dumps(body | {"transfereeId": target, "term": term}).encode()


def said(controllers: Controllers, member: str, code: int, body: bytes, **fields: object) -> str:
    """The lines about what was asked, from behind who asked."""
    with capturedLogs() as events:
        controllers.ask(member, code, body, **fields)
    start = f"{ADMINISTRATOR}:"
    lines = [line for line in map(formatEvent, events) if line and line.startswith(start)]
    return "\n".join(line.partition(f" at {PEERS[member]} ")[2] for line in lines)


def test_each_request_either_changes_something_or_looks(controllers: Controllers) -> None:
    handlers = set(controllers.leader().handlers)
    changing = {int(code) for code, _, _ in CHANGES}
    others = [*OF_BROKERS, *OF_CONTROLLERS, *LOOKS]
    assert handlers == changing | {int(code) for code in others}
    assert len(handlers) == len(changing) + len(others)


@pytest.mark.parametrize("code, fields, body", CHANGES)
def test_who_changed_what_is_logged(
    asked: Controllers, code: int, fields: dict[str, object], body: bytes
) -> None:
    leader = asked.leader_id()
    data = hand_over(asked) if code == HAND_OVER else body
    line = said(asked, leader, code, data, **fields)
    assert line and "\n" not in line and "(was " in line


def test_what_an_order_has_changed_is_logged(asked: Controllers) -> None:
    leader = asked.leader_id()
    line = said(asked, leader, ELECT, b"", **DESIGNATE)
    assert line.startswith("orders CONTROLLER_ELECT_MASTER {")
    assert line.endswith(
        ": master 2, in sync [2], brokers [1, 2, 3] (was master 1, in sync [1, 2, 3], brokers"
        " [1, 2, 3])"
    )
    line = said(asked, leader, CLEAN, b"", brokerName="g", isCleanLivingBroker="true")
    assert line.endswith(": not there (was master 2, in sync [2], brokers [1, 2, 3])")


def test_an_order_that_changes_nothing_is_not_said_to_be_obeyed(asked: Controllers) -> None:
    leader = asked.leader_id()
    other = min(set(PEERS) - {leader})
    assert said(asked, other, ELECT, b"", **DESIGNATE) == "", "it does not lead"
    stays = DESIGNATE | {"brokerId": 1}
    assert said(asked, leader, ELECT, b"", **stays) == ""
    assert said(asked, leader, CLEAN, b"", brokerName="g", clusterName="D") == "", "it is alive"


def test_an_order_may_be_obeyed_after_its_answer(asked: Controllers) -> None:
    leader = asked.leader_id()
    for member in set(PEERS) - {leader}:
        asked.stop(member)
    with capturedLogs() as events:
        answer = asked.ask(leader, ELECT, **DESIGNATE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    (line,) = [line for line in map(formatEvent, events) if line and " orders " in line]
    assert line.endswith(
        ": it may be done yet (was master 1, in sync [1, 2, 3], brokers [1, 2, 3])"
    )


def test_who_had_another_controller_lead_is_logged(asked: Controllers) -> None:
    leader = asked.leader_id()
    line = said(asked, leader, HAND_OVER, hand_over(asked))
    now = min(set(PEERS) - {leader})
    assert line == f"had controllers led by another member: {now} (was {leader})"
    assert asked.leader_id() == now
