"""Whole frames as stock of both versions writes them: whole, byte by byte, with more behind."""

import pytest

from rocketmq_tw.wire.command import (
    LanguageCode,
    RemotingCommand,
    SerializeType,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.frame import Frame, FrameDecoder


@pytest.fixture
def data(golden_command) -> bytes:
    return bytes.fromhex(golden_command["hex"])


@pytest.fixture
def command(golden_command) -> RemotingCommand:
    return RemotingCommand(
        golden_command["code"],
        ext_fields=golden_command["fields"],
        body=bytes.fromhex(golden_command["body"]),
        opaque=golden_command["opaque"],
        flag=golden_command["flag"],
        remark=golden_command["remark"],
        language=LanguageCode[golden_command["language"]],
        version=golden_command["version"],
        serialization=SerializeType[golden_command["form"]],
    )


def members(command: RemotingCommand) -> dict[str, object]:
    return {name: getattr(command, name) for name in RemotingCommand.__slots__}


def test_whole(data, command):
    (frame,) = FrameDecoder().feed(data)
    assert members(decode_command(frame)) == members(command)


def test_byte_by_byte(data, command):
    decoder = FrameDecoder()
    frames = [frame for byte in data for frame in decoder.feed(bytes([byte]))]
    assert [members(decode_command(frame)) for frame in frames] == [members(command)]
    assert decoder.buffered == 0


def test_with_more_behind(data, command):
    decoder = FrameDecoder()
    frames = decoder.feed(data + data + data[:11])
    assert [members(decode_command(frame)) for frame in frames] == [members(command)] * 2
    assert decoder.buffered == 11
    (frame,) = decoder.feed(data[11:])
    assert members(decode_command(frame)) == members(command)


def test_written_as_stock_does(data, command):
    (frame,) = FrameDecoder().feed(encode_command(command))
    assert members(decode_command(frame)) == members(command)
    # A map keeps its order here and has one of its own in Java; read back it is stock's again.
    (stock,) = FrameDecoder().feed(data)
    assert encode_command(decode_command(stock)) == data


def test_header_that_is_cut_is_refused(data):
    (frame,) = FrameDecoder().feed(data)
    for end in range(len(frame.header)):
        with pytest.raises(WireError):
            decode_command(Frame(frame.serialization, frame.header[:end], b""))
