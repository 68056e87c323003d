"""A broker of ours as a process, led by a controller through the least that this takes.

    python -m tests.support.led_broker FILE CONTROLLER

FILE has stock's keys, without `enableControllerMode`. It asks for an id on each start of an empty
store, registers, lets itself be elected, beats, and follows what the controller says.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import LoopingCall
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Controlled, Role, RoleState
from rocketmq_tw.replication.auto_switch.sync_states import SyncMembers
from rocketmq_tw.services.broker import BrokerService, Options
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.controller import SyncStateSet
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader

#: Seconds.
PERIOD = 0.3
TIMEOUT = 3.0
TIMEOUT_MS = 3000

log = Logger()


class Led:
    """One broker and what it says to the controller."""

    def __init__(self, service: BrokerService, controller: str, identity: Path) -> None:
        self._service = service
        self._controller = controller
        self._identity = identity
        self._own_id = 0
        self._epoch = 0

    @inlineCallbacks
    def start(self) -> Generator[Any, Any, None]:
        yield self._service.started
        assert self._service.broker is not None
        self._broker = self._service.broker
        self._client = self._service._client
        self._switching = self._broker[Replicas].switching
        self._switching.propose = self._propose
        self._name = self._broker.config.broker_name
        self._cluster = self._broker.config.broker_cluster_name
        yield self._take_id()
        yield self._ask(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            RegisterBrokerToControllerRequestHeader(
                cluster_name=self._cluster,
                broker_name=self._name,
                broker_id=self._own_id,
                broker_address=self._broker.addresses.broker,
            ),
        )
        looping = LoopingCall(self._turn)
        looping.start(PERIOD)

    @inlineCallbacks
    def _take_id(self) -> Generator[Any, Any, None]:
        if self._identity.exists():
            self._own_id = int(self._identity.read_text())
            return
        header = GetNextBrokerIdRequestHeader(broker_name=self._name, cluster_name=self._cluster)
        answer = yield self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        self._own_id = answer.header(GetNextBrokerIdResponseHeader).next_broker_id
        yield self._ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            ApplyBrokerIdRequestHeader(
                cluster_name=self._cluster,
                broker_name=self._name,
                applied_broker_id=self._own_id,
                register_check_code=f"{self._broker.addresses.broker};{self._own_id}",
            ),
        )
        self._identity.write_text(str(self._own_id))

    @inlineCallbacks
    def _turn(self) -> Generator[Any, Any, None]:
        try:
            yield self._beat()
            yield self._follow()
        except Exception:
            log.failure("speaking to the controller")

    def _beat(self) -> Deferred[RemotingCommand]:
        progress = self._switching.progress
        header = BrokerHeartbeatRequestHeader(
            cluster_name=self._cluster,
            broker_addr=self._broker.addresses.broker,
            broker_name=self._name,
            broker_id=self._own_id,
            epoch=progress.epoch,
            max_offset=progress.end,
            confirm_offset=progress.confirmed,
            heartbeat_timeout_mills=TIMEOUT_MS,
            election_priority=1,
        )
        return self._ask(RequestCode.BROKER_HEARTBEAT, header)

    @inlineCallbacks
    def _follow(self) -> Generator[Any, Any, None]:
        header = GetReplicaInfoRequestHeader(broker_name=self._name)
        answer = yield self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        info = answer.header(GetReplicaInfoResponseHeader)
        members = _members(decode_body(SyncStateSet, answer.body))
        if not info.master_broker_id or info.master_broker_id < 0 or not info.master_address:
            elect = ElectMasterRequestHeader(
                cluster_name=self._cluster, broker_name=self._name, broker_id=self._own_id
            )
            yield self._ask(RequestCode.CONTROLLER_ELECT_MASTER, elect)
        elif (info.master_epoch or 0) > self._epoch:
            self._epoch = info.master_epoch or 0
            yield self._broker.change_role(
                self._state(info.master_broker_id, info.master_address, members)
            )
        else:
            self._switching.apply(members)

    def _state(self, master: int, address: str, members: SyncMembers) -> RoleState:
        if master == self._own_id:
            return RoleState(
                Role.MASTER,
                0,
                synchronous=True,
                epoch=self._epoch,
                controlled=Controlled(self._own_id, members=members),
            )
        controlled = Controlled(self._own_id, master_address=address)
        return RoleState(Role.SLAVE, self._own_id, epoch=self._epoch, controlled=controlled)

    def _propose(self, members: frozenset[int]) -> Deferred[SyncMembers]:
        assert self._switching.members is not None
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._name, master_epoch=self._epoch, master_broker_id=self._own_id
        )
        body = SyncStateSet(
            sync_state_set=sorted(members), sync_state_set_epoch=self._switching.members.epoch
        )
        asked = self._ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, encode_body(body))
        return asked.addCallback(lambda answer: _members(decode_body(SyncStateSet, answer.body)))

    def _ask(self, code: int, header: Header, body: bytes = b"") -> Deferred[RemotingCommand]:
        def check(answer: RemotingCommand) -> RemotingCommand:
            if answer.code != ResponseCode.SUCCESS:
                raise RequestError(answer.code, f"{code}: {answer.remark}")
            return answer

        command = RemotingCommand.request(code, header, body)
        return self._client.request(self._controller, command, TIMEOUT).addCallback(check)


def _members(body: SyncStateSet) -> SyncMembers:
    return SyncMembers(frozenset(body.sync_state_set), body.sync_state_set_epoch)


def main(path: str, controller: str) -> None:
    """Runs until it is stopped by a signal."""
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
    options = Options()
    options.parseOptions(["-c", path])
    service = BrokerService(reactor, options.loaded)
    service.config = msgspec.structs.replace(service.config, enable_controller_mode=True)
    service.startService()
    led = Led(service, controller, Path(path).parent / "identity")
    led.start().addErrback(lambda failure: log.failure("starting", failure))
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
