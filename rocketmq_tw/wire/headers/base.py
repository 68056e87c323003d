"""How a typed header is read from and written to the strings of `extFields`.

A header is a `msgspec.Struct` with snake_case attributes; `rename="camel"` gives stock's names on
the wire, `msgspec.field(name=...)` the ones that do not follow (the short names of code 310).
"""

from typing import TypeVar

import msgspec

from rocketmq_tw.wire.errors import HeaderError


class Header(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all headers. A field without a default is one that stock refuses to miss."""


H = TypeVar("H", bound=Header)


def read_header(header_type: type[H], fields: dict[str, str]) -> H:
    """`fields` as a `header_type`: text becomes int, float or bool, unknown names are left out.

    Raises `HeaderError` that names the missing or malformed field.
    """
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"the header of {header_type.__name__}: {error}") from error


def header_to_fields(header: Header) -> dict[str, str]:
    """The header's fields as stock writes them: absent where None, "true" and "false"."""
    fields = {}
    for attribute, name in zip(
        header.__struct_fields__, header.__struct_encode_fields__, strict=True
    ):
        value = getattr(header, attribute)
        if value is None:
            continue
        if value is True or value is False:
            fields[name] = "true" if value else "false"
        else:
            fields[name] = str(value)
    return fields
