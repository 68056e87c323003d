"""Header blocks of requests and responses, with hpack at the other end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.proxy.grpc.headers import OK_TRAILERS, RESPONSE_HEADERS, status_trailers
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus
from rocketmq_tw.proxy.http2.frames import ErrorCodes, Http2Error
from rocketmq_tw.proxy.http2.header_blocks import NO_TABLE, HeaderDecoder, encode_headers
from rocketmq_tw.proxy.http2.interfaces import HeaderList

LIMIT = 16 * 1024

_NAMES = st.sampled_from([b":path", b":status", b"te", b"x-mq-client-id", b"x-" + b"n" * 200])
_HEADERS = st.tuples(_NAMES, st.binary(max_size=300))
_SIZES = st.sampled_from([None, 0, 50, 100, 4096])


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [
        (name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
        for name, value in headers
    ]


@given(
    st.lists(
        st.tuples(_SIZES, st.booleans(), st.lists(_HEADERS, min_size=1, max_size=8)), max_size=12
    )
)
def test_what_a_client_packs_is_read(blocks: list[Any]) -> None:
    """Whatever it keeps in its table, with all sizes of that."""
    client, decoder = Encoder(), HeaderDecoder(LIMIT)
    for size, huffman, headers in blocks:
        if size is not None:
            client.header_table_size = size
        assert decoder.decode(client.encode(headers, huffman=huffman)) == _texts(headers)


def test_the_sizes_of_a_table_are_those_on_the_wire() -> None:
    """Whatever its texts have in memory: otherwise the client's table and ours were two."""
    client, decoder = Encoder(), HeaderDecoder(LIMIT)
    for number in range(300):
        headers = [(b"x-name", b"\xff" * 20 + b"%d" % number), ("x-\u00e4".encode(), b"v")]
        assert decoder.decode(client.encode(headers)) == _texts(headers)


@pytest.mark.parametrize(
    "headers",
    [
        RESPONSE_HEADERS,
        OK_TRAILERS,
        status_trailers(GrpcStatus.UNAVAILABLE, "100 % of the brokers are away"),
        [*RESPONSE_HEADERS, *OK_TRAILERS],
        ((b":status", b"404"), (b"x-long", b"x" * 3000)),
    ],
)
@pytest.mark.parametrize("size", [0, 4096])
def test_what_is_packed_needs_no_table_of_the_client(headers: HeaderList, size: int) -> None:
    client = Decoder()
    client.max_allowed_table_size = size
    for start in (NO_TABLE, b""):
        read = client.decode(start + encode_headers(headers), raw=True)
        assert [tuple(each) for each in read] == [tuple(each) for each in headers]
        assert not client.header_table.dynamic_entries


@pytest.mark.parametrize(
    ("block", "code"),
    [
        # Index 0, one behind all tables, one of five bytes, one of six.
        (b"\x80", ErrorCodes.COMPRESSION_ERROR),
        (b"\xbe", ErrorCodes.COMPRESSION_ERROR),
        (b"\xff\xff\xff\xff\xff\x0f", ErrorCodes.COMPRESSION_ERROR),
        (b"\xff\xff\xff\xff\xff\xff\x0f", ErrorCodes.COMPRESSION_ERROR),
        # A name, a value and a number that are cut off.
        (b"\x40\x05ab", ErrorCodes.COMPRESSION_ERROR),
        (b"\x40\x01a\x05ab", ErrorCodes.COMPRESSION_ERROR),
        (b"\x40\x01a", ErrorCodes.COMPRESSION_ERROR),
        (b"\xff", ErrorCodes.COMPRESSION_ERROR),
        # A packed text that is none.
        (b"\x40\x81\x00\x01a", ErrorCodes.COMPRESSION_ERROR),
        # A table that is larger than ours, and one that changes late.
        (b"\x3f\xe2\x1f", ErrorCodes.COMPRESSION_ERROR),
        (b"\x82\x20", ErrorCodes.COMPRESSION_ERROR),
        # Four times 4 KiB by a byte each.
        (b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000 + b"\xbe" * 4, ErrorCodes.ENHANCE_YOUR_CALM),
    ],
)
def test_what_is_no_block_is_refused(block: bytes, code: ErrorCodes) -> None:
    with pytest.raises(Http2Error) as caught:
        HeaderDecoder(LIMIT).decode(block)
    assert caught.value.code == code


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(block: bytes) -> None:
    """And what is read hpack reads so, too."""
    try:
        headers = HeaderDecoder(LIMIT).decode(block)
    except Http2Error:
        return
    known = Decoder(max_header_list_size=LIMIT)
    assert headers == _texts(known.decode(block, raw=True))
