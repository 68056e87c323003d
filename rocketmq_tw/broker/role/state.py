"""The roles of a broker in its group of replicas, and which may follow which."""

from __future__ import annotations

from enum import Enum

import attrs

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.wire.group_state import GroupState


class Role(Enum):
    """What a broker does for its group.

    ISOLATED: it has no role yet, or is between two: it stores nothing that clients send and is not
    registered. MASTER: it stores what clients send. SLAVE: it copies a master's log. ACTING_MASTER:
    a slave that stands in for a master that is gone ("Slave Acting Master"): its log stays a copy
    and takes no messages from producers; what waits in it is delivered, through the logs of other
    brokers.
    """

    ISOLATED = "isolated"
    MASTER = "master"
    SLAVE = "slave"
    ACTING_MASTER = "acting master"

    @property
    def words(self) -> str:
        """Returns what a refusal says of a broker in this role."""
        return "starting or changing its role" if self is Role.ISOLATED else self.value

    @property
    def writes_log(self) -> bool:
        """Whether the broker appends messages to a log of its own."""
        return self is Role.MASTER

    @property
    def copies_log(self) -> bool:
        """Whether the log is a copy of another broker's."""
        return self in COPYING_ROLES

    @property
    def delivers(self) -> bool:
        """Whether the broker delivers what waits in its log: delayed and timed messages, popped
        messages that were not acknowledged, half messages whose producers are to be asked."""
        return self in DELIVERING_ROLES


EVERY_ROLE = frozenset(Role)
COPYING_ROLES = frozenset({Role.SLAVE, Role.ACTING_MASTER})
DELIVERING_ROLES = frozenset({Role.MASTER, Role.ACTING_MASTER})

#: Role -> the roles that may follow it. A change of who writes the log leads through ISOLATED, so
#: that the parts of a broker can end what they did before they begin anew. An acting master is a
#: slave all the time, which does more for a while: it begins and ends as one.
TRANSITIONS: dict[Role, frozenset[Role]] = {
    Role.ISOLATED: frozenset({Role.MASTER, Role.SLAVE}),
    Role.MASTER: frozenset({Role.ISOLATED}),
    Role.SLAVE: frozenset({Role.ISOLATED, Role.ACTING_MASTER}),
    Role.ACTING_MASTER: frozenset({Role.SLAVE}),
}


@attrs.frozen
class RoleState:
    """A role and what belongs to it.

    `broker_id` is 0 for masters. `synchronous`: a master that answers once enough slaves have a
    message. `confirmed_offset` is where the log ends that no change of master takes back, and
    `group` is the group as it was when the role was given; both are None where there is no
    controller.
    """

    role: Role
    broker_id: int
    synchronous: bool = False
    confirmed_offset: int | None = None
    group: GroupState | None = None

    @property
    def epoch(self) -> int | None:
        """The master epoch of the group; None where there is no controller."""
        return None if self.group is None else self.group.master_epoch

    @property
    def lasting_id(self) -> int:
        """The broker's id in its group with a controller, whatever its role."""
        if self.group is not None and self.role is Role.MASTER:
            return self.group.master_id or 0
        return self.broker_id


def check_controllers_named(config: BrokerConfig) -> None:
    """Raises `ConfigError` where controllers give the role and none is named."""
    if config.enable_controller_mode and not config.controller_addr:
        raise ConfigError(
            "enableControllerMode=true without controllerAddr: name the controllers as host:port,"
            " more separated by ;"
        )


def configured_role(config: BrokerConfig, store_config: MessageStoreConfig) -> RoleState | None:
    """Returns the role that brokerRole and brokerId give, or None where controllers or a DLedger
    group give it; raises `ConfigError` where the two keys do not fit. (Stock makes a master's id 0
    whatever the file says.)"""
    if config.enable_controller_mode or store_config.enable_dledger_commit_log:
        return None
    name, broker_id = store_config.broker_role, config.broker_id
    if name == "SLAVE":
        if broker_id <= 0:
            raise ConfigError(f"brokerRole=SLAVE with brokerId={broker_id}: give a slave 1 or more")
        return RoleState(Role.SLAVE, broker_id)
    if broker_id != 0:
        raise ConfigError(
            f"brokerRole={name} with brokerId={broker_id}: a master has brokerId=0, or set"
            " brokerRole=SLAVE"
        )
    return RoleState(Role.MASTER, broker_id, synchronous=name == "SYNC_MASTER")


def role_keys(state: RoleState) -> dict[str, str]:
    """Returns brokerRole and brokerId as a file would say them; nothing for a broker without a
    role."""
    if state.role is Role.ISOLATED:
        return {}
    name = "SLAVE"
    if state.role is Role.MASTER:
        name = "SYNC_MASTER" if state.synchronous else "ASYNC_MASTER"
    return {"brokerRole": name, "brokerId": str(state.broker_id)}
