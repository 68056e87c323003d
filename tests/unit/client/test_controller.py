"""The controllers' client: how the leader is found, lost and asked again."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rocketmq_tw.client.controller import ControllerClient, NoControllerError, NoControllersError
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.controller import SyncStateSetBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.group_state import SyncStateSet
from rocketmq_tw.wire.headers.controller import (
    GetMetaDataResponseHeader,
    GetReplicaInfoResponseHeader,
)
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.network import MemoryNetwork

A, B, C = ("10.0.0.1:9877", "10.0.0.2:9877", "10.0.0.3:9877")


NOW_MS = 1_800_000_000_000


class FakeControllers:
    """Three that say that `leader` leads; the one at `decides` answers, the others 2007. A request
    for an alteration is taken and never answered while `silent`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock)
        self.leader: str | None = A
        self.decides = A
        self.silent = False
        #: What an election is answered.
        self.elections = ResponseCode.SYSTEM_ERROR
        self.asked: list[tuple[str, int]] = []
        for address in (A, B, C):
            self.serve(address)
        self.client = ControllerClient(
            self.clock,
            self.network.client(),
            f"{A};{B};{C}",
            leader_timeout=5.0,
            now_ms=lambda: NOW_MS,
        )

    def serve(self, address: str) -> None:
        def note(request: RemotingCommand) -> bool:
            self.asked.append((address, request.code))
            return self.decides == address

        def metadata(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
            note(request)
            return request.response(
                header=GetMetaDataResponseHeader(controller_leader_address=self.leader)
            )

        def replica_info(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
            if not note(request):
                return request.response(ResponseCode.CONTROLLER_NOT_LEADER, "not me")
            header = GetReplicaInfoResponseHeader(master_broker_id=7, master_epoch=2)
            members = SyncStateSetBody(sync_state_set=[7], sync_state_set_epoch=3)
            return request.response(header=header, body=encode_body(members))

        def alter(request: RemotingCommand, peer: IPeer) -> Any:
            note(request)
            if self.silent:
                return Deferred()
            return request.response(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "old epoch")

        def elect(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
            return request.response(self.elections, "x")

        def heartbeat(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
            note(request)
            return request.response()

        self.network.serve(
            address,
            {
                RequestCode.CONTROLLER_GET_METADATA_INFO: metadata,
                RequestCode.CONTROLLER_GET_REPLICA_INFO: replica_info,
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: alter,
                RequestCode.CONTROLLER_ELECT_MASTER: elect,
                RequestCode.BROKER_HEARTBEAT: heartbeat,
            },
        )

    def result(self, deferred: Deferred[Any]) -> Any:
        found: list[Any] = []
        deferred.addBoth(found.append)
        for _ in range(600):
            if found:
                break
            self.clock.advance(0.05)
        if isinstance(found[0], Failure):
            found[0].raiseException()
        return found[0]

    def count(self, code: int, address: str | None = None) -> int:
        return sum(1 for at, asked in self.asked if asked == code and address in (None, at))


@pytest.fixture
def fakes() -> FakeControllers:
    return FakeControllers()


def test_the_leader_is_looked_for_once(fakes: FakeControllers) -> None:
    for _ in range(3):
        found = fakes.result(fakes.client.replica_info("g"))
        assert (found.master_id, found.master_epoch) == (7, 2)
        assert found.in_sync == SyncStateSet(frozenset({7}), 3)
    assert fakes.count(RequestCode.CONTROLLER_GET_METADATA_INFO) == 1
    assert fakes.client.leader == A


def test_one_that_leads_no_longer_sends_us_on(fakes: FakeControllers) -> None:
    fakes.result(fakes.client.replica_info("g"))
    fakes.leader = fakes.decides = B
    assert fakes.result(fakes.client.replica_info("g")).master_id == 7
    assert fakes.client.leader == B
    # One that says so too early is asked again.
    fakes.decides = C
    asking = fakes.client.replica_info("g")
    fakes.clock.advance(0.5)
    fakes.leader = C
    assert fakes.result(asking).master_id == 7


def test_a_leader_that_is_gone_is_found_again(fakes: FakeControllers) -> None:
    fakes.result(fakes.client.replica_info("g"))
    fakes.network.stop(A)
    asking = fakes.client.replica_info("g")
    fakes.clock.advance(0.5)
    fakes.leader = fakes.decides = C
    assert fakes.result(asking).master_id == 7


def test_servers_of_another_kind_are_asked_once(fakes: FakeControllers) -> None:
    began = fakes.clock.seconds()
    for address in (B, C):
        fakes.network.stop(address)
    fakes.network.serve(A, {})
    asking = fakes.client.replica_info("g")
    fakes.clock.advance(1.0)
    fakes.network.serve(B, {})
    fakes.network.serve(C, {})
    with pytest.raises(NoControllersError, match=f"{B} answered 3"):
        fakes.result(asking)
    assert fakes.clock.seconds() - began <= 1.5


def test_nobody_leads_for_too_long(fakes: FakeControllers) -> None:
    fakes.leader = None
    began = fakes.clock.seconds()
    with pytest.raises(NoControllerError, match=f"{A} knows no leader"):
        fakes.result(fakes.client.replica_info("g"))
    assert 4 <= fakes.clock.seconds() - began <= 5.5
    for address in (A, B, C):
        fakes.network.stop(address)
    with pytest.raises(NoControllerError, match="nobody listens"):
        fakes.result(fakes.client.find_leader())


def test_a_refusal_is_told_as_it_is(fakes: FakeControllers) -> None:
    with pytest.raises(BrokerError) as refused:
        fakes.result(fakes.client.alter_sync_state_set("g", 1, 1, [1], 1))
    assert refused.value.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert refused.value.address == A


@pytest.mark.parametrize(
    ("code", "is_over"),
    [
        (ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, True),
        (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, True),
        (ResponseCode.SYSTEM_ERROR, False),
        (ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, False),
    ],
)
def test_which_answers_end_an_epoch(
    fakes: FakeControllers, code: ResponseCode, is_over: bool
) -> None:
    fakes.elections = code
    ending = fakes.client.end_epoch("C", "g", 3)
    if is_over:
        fakes.result(ending)
    else:
        with pytest.raises(BrokerError) as refused:
            fakes.result(ending)
        assert refused.value.code == code


def test_what_may_have_been_done_is_not_asked_for_twice(fakes: FakeControllers) -> None:
    fakes.silent = True
    with pytest.raises(RemotingError):
        fakes.result(fakes.client.alter_sync_state_set("g", 1, 1, [1], 1))
    assert fakes.count(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET) == 1


def test_all_controllers_have_heartbeats(fakes: FakeControllers) -> None:
    fakes.network.stop(B)
    for _ in range(2):
        fakes.client.heartbeat(
            BrokerHeartbeatRequestHeader(
                cluster_name="C", broker_name="g", broker_addr="10.0.0.9:10911", broker_id=1
            )
        )
        fakes.clock.advance(0.1)
    assert [fakes.count(RequestCode.BROKER_HEARTBEAT, at) for at in (A, B, C)] == [2, 0, 2]


@pytest.mark.parametrize("text", ["here", "10.0.0.1:0;10.0.0.2:1", "a:b"])
def test_what_is_no_address_is_refused(fakes: FakeControllers, text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        ControllerClient(fakes.clock, fakes.network.client(), text)


def test_requests_say_what_time_of_day_it_is(fakes: FakeControllers) -> None:
    times = []

    def register(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        times.append(request.ext_fields["invokeTime"])
        return request.response(ResponseCode.SYSTEM_ERROR, "x")

    fakes.network.serve(B, {RequestCode.CONTROLLER_REGISTER_BROKER: register})
    fakes.client.leader = B
    asked = fakes.client.register_broker("c", "broker-a", 1, "10.0.0.1:10911")
    asked.addErrback(lambda failure: failure.trap(BrokerError))
    fakes.network.settle()
    assert times == [str(NOW_MS)]
