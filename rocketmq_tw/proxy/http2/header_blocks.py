"""Header blocks of HTTP/2 (HPACK, RFC 7541): those of requests are read with the client's table,
those of responses are written without one."""

from __future__ import annotations

from collections import deque
from itertools import starmap

from hpack import Encoder, NeverIndexedHeaderTuple
from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from rocketmq_tw.memo import remembered
from rocketmq_tw.proxy.http2.frames import ErrorCodes, Http2Error
from rocketmq_tw.proxy.http2.interfaces import HeaderList, RequestHeaders
from rocketmq_tw.structs import msgspec

#: What stands before the first block of a connection: that our table has no entries. A client that
#: allows fewer than by default has to be told so, and it never has to be told anything else.
NO_TABLE = b"\x20"
#: The table of headers that we keep for a client; it may use less, and not more.
TABLE_SIZE = 4096
#: What each entry of a list or a table counts beside its texts.
_ENTRY = 32

_Header = tuple[str, str]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A header of a table; sizes are those that its texts have on the wire, in bytes."""

    header: _Header
    name_size: int
    #: That of both texts, and `_ENTRY`.
    size: int


def _entry(name: bytes, value: bytes) -> _Entry:
    header = name.decode(), value.decode()
    return _Entry(header, len(name), len(name) + len(value) + _ENTRY)


#: By index; the one in front of the first is never asked for. Behind the last are a client's own.
_STATIC = (_entry(b"", b""), *starmap(_entry, HeaderTable.STATIC_TABLE))
_FIRST_OWN = len(_STATIC)
#: Bytes of one number: more than any length or index that we take needs.
_MOST_OF_NUMBER = 5


def encode_headers(headers: HeaderList) -> bytes:
    """Returns a block that refers to no table but the static one, so that it is the same for each
    client, and nothing is kept for it."""
    if isinstance(headers, tuple):
        return _encode_known(headers)
    return _encode(headers)


def _encode(headers: HeaderList) -> bytes:
    plain = [NeverIndexedHeaderTuple(name, value) for name, value in headers]
    block: bytes = Encoder().encode(plain, huffman=False)
    return block


#: The lists that are tuples stand in the program: there are a few.
_encode_known = remembered(64)(_encode)


class HeaderDecoder:
    """Reads the blocks of one client, in their order. What is no UTF-8 is replaced."""

    __slots__ = ("_entries", "_limit", "_size", "_table_size")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of the names and values of one list, with 32 for each."""
        self._limit = limit
        #: The client's table, the newest first: their size, and what it may be.
        self._entries: deque[_Entry] = deque()
        self._size = 0
        self._table_size = TABLE_SIZE

    def decode(self, block: bytes) -> RequestHeaders:
        """Returns the headers of a block; raises `Http2Error`."""
        try:
            return self._decode(block)
        except (HPACKError, IndexError):
            raise _broken("a header block that cannot be read") from None

    def _decode(self, block: bytes) -> list[_Header]:
        # In one piece, since it is done for each header of each call.
        static, entries = _STATIC, self._entries
        headers: list[_Header] = []
        left = self._limit
        at, end = 0, len(block)
        while at < end:
            first = block[at]
            if first > 0x80:
                index = first & 0x7F
                at += 1
                if index == 0x7F:
                    index, at = _rest_of_number(block, at, index)
                known = static[index] if index < _FIRST_OWN else entries[index - _FIRST_OWN]
                header, size = known.header, known.size
            elif first == 0x80:
                raise _broken("a header of the index 0")
            elif first & 0xE0 == 0x20:
                if headers:
                    raise _broken("a table changes its size within a header block")
                size, at = _number(block, at, 0x1F)
                if size > TABLE_SIZE:
                    raise _broken(f"a table of {size} bytes; {TABLE_SIZE} are the limit")
                self._table_size = size
                self._shrink()
                continue
            else:
                is_kept = first & 0x40
                index, at = _number(block, at, 0x3F if is_kept else 0x0F)
                if index:
                    known = static[index] if index < _FIRST_OWN else entries[index - _FIRST_OWN]
                    name, name_size = known.header[0], known.name_size
                else:
                    name, name_size, at = _text(block, at)
                value, value_size, at = _text(block, at)
                header, size = (name, value), name_size + value_size + _ENTRY
                if is_kept:
                    entries.appendleft(_Entry(header, name_size, size))
                    self._size += size
                    if self._size > self._table_size:
                        self._shrink()
            headers.append(header)
            left -= size
            if left < 0:
                raise Http2Error(
                    ErrorCodes.ENHANCE_YOUR_CALM, f"headers of more than {self._limit} bytes"
                )
        return headers

    def _shrink(self) -> None:
        """Drops the oldest entries until the others fit."""
        while self._size > self._table_size:
            self._size -= self._entries.pop().size


def _broken(why: str) -> Http2Error:
    return Http2Error(ErrorCodes.COMPRESSION_ERROR, why)


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Returns a number whose first byte has the bits of `mask` for it, and where it ends."""
    found = block[at] & mask
    return (found, at + 1) if found < mask else _rest_of_number(block, at + 1, found)


def _rest_of_number(block: bytes, at: int, found: int) -> tuple[int, int]:
    for shift in range(0, 7 * _MOST_OF_NUMBER, 7):
        byte = block[at]
        at += 1
        found += (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
    raise _broken(f"a number of more than {_MOST_OF_NUMBER} bytes in a header block")


def _text(block: bytes, at: int) -> tuple[str, int, int]:
    """Returns a name or a value, its size, and where it ends."""
    is_packed = block[at] & 0x80
    length, start = _number(block, at, 0x7F)
    end = start + length
    if end > len(block):
        raise _broken("a header block that ends too early")
    text = block[start:end]
    if is_packed:
        text = decode_huffman(text)
    return text.decode("utf-8", "replace"), len(text), end
