"""Shares code among the commands of `twistd`. It is loaded by every `twistd`, also by those of
other projects, and loads nothing that Twisted does not."""

from __future__ import annotations

from typing import Any

from twisted.application.service import ServiceMaker

from rocketmq_tw.interrupted import end_at_once, end_quietly


class ServerMaker(ServiceMaker):
    """A command of `twistd`, `name`, made by `Options` and `makeService` of a module of
    `rocketmq_tw.services`. From when the module is loaded, which takes most of a start, Ctrl-C
    ends the program with a word."""

    def __init__(self, name: str, description: str) -> None:
        module = name.removeprefix("rmq-").replace("-", "_")
        super().__init__(name, f"rocketmq_tw.services.{module}", description, name)

    @property
    def options(self) -> Any:
        end_quietly(self.name)
        end_at_once(self.name)
        return super().options
