"""Stock's .properties files, with the line of each key, and the JSON file of its proxy.

Format: docs/configuration.md.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import javaproperties

#: Of a file of settings: every key of stock with its longest value takes a tenth of it.
MAX_FILE_BYTES = 256 * 1024

#: Blank lines and comments, or one setting with the lines that it goes on in. Each character is
#: looked at once: requests of strangers are read so (`javaproperties.parse` looks at all of a
#: setting again for each line that it goes on in).
_part = re.compile(
    r"""(?P<between>(?:[ \t\f]*+(?:[#!][^\r\n]*+(?:\r\n?|\n|\Z)|\r\n?|\n))++|[ \t\f]++\Z)
    |(?:[^\\\r\n]++|\\(?:\r\n|[\s\S]|\Z))*+(?:\r\n?|\n|\Z)""",
    re.VERBOSE,
).finditer
#: An escape, or the end of a line that goes on.
_escape_or_fold = re.compile(r"(\\[^\r\n])|\\(?:\r\n?|\n|\Z)[ \t\f]*+").sub
#: A key, what stands between it and its value, and the value.
_pair = re.compile(r"((?:[^\\ \t\f=:]++|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+(.*)", re.DOTALL).fullmatch


class ConfigError(ValueError):
    """A configuration that cannot be used; the text names the place and what is accepted."""


class StartFile(NamedTuple):
    """The file of `-c`: its whole path, as twistd may go to another directory once it is read, and
    the keys that `-o` gave other values, which the next start takes too."""

    path: str
    overridden: frozenset[str] = frozenset()


class Setting(NamedTuple):
    """A key, its value as written, and the place where it stood ("broker.properties:12", "-o"). An
    unknown key is refused where it `must_be_known`, and warned of elsewhere. The value may be one
    that the key has by itself, as it `follows` from another one."""

    key: str
    value: str
    origin: str
    must_be_known: bool = False
    follows: str | None = None


def read_config_file(path: str, advice: str = "") -> str:
    """Returns the text of a file of settings, which may be a pipe that somebody writes to. Raises
    `ConfigError` where it is no configuration, or cannot be read: then with `advice`."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            first = _begin_of_pipe(file.fileno(), path, advice)
            data = first + file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}{advice}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            f"{path}: it has more than {MAX_FILE_BYTES} bytes, and is no configuration"
        )
    if b"\0" in data:
        raise ConfigError(f"{path}: it has bytes of value 0, and is no configuration")
    return data.removeprefix(codecs.BOM_UTF8).decode("latin-1")


def _open_at_once(path: str, flags: int) -> int:
    """Opens a pipe without waiting for one who writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def _begin_of_pipe(descriptor: int, path: str, advice: str) -> bytes:
    """Returns what was read of a pipe to find out whether anybody writes to it; nothing of others.
    What follows is waited for."""
    first = b""
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        try:
            first = os.read(descriptor, 1)
        except BlockingIOError:
            # Somebody has it open, and will write.
            pass
        else:
            if not first:
                raise ConfigError(f"{path}: it is a pipe that nobody writes to{advice}")
    os.set_blocking(descriptor, True)
    return first


def read_properties(text: str, name: str) -> list[Setting]:
    """Returns the settings in `text`, the content of the file `name`; raises `ConfigError`.

    Java reads such files as Latin-1, with `\\uXXXX` for what is beyond.
    """
    settings = []
    line = 1
    try:
        for source, pair in _parts(text):
            if pair is not None:
                settings.append(Setting(*pair, f"{name}:{line}"))
            line += source.count("\n")
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{name}:{line}: {error.escape!r} is no \\uXXXX escape") from error
    return settings


def read_json(text: str, name: str) -> list[Setting]:
    """Returns the settings in the JSON object `text`, as stock's `rmq-proxy.json` has them; raises
    `ConfigError`. A key whose value is null is as one that is not there."""
    try:
        pairs = json.loads(text, object_pairs_hook=tuple)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error
    if not isinstance(pairs, tuple):
        raise ConfigError(f"{name}: give an object with a value for each key")
    settings = []
    for key, value in pairs:
        if isinstance(value, list | tuple):
            raise ConfigError(f"{name}: {key}: give a text, a number, true or false")
        if value is not None:
            text_of = value if isinstance(value, str) else json.dumps(value)
            settings.append(Setting(key, text_of, name))
    return settings


def write_properties(values: Iterable[tuple[str, str]]) -> str:
    """Returns a line `key=value` for each pair."""
    return "".join(f"{_join(key, value)}\n" for key, value in values)


def change_properties(text: str, changes: Mapping[str, str]) -> str:
    """Returns `text` with the values of some keys replaced where they stand, new ones behind."""
    left = dict(changes)
    lines = []
    for source, pair in _parts(text):
        key = None if pair is None else pair[0]
        if key is None or key not in changes:
            lines.append(source)
        elif key in left:
            lines.append(_join(key, left.pop(key)) + "\n")
    if lines and left and not lines[-1].endswith("\n"):
        lines.append("\n")
    return "".join(lines) + write_properties(left.items())


def _parts(text: str) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Yields all of `text`, piece by piece, each with its key and value where it is a setting.
    Raises `InvalidUEscapeError`."""
    for found in _part(text):
        source = found[0]
        pair = None if found["between"] else _pair(_joined(source))
        if pair is not None and pair[0]:
            yield source, (_unescaped(pair[1]), _unescaped(pair[2]))
        elif source:
            yield source, None


def _joined(source: str) -> str:
    """Returns the one line that a setting is, as Java puts it together."""
    return _escape_or_fold(r"\1", source.lstrip(" \t\f").rstrip("\r\n"))


def _unescaped(text: str) -> str:
    return javaproperties.unescape(text) if "\\" in text else text


def _join(key: str, value: str) -> str:
    joined: str = javaproperties.join_key_value(key, value)
    return joined
