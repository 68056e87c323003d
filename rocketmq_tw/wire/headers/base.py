"""Reads typed headers from the strings of `extFields`, and writes them to these.

A header is a `msgspec.Struct` with snake_case attributes; `rename="camel"` gives stock's names on
the wire, `msgspec.field(name=...)` the ones that do not follow (the short names of code 310). The
classes have stock's names, and the code that a class belongs to opens its docstring.

Format: docs/formats/remoting.md.
"""

from functools import cache
from typing import Annotated, TypeVar, get_args

from rocketmq_tw.structs import Meta, msgspec
from rocketmq_tw.wire.errors import HeaderError

#: Java's 32-bit and 64-bit integers.
Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Header(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """Base of all headers. A field without a default is one that stock refuses to miss."""


class RpcHeader(Header, kw_only=True):
    """What 5.x lets most requests carry: namespace, whether it is in the names already, the name
    of the broker that is meant, and whether no answer is wanted."""

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


class TopicRpcHeader(RpcHeader, kw_only=True):
    """The fields of `RpcHeader` for requests about a topic; `lo` says whether the queue ids are
    logic ones, of a static topic."""

    lo: bool | None = None


H = TypeVar("H", bound=Header)


def read_header(header_type: type[H], fields: dict[str, str]) -> H:
    """Returns `fields` as a `header_type`: text becomes int, float or bool, unknown names are left
    out.

    Raises `HeaderError` that names the missing or malformed field.
    """
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError as error:
        # Java takes every text for a boolean: what is not "true" in any case is false.
        booleans = {
            name: "true" if fields[name].lower() == "true" else "false"
            for name in _boolean_names(header_type)
            if name in fields
        }
        if not booleans:
            raise _header_error(header_type, error) from error
    try:
        return msgspec.convert(fields | booleans, header_type, strict=False)
    except msgspec.ValidationError as error:
        raise _header_error(header_type, error) from error


def header_to_fields(header: Header) -> dict[str, str]:
    """Returns the header's fields as stock writes them: absent where None, "true" and "false"."""
    fields = {}
    for attribute, name in _names(type(header)):
        value = getattr(header, attribute)
        if value is None:
            continue
        if value is True or value is False:
            fields[name] = "true" if value else "false"
        else:
            fields[name] = str(value)
    return fields


def _header_error(header_type: type[Header], error: msgspec.ValidationError) -> HeaderError:
    return HeaderError(f"the header of {header_type.__name__}: {error}")


@cache
def _names(header_type: type[Header]) -> tuple[tuple[str, str], ...]:
    """Returns (attribute, name on the wire) of each field."""
    return tuple(
        zip(header_type.__struct_fields__, header_type.__struct_encode_fields__, strict=True)
    )


@cache
def _boolean_names(header_type: type[Header]) -> tuple[str, ...]:
    return tuple(
        info.encode_name
        for info in msgspec.structs.fields(header_type)
        if info.type is bool or bool in get_args(info.type)
    )
