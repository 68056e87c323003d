"""A replicated key-value store, by which tests see what a Raft group applies."""

from zope.interface import implementer

from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.state_machine import IStateMachine, SnapshotError
from rocketmq_tw.structs import msgspec


class Put(msgspec.Struct, tag="put", frozen=True):
    """Sets a key; with `expected`, only if that is its present value."""

    key: str
    value: str
    expected: str | None = None


class Delete(msgspec.Struct, tag="delete", frozen=True):
    """Removes a key."""

    key: str


KeyValueCommand = Put | Delete

_decode = msgspec.json.Decoder(KeyValueCommand).decode
_encode = msgspec.json.Encoder().encode


def encode_kv_command(command: KeyValueCommand) -> bytes:
    """Returns the body of the entry that carries `command`."""
    return _encode(command)


@implementer(IStateMachine)
class KeyValue:
    """Keys and values, both text."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, entry: Entry) -> bool:
        """Returns whether the command took effect: a Put with another expected value does not, nor
        does what is no command."""
        try:
            command = _decode(entry.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        if isinstance(command, Delete):
            return self.values.pop(command.key, None) is not None
        if command.expected is not None and self.values.get(command.key) != command.expected:
            return False
        self.values[command.key] = command.value
        return True

    def take_snapshot(self) -> bytes:
        return _encode(self.values)

    def check_snapshot(self, data: bytes) -> None:
        _values_of(data)

    def load_snapshot(self, data: bytes) -> None:
        self.values = _values_of(data)


def _values_of(data: bytes) -> dict[str, str]:
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotError(str(error)) from error
