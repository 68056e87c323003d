"""From a request's header and body to the decision that it asks for.

Parsing raises `RequestError`; what it gives is called once the state may be looked at.
"""

from collections.abc import Callable
from typing import TypeAlias

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller.core import decisions, reads
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.election import BrokerLife
from rocketmq_tw.controller.core.state import ControllerState, Group
from rocketmq_tw.wire.bodies.base import decode_request
from rocketmq_tw.wire.bodies.controller import SyncStateSetBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)

#: Bytes of a body, since it is read on the reactor: a set has a few ids, a cluster some thousand
#: names.
MAX_SET_BYTES = 64 * 1024
#: Brokers of such a set: broker ids, of which more could be chosen to meet in a hash table.
MAX_SET_MEMBERS = 1_000
MAX_NAMES_BYTES = 1024 * 1024

#: Looks at the state and who is alive; changes nothing.
Decide: TypeAlias = Callable[[ControllerState, BrokerLife], Decision]
ParseRequest: TypeAlias = Callable[[RemotingCommand], Decide]


def write_requests(config: ControllerConfig) -> dict[int, ParseRequest]:
    """Returns the requests whose decisions may have events, by code."""

    def elect(command: RemotingCommand) -> Decide:
        header = command.header(ElectMasterRequestHeader)
        return make_election(header, config)

    return {
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: alter,
        RequestCode.CONTROLLER_ELECT_MASTER: elect,
        RequestCode.CONTROLLER_REGISTER_BROKER: register,
        RequestCode.CLEAN_BROKER_DATA: _clean,
        RequestCode.CONTROLLER_APPLY_BROKER_ID: _apply,
    }


def read_requests() -> dict[int, ParseRequest]:
    """Returns the requests that only look, by code."""
    return {
        RequestCode.CONTROLLER_GET_REPLICA_INFO: _replica_info,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: _sync_state_data,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _next_id,
    }


def make_election(header: ElectMasterRequestHeader, config: ControllerConfig) -> Decide:
    """Returns an election by the configuration at the moment of the decision."""
    return lambda state, life: decisions.elect_master(
        state, header, life, unclean=config.enable_elect_unclean_master
    )


def alter(
    command: RemotingCommand, speaks_for_master: Callable[[Group], bool] = lambda group: True
) -> Decide:
    """Returns what decides 1001; see `decisions.alter_sync_state_set`."""
    header = command.header(AlterSyncStateSetRequestHeader)
    _check_size(command, MAX_SET_BYTES)
    wanted = decode_request(SyncStateSetBody, command.body)
    if len(wanted.sync_state_set) > MAX_SET_MEMBERS:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{len(wanted.sync_state_set)} brokers in sync: name at most {MAX_SET_MEMBERS}",
        )
    return lambda state, life: decisions.alter_sync_state_set(
        state, header, wanted, life, speaks_for_master
    )


def register(command: RemotingCommand, host: str = "") -> Decide:
    """Returns what decides 1003, asked from `host`; see `decisions.register_broker`."""
    header = command.header(RegisterBrokerToControllerRequestHeader)
    return lambda state, life: decisions.register_broker(state, header, life, host)


def _apply(command: RemotingCommand) -> Decide:
    header = command.header(ApplyBrokerIdRequestHeader)
    return lambda state, life: decisions.apply_broker_id(state, header)


def _clean(command: RemotingCommand) -> Decide:
    header = command.header(CleanControllerBrokerDataRequestHeader)
    return lambda state, life: decisions.clean_broker_data(state, header, life)


def _replica_info(command: RemotingCommand) -> Decide:
    header = command.header(GetReplicaInfoRequestHeader)
    return lambda state, life: reads.replica_info(state, header)


def _next_id(command: RemotingCommand) -> Decide:
    header = command.header(GetNextBrokerIdRequestHeader)
    return lambda state, life: reads.next_broker_id(state, header)


def _sync_state_data(command: RemotingCommand) -> Decide:
    _check_size(command, MAX_NAMES_BYTES)
    names = decode_request(list[str], command.body) if command.body else []
    if not names:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "name broker-sets in the body: a JSON list")
    if len(names) > decisions.MAX_GROUPS:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{len(names)} names: there are {decisions.MAX_GROUPS} broker-sets at most",
        )
    return lambda state, life: reads.sync_state_data(state, names, life)


def _check_size(command: RemotingCommand, limit: int) -> None:
    if len(command.body) > limit:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"a body of {len(command.body)} bytes: send at most {limit}"
        )
