"""The files that the broker's tables are kept in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from twisted.logger import Logger

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.metadata import read_metadata, write_metadata
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

T = TypeVar("T")

log = Logger()


class StateFile(Protocol):
    """What a table asks of its file."""

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` makes of the file, or of its backup where the file is damaged; None
        where there is neither. Raises where neither can be used."""
        ...

    def write(self, data: bytes) -> None:
        """Replaces the content durably; raises `OSError`."""
        ...


def keep(file: StateFile, data: bytes) -> None:
    """Writes what a request changes; raises `RequestError` where it cannot be kept."""
    try:
        file.write(data)
    except OSError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {error.strerror or error}"
        ) from error


class ConfigFile:
    """One of the files in the store's `config/`, with its `.bak`."""

    def __init__(self, files: IFiles, path: str) -> None:
        self._files = files
        self._path = path

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        return read_metadata(
            self._files, self._path, parse, lambda text: log.warn("{text}", text=text)
        )

    def write(self, data: bytes) -> None:
        write_metadata(self._files, self._path, data)
