"""Tells whose a line of the log is where several of a kind share one process and its log."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger


def named(log: Logger, name: str) -> Logger:
    """Returns a logger whose lines begin with `name`; `log` itself where that is empty."""
    return _NamedLogger(log, name) if name else log


class _NamedLogger(Logger):
    def __init__(self, log: Logger, name: str) -> None:
        super().__init__(log.namespace, log.source, log.observer)
        self._name = name

    def emit(self, level: Any, format: str | None = None, **kwargs: object) -> None:
        if format is not None:
            format, kwargs["log_name"] = f"{{log_name}}: {format}", self._name
        super().emit(level, format, **kwargs)
