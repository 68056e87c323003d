"""Lengths that lie, and frames cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.frame import MAX_HEADER_LENGTH, Frame, FrameDecoder, encode_frame

frames = st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=40), st.binary(max_size=40)))


@given(frames, st.data())
def test_frames_cut_anywhere(items, data):
    stream = b"".join(encode_frame(*item) for item in items)
    decoder = FrameDecoder()
    decoded: list[Frame] = []
    position = 0
    while position < len(stream):
        end = data.draw(st.integers(position + 1, len(stream)))
        decoded += decoder.feed(stream[position:end])
        position = end
    assert decoded == [Frame(*item) for item in items]
    assert decoder.buffered == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, 1021, 2**31 - 1])
def test_bad_length_is_refused_after_its_four_bytes(length):
    decoder = FrameDecoder(limit=1024)
    data = length.to_bytes(4, "big", signed=True)
    assert decoder.feed(data[:3]) == []
    with pytest.raises(WireError, match=f"frame length of {length} "):
        decoder.feed(data[3:])


def test_bad_length_behind_a_frame_is_refused():
    with pytest.raises(WireError, match="frame length"):
        FrameDecoder().feed(encode_frame(0, b"{}", b"body") + b"\x7f\xff\xff\xff")


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS, which this port does not take"),
        (b"PRI * HTTP/2.0", "HTTP/2, which clients of RocketMQ 5 speak to the port of a proxy"),
        (b"GET / HTTP/1.1", "HTTP"),
    ],
)
def test_another_protocol_is_named(first, said):
    with pytest.raises(WireError, match=said):
        FrameDecoder().feed(first)


@pytest.mark.parametrize("limit", [1024])
def test_largest_frame_counts_its_length_field(limit):
    data = encode_frame(0, b"", bytes(limit - 8))
    assert len(data) == limit
    assert len(FrameDecoder(limit).feed(data)) == 1


def test_header_longer_than_its_frame_is_refused_after_eight_bytes():
    data = b"\0\0\0\x08\0\0\0\x05"
    decoder = FrameDecoder()
    assert decoder.feed(data[:7]) == []
    with pytest.raises(WireError, match="header of 5 bytes does not fit its frame of 8"):
        decoder.feed(data[7:])


def test_header_beyond_24_bits_is_not_written():
    with pytest.raises(WireError, match="24-bit"):
        encode_frame(0, bytes(MAX_HEADER_LENGTH + 1))


def test_only_the_incomplete_frame_is_held():
    data = encode_frame(0, b"header", bytes(1000))
    decoder = FrameDecoder()
    decoder.feed(data * 5 + data[:500])
    assert decoder.buffered == 500
