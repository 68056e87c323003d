"""Answers from the state of the controller, without changing anything."""

from collections.abc import Iterable, Iterator

from rocketmq_tw.controller.core.decisions import Decision, is_alive, sync_state_set
from rocketmq_tw.controller.core.election import BrokerLife, is_doubtful
from rocketmq_tw.controller.core.state import FIRST_BROKER_ID, ControllerState, Group
from rocketmq_tw.wire.bodies.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.headers.controller import (
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)

#: Replicas in one answer, which is made on the reactor.
MAX_SHOWN = 5_000


def next_broker_id(state: ControllerState, request: GetNextBrokerIdRequestHeader) -> Decision:
    """Answers 1012: the id that a new broker of the group may apply for."""
    table = state.replica_tables.get(request.broker_name)
    answer = GetNextBrokerIdResponseHeader(
        cluster_name=request.cluster_name,
        broker_name=request.broker_name,
        next_broker_id=FIRST_BROKER_ID if table is None else table.free_id,
    )
    return Decision(header=answer)


def replica_info(state: ControllerState, request: GetReplicaInfoRequestHeader) -> Decision:
    """Answers 1004: the master, alive or not, and the SyncStateSet."""
    group = state.group(request.broker_name)
    if group is None:
        return Decision(
            code=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
            remark=f"broker-set {request.broker_name} is not registered here",
            header=GetReplicaInfoResponseHeader(),
        )
    answer = GetReplicaInfoResponseHeader(
        master_broker_id=group.sync.master,
        master_address=group.table.address(group.sync.master),
        master_epoch=group.sync.master_epoch,
    )
    return Decision(header=answer, body=sync_state_set(group))


def sync_state_data(state: ControllerState, names: Iterable[str], life: BrokerLife) -> Decision:
    """Answers 1006: the groups of these names in full; unknown ones are left out."""
    groups = [group for name in dict.fromkeys(names) if (group := state.group(name)) is not None]
    shown = sum(len(group.table.replicas) for group in groups)
    if shown > MAX_SHOWN:
        return Decision(
            code=ResponseCode.SYSTEM_ERROR,
            remark=f"these broker-sets have {shown} replicas: name fewer, {MAX_SHOWN} are shown",
        )
    table = {group.name: _replicas_info(group, life) for group in groups}
    return Decision(body=BrokerReplicasInfo(replicas_info_table=table))


def _replicas_info(group: Group, life: BrokerLife) -> ReplicasInfo:
    sync = group.sync
    info = ReplicasInfo(
        master_broker_id=sync.master,
        master_address=group.table.address(sync.master),
        master_epoch=sync.master_epoch,
        sync_state_set_epoch=sync.epoch,
    )
    for broker_id, replica in sorted(group.table.replicas.items()):
        one = ReplicaIdentity(
            broker_name=group.name,
            broker_id=broker_id,
            broker_address=replica.address,
            alive=is_alive(life, group, broker_id),
        )
        in_sync = broker_id in sync.members
        (info.in_sync_replicas if in_sync else info.not_in_sync_replicas).append(one)
    return info


def groups_to_reelect(state: ControllerState, life: BrokerLife) -> Iterator[str]:
    """Yields the groups whose master is gone, or speaks from elsewhere, while another replica is
    alive."""
    for group in state.groups():
        master = group.sync.master
        if master is None:
            continue
        if not is_alive(life, group, master):
            if any(is_alive(life, group, one) for one in group.table.replicas):
                yield group.name
        elif _is_doubtful(life, group, master) and any(
            is_alive(life, group, one) and not _is_doubtful(life, group, one)
            for one in group.sync.members
        ):
            yield group.name


def _is_doubtful(life: BrokerLife, group: Group, broker_id: int) -> bool:
    return is_doubtful(life, group.cluster, group.name, broker_id, group.sync.moved)
