"""Where the messages come from: one module, for both kinds of Python."""

from __future__ import annotations

import ast
from pathlib import Path

from google.protobuf.message import Message

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.proxy.proto import messages, messaging_pb2
from rocketmq_tw.proxy.proto.plain.message import PlainMessage
from tests.support.jars import PROJECT

#: What imports the generated modules: the one that chooses, and tests that compare.
CHOOSING = ("rocketmq_tw/proxy/proto/", "tests/unit/proxy/proto/")
GENERATED = {"messaging_pb2", "duration_pb2", "timestamp_pb2"}


def imported(path: Path) -> set[str]:
    """Returns the generated modules that a module imports, or imports from."""
    text = path.read_text()
    if not any(name in text for name in GENERATED):
        return set()
    words: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            words |= {alias.name.rsplit(".", 1)[-1] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            words |= {alias.name for alias in node.names} | {(node.module or "").rsplit(".")[-1]}
    return words & GENERATED


def test_nothing_else_imports_the_generated_messages() -> None:
    found = [
        name
        for room in ("rocketmq_tw", "tests", "tools")
        for path in (PROJECT / room).rglob("*.py")
        if not (name := str(path.relative_to(PROJECT))).startswith(CHOOSING) and imported(path)
    ]
    assert found == []


def test_each_message_is_there_as_this_python_has_it() -> None:
    names = [*messaging_pb2.DESCRIPTOR.message_types_by_name, "Duration", "Timestamp"]
    for name in names:
        kind = getattr(messages, name)
        assert issubclass(kind, Message)
        assert issubclass(kind, PlainMessage) == IS_PYPY
        original = messages.as_original(kind())
        assert not isinstance(original, PlainMessage)
        assert original.DESCRIPTOR.name == name


def test_enumerations_are_protobufs() -> None:
    assert messages.Code.Name(messages.Code.OK) == "OK"
    assert messages.OK == 20000
    assert messages.DESCRIPTOR is messaging_pb2.DESCRIPTOR
