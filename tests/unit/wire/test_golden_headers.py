"""Every header as stock of both versions puts it into `extFields`, read and written."""

import importlib
import pkgutil

import pytest

import rocketmq_tw.wire.headers
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.errors import HeaderError
from rocketmq_tw.wire.headers.base import Header, header_to_fields, read_header

TYPES: dict[str, type[Header]] = {
    name: value
    for module in pkgutil.iter_modules(rocketmq_tw.wire.headers.__path__)
    for name, value in vars(
        importlib.import_module(f"rocketmq_tw.wire.headers.{module.name}")
    ).items()
    if isinstance(value, type) and issubclass(value, Header)
}


def test_header_both_ways(golden_header):
    header_type = TYPES[golden_header["type"]]
    header = read_header(header_type, golden_header["fields"])
    names = {info.encode_name: info.name for info in msgspec.structs.fields(header_type)}
    for name, value in golden_header["value"].items():
        assert getattr(header, names[name]) == value
    assert read_header(header_type, header_to_fields(header)) == header
    written = header_to_fields(header)
    assert written.items() >= golden_header["fields"].items()
    if golden_header["stock"] == "5.3.3":
        added = written.keys() - golden_header["fields"].keys()
        assert added <= {"removeOffset"}, "4.9.7's name for cleanOffset is the only one besides"


def test_missing_field_is_named(golden_header):
    header_type = TYPES[golden_header["type"]]
    for info in msgspec.structs.fields(header_type):
        if info.required:
            fields = dict(golden_header["fields"])
            del fields[info.encode_name]
            with pytest.raises(HeaderError, match=f"`{info.encode_name}`"):
                read_header(header_type, fields)


def test_malformed_number_is_named(golden_header):
    header_type = TYPES[golden_header["type"]]
    for name, value in golden_header["value"].items():
        if type(value) is int:
            with pytest.raises(HeaderError, match=rf"\$\.{name}"):
                read_header(header_type, golden_header["fields"] | {name: "twelve"})
            with pytest.raises(HeaderError, match=rf"\$\.{name}"):
                read_header(header_type, golden_header["fields"] | {name: str(2**63)})


def test_unknown_field_is_left_out(golden_header):
    header_type = TYPES[golden_header["type"]]
    fields = golden_header["fields"]
    assert read_header(header_type, fields | {"novel": "1"}) == read_header(header_type, fields)
