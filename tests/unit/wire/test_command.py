"""Commands beyond the golden frames: flags, what peers write oddly, headers that lie."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import (
    MAX_FIELDS,
    MAX_TOLERANT_HEADER,
    VERSION_5_3_3,
    LanguageCode,
    RemotingCommand,
    SerializeType,
    code_of,
    decode_command,
    encode_command,
    version_name,
)
from rocketmq_tw.wire.errors import HeaderError, WireError
from rocketmq_tw.wire.frame import Frame, FrameDecoder
from rocketmq_tw.wire.headers.offsets import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader


def read(header: str | dict) -> RemotingCommand:
    text = header if isinstance(header, str) else json.dumps(header)
    return decode_command(Frame(SerializeType.JSON, text.encode(), b""))


def test_request_and_its_response():
    header = GetMaxOffsetRequestHeader(topic="t", queue_id=3)
    request = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header)
    request.serialization = SerializeType.ROCKETMQ
    assert not request.is_response and not request.is_oneway
    assert request.header(GetMaxOffsetRequestHeader) == header
    answer = request.response(header=GetMaxOffsetResponseHeader(offset=7), body=b"x")
    assert answer.is_response
    assert (answer.opaque, answer.serialization) == (request.opaque, request.serialization)
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {"offset": "7"})


def test_requests_differ_in_opaque():
    first, second = RemotingCommand.request(1), RemotingCommand.request(1, oneway=True)
    assert first.opaque != second.opaque
    assert second.is_oneway


def test_missing_header_field_is_named():
    with pytest.raises(HeaderError, match="`topic`") as caught:
        RemotingCommand(30, ext_fields={"queueId": "1"}).header(GetMaxOffsetRequestHeader)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_fields_that_are_no_text_become_text():
    command = read({"code": 34, "extFields": {"a": 5, "b": True, "c": None, "d": {"e": [1]}}})
    assert command.ext_fields == {"a": "5", "b": "true", "d": '{"e":[1]}'}


@pytest.mark.parametrize(
    ("header", "code", "language"),
    [
        ('{code:"34",language:9}', 34, LanguageCode.GO),
        ('{"code":34,"language":"COBOL"}', 34, LanguageCode.OTHER),
        ('{"code":34,"language":99}', 34, LanguageCode.OTHER),
        ('{"code":34,"language":null,"extFields":null,"flag":null}', 34, LanguageCode.JAVA),
        ('{"code":34,"novel":[1],"remark":null}', 34, LanguageCode.JAVA),
        ("{}", 0, LanguageCode.JAVA),
    ],
)
def test_odd_headers_are_read(header, code, language):
    command = read(header)
    assert (command.code, command.language) == (code, language)
    assert command.ext_fields == {}


@pytest.mark.parametrize(
    "header",
    ["", "[]", "5", "null", "{", '{"code":"x"}', '{"code":1,"extFields":[]}', '{"flag":{}}', "{]"],
)
def test_broken_json_is_refused(header):
    with pytest.raises(WireError):
        read(header)


@pytest.mark.parametrize("serialization", [2, 99, 255])
def test_unknown_serialisation_is_refused(serialization):
    with pytest.raises(WireError, match="no serialisation"):
        decode_command(Frame(serialization, b"{}", b""))


def binary(remark: int, fields: int, tail: bytes = b"") -> Frame:
    fixed = bytes(13) + remark.to_bytes(4, "big", signed=True)
    return Frame(SerializeType.ROCKETMQ, fixed + fields.to_bytes(4, "big", signed=True) + tail, b"")


@pytest.mark.parametrize(
    "frame",
    [
        binary(-1, 0),
        binary(-8, 0),
        binary(1, 0),
        binary(2**31 - 1, 0),
        binary(0, -1),
        binary(0, 1),
        binary(0, 2**31 - 1, bytes(8)),
        binary(0, 6, b"\xff\xff" + bytes(4)),
        binary(0, 6, bytes(2) + b"\xff" * 4),
        binary(0, 7, b"\0\x01k" + b"\0\0\0\x01" + b"past the fields' end"),
        binary(0, 3, bytes(3)),
        binary(0, 7, b"\0\x01\xff" + bytes(4)),
    ],
)
def test_broken_binary_header_is_refused(frame):
    with pytest.raises(WireError):
        decode_command(frame)


def test_binary_form_cuts_the_code_to_a_short_as_stock_does():
    command = RemotingCommand(200050, serialization=SerializeType.ROCKETMQ)
    (frame,) = FrameDecoder().feed(encode_command(command))
    assert decode_command(frame).code == 200050 - 3 * 65536


def test_field_name_beyond_its_length_is_not_written():
    command = RemotingCommand(
        1, ext_fields={"n" * 40_000: ""}, serialization=SerializeType.ROCKETMQ
    )
    with pytest.raises(WireError, match="field name"):
        encode_command(command)


@pytest.mark.parametrize("serialization", list(SerializeType))
def test_more_fields_than_any_header_has_are_refused(serialization):
    fields = {str(number): "" for number in range(MAX_FIELDS + 2)}
    command = RemotingCommand(1, ext_fields=fields, serialization=serialization)
    (frame,) = FrameDecoder().feed(encode_command(command))
    with pytest.raises(WireError, match="more than 65536"):
        decode_command(frame)


def test_fields_of_one_name_are_counted_too():
    command = RemotingCommand(1, ext_fields={"": ""}, serialization=SerializeType.ROCKETMQ)
    (frame,) = FrameDecoder().feed(encode_command(command))
    fields = bytes(6) * (MAX_FIELDS + 1)
    header = frame.header[:-10] + len(fields).to_bytes(4) + fields
    with pytest.raises(WireError, match="more than 65536"):
        decode_command(Frame(frame.serialization, header, b""))


def test_a_long_header_has_to_be_strict():
    remark = "\\n" * MAX_TOLERANT_HEADER
    assert read('{"code":34,"remark":"%s"}' % remark).code == 34  # noqa: UP031
    with pytest.raises(WireError, match="no strict JSON"):
        read("{code:34,remark:'%s'}" % remark)  # noqa: UP031


@given(
    st.builds(
        RemotingCommand,
        st.integers(-(2**31), 2**31 - 1),
        ext_fields=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        opaque=st.integers(0, 2**31 - 1),
        flag=st.integers(0, 3),
        remark=st.none() | st.text(max_size=5),
        language=st.sampled_from(LanguageCode),
    )
)
def test_a_json_header_has_its_keys_in_stocks_order_and_none_that_is_empty(
    command: RemotingCommand,
) -> None:
    keys: dict[str, object] = {
        "code": command.code,
        "extFields": command.ext_fields or None,
        "flag": command.flag,
        "language": command.language.name,
        "opaque": command.opaque,
        "remark": command.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    expected = msgspec.json.encode({key: keys[key] for key in keys if keys[key] is not None})
    assert FrameDecoder().feed(encode_command(command))[0].header == expected


@pytest.mark.parametrize("beside", ["", "\u00fc"])
def test_a_json_header_escapes_quotes_backslashes_and_controls_only(beside: str) -> None:
    short = {
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        '"': '\\"',
        "\\": "\\\\",
    }
    for character in map(chr, range(0x100)):
        plain = f"\\u{ord(character):04x}" if character < " " else character
        written = encode_command(RemotingCommand(1, remark=beside + character))
        member = f'"remark":"{beside}{short.get(character, plain)}"'
        assert member.encode() in written, ascii(character)


# Ordinals of stock 5.3.3's list.
@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (211, "older than V4_0_0"),
        (212, "V4_0_0_SNAPSHOT"),
        (213, "V4_0_0"),
        (407, "V4_9_7"),
        (411, "V4_9_9"),
        (412, "V5_0_0_SNAPSHOT"),
        (VERSION_5_3_3, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (10_000, "HIGHER_VERSION"),
        (-1, "older than V4_0_0"),
    ],
)
def test_names_of_ordinals(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name


def test_every_request_code(golden_codes):
    stock = golden_codes["RequestCode"]
    assert {name: RequestCode[name].value for name in stock} == stock


def test_every_response_code(golden_codes):
    stock = golden_codes["ResponseCode"]
    assert {name: ResponseCode[name].value for name in stock} == stock


@pytest.mark.parametrize("field", ["code", "flag", "opaque", "version"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_number_beyond_an_int_is_refused(field, quote):
    for taken in (-(2**31), 2**31 - 1):
        header = f'{{"{field}":{quote}{taken}{quote}}}'.encode()
        assert getattr(decode_command(Frame(0, header, b"")), field) == taken
    for refused in (-(2**31) - 1, 2**31, 2**61 - 1, "9" * 4_000):
        header = f'{{"{field}":{quote}{refused}{quote}}}'.encode()
        with pytest.raises(WireError):
            decode_command(Frame(0, header, b""))


def test_a_header_in_the_dialect_is_short():
    for length, taken in ((3_000, True), (5_000, False)):
        header = f"{{'code':5,'remark':'{'x' * length}'}}".encode()
        if taken:
            assert decode_command(Frame(0, header, b"")).code == 5
        else:
            with pytest.raises(WireError, match="strict JSON"):
                decode_command(Frame(0, header, b""))
        loose = header.replace(b"'", b'"').replace(b"}", b',"extFields":{"n":1}}')
        assert decode_command(Frame(0, loose, b"")).ext_fields == {"n": "1"}


@pytest.mark.parametrize("form", list(SerializeType))
def test_a_code_is_told_without_the_rest(form):
    command = RemotingCommand(310, ext_fields={"a": "b"}, serialization=form)
    (frame,) = FrameDecoder(1 << 20).feed(encode_command(command))
    assert code_of(frame) == 310
    assert code_of(Frame(form, b"{", b"")) is None


#: What a level begins and ends with.
LEVELS = [("[", "]"), ('{"a":', "}"), ('[{"b":0,"a":', "}]")]


@pytest.mark.parametrize(("begin", "end"), LEVELS)
@pytest.mark.parametrize("member", ['"extFields":{"n":', '"extFields":', '"remark":', '"other":'])
def test_a_deep_header_is_refused(begin, end, member):
    for depth in (*range(50, 1000, 50), *range(1000, 7001, 250)):
        for short in ("", '"x":{},'):
            value = begin * depth + "0" + end * depth
            text = f"{{{short}{member}{value}{'}' * member.count('{')}}}"
            frame = Frame(0, text.encode(), b"")
            if "other" in member or depth == 50:
                with suppress(WireError):
                    decode_command(frame)
            else:
                with pytest.raises(WireError):
                    decode_command(frame)


def test_a_field_of_some_levels_becomes_text():
    def command(depth):
        text = "[" * depth + "]" * depth
        return decode_command(Frame(0, f'{{"extFields":{{"n":{text}}}}}'.encode(), b""))

    assert command(62).ext_fields == {"n": "[" * 62 + "]" * 62}
    with pytest.raises(WireError, match="more than 64 levels"):
        command(63)
