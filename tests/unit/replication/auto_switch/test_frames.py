"""The frames of auto-switch HA, byte for byte and in pieces."""

import pytest

from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    MAX_BODY,
    MAX_EPOCHS,
    EpochTransfer,
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    SlaveReader,
    SlaveReport,
)
from rocketmq_tw.replication.links.ends import LinkError
from tests.support import auto_switch_goldens as goldens

EPOCHS = EpochTable([EpochEntry(1, 0), EpochEntry(3, 0x1000)])
#: Each field by the design's layout.
SLAVE_BYTES = {
    SlaveHandshake(2): "00000001 0000 0000 0000000000000002",
    SlaveHandshake(3, True, False): "00000001 0001 0000 0000000000000003",
    SlaveHandshake(4, False, True): "00000001 0000 0001 0000000000000004",
    SlaveReport(0x12345): "00000002 0000000000012345",
}
MASTER_BYTES = [
    (
        MasterHandshake(0x2000, EPOCHS),
        "00000001 00000018 0000000000002000 00000003"
        " 00000001 0000000000000000 00000003 0000000000001000",
    ),
    (MasterHandshake(0, EpochTable()), "00000001 00000000 0000000000000000 ffffffff"),
    (
        EpochTransfer(0x1000, b"\xda\xa3\x20\xa7", EpochEntry(3, 0x1000), 0x900),
        "00000002 00000004 0000000000001000 00000003 0000000000001000 0000000000000900 daa320a7",
    ),
    (
        EpochTransfer(0x1004, b"", EpochEntry(3, 0x1000), 0x1004),
        "00000002 00000000 0000000000001004 00000003 0000000000001000 0000000000001004",
    ),
]


def shown(frame):
    if isinstance(frame, MasterHandshake):
        return frame.end, frame.epochs.entries
    return frame


@pytest.mark.parametrize("frame, text", SLAVE_BYTES.items())
def test_a_slaves_frames(frame, text):
    assert frame.encode() == bytes.fromhex(text)


@pytest.mark.parametrize("frame, text", MASTER_BYTES)
def test_a_masters_frames(frame, text):
    assert frame.encode() == bytes.fromhex(text)


def test_what_a_stock_master_said():
    handshake, *transfers = MasterReader().feed(
        goldens.HANDSHAKE + goldens.FIRST_TRANSFER + goldens.SECOND_TRANSFER + goldens.HEARTBEAT
    )
    assert handshake.end == 426
    assert handshake.epochs.entries == (EpochEntry(1, 0), EpochEntry(5, 213))
    assert handshake.encode() == goldens.HANDSHAKE
    assert [(each.offset, len(each.data), each.confirmed) for each in transfers] == [
        (0, 213, 426),
        (213, 213, 426),
        (426, 0, 426),
    ]
    assert {each.epoch for each in transfers} == {EpochEntry(5, 213)}
    assert transfers[1].encode() == goldens.SECOND_TRANSFER


@pytest.mark.parametrize("step", [1, 3, 7, 12, 20, 500])
def test_streams_in_pieces(step):
    stream = b"".join(map(bytes.fromhex, SLAVE_BYTES.values()))
    reader = SlaveReader()
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == list(SLAVE_BYTES)

    stream = b"".join(bytes.fromhex(text) for _, text in MASTER_BYTES)
    masters = MasterReader()
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [shown(frame) for piece in pieces for frame in masters.feed(piece)] == [
        shown(frame) for frame, _ in MASTER_BYTES
    ]


@pytest.mark.parametrize("state", [0, 3, 4, 5, -1, 0x7FFFFFFF])
def test_no_other_state_is_on_the_wire(state):
    bare = state.to_bytes(4, "big", signed=True)
    with pytest.raises(LinkError, match="state"):
        SlaveReader().feed(bare)
    with pytest.raises(LinkError, match="state"):
        MasterReader().feed(bare + bytes(16))


@pytest.mark.parametrize("size", [-1, MAX_BODY + 1, 0x7FFFFFFF])
def test_an_impossible_size_is_refused_before_its_body(size):
    header = bytes.fromhex("00000002") + size.to_bytes(4, "big", signed=True)
    with pytest.raises(LinkError):
        MasterReader().feed(header + bytes(12))


@pytest.mark.parametrize(
    "body",
    ["00000003 0000000000001000 00000001 0000000000000000", "00000001 00000000000000"],
)
def test_a_handshake_without_growing_epochs_is_refused(body):
    data = bytes.fromhex(body)
    with pytest.raises(LinkError, match="handshake"):
        MasterReader().feed(
            bytes.fromhex("00000001") + len(data).to_bytes(4, "big") + bytes(12) + data
        )


def test_of_very_many_epochs_the_newest_are_told():
    epochs = EpochTable(EpochEntry(number, number) for number in range(MAX_EPOCHS + 5))
    (frame,) = MasterReader().feed(MasterHandshake(9999, epochs).encode())
    assert frame.epochs.entries == epochs.entries[5:]
