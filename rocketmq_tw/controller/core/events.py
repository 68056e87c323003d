"""Events, and the bytes that they have in the controllers' log (docs/formats/controller.md)."""

from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar, TypeAlias

from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.errors import WireError

_NUMBER = Struct(">H")


class _Event(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """A change of the controllers' state. In the log `number` opens its bytes, and `event_type` is
    one of its fields."""

    number: ClassVar[int]
    event_type: ClassVar[str]

    broker_name: str

    def __str__(self) -> str:
        return _members(self).decode()


class AlterSyncStateSet(_Event, kw_only=True, frozen=True):
    """The group's SyncStateSet is another one."""

    number = 1
    event_type = "ALTER_SYNC_STATE_SET_EVENT"

    new_sync_state_set: frozenset[int]


class ApplyBrokerId(_Event, kw_only=True, frozen=True):
    """A broker owns an id; the check code proves that it is that broker."""

    number = 2
    event_type = "APPLY_BROKER_ID_EVENT"

    cluster_name: str | None = None
    broker_address: str | None = None
    new_broker_id: int
    register_check_code: str | None = None


class ElectMaster(_Event, kw_only=True, frozen=True):
    """The group has a new master, or, with `new_master_elected` false, none any more."""

    number = 3
    event_type = "ELECT_MASTER_EVENT"

    new_master_elected: bool
    new_master_broker_id: int | None = None


class CleanBrokerData(_Event, kw_only=True, frozen=True):
    """Replicas are forgotten; without ids the whole group."""

    number = 5
    event_type = "CLEAN_BROKER_DATA_EVENT"

    broker_id_set_to_clean: frozenset[int] | None = None


class UpdateBrokerAddress(_Event, kw_only=True, frozen=True):
    """A replica came back at another address."""

    number = 6
    event_type = "UPDATE_BROKER_ADDRESS"

    cluster_name: str | None = None
    broker_address: str | None = None
    broker_id: int


ControllerEvent: TypeAlias = (
    AlterSyncStateSet | ApplyBrokerId | ElectMaster | CleanBrokerData | UpdateBrokerAddress
)

_TYPES: dict[int, type[ControllerEvent]] = {
    event_type.number: event_type
    for event_type in (
        AlterSyncStateSet,
        ApplyBrokerId,
        ElectMaster,
        CleanBrokerData,
        UpdateBrokerAddress,
    )
}


class EventError(ValueError):
    """Bytes that are no event; the text says why."""


def encode_event(event: ControllerEvent) -> bytes:
    """Returns the body of the entry that carries `event`."""
    return _NUMBER.pack(event.number) + _members(event)


def _members(event: _Event) -> bytes:
    fields: dict[str, Any] = msgspec.to_builtins(event)
    fields["eventType"] = event.event_type
    return fastjson.dumps(
        {
            name: sorted(value) if isinstance(value, list) else value
            for name, value in sorted(fields.items())
        }
    )


def decode_event(body: bytes) -> ControllerEvent:
    """Returns the event in an entry's body; unknown fields are passed over. Raises `EventError`."""
    try:
        (number,) = _NUMBER.unpack_from(body)
    except StructError as error:
        raise EventError(f"{len(body)} bytes are no event") from error
    event_type = _TYPES.get(number)
    if event_type is None:
        raise EventError(f"there is no event of number {number}")
    try:
        members = fastjson.loads(body[_NUMBER.size :])
        return msgspec.convert(members, event_type, strict=False)
    except (WireError, msgspec.ValidationError, RecursionError) as error:
        raise EventError(f"no {event_type.__name__}: {error}") from error
