"""A file of the store's `config/` directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.logger import Logger

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.metadata import read_metadata, write_metadata

T = TypeVar("T")

log = Logger()


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
