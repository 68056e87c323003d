"""Requests of any code with any fields of any header, as a fuzzer sends them."""

import importlib
import pkgutil
import random

from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire import headers
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand, SerializeType, encode_command
from rocketmq_tw.wire.headers.base import Header

CODES = [int(code) for code in RequestCode]
FIELDS = sorted(
    {
        field.encode_name
        for module in pkgutil.iter_modules(headers.__path__, headers.__name__ + ".")
        for kind in vars(importlib.import_module(module.name)).values()
        if isinstance(kind, type) and issubclass(kind, Header)
        for field in msgspec.structs.fields(kind)
    }
)
VALUES = [
    "0",
    "1",
    "2",
    "7",
    "-1",
    "1e9",
    "1099511627776",
    "-9223372036854775808",
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "../../etc/passwd",
    "a/b",
    "%RETRY%",
    "TBW102",
    "load",
    "fuzzed",
    "TestCluster",
    "127.0.0.1:1",
    "10.0.0.1:99999",
    "TAG",
    "*",
    "é\x00",
    "",
    "x" * 300,
]


def random_bytes(dice: random.Random) -> bytes:
    """1 to 4,095 bytes."""
    return dice.randbytes(dice.randrange(1, 4096))


def random_request(dice: random.Random) -> bytes:
    """A well-formed command: any code, any fields, any body."""
    names = dice.sample(FIELDS, dice.choice([3, 20, len(FIELDS)]))
    fields = {name: dice.choice(VALUES) for name in names}
    body = dice.choice([b"", b"{}", b"[]", b"null", b'{"a":', random_bytes(dice)])
    command = RemotingCommand(
        dice.choice(CODES),
        ext_fields=fields,
        body=body,
        opaque=dice.randrange(1 << 31),
        flag=dice.choice([0, 0, 0, 1, 2, 3]),
        serialization=dice.choice(list(SerializeType)),
    )
    return encode_command(command)
