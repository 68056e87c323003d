"""What stands in for protobuf's messages, case by case; protobuf's own do the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.message import DecodeError, Message

from rocketmq_tw.proxy.proto import messaging_pb2
from rocketmq_tw.proxy.proto.plain import stand_ins
from tests.support.proto_bytes import BYTES, VARINT, field
from tests.support.traced_memory import traced_memory

MODULES = (duration_pb2, timestamp_pb2, messaging_pb2)
PLAIN = stand_ins(*MODULES)

#: Returns a class by its name.
KindOf = Callable[[str], Any]


def protobuf(name: str) -> Any:
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))


@pytest.fixture(params=[PLAIN.__getitem__, protobuf], ids=["plain", "protobuf"])
def kind_of(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_it_is_a_message_of_protobuf(kind_of: KindOf) -> None:
    message = kind_of("Status")()
    assert isinstance(message, Message)
    with pytest.raises(TypeError):
        hash(message)


def test_a_part_that_is_only_looked_at_is_not_there(kind_of: KindOf) -> None:
    command = kind_of("TelemetryCommand")()
    assert command.settings.subscription.group.name == ""
    assert list(command.settings.publishing.topics) == []
    assert not command.HasField("settings")
    assert command.WhichOneof("command") is None
    assert command == kind_of("TelemetryCommand")()
    assert command.SerializeToString() == b""


def set_text(command: Any) -> None:
    command.settings.subscription.group.name = "g"


def set_default(command: Any) -> None:
    command.settings.publishing.max_body_size = 0


def add_part(command: Any) -> None:
    command.settings.publishing.topics.add().name = "t"


def extend_parts(command: Any) -> None:
    topics = command.settings.publishing.topics
    topics.extend([type(topics.add())(name="t")])


def be_there(command: Any) -> None:
    command.settings.subscription.SetInParent()


def copy_nothing(command: Any) -> None:
    command.settings.user_agent.CopyFrom(type(command.settings.user_agent)())


def merge_nothing(command: Any) -> None:
    command.settings.user_agent.MergeFrom(type(command.settings.user_agent)())


def clear(command: Any) -> None:
    command.settings.user_agent.Clear()


def read_into(command: Any) -> None:
    command.settings.user_agent.MergeFromString(b"\x08\x01")


FILLING = [
    *(set_text, set_default, add_part, extend_parts, be_there),
    *(copy_nothing, merge_nothing, clear, read_into),
]


@pytest.mark.parametrize("fill", FILLING)
def test_a_part_that_is_changed_is_there(kind_of: KindOf, fill: Callable[[Any], None]) -> None:
    command = kind_of("TelemetryCommand")()
    part = command.settings
    fill(command)
    assert command.HasField("settings")
    assert command.WhichOneof("command") == "settings"
    part.client_type = 4
    assert command.settings.client_type == 4
    read = kind_of("TelemetryCommand").FromString(command.SerializeToString())
    assert read == command


@pytest.mark.parametrize("fill", FILLING)
def test_both_write_the_same(fill: Callable[[Any], None]) -> None:
    written = []
    for kind in (PLAIN["TelemetryCommand"], messaging_pb2.TelemetryCommand):
        command: Any = kind()
        fill(command)
        written.append(command.SerializeToString())
    assert written[0] == written[1] != b""


def test_a_map_that_is_filled_makes_its_message_be_there(kind_of: KindOf) -> None:
    command = kind_of("VerifyMessageCommand")()
    own = command.message.user_properties
    assert dict(own) == {} and "a" not in own and not command.HasField("message")
    own["a"] = "ä"
    assert command.HasField("message")
    own.update({"b": "c"})
    assert command.message.user_properties == {"a": "ä", "b": "c"}
    assert sorted(own) == sorted(own.keys()) == ["a", "b"]
    assert (len(own), own["a"], own.get("x"), sorted(own.items())[1]) == (2, "ä", None, ("b", "c"))
    for key, value in (("\ud800", ""), ("", "\udfff")):
        with pytest.raises(ValueError):
            own[key] = value
    with pytest.raises(TypeError):
        own["a"] = 1
    assert len(own) == 2


def test_only_one_of_a_group_is_there(kind_of: KindOf) -> None:
    response = kind_of("PullMessageResponse")()
    status, message = response.status, response.message
    response.next_offset = 0
    assert response.WhichOneof("content") == "next_offset"
    status.code = 5
    assert response.WhichOneof("content") == "status"
    assert not response.HasField("next_offset") and response.next_offset == 0
    message.body = b"x"
    assert (response.WhichOneof("content"), response.status.code) == ("message", 0)
    status.code = 6
    assert response.WhichOneof("content") == "message"
    response.MergeFrom(kind_of("PullMessageResponse")(next_offset=9))
    assert response.SerializeToString() == b"\x18\x09"
    named = kind_of("PullMessageResponse")(status=kind_of("Status")(code=2))
    assert named.WhichOneof("content") == "status"


def test_what_may_be_missing_tells_so(kind_of: KindOf) -> None:
    system = kind_of("SystemProperties")()
    assert (system.tag, system.HasField("tag")) == ("", False)
    system.tag = ""
    assert system.HasField("tag")
    assert system.SerializeToString() == b"\x0a\x00"
    for name in ("message_id", "keys", "nothing"):
        with pytest.raises(ValueError):
            system.HasField(name)
    with pytest.raises(ValueError):
        system.WhichOneof("nothing")


def test_a_constructor_copies(kind_of: KindOf) -> None:
    topic = kind_of("Resource")(name="t")
    queue = kind_of("MessageQueue")(
        topic=topic, id=3, broker=None, accept_message_types=[1, 2], permission=None
    )
    topic.name = "other"
    assert (queue.topic.name, list(queue.accept_message_types)) == ("t", [1, 2])
    assert not queue.HasField("broker")
    request = kind_of("SendMessageRequest")(
        messages=[{"topic": {"name": "t"}, "user_properties": {"a": "b"}, "body": b"x"}]
    )
    (message,) = request.messages
    assert (message.topic.name, message.user_properties["a"], message.body) == ("t", "b", b"x")
    assert kind_of("Metric")(endpoints=kind_of("Endpoints")()).HasField("endpoints")
    with pytest.raises((TypeError, ValueError)):
        kind_of("Resource")(nothing=1)
    with pytest.raises(TypeError):
        kind_of("MessageQueue")(topic=kind_of("Broker")())


def test_a_message_of_another_class_is_refused(kind_of: KindOf) -> None:
    status = kind_of("Status")()
    for act in (status.MergeFrom, status.CopyFrom):
        with pytest.raises(TypeError):
            act(kind_of("Resource")())
    entries = kind_of("SendMessageResponse")().entries
    with pytest.raises(TypeError):
        entries.append(status)
    with pytest.raises(TypeError):
        entries.extend([status])


def test_repeated_fields(kind_of: KindOf) -> None:
    system = kind_of("SystemProperties")()
    keys = system.keys
    assert not keys and keys == []
    keys.append("a")
    keys.extend(["b", "c"])
    assert keys == ["a", "b", "c"] == list(system.keys)
    assert (len(keys), keys[0], keys[-1], keys[1:], "b" in keys) == (3, "a", "c", ["b", "c"], True)
    for wrong, error in (("\ud800", ValueError), (1, TypeError), (None, TypeError)):
        with pytest.raises(error):
            keys.append(wrong)
        with pytest.raises(error):
            keys.extend(["d", wrong])
    endpoints = kind_of("Endpoints")()
    endpoints.addresses.add(host="h", port=1)
    endpoints.addresses.append(kind_of("Address")(host="i"))
    assert [(each.host, each.port) for each in endpoints.addresses] == [("h", 1), ("i", 0)]
    assert endpoints.addresses[0] == kind_of("Address")(host="h", port=1)
    types = kind_of("MessageQueue")().accept_message_types
    with pytest.raises(ValueError):
        types.append(1 << 31)


def test_copies_are_apart(kind_of: KindOf) -> None:
    message = kind_of("Message")(topic=kind_of("Resource")(name="t"), user_properties={"a": "b"})
    message.system_properties.keys.append("k")
    copy = kind_of("Message")(body=b"lost")
    copy.CopyFrom(message)
    assert copy == message
    message.topic.name, message.user_properties["a"] = "other", "other"
    message.system_properties.keys.append("other")
    assert (copy.topic.name, copy.user_properties["a"], copy.body) == ("t", "b", b"")
    assert copy.system_properties.keys == ["k"]
    assert copy != message
    copy.CopyFrom(copy)
    assert copy.topic.name == "t"


def test_an_old_part_is_no_part_any_more(kind_of: KindOf) -> None:
    message = kind_of("Message")()
    old, unseen = message.topic, message.system_properties
    old.name = "t"
    message.Clear()
    old.name = unseen.message_id = "other"
    assert message.SerializeToString() == b""
    assert message.topic.name == ""


def test_values_are_kept_as_what_they_are(kind_of: KindOf) -> None:
    class Text(str):
        pass

    status = kind_of("Status")(message=Text("x"))
    assert status.message == "x"
    status.message = b"bytes"
    assert status.message == "bytes"
    backoff = kind_of("ExponentialBackoff")(multiplier=0.1)
    assert backoff.multiplier == pytest.approx(0.1)
    assert kind_of("ExponentialBackoff").FromString(backoff.SerializeToString()) == backoff


def test_a_text_of_another_class_is_taken_as_text() -> None:
    class Text(str):
        pass

    assert type(PLAIN["Status"](message=Text("x")).message) is str


def test_it_is_shown_as_protobufs() -> None:
    fields = {"code": 20000, "message": "é"}
    mine, other = PLAIN["Status"](**fields), messaging_pb2.Status(**fields)
    assert (str(mine), repr(mine)) == (str(other), repr(other))
    assert type(mine.original()) is messaging_pb2.Status
    assert mine.original() == other


def test_bytes_of_any_kind_are_read() -> None:
    data = b"\x08\x05"
    for each in (data, bytearray(data), memoryview(data)):
        assert PLAIN["Status"].FromString(each).code == 5


def test_reading_replaces_what_there_was(kind_of: KindOf) -> None:
    data = b"\x08\x05"
    status = kind_of("Status")(code=1, message="m")
    assert status.ParseFromString(data) == 2
    assert (status.code, status.message) == (5, "")
    for wrong in (b"\x08", b"\x0c", b"\x12\x05a"):
        with pytest.raises(DecodeError):
            kind_of("Status").FromString(wrong)


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(DecodeError):
        PLAIN["Status"].FromString(b"\x12\x01\xff")


def test_fields_that_are_not_known_are_kept(kind_of: KindOf) -> None:
    data = field(99, VARINT, b"\1") + field(1, VARINT, b"\5") + field(98, BYTES, b"x")
    unknown = field(99, VARINT, b"\1") + field(98, BYTES, b"x")
    status = kind_of("Status").FromString(data)
    copy = kind_of("Status")()
    copy.CopyFrom(status)
    assert copy.SerializeToString() == b"\x08\x05" + unknown
    assert copy.ByteSize() == len(data)
    copy.MergeFrom(status)
    assert copy.SerializeToString() == b"\x08\x05" + unknown + unknown
    assert kind_of("Status").FromString(data) == status != kind_of("Status")(code=5)


# Bytes of a client that means harm ----------------------------------------------------------------


def hostile() -> Iterator[tuple[str, str, bytes]]:
    """Yields what takes a quarter of a megabyte, and has a lot of everything."""
    size = 1 << 18
    yield "Message", "unknown numbers", field(99, VARINT, b"\1") * (size // 3)
    one = field(99, BYTES, b"abcdefghij")
    yield (
        "Message",
        "unknown fields of one part",
        field(1, BYTES, one) * (size // 15),
    )
    yield "Message", "groups one behind the other", b"\x9b\x06\x9c\x06" * (size // 4)
    yield "Message", "groups without end", b"\x9b\x06" * (size // 2)
    yield "Message", "fields backwards", b"\x22\x00\x0a\x00" * (size // 4)
    yield "Message", "one entry", field(2, BYTES, b"\x0a\x01a\x12\x01b") * (size // 8)
    yield "Message", "odd entries", field(2, BYTES, b"\x18\x01") * (size // 4)
    yield "SystemProperties", "keys", b"\x12\x00" * (size // 2)
    yield "SystemProperties", "numbers", b"\x68\x01" * (size // 2)
    yield "MessageQueue", "values", field(5, BYTES, b"\1" * size)
    yield "MessageQueue", "numbers of many bytes", field(5, BYTES, b"\x81\x80\x00" * (size // 3))
    yield "ReceiveMessageResponse", "turns", b"\x0a\x00\x12\x00" * (size // 4)


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, _, data in hostile()],
    ids=[what for _, what, _ in hostile()],
)
def test_many_small_things_take_no_long(name: str, data: bytes) -> None:
    began = time.process_time()
    try:
        message = PLAIN[name].FromString(data)
    except DecodeError:
        assert data.startswith(b"\x9b\x06\x9b\x06")
    else:
        copy = PLAIN[name]()
        copy.CopyFrom(message)
        assert copy == message
        assert len(message.SerializeToString()) == message.ByteSize()
    # A tenth of that as a rule; hours for what is copied anew with each.
    assert time.process_time() - began < 5


def test_unknown_fields_take_little_more_than_their_bytes() -> None:
    data = field(99, VARINT, b"\1") * 50_000
    with traced_memory() as memory:
        status = PLAIN["Status"].FromString(data)
        assert memory.held < 3 * len(data)
    assert status.ByteSize() == len(data)


def test_a_list_takes_itself_once(kind_of: KindOf) -> None:
    system = kind_of("SystemProperties")(keys=["a", "b"])
    system.keys.extend(system.keys)
    assert list(system.keys) == ["a", "b", "a", "b"]


def test_a_list_takes_all_or_nothing() -> None:
    settings = PLAIN["Settings"]()
    topics = settings.publishing.topics
    with pytest.raises(TypeError):
        topics.extend([PLAIN["Resource"](name="a"), 5])
    assert len(topics) == 0
    assert not settings.HasField("publishing")
