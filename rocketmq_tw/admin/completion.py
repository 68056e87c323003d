"""Offers a shell the names that the cluster has, behind an option."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from rocketmq_tw.admin.tool import Servers, Tool

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

#: Seconds that a shell waits at most.
_WAIT_SECONDS = 2.0
_TOPIC, _GROUP, _CLUSTER, _BROKER = "topic", "group", "cluster", "broker"
#: Long option to the kind of names that it takes.
KINDS = {
    "--topic": _TOPIC,
    "--topicName": _TOPIC,
    "--group": _GROUP,
    "--groupName": _GROUP,
    "--consumerGroup": _GROUP,
    "--subscriptionGroup": _GROUP,
    "--cluster": _CLUSTER,
    "--clusterName": _CLUSTER,
    "--brokerName": _BROKER,
}


class Text(StringParamType):
    """Text; what a terminal hands over as bytes that are no UTF-8 is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text: str = super().convert(value, param, ctx)
        if not text.isprintable():
            try:
                text.encode()
            except UnicodeEncodeError:
                self.fail(f"{os.fsencode(text)!r} is no UTF-8", param, ctx)
        return text


class LiveName(Text):
    """A name of one kind, as `KINDS` has it; others than those that are there are taken too."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the names that begin so; none where no name server answers in time."""
        kind = self._kind

        async def work(servers: Servers) -> list[str]:
            from twisted.internet.defer import Deferred

            asked: Deferred[Iterable[str]] = Deferred.fromCoroutine(_names(servers, kind))
            return sorted(await asked.addTimeout(_WAIT_SECONDS, servers.reactor))

        try:
            names = ctx.ensure_object(Tool).run(work)
        except Exception:
            # A shell shows nothing but names.
            return []
        # What retries and dead letters are in is asked for by its first letter.
        return [
            CompletionItem(name)
            for name in names
            if name.startswith(incomplete) and (incomplete or not name.startswith("%"))
        ]


def type_text(option: click.Parameter) -> None:
    """Has an option or argument that takes any text refuse what is none; where its long name is of
    `KINDS`, a shell offers names behind it."""
    if type(option.type) is StringParamType:
        kinds = [KINDS[name] for name in option.opts if name in KINDS]
        option.type = LiveName(kinds[0]) if kinds else Text()


async def _names(servers: Servers, kind: str) -> Iterable[str]:
    if kind == _TOPIC:
        return (await servers.admin.topic_list()).topic_list
    if kind == _GROUP:
        from rocketmq_tw.admin.known_names import group_names

        # Names of the brokers that answer are better than none.
        servers.is_quiet = True
        return await group_names(servers)
    info = await servers.admin.cluster_info()
    return info.cluster_addr_table if kind == _CLUSTER else info.broker_addr_table
