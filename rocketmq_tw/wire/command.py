"""RemotingCommand: the one message of the protocol, request and response alike.

Formats: docs/formats/remoting.md. The header travels as JSON or in stock's compact binary form
(`SerializeType`); a response uses the form of its request.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import count
from struct import Struct
from struct import error as StructError
from typing import Annotated, TypeVar

from rocketmq_tw.memo import remembered
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.frame import Frame, encode_frame
from rocketmq_tw.wire.headers.base import Header, header_to_fields, read_header

H = TypeVar("H", bound=Header)

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

#: The version that we announce: stock 5.3.3's ordinal, so that peers offer all they have.
VERSION_5_3_3 = 479
VERSION_4_9_3 = 399
#: From it on clients name the broker that they mean in each request.
VERSION_5_0_0 = 413
#: From 4.0.0 on each release has two ordinals, its snapshot's before its own, ten releases make a
#: minor version and ten of those a major one.
_FIRST_REGULAR = 212
_FIRST_MAJOR = 4
#: What stock 5.3.3 knows; it has one name for all above.
_HIGHER = 612

#: Stock's largest header has about 20 fields; past this many one is refused, for its memory.
MAX_FIELDS = 65_536
#: A longer JSON header has to be strict JSON of strings, as every client's is.
MAX_TOLERANT_HEADER = 64 * 1024
#: Bytes of a header that are no strict JSON at all, and are read character by character.
MAX_DIALECT_HEADER = 4 * 1024


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
_LANGUAGE_NAMES = {language: language.name for language in LanguageCode}
_LANGUAGE_NUMBERS = {language.value: language for language in LanguageCode}
_OTHER = LanguageCode.OTHER
_JSON, _ROCKETMQ = SerializeType
_next_opaque = count(1).__next__


class RemotingCommand(msgspec.Struct, eq=False, gc=False):
    """A request or a response.

    `code` is a request code or a response code, after `is_response`. `ext_fields` are the
    header's fields, strings on the wire; `header(Type)` reads them typed. `opaque` ties a
    response to its request on one connection. Not on the wire is `suspended`: whether the request
    waited until there was something to answer, or the response answers such a one.
    """

    code: int
    ext_fields: dict[str, str] = {}
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: LanguageCode = LanguageCode.PYTHON
    version: int = VERSION_5_3_3
    serialization: SerializeType = SerializeType.JSON
    suspended: bool = False

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
    ) -> RemotingCommand:
        """Returns a request with the next opaque of this process."""
        return cls(
            code,
            ext_fields={} if header is None else header_to_fields(header),
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
        """Returns the answer to this request: its opaque and its serialisation.

        To a oneway request it keeps the flag, by which net/ knows not to send it.
        """
        return RemotingCommand(
            code,
            ext_fields={} if header is None else header_to_fields(header),
            body=body,
            opaque=self.opaque,
            flag=RESPONSE_FLAG | self.flag & ONEWAY_FLAG,
            remark=remark,
            serialization=self.serialization,
            suspended=self.suspended,
        )

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def header(self, header_type: type[H]) -> H:
        """Returns the fields as `header_type`; raises `HeaderError` that names a missing or bad
        one."""
        return read_header(header_type, self.ext_fields)

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        return (
            f"<{kind} code={self.code} opaque={self.opaque} fields={self.ext_fields}"
            f" remark={self.remark!r} body={len(self.body)}B>"
        )


def version_name(ordinal: int) -> str:
    """Returns the name that stock shows, such as `V5_3_3`; releases before 4.0.0 are not told
    apart."""
    if ordinal < _FIRST_REGULAR:
        return "older than V4_0_0"
    if ordinal >= _HIGHER:
        return "HIGHER_VERSION"
    release, is_release = divmod(ordinal - _FIRST_REGULAR, 2)
    major, minor = divmod(release // 10, 10)
    name = f"V{_FIRST_MAJOR + major}_{minor}_{release % 10}"
    return name if is_release else f"{name}_SNAPSHOT"


#: A number of a header: Java's int, in the binary form too. Opaques are keys of tables, and longer
#: ones can be chosen so that all of them meet in one.
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


class _JsonHeader(msgspec.Struct, gc=False):
    """The JSON form; its fields stand in stock's order, and unknown keys are passed over."""

    code: _Int = 0
    extFields: dict[str, str] | None = None
    flag: _Int = 0
    language: str = "JAVA"
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0


class _WrittenHeader(msgspec.Struct, gc=False):
    """The JSON form to write, fields in stock's order; what is UNSET does not appear."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str
    version: int


_json_header = msgspec.json.Decoder(_JsonHeader, strict=False)
_json_encode = msgspec.json.Encoder().encode


def decode_command(frame: Frame) -> RemotingCommand:
    """Returns the command in `frame`. Raises `WireError` where the header is not what its form
    says."""
    if frame.serialization != _JSON:
        if frame.serialization == _ROCKETMQ:
            return _decode_binary(frame)
        raise WireError(f"{frame.serialization} is no serialisation of a header")
    if len(frame.header) > MAX_FIELDS:
        fastjson.check_values(frame.header, MAX_FIELDS)
    try:
        header = _json_header.decode(frame.header)
    except fastjson.STRICT_ERRORS:
        header = None
    if header is None:
        # Not while the first error is handled: PyPy then raises a TypeError for too deep a text.
        header = _tolerant_header(frame.header)
    return RemotingCommand(
        header.code,
        header.extFields or {},
        frame.body,
        header.opaque,
        header.flag,
        header.remark,
        _LANGUAGES.get(header.language, _OTHER),
        header.version,
    )


#: So many first bytes of a JSON header tell its code, where it is written as stock's clients do.
JSON_START = 12


def json_start(code: int) -> bytes:
    """Returns how the JSON header of a request begins that has a code of two or three digits."""
    return (b'{"code":%d,"' % code)[:JSON_START]


class _OnlyCode(msgspec.Struct, gc=False):
    code: _Int = 0


_only_code = msgspec.json.Decoder(_OnlyCode, strict=False)


def code_of(frame: Frame) -> int | None:
    """Returns the code of the command in `frame` without reading the rest; None where that takes
    more than a look."""
    try:
        if frame.serialization == _ROCKETMQ:
            return int(_SHORT.unpack_from(frame.header)[0])
        return _only_code.decode(frame.header).code
    except (StructError, *fastjson.STRICT_ERRORS):
        return None


def encode_command(command: RemotingCommand) -> bytes:
    """Returns the whole frame of `command` in its own serialisation."""
    if command.serialization == _ROCKETMQ:
        return encode_frame(_ROCKETMQ, _encode_binary(command), command.body)
    header = _json_encode(
        _WrittenHeader(
            command.code,
            command.ext_fields or msgspec.UNSET,
            command.flag,
            _LANGUAGE_NAMES[command.language],
            command.opaque,
            msgspec.UNSET if command.remark is None else command.remark,
            "JSON",
            command.version,
        )
    )
    return encode_frame(_JSON, header, command.body)


def _tolerant_header(data: bytes) -> _JsonHeader:
    """Returns what stock's own reader makes of a header that is no strict JSON of strings: fields
    that are numbers or booleans become text, null is as good as absent. It is slow."""
    if len(data) > MAX_TOLERANT_HEADER:
        raise WireError(f"a header of {len(data)} bytes that is no strict JSON of strings")
    value = fastjson.loads(data, dialect_bytes=MAX_DIALECT_HEADER)
    if not isinstance(value, dict):
        raise WireError("a JSON header that is no object")
    members = {name: item for name, item in value.items() if item is not None}
    fields = members.get("extFields")
    if isinstance(members.get("language"), int):
        members["language"] = _LANGUAGE_NUMBERS.get(members["language"], LanguageCode.OTHER).name
    if isinstance(fields, dict):
        fastjson.check_depth(value)
        members["extFields"] = {
            str(name): item if isinstance(item, str) else fastjson.dumps(item).decode()
            for name, item in fields.items()
            if item is not None
        }
    try:
        return msgspec.convert(members, _JsonHeader, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise WireError(f"a JSON header that cannot be read: {error}") from error


_FIXED = Struct(">hBhiii")
_INT = Struct(">i")
_SHORT = Struct(">h")


def _decode_binary(frame: Frame) -> RemotingCommand:
    data = frame.header
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
        remark_end = _FIXED.size + remark_length
        (fields_length,) = _INT.unpack_from(data, remark_end)
        start = remark_end + 4
        if remark_length < 0 or not 0 <= fields_length <= len(data) - start:
            raise WireError(
                f"a remark of {remark_length} bytes and fields of {fields_length} do not fit a"
                f" header of {len(data)}"
            )
        remark = data[_FIXED.size : remark_end].decode()
        fields = _decode_fields(data, start, start + fields_length)
    except (StructError, UnicodeDecodeError) as error:
        raise WireError(f"a binary header that cannot be read: {error}") from error
    return RemotingCommand(
        code,
        ext_fields=fields,
        body=frame.body,
        opaque=opaque,
        flag=flag,
        remark=remark or None,
        language=_LANGUAGE_NUMBERS.get(language, LanguageCode.OTHER),
        version=version,
        serialization=SerializeType.ROCKETMQ,
    )


def _decode_fields(data: bytes, position: int, end: int) -> dict[str, str]:
    short_at, int_at = _SHORT.unpack_from, _INT.unpack_from
    fields: dict[str, str] = {}
    # Counted as they come: those of one name replace each other.
    left = MAX_FIELDS
    while position < end:
        name_start = position + 2
        name_end = name_start + short_at(data, position)[0]
        value_start = name_end + 4
        position = value_start + int_at(data, name_end)[0]
        if not name_start <= name_end < value_start <= position <= end:
            raise WireError(f"a field's length does not fit the fields that end at byte {end}")
        if not left:
            raise WireError(f"a header of more than {MAX_FIELDS} fields")
        left -= 1
        fields[data[name_start:name_end].decode()] = data[value_start:position].decode()
    return fields


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    for name, value in command.ext_fields.items():
        text = value.encode()
        parts += (_encode_name(name), _INT.pack(len(text)), text)
    fields = b"".join(parts)
    # Stock writes the code as a short, so one past 32767 is cut there as well.
    code = (command.code + 0x8000 & 0xFFFF) - 0x8000
    fixed = _FIXED.pack(
        code, command.language, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join([fixed, remark, _INT.pack(len(fields)), fields])


@remembered(1024)
def _encode_name(name: str) -> bytes:
    """Returns a field name behind its two-byte length. Cached: every command has the same few
    names."""
    data = name.encode()
    if len(data) > 0x7FFF:
        raise WireError(f"a field name of {len(data)} bytes does not fit its two-byte length")
    return _SHORT.pack(len(data)) + data
