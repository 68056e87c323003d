"""A parser that forgets no name is shown so many new ones, and what is read stays the same."""

from __future__ import annotations

import pytest

from rocketmq_tw.services.process import resident_bytes
from rocketmq_tw.structs.plain import DecodeError, Struct, json
from rocketmq_tw.structs.plain.shown_names import ShownNames


def test_known_names_go_on_being_shown_when_there_were_too_many_new_ones() -> None:
    names = ShownNames(3)
    names.know(["code"])
    assert names.may_show('{"code":1,"a":2}')
    for name in ("a", "a", "code", "b", "c", "d"):
        names.see(name)
    assert names.may_show('{"code" : {"a":":","b":"x:"}}')
    assert not names.may_show('{"code":1,"e":2}')
    # A name that an escape hides is none that is known.
    assert not names.may_show(r'{"\u0061":1}')


def test_long_names_and_texts_that_were_not_understood_count() -> None:
    names = ShownNames(100)
    names.see("n" * 6400)
    assert not names.may_show('{"a":1}')
    names = ShownNames(100)
    for number in range(40):
        names.see_all(f'{{"a{number}":1,"b{number}":')
    assert not names.may_show('{"c":1}')
    assert names.may_show('{"a1":1}')


class Header(Struct):
    code: int
    fields: dict[str, int] = {}


@pytest.fixture(params=[0, 10**6])
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ShownNames:
    """Names with room for none, or for all."""
    names = json.shown_names
    monkeypatch.setattr(names, "_left", request.param)
    monkeypatch.setattr(names, "_known", {"code", "fields"})
    return names


@pytest.mark.parametrize(
    "text",
    [
        b'{"code":1}',
        b'{"code":1,"fields":{"n":2}}',
        b'{"code":1,"other":{"n":[{"m":1}]}}',
        b'{"co\\u0064e":1}',
        b'{"code":1,"other":',
        b'{"code":"x"}',
    ],
)
def test_what_is_read_does_not_depend_on_names(text: bytes, shown: ShownNames) -> None:
    def outcome() -> object:
        try:
            return json.decode(text, type=Header)
        except DecodeError as error:
            return str(error)

    first = outcome()
    assert [outcome() for _ in range(3)] == [first] * 3
    if b'"other":' not in text and b'"x"' not in text:
        assert isinstance(first, Header)


def test_new_names_without_end_leave_no_memory_behind() -> None:
    decode = json.Decoder(Header, strict=False).decode
    for number in range(10_000):
        decode(b'{"code":1,"before%d":1}' % number)
    before = resident_bytes()
    for number in range(100_000):
        decode(b'{"code":1,"fields":{"new%d":1}}' % number)
        decode(b'{"code":1,"new%d":{"newer%d":1}}' % (number, number))
    # On PyPy each would be kept for ever, with 500 bytes and more.
    assert resident_bytes() - before < 60 << 20
