"""Describes a broker as a name server knows it, and checks the names and addresses that it
takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import attrs

from rocketmq_tw.net.address import split_address
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.bodies.topics import TopicConfigTable
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Milliseconds of silence after which a broker that names no time-out of its own is gone.
DEFAULT_HEARTBEAT_TIMEOUT = 120_000
#: A name beyond this is no file's name either; "%RETRY%" with the longest group fits.
MAX_REGISTERED_NAME = 255


class BrokerKey(NamedTuple):
    """What a broker is known by, beside its name and id."""

    cluster: str
    address: str


@attrs.frozen(kw_only=True)
class Registration:
    """What a broker says of itself in 103. `owner` stands for its connection, `host` is the one
    that this comes from.

    `acting_master` is None for a broker of 4.9, which knows nothing of it.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    heartbeat_timeout: int = DEFAULT_HEARTBEAT_TIMEOUT
    acting_master: bool | None = None
    zone: str | None = None
    topics: TopicConfigTable = attrs.field(factory=TopicConfigTable)
    filter_servers: tuple[str, ...] = ()
    owner: Any = None
    host: str = ""

    @property
    def epoch(self) -> int:
        """That of the controllers which made it the master; 0 where there are none."""
        return self.topics.data_version.state_version

    @property
    def key(self) -> BrokerKey:
        """What the name server knows the broker by."""
        return BrokerKey(self.cluster, self.address)


class MasterAddresses(NamedTuple):
    """What a slave is told of its master; nothing where there is none."""

    address: str | None = None
    ha_address: str | None = None


@attrs.define
class LiveBroker:
    """A registered broker and when it was heard of last; times in ms."""

    key: BrokerKey
    broker_name: str
    last_update: int
    heartbeat_timeout: int
    data_version: DataVersion
    ha_address: str
    filter_servers: tuple[str, ...]
    owner: Any
    host: str
    #: The id that another one has taken from it, and that it has again once that one is gone.
    displaced_from: int | None = None

    @property
    def epoch(self) -> int:
        """See `Registration`."""
        return self.data_version.state_version

    def is_silent(self, now_ms: int) -> bool:
        """Returns whether the broker's time-out has passed since it was heard of; `now_ms` is the
        time."""
        return self.last_update + self.heartbeat_timeout < now_ms


class MinIdChange(NamedTuple):
    """A change of the smallest broker id of a name. `addresses` are the remaining brokers'.
    `offline_address` is of the broker that left, `ha_address` of one that came."""

    broker_name: str
    addresses: dict[int, str]
    offline_address: str | None = None
    ha_address: str | None = None


def smallest_id(brokers: Iterable[int]) -> int | None:
    """Returns the smallest of these broker ids; None where there is none. Ids below 0 do not count:
    no broker with a role has one, and none is to keep a slave from acting for its master."""
    return min((number for number in brokers if number >= MASTER_ID), default=None)


def check_name(field: str, name: str) -> None:
    """Raises `RequestError` unless `name` has a length that some broker could use."""
    if not 0 < len(name) <= MAX_REGISTERED_NAME:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{field} has {len(name)} characters: give it 1 to {MAX_REGISTERED_NAME}",
        )


def check_address(field: str, address: str) -> None:
    """Raises `RequestError` unless `address` is `host:port`."""
    try:
        host, _ = split_address(address)
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{field}: {error}") from error
    check_name(field, host)
