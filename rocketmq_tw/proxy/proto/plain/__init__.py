"""Messages in Python, which stand in on PyPy for the classes that protobuf makes: its own Python
takes fifteen times as long and eight times the memory.

They have what this package does with messages: fields, constructors with keywords, parts that come
to be when they are filled, reading, writing, copies, comparison. They read what protobuf's C does,
and write the same bytes; a class that is asked for more of protobuf's interface refuses.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from rocketmq_tw.proxy.proto.plain.classes import Classes


def stand_ins(*modules: ModuleType) -> dict[str, Any]:
    """Returns a class for each message at the top of some generated modules, by its name. Messages
    of other modules that they have as parts are to be in one of them."""
    classes = Classes()
    return {
        kind.name: classes.made(kind)
        for module in modules
        for kind in module.DESCRIPTOR.message_types_by_name.values()
    }
