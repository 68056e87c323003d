"""The decision on each request: (state, request, who is alive) -> events and an answer.

The checks, their order and their codes are stock's; docs/formats/controller.md says where ours
refuse more. Nothing here changes the state: its events do, once the Raft group has them.
"""

from collections.abc import Callable

from rocketmq_tw.controller.core.election import BrokerLife, elect
from rocketmq_tw.controller.core.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ControllerEvent,
    ElectMaster,
    UpdateBrokerAddress,
)
from rocketmq_tw.controller.core.state import FIRST_BROKER_ID, ControllerState, Group, SyncState
from rocketmq_tw.net.networks import is_same_host
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.controller import ElectMasterResponseBody, SyncStateSetBody
from rocketmq_tw.wire.bodies.route import BrokerMemberGroup
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)

#: Limits, since any client may apply for ids: groups, replicas of all groups together (a
#: few more where many apply at once), and characters of a name, an address or a code.
MAX_GROUPS = 10_000
MAX_REPLICAS = 20_000
MAX_TEXT = 255
MAX_REGISTER_CODE = 1024


class Decision(msgspec.Struct, kw_only=True, frozen=True):
    """What is to be answered once `events` are applied."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = None
    body: Body | None = None
    events: tuple[ControllerEvent, ...] = ()


def apply_broker_id(state: ControllerState, request: ApplyBrokerIdRequestHeader) -> Decision:
    """Decides 1013: gives an id to the first broker that asks for it, and again where the check
    code is the same."""
    name, broker_id = request.broker_name, request.applied_broker_id
    answer = ApplyBrokerIdResponseHeader(cluster_name=request.cluster_name, broker_name=name)
    table = state.replica_tables.get(name)
    refused = _refused_application(state, request)
    if refused is not None:
        code, remark = refused
        return Decision(code=code, remark=remark, header=answer)
    if table is None and broker_id != FIRST_BROKER_ID:
        return Decision(
            code=ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            remark=f"broker-set {name} is not registered here, so its first id is"
            f" {FIRST_BROKER_ID}, not {broker_id}",
            header=answer,
        )
    owner = None if table is None else table.replicas.get(broker_id)
    if broker_id < FIRST_BROKER_ID or (
        owner is not None and owner.register_code != request.register_check_code
    ):
        return Decision(
            code=ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            remark=f"id {broker_id} of broker-set {name} is not to be had: ask for the next one",
            header=answer,
        )
    event = ApplyBrokerId(
        cluster_name=request.cluster_name,
        broker_name=name,
        broker_address=request.register_check_code.partition(";")[0],
        new_broker_id=broker_id,
        register_check_code=request.register_check_code,
    )
    return Decision(header=answer, events=(event,))


def _refused_application(
    state: ControllerState, request: ApplyBrokerIdRequestHeader
) -> tuple[int, str] | None:
    """Returns what stock does not look at: a code and a remark, or None."""
    name, cluster = request.broker_name, request.cluster_name
    invalid = ResponseCode.CONTROLLER_INVALID_REQUEST
    if not name or not cluster or max(len(name), len(cluster)) > MAX_TEXT:
        return invalid, f"clusterName and brokerName have 1 to {MAX_TEXT} characters"
    if len(request.register_check_code) > MAX_REGISTER_CODE:
        return invalid, f"registerCheckCode has at most {MAX_REGISTER_CODE} characters"
    table = state.replica_tables.get(name)
    if table is not None and table.cluster != cluster:
        return (
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"broker-set {name} belongs to cluster {table.cluster}, not to {cluster}",
        )
    if table is None and len(state.replica_tables) >= MAX_GROUPS:
        return invalid, f"there are {MAX_GROUPS} broker-sets already: clean those that are gone"
    is_new = table is None or request.applied_broker_id not in table.replicas
    if is_new and state.replica_count >= MAX_REPLICAS:
        return invalid, f"there are {MAX_REPLICAS} brokers already: clean those that are gone"
    return None


def register_broker(
    state: ControllerState,
    request: RegisterBrokerToControllerRequestHeader,
    life: BrokerLife,
    host: str = "",
) -> Decision:
    """Decides 1003: takes a broker's present address, and tells the master where that is alive. The
    address of a broker that is alive stays, unless the host at which it was in sync asks for
    another one: `host` is the one that asks."""
    name, broker_id = request.broker_name, request.broker_id
    answer = RegisterBrokerToControllerResponseHeader(
        cluster_name=request.cluster_name, broker_name=name
    )
    group = state.group(name)
    if group is None or group.cluster != request.cluster_name:
        known = "" if group is None else f": it belongs to cluster {group.cluster}"
        return Decision(
            code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            remark=f"broker-set {name} of {request.cluster_name} is not registered here{known}",
            header=answer,
        )
    if broker_id not in group.table.replicas:
        return Decision(
            code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            remark=f"id {broker_id} of broker-set {name} was not given to anybody",
            header=answer,
        )
    if not 0 < len(request.broker_address) <= MAX_TEXT:
        return Decision(
            code=ResponseCode.CONTROLLER_INVALID_REQUEST,
            remark=f"brokerAddress has 1 to {MAX_TEXT} characters",
            header=answer,
        )
    lives_at = life.address(group.cluster, name, broker_id)
    home = group.sync.moved.get(broker_id)
    is_back = home is not None and is_same_host(home, host)
    is_back = is_back and is_same_host(host, request.broker_address)
    if lives_at not in ("", request.broker_address) and not is_back:
        # Two brokers under one id would both become the master when it is elected.
        return Decision(
            code=ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            remark=f"id {broker_id} of broker-set {name} is alive at {lives_at}: where the broker"
            f" at {request.broker_address} has a copy of that one's store, remove brokerIdentity"
            " from the copy; where it is the same one, it is taken once it is silent there",
            header=answer,
        )
    sync = group.sync
    if sync.master is not None and is_alive(life, group, sync.master):
        answer.master_broker_id = sync.master
        answer.master_address = group.table.address(sync.master)
        answer.master_epoch = sync.master_epoch
        answer.sync_state_set_epoch = sync.epoch
    events: tuple[ControllerEvent, ...] = ()
    if group.table.address(broker_id) != request.broker_address:
        moved = UpdateBrokerAddress(
            cluster_name=request.cluster_name,
            broker_name=name,
            broker_address=request.broker_address,
            broker_id=broker_id,
        )
        events = (moved,)
    return Decision(header=answer, body=sync_state_set(group), events=events)


def elect_master(
    state: ControllerState,
    request: ElectMasterRequestHeader,
    life: BrokerLife,
    *,
    unclean: bool = False,
) -> Decision:
    """Decides 1002: elects a new master where the old one is gone, or makes a designated broker the
    master."""
    group = state.group(request.broker_name)
    if group is None or request.cluster_name not in ("", group.cluster):
        return Decision(
            code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            remark=f"broker-set {request.broker_name} of {request.cluster_name or 'any cluster'}"
            " is not registered here",
            header=ElectMasterResponseHeader(),
        )
    sync, asked = group.sync, request.broker_id
    if _is_over(request, sync):
        return Decision(
            code=ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            remark=f"the master epoch of {group.name} is {sync.master_epoch}, that which is to end"
            f" is {request.master_epoch}",
            header=ElectMasterResponseHeader(),
        )
    if sync.master_epoch == 0 and asked in group.table.replicas:
        # There was never a master: the first broker that asks lacks nothing.
        new: int | None = asked
    else:
        circles = [sorted(sync.members)]
        if unclean:
            circles.append(sorted(group.table.replicas))
        designated = asked if request.designate_elect else None
        new = elect(life, group.cluster, group.name, circles, sync.master, designated, sync.moved)
    if new is None:
        return _no_master_elected(group, request)
    if new == sync.master:
        return Decision(
            code=ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
            remark=f"{new} is alive and stays the master of broker-set {group.name}",
            header=_master_header(group, new, sync.master_epoch, sync.epoch),
            body=ElectMasterResponseBody(sync_state_set=sorted(sync.members)),
        )
    addresses = {key: one.address or "" for key, one in sorted(group.table.replicas.items())}
    return Decision(
        header=_master_header(group, new, sync.master_epoch + 1, sync.epoch + 1),
        body=ElectMasterResponseBody(
            sync_state_set=[new],
            broker_member_group=BrokerMemberGroup(
                cluster=group.cluster, broker_name=group.name, broker_addrs=addresses
            ),
        ),
        events=(
            ElectMaster(broker_name=group.name, new_master_elected=True, new_master_broker_id=new),
        ),
    )


def _is_over(request: ElectMasterRequestHeader, sync: SyncState) -> bool:
    """Returns whether the epoch that a request is to end has ended: it was late."""
    return request.master_epoch not in (None, sync.master_epoch)


def _no_master_elected(group: Group, request: ElectMasterRequestHeader) -> Decision:
    if request.broker_id != -1:
        who = f"broker {request.broker_id} cannot be elected"
        if not request.designate_elect:
            who = f"nobody can be elected for broker {request.broker_id}"
        return Decision(
            code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            remark=f"{who}: the SyncStateSet of broker-set {group.name} is"
            f" {sorted(group.sync.members)}, and only those alive count",
            header=ElectMasterResponseHeader(),
        )
    # No broker asks for itself: the controller found that the old master is gone.
    return Decision(
        code=ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        remark=f"nobody of the SyncStateSet of broker-set {group.name} is alive: no master",
        header=ElectMasterResponseHeader(),
        events=(
            *_former_set(group, request),
            ElectMaster(broker_name=group.name, new_master_elected=False),
        ),
    )


def _former_set(group: Group, request: ElectMasterRequestHeader) -> tuple[ControllerEvent, ...]:
    """Returns the SyncStateSet of before, where the master never began its epoch: nothing was
    acknowledged in it, so those members have all that was."""
    former = group.sync.former
    ends_own_epoch = request.master_epoch == group.sync.master_epoch
    if not (request.never_begun and ends_own_epoch and group.sync.master is not None and former):
        return ()
    return (AlterSyncStateSet(broker_name=group.name, new_sync_state_set=former),)


def _master_header(
    group: Group, master: int, master_epoch: int, epoch: int
) -> ElectMasterResponseHeader:
    return ElectMasterResponseHeader(
        master_broker_id=master,
        master_address=group.table.address(master),
        master_epoch=master_epoch,
        sync_state_set_epoch=epoch,
    )


def alter_sync_state_set(
    state: ControllerState,
    request: AlterSyncStateSetRequestHeader,
    asked: SyncStateSetBody,
    life: BrokerLife,
    speaks_for_master: Callable[[Group], bool] = lambda group: True,
) -> Decision:
    """Decides 1001: takes the SyncStateSet that a master proposes. `speaks_for_master` tells
    whether the request comes from the master of a group: nobody else may add a broker, which may be
    elected then though it lacks messages."""
    group, wanted = state.group(request.broker_name), frozenset(asked.sync_state_set)
    if group is None:
        refused: tuple[int, str] | None = (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"broker-set {request.broker_name} is not registered here",
        )
    else:
        refused = _refused_set(group, request, asked.sync_state_set_epoch, wanted, life)
        if refused is None and not speaks_for_master(group):
            refused = (
                ResponseCode.CONTROLLER_INVALID_MASTER,
                f"the master {group.sync.master} of {group.name} is at"
                f" {group.table.address(group.sync.master)}, and only it says who is in sync",
            )
    if refused is not None or group is None:
        assert refused is not None
        code, remark = refused
        return Decision(code=code, remark=remark, header=AlterSyncStateSetResponseHeader())
    epoch = group.sync.epoch + 1
    return Decision(
        header=AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=epoch),
        body=SyncStateSetBody(sync_state_set=sorted(wanted), sync_state_set_epoch=epoch),
        events=(AlterSyncStateSet(broker_name=group.name, new_sync_state_set=wanted),),
    )


def _refused_set(
    group: Group,
    request: AlterSyncStateSetRequestHeader,
    epoch: int,
    wanted: frozenset[int],
    life: BrokerLife,
) -> tuple[int, str] | None:
    sync = group.sync
    if wanted == sync.members:
        return (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"the SyncStateSet of {group.name} is {sorted(wanted)} already",
        )
    if sync.master is None or request.master_broker_id != sync.master:
        return (
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"the master of {group.name} is {sync.master}, not {request.master_broker_id}",
        )
    if request.master_epoch != sync.master_epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"the master epoch of {group.name} is {sync.master_epoch}, not {request.master_epoch}",
        )
    if epoch != sync.epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"the SyncStateSet epoch of {group.name} is {sync.epoch}, not {epoch}",
        )
    for broker_id in sorted(wanted):
        if broker_id not in group.table.replicas:
            return (
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"{group.name} has no replica {broker_id}",
            )
        if not is_alive(life, group, broker_id):
            return (
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                f"replica {broker_id} of {group.name} is not alive",
            )
    if sync.master not in wanted:
        return (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"the master {sync.master} of {group.name} is missing in {sorted(wanted)}",
        )
    return None


def clean_broker_data(
    state: ControllerState, request: CleanControllerBrokerDataRequestHeader, life: BrokerLife
) -> Decision:
    """Decides 1011: forgets replicas that are gone, or a whole group."""
    name = request.broker_name
    group = state.group(name)
    wanted = (request.broker_controller_ids_to_clean or "").strip()
    ids: frozenset[int] | None = None
    if not request.is_clean_living_broker:
        sync = state.sync_states.get(name)
        if not wanted and sync is not None and sync.master is not None:
            return _not_cleaned(f"broker-set {name} has a master: it is alive")
        if wanted:
            try:
                ids = frozenset(_ids_in(wanted))
            except ValueError as error:
                return _not_cleaned(f"brokerControllerIdsToClean is ids with ';' between: {error}")
            # By the group's own cluster: a wrong one must not make a broker seem dead.
            alive = [] if group is None else [one for one in ids if is_alive(life, group, one)]
            if alive:
                return _not_cleaned(f"broker {min(alive)} of broker-set {name} is alive")
    if group is None:
        return _not_cleaned(f"broker-set {name} is not registered here")
    if request.cluster_name not in (None, "", group.cluster):
        return _not_cleaned(f"broker-set {name} belongs to cluster {group.cluster}")
    event = CleanBrokerData(broker_name=name, broker_id_set_to_clean=ids)
    return Decision(events=(event,))


def _ids_in(text: str) -> list[int]:
    # Java leaves out what is empty behind the last separator.
    ids = [int(part) for part in text.rstrip(";").split(";")]
    if any(abs(one) >= 1 << 63 for one in ids):
        raise ValueError("an id has 64 bits")
    return ids


def _not_cleaned(remark: str) -> Decision:
    return Decision(code=ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark=remark)


def sync_state_set(group: Group) -> SyncStateSetBody:
    """Returns the group's SyncStateSet as answers have it."""
    return SyncStateSetBody(
        sync_state_set=sorted(group.sync.members), sync_state_set_epoch=group.sync.epoch
    )


def is_alive(life: BrokerLife, group: Group, broker_id: int) -> bool:
    """Returns whether the heartbeats of a replica come, to the cluster that its group belongs
    to."""
    return life.standing(group.cluster, group.name, broker_id) is not None
