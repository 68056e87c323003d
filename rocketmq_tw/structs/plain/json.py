"""JSON to values and back."""

from __future__ import annotations

from functools import cache
from json import loads
from typing import Any

from rocketmq_tw.structs.plain.errors import Misfit
from rocketmq_tw.structs.plain.kinds import holds_raw, type_kind
from rocketmq_tw.structs.plain.layout import in_lines
from rocketmq_tw.structs.plain.reader import Reader
from rocketmq_tw.structs.plain.swift import Mode, shown_names, swift
from rocketmq_tw.structs.plain.writer import encode as encode

format = in_lines

#: Bytes of a text that `loads` is worth: most headers. It takes a fifth of the reader's time, and
#: `shown_names` has to keep an eye on it.
_SHORT = 2048


class Decoder:
    """Reads JSON as `type`; unless `strict`, text becomes a number, a boolean or None where the
    type asks for one."""

    def __init__(self, type: Any = Any, *, strict: bool = True) -> None:
        self._kind = type_kind(type)
        self._strict = strict
        self._swift: Any = None
        self._is_exact: bool | None = None

    def __class_getitem__(cls, _: Any) -> type[Decoder]:
        return cls

    def decode(self, data: Any) -> Any:
        """Returns the value in `data`, bytes or text. Raises `DecodeError` for what is no JSON,
        `ValidationError` for another type, `UnicodeDecodeError` for text that is no UTF-8,
        `RecursionError` for what is too deep."""
        if self._swift is None:
            self._is_exact = holds_raw(self._kind)
            mode = Mode(self._strict, is_json=True)
            self._swift = swift(self._kind, mode)
        if not self._is_exact and len(data) <= _SHORT:
            try:
                text = data if type(data) is str else bytes(data).decode()
                if shown_names.may_show(text):
                    try:
                        return self._swift(loads(text))
                    except (ValueError, RecursionError, Misfit):
                        shown_names.see_all(text)
            except UnicodeDecodeError:
                pass
        data = data.encode() if type(data) is str else bytes(data)
        try:
            return Reader(data, self._strict).read(self._kind)
        except Misfit as misfit:
            raise misfit.error() from misfit.__cause__


class Encoder:
    """Writes JSON."""

    encode = staticmethod(encode)


@cache
def _decoder(type: Any, strict: bool) -> Decoder:
    return Decoder(type, strict=strict)


def decode(data: Any, *, type: Any = Any, strict: bool = True) -> Any:
    """Returns the value in `data` as `Decoder` does."""
    return _decoder(type, strict).decode(data)
