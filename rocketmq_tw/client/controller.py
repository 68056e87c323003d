"""Requests of brokers and administrators to controllers (docs/formats/controller.md): finds the
leading controller and asks it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from rocketmq_tw.client.errors import BrokerError, ClientError, check_success
from rocketmq_tw.client.properties import from_text, to_text
from rocketmq_tw.net.address import split_address, split_addresses
from rocketmq_tw.net.client import send_unheard
from rocketmq_tw.net.errors import ConnectError, RemotingError
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.runtime.retries import RETRY_SOON
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    SyncStateSetBody,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.controller import (
    NO_BROKER,
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader

T = TypeVar("T")

#: Seconds that one controller gets for one answer.
_ANSWER_TIMEOUT = 3.0
#: Seconds within which a request finds a leader that answers, before it fails.
LEADER_TIMEOUT = 10.0


class NoControllerError(ClientError):
    """No controller leads, or none answers; the text lists what each one said."""


class NoControllersError(NoControllerError):
    """Each address is that of a server of another kind: to look again would find no leader."""


class ElectionResult(NamedTuple):
    """The group after an election; `is_new` is False where the old master stays. `brokers` has the
    address of each broker by its lasting id, and is empty where no new master was elected."""

    is_new: bool
    group: GroupState
    brokers: Mapping[int, str]


class ControllerClient:
    """Finds the leader with request 1005 and asks it; a refusal for not leading, or no connection,
    makes it look again until `leader_timeout` seconds are over. What may have been carried out is
    asked again only where that does no harm. Deferreds fail with `BrokerError` that has the
    controller's code, or with `NoControllerError`.
    """

    def __init__(
        self,
        clock: Any,
        remoting: IRemotingClient,
        addresses: str | Sequence[str],
        *,
        leader_timeout: float = LEADER_TIMEOUT,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`addresses` are some of the controllers, as controllerAddr has them. `clock` is a
        reactor's, `now_ms` tells milliseconds since 1970, which requests carry: stock's controllers
        compare them with their own. Raises `ValueError` for what is no address; names are resolved
        at each connection."""
        self._clock = clock
        self._remoting = remoting
        self.addresses = split_addresses(addresses)
        for address in self.addresses:
            split_address(address)
        self._leader_timeout = leader_timeout
        self._now_ms = now_ms
        self._first = -1
        #: The leader that answered last.
        self.leader: str | None = None

    # Any controller

    def metadata(self, address: str) -> "Deferred[GetMetaDataResponseHeader]":
        """Sends 1005: what one controller says of the group."""
        command = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        answer = self._remoting.request(address, command, _ANSWER_TIMEOUT)
        return answer.addCallback(
            lambda response: check_success(address, response).header(GetMetaDataResponseHeader)
        )

    def config(self, address: str) -> "Deferred[dict[str, str]]":
        """Sends 1010: keys and values of one controller, as .properties files have them."""
        command = RemotingCommand.request(RequestCode.GET_CONTROLLER_CONFIG)
        answer = self._remoting.request(address, command, _ANSWER_TIMEOUT)
        return answer.addCallback(lambda response: from_text(check_success(address, response).body))

    def update_config(self, address: str, changes: Mapping[str, str]) -> "Deferred[str]":
        """Sends 1009: gives keys of one controller new values, all or none; fires with what it has
        to say of it, as that no start will know of them."""
        body = to_text(changes)
        command = RemotingCommand.request(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        answer = self._remoting.request(address, command, _ANSWER_TIMEOUT)
        return answer.addCallback(lambda response: check_success(address, response).remark or "")

    def find_leader(self) -> "Deferred[str]":
        """Fires with the leader's address, which all requests go to from then on."""
        return Deferred.fromCoroutine(self._find_leader())

    def heartbeat(self, header: BrokerHeartbeatRequestHeader, timeout: float = 1.0) -> None:
        """Sends 904, oneway to every controller, since any of them may lead next; given up where no
        connection is there within `timeout` seconds."""
        known = self.addresses if self.leader is None else [*self.addresses, self.leader]
        for address in dict.fromkeys(known):
            command = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)
            send_unheard(self._remoting, self._clock, address, command, timeout)

    # The leader, about the brokers of one name

    def next_broker_id(self, cluster: str, name: str) -> "Deferred[int]":
        """Sends 1012: the smallest id that no broker of the group was given."""
        header = GetNextBrokerIdRequestHeader(cluster_name=cluster, broker_name=name)
        return self._ask(
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
            header,
            lambda answer: answer.header(GetNextBrokerIdResponseHeader).next_broker_id,
        )

    def apply_broker_id(
        self, cluster: str, name: str, broker_id: int, register_check_code: str
    ) -> "Deferred[None]":
        """Sends 1013: takes an id; succeeds again with the same code, and fails with
        CONTROLLER_BROKER_ID_INVALID where another code has the id."""
        header = ApplyBrokerIdRequestHeader(
            cluster_name=cluster,
            broker_name=name,
            applied_broker_id=broker_id,
            register_check_code=register_check_code,
        )
        return self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header, lambda answer: None)

    def register_broker(
        self, cluster: str, name: str, broker_id: int, address: str
    ) -> "Deferred[GroupState]":
        """Sends 1003: the broker is at `address` today. The master of the answer is None where it
        is not alive."""
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=cluster,
            broker_name=name,
            broker_id=broker_id,
            broker_address=address,
            invoke_time=self._now_ms(),
        )
        return self._ask(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            header,
            lambda answer: _group(answer, answer.header(RegisterBrokerToControllerResponseHeader)),
        )

    def replica_info(self, name: str) -> "Deferred[GroupState]":
        """Sends 1004: the master, alive or not, and the SyncStateSet."""
        header = GetReplicaInfoRequestHeader(broker_name=name)
        return self._ask(
            RequestCode.CONTROLLER_GET_REPLICA_INFO,
            header,
            lambda answer: _group(answer, answer.header(GetReplicaInfoResponseHeader)),
        )

    def elect_master(
        self,
        cluster: str,
        name: str,
        broker_id: int,
        *,
        designate: bool = False,
        ended_epoch: int | None = None,
        never_begun: bool = False,
    ) -> "Deferred[ElectionResult]":
        """Sends 1002: the broker asks for a master, itself where there never was one; an
        administrator designates one. `ended_epoch`: in place of the master of that epoch, of no
        later one, where the controller is not stock's; `never_begun` is told to such a one only."""
        header = ElectMasterRequestHeader(
            cluster_name=cluster,
            broker_name=name,
            broker_id=broker_id,
            designate_elect=designate,
            invoke_time=self._now_ms(),
            master_epoch=ended_epoch,
            never_begun=never_begun or None,
        )
        return self._ask(
            RequestCode.CONTROLLER_ELECT_MASTER,
            header,
            _election,
            also=(ResponseCode.CONTROLLER_MASTER_STILL_EXIST,),
        )

    def end_epoch(
        self, cluster: str, name: str, epoch: int, *, never_begun: bool = False
    ) -> "Deferred[None]":
        """Ends a master's epoch, if it is not over: the group has no master then (1002 for no
        broker). Where stock's controllers lead, it ends the epoch that there is when it comes.
        `never_begun`: that master could not begin its epoch, so the brokers in sync before it was
        elected have all that was acknowledged, and may be elected."""
        asked = self.elect_master(
            cluster,
            name,
            NO_BROKER,
            designate=True,
            ended_epoch=epoch,
            never_begun=never_begun,
        )
        return asked.addCallbacks(lambda _: None, _check_epoch_is_over)

    def alter_sync_state_set(
        self, name: str, master_id: int, master_epoch: int, members: Iterable[int], epoch: int
    ) -> "Deferred[SyncStateSet]":
        """Sends 1001, for the master alone: proposes a SyncStateSet in place of the set with
        `epoch`, and fires with the new set. Where the answer is lost it may have been carried out:
        `replica_info` tells."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=name,
            master_broker_id=master_id,
            master_epoch=master_epoch,
            invoke_time=self._now_ms(),
        )
        wanted = SyncStateSetBody(sync_state_set=sorted(members), sync_state_set_epoch=epoch)
        return self._ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            header,
            _sync_state_set,
            body=encode_body(wanted),
            repeatable=False,
        )

    # The leader, for administrators

    def sync_state_data(self, names: Sequence[str]) -> "Deferred[BrokerReplicasInfo]":
        """Sends 1006: the groups of these names in full; unknown ones are left out."""
        return self._ask(
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
            None,
            lambda answer: decode_body(BrokerReplicasInfo, answer.body),
            body=encode_body(list(names)),
        )

    def clean_broker_data(
        self, cluster: str | None, name: str, ids: str | None, *, living: bool = False
    ) -> "Deferred[None]":
        """Sends 1011: forgets the replicas with these ids (`1;2`), or the whole group."""
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=name,
            broker_controller_ids_to_clean=ids,
            is_clean_living_broker=living,
            invoke_time=self._now_ms(),
        )
        return self._ask(
            RequestCode.CLEAN_BROKER_DATA, header, lambda answer: None, repeatable=False
        )

    # How it is asked

    def _ask(
        self,
        code: int,
        header: Header | None,
        read: Callable[[RemotingCommand], T],
        *,
        body: bytes = b"",
        also: Sequence[int] = (),
        repeatable: bool = True,
    ) -> "Deferred[T]":
        """Asks the leader; `also` are codes beside SUCCESS that `read` takes."""

        async def ask() -> T:
            make = partial(RemotingCommand.request, code, header, body)
            address, answer = await self._ask_leader(make, repeatable)
            if answer.code not in (ResponseCode.SUCCESS, *also):
                raise BrokerError(address, answer.code, answer.remark)
            return read(answer)

        return Deferred.fromCoroutine(ask())

    async def _ask_leader(
        self, make: Callable[[], RemotingCommand], repeatable: bool
    ) -> tuple[str, RemotingCommand]:
        give_up = self._clock.seconds() + self._leader_timeout
        while True:
            try:
                address = self.leader or await self._find_leader()
                answer = await self._remoting.request(address, make(), _ANSWER_TIMEOUT)
            except ConnectError as error:
                reason: Exception = error
            except RemotingError as error:
                if not repeatable:
                    raise
                reason = error
            except NoControllersError:
                raise
            except NoControllerError as error:
                reason = error
            else:
                if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                    return address, answer
                reason = BrokerError(address, answer.code, answer.remark)
            self.leader = None
            if self._clock.seconds() + RETRY_SOON > give_up:
                raise NoControllerError(str(reason)) from reason
            await deferLater(self._clock, RETRY_SOON, lambda: None)

    async def _find_leader(self) -> str:
        reasons = []
        are_others = bool(self.addresses)
        # Another one first each time: some go on for seconds to name a leader that is gone.
        self._first = (self._first + 1) % max(1, len(self.addresses))
        for address in self.addresses[self._first :] + self.addresses[: self._first]:
            try:
                said = await self.metadata(address)
            except (RemotingError, ClientError, RequestError, WireError) as error:
                reasons.append(str(error))
                are_others = are_others and _is_of_another_kind(error)
                continue
            are_others = False
            if said.controller_leader_address:
                self.leader = said.controller_leader_address
                return self.leader
            reasons.append(f"{address} knows no leader")
        kind = NoControllersError if are_others else NoControllerError
        raise kind("no controller leads: " + "; ".join(reasons))


def _is_of_another_kind(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _sync_state_set(answer: RemotingCommand) -> SyncStateSet:
    body = decode_body(SyncStateSetBody, answer.body)
    return SyncStateSet(frozenset(body.sync_state_set), body.sync_state_set_epoch)


def _group(
    answer: RemotingCommand,
    header: RegisterBrokerToControllerResponseHeader | GetReplicaInfoResponseHeader,
) -> GroupState:
    return GroupState(
        header.master_broker_id,
        header.master_address or "",
        header.master_epoch or 0,
        _sync_state_set(answer),
    )


def _election(answer: RemotingCommand) -> ElectionResult:
    header = answer.header(ElectMasterResponseHeader)
    body = decode_body(ElectMasterResponseBody, answer.body)
    group = GroupState(
        header.master_broker_id,
        header.master_address or "",
        header.master_epoch or 0,
        SyncStateSet(frozenset(body.sync_state_set), header.sync_state_set_epoch or 0),
    )
    brokers = body.broker_member_group
    return ElectionResult(
        answer.code == ResponseCode.SUCCESS, group, {} if brokers is None else brokers.broker_addrs
    )


def _check_epoch_is_over(failure: Failure) -> None:
    """Checks that no broker is elected, as was asked for, or that the epoch was over before; raises
    otherwise."""
    failure.trap(BrokerError)
    error = failure.value
    assert isinstance(error, BrokerError)
    if error.code not in (
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    ):
        failure.raiseException()
