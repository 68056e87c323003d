"""The epoch file of auto-switch HA (docs/formats/auto-switch-ha.md): lines of text."""

import zlib

import construct as c


class _Decimal(c.Adapter):
    """A number in decimal digits."""

    def _decode(self, obj: bytes, context: object, path: str) -> int:
        return int(obj)

    def _encode(self, obj: int, context: object, path: str) -> bytes:
        return b"%d" % obj


def _number_up_to(end: bytes) -> c.Construct:
    return _Decimal(c.NullTerminated(c.GreedyBytes, term=end))


EPOCH = c.Struct("epoch" / _number_up_to(b"-"), "start" / _number_up_to(b"\n"))
EPOCH_FILE = c.Struct(
    "count" / _number_up_to(b"\n"),
    #: Of the lines behind it; 0 is not checked.
    "crc" / _number_up_to(b"\n"),
    "lines" / c.Tell,
    "epochs" / c.Array(c.this.count, EPOCH),
    c.Terminated,
)


def epochs_crc(lines: bytes) -> int:
    """Returns the CRC-32 of the epochs' lines, without its top bit."""
    return zlib.crc32(lines) & 0x7FFFFFFF
