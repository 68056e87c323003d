"""How many copies a send waits for under a controller, and the code where they do not come: each as
stock 5.3.3 answers it (`tests/interop/test_auto_switch.py` asks both).
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.writing.enough_replicas import EnoughReplicas
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from tests.support.broker import BrokerInMemory
from tests.support.played_group import PlayedGroup, led

OK, TIMEOUT, REFUSED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SYSTEM_ERROR,
)
EVERY: dict[str, Any] = {"all_ack_in_sync_state_set": True}
SOME: dict[str, Any] = {"all_ack_in_sync_state_set": False}


def with_lost(count: int, keys: dict[str, Any], *, told: bool) -> PlayedGroup:
    """A group of three that has lost so many slaves; `told`: the controller has them out of the
    SyncStateSet."""
    group = led(slave_timeout=1000, ha_max_time_slave_not_catchup=60_000, **keys)
    if not told:
        group.refusal = ConnectionError("no controller")
    for number in range(3, 3 - count, -1):
        group[number].stop()
    group.settle(3)
    assert len(group.members.members) == (3 - count if told else 3)
    return group


def answer(group: PlayedGroup, **properties: str) -> int:
    request = group[1].send_request(b"x", properties=properties)
    codes: list[int] = []
    group.client.request(group[1].address, request, 5).addCallback(
        lambda response: codes.append(response.code)
    )
    group.settle(2)
    (code,) = codes
    return code


@pytest.mark.parametrize(
    ("keys", "lost", "told", "code"),
    [
        (EVERY, 0, True, OK),
        (EVERY, 1, False, TIMEOUT),
        (EVERY, 1, True, OK),
        (EVERY, 2, True, OK),
        # How many is of no account then.
        (EVERY | {"in_sync_replicas": 3}, 1, True, OK),
        (EVERY | {"in_sync_replicas": 2}, 1, False, TIMEOUT),
        (EVERY | {"min_in_sync_replicas": 2}, 1, True, OK),
        (EVERY | {"min_in_sync_replicas": 2}, 2, True, REFUSED),
        (EVERY | {"min_in_sync_replicas": 3}, 1, False, TIMEOUT),
        (EVERY | {"min_in_sync_replicas": 3}, 1, True, REFUSED),
        (SOME, 2, False, OK),
        (SOME, 2, True, OK),
        (SOME | {"in_sync_replicas": 2}, 1, False, OK),
        (SOME | {"in_sync_replicas": 2}, 2, False, TIMEOUT),
        # The set does not matter for the number.
        (SOME | {"in_sync_replicas": 2}, 2, True, TIMEOUT),
        (SOME | {"in_sync_replicas": 3}, 0, True, OK),
        (SOME | {"in_sync_replicas": 3}, 1, False, TIMEOUT),
        (SOME | {"in_sync_replicas": 4}, 0, True, TIMEOUT),
        (SOME | {"in_sync_replicas": 2, "min_in_sync_replicas": 3}, 1, False, OK),
        (SOME | {"in_sync_replicas": 2, "min_in_sync_replicas": 3}, 1, True, REFUSED),
        (SOME | {"min_in_sync_replicas": 4}, 0, True, REFUSED),
    ],
)
def test_the_code(keys: dict[str, Any], lost: int, told: bool, code: int) -> None:
    group = with_lost(lost, keys, told=told)
    before = group[1].store.end_offset
    assert answer(group) == code
    assert (group[1].store.end_offset == before) == (code == REFUSED), "refused is not stored"


@pytest.mark.parametrize("keys", [EVERY, SOME | {"in_sync_replicas": 3, "min_in_sync_replicas": 3}])
def test_who_does_not_wait_is_not_refused_either(keys: dict[str, Any]) -> None:
    assert answer(with_lost(1, keys, told=False), WAIT="false") == OK
    assert answer(with_lost(2, keys, told=True), WAIT="false") == OK


@pytest.mark.parametrize(
    ("keys", "lost", "told", "changed", "before", "after"),
    [
        (EVERY | {"min_in_sync_replicas": 3}, 1, True, b"minInSyncReplicas=2", REFUSED, OK),
        (EVERY, 1, True, b"minInSyncReplicas=3", OK, REFUSED),
        (EVERY, 1, False, b"allAckInSyncStateSet=false", TIMEOUT, OK),
        (SOME, 1, False, b"allAckInSyncStateSet=true", OK, TIMEOUT),
        (SOME, 2, False, b"inSyncReplicas=2", OK, TIMEOUT),
    ],
)
def test_how_many_may_change_while_the_master_runs(
    keys: dict[str, Any], lost: int, told: bool, changed: bytes, before: int, after: int
) -> None:
    group = with_lost(lost, keys, told=told)
    assert answer(group) == before
    group[1].ask(RequestCode.UPDATE_BROKER_CONFIG, body=changed)
    assert answer(group) == after


def figures(broker: BrokerInMemory) -> dict[str, Any]:
    return {metric.name: metric.value for metric in broker.broker.metrics()}


def enough(group: PlayedGroup) -> Any:
    return figures(group[1])["rocketmq_replicas_enough"]


def refusals(events: list[Any]) -> list[str]:
    lines = map(formatEvent, events)
    return [line for line in lines if "replicas" in line]


def test_too_few_are_told_once_and_when_it_is_over() -> None:
    """In the log, the figures and what `rmqadmin health` asks for; each sender hears what to do."""
    with capturedLogs() as events:
        group = with_lost(2, EVERY | {"min_in_sync_replicas": 2}, told=True)
        group.settle(5)
        advice = "1 with the master, and minInSyncReplicas asks for 2: start a slave"
        why = group[1].ask(RequestCode.GET_BROKER_RUNTIME_INFO).body.decode()
        assert advice in why
        assert enough(group) == 0
        [told] = refusals(events)
        assert told.startswith("messages that wait for replicas are refused: in-sync replicas not")
        assert advice in told
        group[1].ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"minInSyncReplicas=1")
        group.settle(5)
        assert enough(group) == 1
        assert advice not in group[1].ask(RequestCode.GET_BROKER_RUNTIME_INFO).body.decode()
        assert [line for line in refusals(events) if "enough replicas again" in line]


def test_a_master_that_becomes_a_slave_does_not_say_that_there_are_enough() -> None:
    group = with_lost(2, EVERY | {"min_in_sync_replicas": 2}, told=True)
    group.settle(5)
    assert enough(group) == 0
    with capturedLogs() as events:
        group.elect(2, tell=(1,))
        group.settle(5)
    assert not [line for line in refusals(events) if "again" in line]
    assert enough(group) == 1
    with capturedLogs() as events:
        group.elect(1, tell=(1,))
        group.settle(5)
    assert enough(group) == 0
    assert len(refusals(events)) == 1, "it is told of anew"


def test_slaves_that_connect_again_are_no_trouble() -> None:
    troubles = iter(["too few", "too few", "", "too few", ""])
    enough_replicas = EnoughReplicas(lambda: next(troubles))
    with capturedLogs() as events:
        for now in range(0, 10, 2):
            enough_replicas.look(now)
            assert enough_replicas.trouble == ""
    assert events == []


def test_a_figure_tells_a_master_from_its_slaves() -> None:
    group = with_lost(0, EVERY, told=False)
    assert [figures(group[n])["rocketmq_broker_master"] for n in (1, 2, 3)] == [1, 0, 0]
