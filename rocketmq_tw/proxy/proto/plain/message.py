"""The base of all messages: reading, writing, copying, whatever their fields."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from google.protobuf.message import DecodeError, Message

from rocketmq_tw.proxy.proto.plain.wire import MOST_NESTED, TRUNCATED

try:
    from __pypy__.builders import BytesBuilder  # type: ignore[import-not-found]
except ImportError:

    class BytesBuilder(bytearray):  # type: ignore[no-redef]
        """What PyPy has by this name: bytes that are put together."""

        def __init__(self, size: int) -> None:
            super().__init__()

        append = bytearray.extend  # type: ignore[assignment]

        def build(self) -> bytes:
            return bytes(self)


class PlainMessage(Message):
    """A message whose fields are in slots, named as the field behind an underscore. What touches
    every field is written out for each class (`classes.py`).

    A slot has the field's value or default; None in place of a default where the message says
    whether it has the field, and for parts that nobody has asked for. A part that was asked for and
    that the message does not have knows its owner, and enters it with the first change.
    """

    __slots__ = ("owner_", "size_", "unknown_")

    #: What `HasField` and `WhichOneof` ask, by the name.
    asked_: ClassVar[dict[str, Any]]
    oneofs_: ClassVar[dict[str, Any]]
    #: The same message of protobuf itself.
    original_: ClassVar[Any]
    #: None where the message is its own, or a part that its owner has.
    owner_: PlainMessage | None
    #: Fields that are not known, as they came, if there are any: in one piece, since an object for
    #: each of them would take many times its bytes.
    unknown_: bytearray | None
    #: Bytes on the wire, while it is written.
    size_: int

    # Written out for each class:

    def blank_(self) -> None:
        """Gives every field its default."""
        raise NotImplementedError

    def read_(self, data: bytes, at: int, end: int, depth: int) -> None:
        """Takes over what `data` has from `at` on up to `end`; messages and groups may be `depth`
        times in each other."""
        raise NotImplementedError

    def measure_(self) -> int:
        """Returns how many bytes the message takes, and has all its parts know theirs."""
        raise NotImplementedError

    def write_(self, put: Any, is_sorted: bool) -> None:
        """Writes the message as it was measured last; maps in the order of their keys where
        `is_sorted`."""
        raise NotImplementedError

    def merge_(self, other: Any) -> None:
        """Takes over copies of what another message of the class has."""
        raise NotImplementedError

    def entered_(self, part: PlainMessage) -> None:
        """Has a part from now on, and no other one of its group."""
        if self.owner_ is not None:
            self.enter_()

    # For all classes:

    def enter_(self) -> None:
        """Gets into its owner."""
        owner, self.owner_ = self.owner_, None
        if owner is not None:
            owner.entered_(self)

    def add_unknown_(self, fields: bytes | bytearray) -> None:
        """Keeps fields that are not known."""
        if self.unknown_ is None:
            self.unknown_ = bytearray(fields)
        else:
            self.unknown_ += fields

    @classmethod
    def copied_(cls, message: Any) -> Self:
        """Returns a copy of a message of this class, or what a dict has for its constructor; raises
        `TypeError` for anything else."""
        if type(message) is dict:
            return cls(**message)
        copy = cls()
        copy.MergeFrom(message)
        return copy

    @classmethod
    def FromString(cls, s: bytes) -> Self:
        message = cls.__new__(cls)
        message.blank_()
        message.MergeFromString(s)
        return message

    def MergeFromString(self, serialized: Any) -> int:
        if type(serialized) is not bytes:
            serialized = bytes(memoryview(serialized))
        length = len(serialized)
        if self.owner_ is not None:
            self.enter_()
        try:
            self.read_(serialized, 0, length, MOST_NESTED)
        except IndexError:
            raise DecodeError(TRUNCATED) from None
        except UnicodeDecodeError as error:
            raise DecodeError(f"a text is no UTF-8: {error}") from error
        return length

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes:
        out = BytesBuilder(self.measure_())
        self.write_(out.append, bool(deterministic))
        data: bytes = out.build()
        return data

    def ByteSize(self) -> int:
        return self.measure_()

    def SetInParent(self) -> None:
        if self.owner_ is not None:
            self.enter_()

    def MergeFrom(self, other_msg: Any) -> None:
        if type(other_msg) is not type(self):
            raise TypeError(f"a {type(self).__name__} is wanted, not {type(other_msg).__name__}")
        if self.owner_ is not None:
            self.enter_()
        if other_msg is not self:
            self.merge_(other_msg)

    def CopyFrom(self, other_msg: Any) -> None:
        if other_msg is not self:
            self.Clear()
            self.MergeFrom(other_msg)

    def Clear(self) -> None:
        if self.owner_ is not None:
            self.enter_()
        self.blank_()

    def HasField(self, field_name: str) -> bool:
        try:
            asked = self.asked_[field_name]
        except KeyError:
            raise ValueError(
                f"{type(self).__name__} has no {field_name} that it may be without"
            ) from None
        found: bool = asked(self)
        return found

    def WhichOneof(self, oneof_group: str) -> str | None:
        try:
            asked = self.oneofs_[oneof_group]
        except KeyError:
            raise ValueError(f"{type(self).__name__} has no group {oneof_group}") from None
        found: str | None = asked(self)
        return found

    def original(self) -> Message:
        """Returns the same message of protobuf itself."""
        made: Message = self.original_.FromString(self.SerializeToString())
        return made

    def __repr__(self) -> str:
        return repr(self.original())

    def __str__(self) -> str:
        return str(self.original())
