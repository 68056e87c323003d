"""The requests of brokers and administrators as handlers of a remoting server."""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.events import UpdateBrokerAddress
from rocketmq_tw.controller.core.live_brokers import ReplicaKey
from rocketmq_tw.controller.core.requests import (
    ParseRequest,
    alter,
    read_requests,
    register,
    write_requests,
)
from rocketmq_tw.controller.core.state import Group
from rocketmq_tw.controller.counts import ControllerCounts, Status
from rocketmq_tw.controller.decider import Decider, is_open, ran_out_of_time
from rocketmq_tw.controller.liveness import BrokerLiveness
from rocketmq_tw.controller.notifications import RoleNotifier
from rocketmq_tw.net.administrators import is_designation
from rocketmq_tw.net.changes import changed, who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.live_config import LiveConfig
from rocketmq_tw.net.networks import host_of, is_same_host
from rocketmq_tw.raft.node import RaftNode
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.controller import GetMetaDataResponseHeader

#: Refusals that belong to the life of a group; the others are logged.
_ROUTINE = (
    ResponseCode.SUCCESS,
    ResponseCode.CONTROLLER_NOT_LEADER,
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
)


#: Characters of one field of a request; what is refused is repeated in the answer and the log.
_MAX_FIELD = 16 * 1024


#: Characters of a request's values that one line of the log shows.
_MAX_SHOWN = 200

#: The field by which a master says that it could not begin its epoch.
_NEVER_BEGUN = "neverBegun"

#: What administrators order; each is in the log with who asked.
_ORDERS: Mapping[int, Callable[[RemotingCommand], bool]] = {
    RequestCode.CONTROLLER_ELECT_MASTER: is_designation,
    RequestCode.CLEAN_BROKER_DATA: lambda request: True,
}


class ControllerRequests:
    """The handlers of one controller; `handlers()` has one for each request code."""

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        node: RaftNode,
        decider: Decider,
        liveness: BrokerLiveness,
        notifier: RoleNotifier,
        config: ControllerConfig,
        live_config: LiveConfig,
        counts: ControllerCounts,
    ) -> None:
        self._clock = clock
        self._counts = counts
        self._node = node
        self._decider = decider
        self._liveness = liveness
        self._notifier = notifier
        self._config = config
        self._live_config = live_config

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        handlers: dict[int, Handler] = {
            RequestCode.BROKER_HEARTBEAT: self._liveness.heartbeat,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self.update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self.get_config,
        }
        for code, parse in write_requests(self._config).items():
            handlers[code] = self._handler(parse, is_write=True)
        handlers[RequestCode.CONTROLLER_REGISTER_BROKER] = self.register
        handlers[RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET] = self.alter
        elect = handlers[RequestCode.CONTROLLER_ELECT_MASTER]
        handlers[RequestCode.CONTROLLER_ELECT_MASTER] = self._of_its_own_epoch(elect)
        for code, is_order in _ORDERS.items():
            handlers[code] = self._noted(handlers[code], is_order)
        for code, parse in read_requests().items():
            handlers[code] = self._handler(parse, is_write=False)
        return {code: self._counted(self._logged(handler)) for code, handler in handlers.items()}

    def metadata(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 1005, as every controller does: who is in the group, and who leads it."""
        config, leader = self._node.config, self._node.leader_id
        header = GetMetaDataResponseHeader(
            group=config.group,
            controller_leader_id=leader,
            controller_leader_address=None if leader is None else config.peers.get(leader),
            is_leader=self._node.is_leader,
            peers="".join(f"{member}:{address};" for member, address in config.peers.items()),
        )
        return request.response(header=header)

    def update_config(self, request: RemotingCommand, peer: IPeer) -> "Deferred[RemotingCommand]":
        """Answers 1009: changes keys; fails as `LiveConfig.update` does."""
        updated = self._live_config.update(request.body, peer)
        return updated.addCallback(lambda remark: request.response(remark=remark or None))

    def get_config(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 1010: every key that may be told, as .properties text."""
        return request.response(body=self._live_config.text().encode())

    def register(self, request: RemotingCommand, peer: IPeer) -> Any:
        """Answers 1003, for the host that asks; see `decisions.register_broker`."""
        return self._handler(
            lambda command: register(command, host_of(peer.address)), is_write=True
        )(request, peer)

    def alter(self, request: RemotingCommand, peer: IPeer) -> Any:
        """Answers 1001, to the master of the group; see `decisions.alter_sync_state_set`."""
        return self._handler(
            lambda command: alter(command, lambda group: self.is_from_master(group, peer)),
            is_write=True,
        )(request, peer)

    def _handler(self, parse: ParseRequest, *, is_write: bool) -> Handler:
        def handle(request: RemotingCommand, peer: IPeer) -> Any:
            make = parse(request)
            # Nothing of the body is needed any more, and the answer may take its time.
            request.body = b""
            host = host_of(peer.address)
            if is_write:
                name = request.ext_fields.get("brokerName", "")
                is_election = request.code == RequestCode.CONTROLLER_ELECT_MASTER
                decide = self._decider.elect if is_election else self._decider.decide
                deciding = decide(name, make, host)
            else:
                deciding = self._decider.read(make, host)
            return deciding.addCallback(self._answer, request, peer)

        return handle

    def _answer(self, decision: Decision, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        if self._config.notify_broker_role_changed:
            self._notifier.elected(decision)
        for event in decision.events:
            if isinstance(event, UpdateBrokerAddress):
                self._log_move(event, peer)
        if decision.code not in _ROUTINE:
            self._log_refusal(request, peer, decision.code, decision.remark)
        return request.response(
            decision.code,
            decision.remark,
            header=decision.header,
            body=b"" if decision.body is None else encode_body(decision.body),
        )

    def _counted(self, handler: Callable[[RemotingCommand, IPeer], Any]) -> Handler:
        """Returns `handler`, whose requests are counted and timed."""

        async def handle(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
            began, status = self._clock.seconds(), Status.FAILED
            try:
                answer: RemotingCommand = await handler(request, peer)
                status = Status.SUCCESS
            except RequestError as error:
                status = _status_of(error)
                raise
            finally:
                self._counts.request(request.code, status, self._clock.seconds() - began)
            return answer

        return handle

    def _logged(self, handler: Handler) -> Handler:
        """Returns `handler`, whose errors with a code of the protocol are logged on their way."""

        async def handle(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
            try:
                _check_fields(request)
                answer = handler(request, peer)
                if not isinstance(answer, RemotingCommand):
                    answer = await answer
            except RequestError as error:
                if error.code not in _ROUTINE:
                    self._log_refusal(request, peer, error.code, error.remark)
                raise
            assert isinstance(answer, RemotingCommand)
            return answer

        return handle

    def _of_its_own_epoch(self, handler: Handler) -> Handler:
        """Returns `handler` of elections, which hears only from a master itself that it never began
        its epoch: what it acknowledged would be lost."""

        def handle(request: RemotingCommand, peer: IPeer) -> Any:
            if _NEVER_BEGUN in request.ext_fields and not self._is_from_master(request, peer):
                del request.ext_fields[_NEVER_BEGUN]
            return handler(request, peer)

        return handle

    def _log_move(self, event: UpdateBrokerAddress, peer: IPeer) -> None:
        """Says that a member that is in sync was registered at another host."""
        group = self._decider.machine.state.group(event.broker_name)
        home = None if group is None else group.sync.moved.get(event.broker_id)
        if home is None:
            return
        doubted = self._liveness.hears_strangers
        doubt = (
            ". Until its master says again that it is in sync it is elected only where nobody else"
            " is there"
        )
        self.log.emit(
            LogLevel.error if doubted else LogLevel.info,
            "{peer} registers broker {number} of {name}, which is in sync, at {address}; it was at"
            " {home}{doubt}",
            peer=peer.address,
            number=event.broker_id,
            name=event.broker_name,
            address=event.broker_address,
            home=home,
            doubt=doubt if doubted else "",
        )

    def _is_from_master(self, request: RemotingCommand, peer: IPeer) -> bool:
        group = self._decider.machine.state.group(request.ext_fields.get("brokerName", ""))
        return group is not None and self.is_from_master(group, peer)

    def is_from_master(self, group: Group, peer: IPeer) -> bool:
        """Returns whether `peer` is the master of a group, by its host."""
        if group.sync.master is None:
            return False
        address = group.table.address(group.sync.master)
        key = ReplicaKey(group.cluster, group.name, group.sync.master)
        return is_same_host(address or "", peer.address) or self._liveness.speaks_for(peer, key)

    def _noted(self, handler: Handler, is_order: Callable[[RemotingCommand], bool]) -> Handler:
        """Returns `handler`, which says in the log who had done what `is_order` tells of. Where it
        is not known whether it was done, that is said."""

        async def handle(request: RemotingCommand, peer: IPeer) -> Any:
            if not is_order(request):
                return await handler(request, peer)
            name = request.ext_fields.get("brokerName", "")
            told = {name: text[:_MAX_SHOWN] for name, text in request.ext_fields.items()}
            before = self._now(name)

            def say(outcome: str) -> None:
                self.log.info(
                    "{peer} orders {request} {told}: {outcome}",
                    peer=who(peer),
                    request=RequestCode(request.code).name,
                    told=told,
                    outcome=outcome,
                )

            try:
                answer = await handler(request, peer)
            except RequestError as error:
                if is_open(error):
                    say(f"it may be done yet (was {before})")
                raise
            if answer.code == ResponseCode.SUCCESS:
                say(changed(self._now(name), before))
            return answer

        return handle

    def _now(self, name: str) -> str | None:
        """Says how the group of this name is: its master, who is in sync, all its brokers."""
        group = self._decider.machine.state.group(name)
        if group is None:
            return None
        return (
            f"master {group.sync.master}, in sync {sorted(group.sync.members)},"
            f" brokers {sorted(group.table.replicas)}"
        )

    def _log_refusal(
        self, request: RemotingCommand, peer: IPeer, code: int, remark: str | None
    ) -> None:
        self.log.warn(
            "request {request} of {peer} is answered with {code}: {remark}",
            request=request.code,
            peer=who(peer),
            code=code,
            remark=remark,
        )


def _status_of(error: RequestError) -> Status:
    """Returns what a refusal counts as: one with a reason of the controllers' own is an answer."""
    if ran_out_of_time(error.__cause__):
        return Status.TIMEOUT
    failed = error.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY)
    return Status.FAILED if failed else Status.SUCCESS


def _check_fields(request: RemotingCommand) -> None:
    longest = max(map(len, request.ext_fields.values()), default=0)
    if longest > _MAX_FIELD:
        raise RequestError(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"a field has {longest} characters: send at most {_MAX_FIELD}",
        )
