"""Makes the classes of messages from their descriptors.

What touches every field is written out for each class: a loop over fields would be several times
slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from rocketmq_tw.proxy.proto.plain import checks, containers, wire
from rocketmq_tw.proxy.proto.plain.entries import read_entry
from rocketmq_tw.proxy.proto.plain.fields import (
    SCALARS,
    Lines,
    MessageField,
    class_name,
    is_float_set,
    sized,
)
from rocketmq_tw.proxy.proto.plain.functions import (
    accessors,
    methods,
    oneof_names,
    question,
    which,
)
from rocketmq_tw.proxy.proto.plain.message import PlainMessage
from rocketmq_tw.written import written_function


class Classes:
    """Makes classes that know each other. They are in a module of their own, whose names are
    constants to PyPy's compiler, as those of a plain dict are not."""

    def __init__(self) -> None:
        module = ModuleType("rocketmq_tw.proxy.proto.plain.written")
        self._known = module.__dict__
        self._known.update(
            new=object.__new__,
            DecodeError=DecodeError,
            TRUNCATED=wire.TRUNCATED,
            pack_float=checks.FLOAT.pack,
            unpack_float=checks.FLOAT.unpack_from,
            is_float_set=is_float_set,
            sized=sized,
            read_entry=read_entry,
            **{
                each.__name__: each
                for each in (
                    wire.put_number,
                    wire.number_size,
                    wire.read_length,
                    wire.read_number,
                    wire.read_tag,
                    wire.skip,
                    wire.text_size,
                    containers.RepeatedMessages,
                    containers.RepeatedValues,
                    containers.TextMap,
                    checks.checked_text,
                    checks.checked_bytes,
                    checks.checked_int32,
                    checks.checked_int64,
                    checks.checked_bool,
                    checks.checked_float,
                )
            },
        )
        for scalar in SCALARS.values():
            self._known[f"take_{scalar.check}"] = _taker(self._known[scalar.check])

    def made(self, kind: Descriptor) -> Any:
        """Returns the class of a kind of message; those of its parts are to be made before any
        message of it is."""
        fields = sorted(map(MessageField, kind.fields), key=lambda field: field.number)
        name = class_name(kind)
        own = {each.__name__: each for each in self._written(methods(fields), name)}
        asked = {
            field.name: self._function(question(field), name)
            for field in fields
            if field.has_presence
        }
        oneofs = {each: self._function(which(fields, each), name) for each in oneof_names(fields)}
        properties = {
            field.name: property(*self._written(accessors(field), name)) for field in fields
        }
        numbers = {f"{field.name.upper()}_FIELD_NUMBER": field.number for field in fields}
        made = type(
            name,
            (PlainMessage,),
            {
                "__slots__": tuple(field.slot for field in fields),
                "__module__": __name__,
                "__doc__": f"Stands for the message {kind.full_name}.",
                "DESCRIPTOR": kind,
                "asked_": asked,
                "oneofs_": oneofs,
                "original_": GetMessageClass(kind),
                **numbers,
                **own,
                **properties,
            },
        )
        # A second one of the name would stand in for the first.
        assert name not in self._known
        self._known[name] = made
        return made

    def _written(self, sources: Iterable[Lines], name: str) -> list[Any]:
        return [self._function(source, name) for source in sources]

    def _function(self, source: Lines, name: str) -> Any:
        return written_function(source, self._known, name, __name__)


def _taker(check: Any) -> Any:
    return lambda value: check(value, "a repeated field")
