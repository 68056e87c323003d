"""RemotingCommand: the one message of the protocol, request and response alike.

Formats: docs/formats/remoting.md. The header travels as JSON or in stock's compact binary form
(`SerializeType`); a response uses the form of its request.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import count
from struct import Struct
from struct import error as StructError
from typing import TypeVar

import msgspec

from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.frame import Frame, encode_frame
from rocketmq_tw.wire.headers.base import Header, header_to_fields, read_header

H = TypeVar("H", bound=Header)

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

#: The version that we announce: stock 5.3.3's ordinal, so that peers offer all they have.
VERSION_5_3_3 = 479
VERSION_4_9_7 = 407


class SerializeType(IntEnum):
    """The first byte of the mixed header length."""

    JSON = 0
    ROCKETMQ = 1


class LanguageCode(IntEnum):
    """The `language` of a command; a number in the binary form, a name in JSON."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


_LANGUAGES = {language.name: language for language in LanguageCode}
_next_opaque = count(1).__next__


class RemotingCommand:
    """A request or a response.

    `code` is a request code or a response code, after `is_response`. `ext_fields` are the
    header's fields, strings on the wire; `header(Type)` reads them typed. `opaque` ties a
    response to its request on one connection.
    """

    __slots__ = (
        "body",
        "code",
        "ext_fields",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialization",
        "version",
    )

    def __init__(
        self,
        code: int,
        *,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        language: LanguageCode = LanguageCode.PYTHON,
        version: int = VERSION_5_3_3,
        serialization: SerializeType = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.ext_fields: dict[str, str] = {} if ext_fields is None else ext_fields
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.language = language
        self.version = version
        self.serialization = serialization

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
    ) -> RemotingCommand:
        """A request with the next opaque of this process."""
        return cls(
            code,
            ext_fields=None if header is None else header_to_fields(header),
            body=body,
            opaque=_next_opaque() & 0x7FFFFFFF,
            flag=ONEWAY_FLAG if oneway else 0,
        )

    def response(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        *,
        header: Header | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """The answer to this request: its opaque and its serialisation.

        To a oneway request it keeps the flag, by which net/ knows not to send it.
        """
        return RemotingCommand(
            code,
            ext_fields=None if header is None else header_to_fields(header),
            body=body,
            opaque=self.opaque,
            flag=RESPONSE_FLAG | self.flag & ONEWAY_FLAG,
            remark=remark,
            serialization=self.serialization,
        )

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def header(self, header_type: type[H]) -> H:
        """The fields as `header_type`; raises `HeaderError` that names a missing or bad one."""
        return read_header(header_type, self.ext_fields)

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        return (
            f"<{kind} code={self.code} opaque={self.opaque} fields={self.ext_fields}"
            f" remark={self.remark!r} body={len(self.body)}B>"
        )


class _JsonHeader(msgspec.Struct):
    """The JSON form as stock writes it; unknown keys are passed over."""

    code: int
    flag: int = 0
    opaque: int = 0
    version: int = 0
    language: str = "JAVA"
    remark: str | None = None
    extFields: dict[str, str | None] | None = None


_json_header = msgspec.json.Decoder(_JsonHeader, strict=False)
_json_encode = msgspec.json.Encoder().encode


def decode_command(frame: Frame) -> RemotingCommand:
    """The command in `frame`. Raises `WireError` where the header is not what its form says."""
    if frame.serialization == SerializeType.JSON:
        return _decode_json(frame)
    if frame.serialization == SerializeType.ROCKETMQ:
        return _decode_binary(frame)
    raise WireError(f"{frame.serialization} is no serialisation of a header")


def encode_command(command: RemotingCommand) -> bytes:
    """The whole frame of `command` in its own serialisation."""
    if command.serialization is SerializeType.ROCKETMQ:
        header = _encode_binary(command)
    else:
        header = _encode_json(command)
    return encode_frame(command.serialization, header, command.body)


def _decode_json(frame: Frame) -> RemotingCommand:
    try:
        header = _json_header.decode(frame.header)
    except msgspec.MsgspecError as error:
        raise WireError(f"a JSON header that cannot be read: {error}") from error
    fields = header.extFields or {}
    return RemotingCommand(
        header.code,
        ext_fields={name: value for name, value in fields.items() if value is not None},
        body=frame.body,
        opaque=header.opaque,
        flag=header.flag,
        remark=header.remark,
        language=_LANGUAGES.get(header.language, LanguageCode.OTHER),
        version=header.version,
    )


def _encode_json(command: RemotingCommand) -> bytes:
    header: dict[str, object] = {
        "code": command.code,
        "extFields": command.ext_fields,
        "flag": command.flag,
        "language": command.language.name,
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.remark is not None:
        header["remark"] = command.remark
    return _json_encode(header)


_FIXED = Struct(">hBhiii")
_INT = Struct(">i")
_SHORT = Struct(">h")


def _decode_binary(frame: Frame) -> RemotingCommand:
    data = frame.header
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
        position = _FIXED.size
        remark, position = _text(data, position, remark_length)
        (fields_length,) = _INT.unpack_from(data, position)
        position += 4
        end = position + fields_length
        if fields_length < 0 or end > len(data):
            raise WireError(f"{fields_length} bytes of fields do not fit a header of {len(data)}")
        fields = {}
        while position < end:
            (length,) = _SHORT.unpack_from(data, position)
            name, position = _text(data, position + 2, length)
            (length,) = _INT.unpack_from(data, position)
            fields[name], position = _text(data, position + 4, length)
    except (StructError, UnicodeDecodeError) as error:
        raise WireError(f"a binary header that cannot be read: {error}") from error
    try:
        known = LanguageCode(language)
    except ValueError:
        known = LanguageCode.OTHER
    return RemotingCommand(
        code,
        ext_fields=fields,
        body=frame.body,
        opaque=opaque,
        flag=flag,
        remark=remark or None,
        language=known,
        version=version,
        serialization=SerializeType.ROCKETMQ,
    )


def _text(data: bytes, position: int, length: int) -> tuple[str, int]:
    end = position + length
    if length < 0 or end > len(data):
        raise WireError(f"a string of {length} bytes does not fit a header of {len(data)}")
    return data[position:end].decode(), end


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    for name, value in command.ext_fields.items():
        key, text = name.encode(), value.encode()
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(text)), text)
    fields = b"".join(parts)
    # Stock writes the code as a short, so one past 32767 is cut there as well.
    code = (command.code + 0x8000 & 0xFFFF) - 0x8000
    fixed = _FIXED.pack(
        code, command.language, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, _INT.pack(len(fields)), fields))
