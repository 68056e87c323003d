"""updateTopicList and updateSubGroupList: many topics or groups out of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from twisted.internet.defer import Deferred

from rocketmq_tw.admin.brokers import owner_addresses
from rocketmq_tw.admin.each_server import on_each
from rocketmq_tw.admin.options import (
    PathType,
    broker_option,
    check_broker_or_cluster,
    cluster_option,
)
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.admin.yaml_files import read_yaml
from rocketmq_tw.message.names import check_group, check_topic
from rocketmq_tw.wire.bodies.base import convert_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.errors import BodyError, RequestError

T = TypeVar("T", TopicConfig, SubscriptionGroupConfig)

_file_option = click.option(
    "-f", "--filename", "path", required=True, metavar="FILE",
    type=PathType(exists=True, dir_okay=False),
    help="A list in JSON or YAML, with the keys that exportMetadata writes.",
)  # fmt: skip


@click.command("updateTopicList")
@broker_option
@cluster_option
@_file_option
@click.pass_obj
def update_topics(tool: Tool, broker: str | None, cluster: str | None, path: str) -> None:
    """Creates or changes all topics of a file."""
    check_broker_or_cluster(broker, cluster)
    topics = _read(path, TopicConfig, "topicName")
    names = _check_names(path, check_topic, (topic.topic_name for topic in topics))
    _update(
        tool, "topics", names, broker, cluster,
        lambda servers, address: servers.admin.update_topics(address, topics),
    )  # fmt: skip


@click.command("updateSubGroupList")
@broker_option
@cluster_option
@_file_option
@click.pass_obj
def update_groups(tool: Tool, broker: str | None, cluster: str | None, path: str) -> None:
    """Creates or changes all consumer groups of a file."""
    check_broker_or_cluster(broker, cluster)
    groups = _read(path, SubscriptionGroupConfig, "groupName")
    names = _check_names(path, check_group, (group.group_name for group in groups))
    _update(
        tool, "groups", names, broker, cluster,
        lambda servers, address: servers.admin.update_groups(address, groups),
    )  # fmt: skip


def _read(path: str, entry: type[T], key: str) -> list[T]:
    """Returns the entries of a file; ends the command where it has none, or a wrong one."""
    value = read_yaml(path)
    if not isinstance(value, list) or not value:
        raise click.UsageError(f'{path}: give a list with entries: [{{"{key}": "name"}}]')
    entries = []
    for number, each in enumerate(value, 1):
        if not isinstance(each, dict) or not each.get(key):
            raise click.UsageError(f"{path}: entry {number} has no {key}")
        known = set(entry.__struct_encode_fields__)
        for name in each:
            if name not in known:
                raise click.UsageError(
                    f"{path}: entry {number}: {name!r} is no key, those are:"
                    f" {', '.join(sorted(known))}"
                )
        try:
            entries.append(convert_body(entry, each))
        except BodyError as error:
            raise click.UsageError(f"{path}: entry {number}: {error.remark}") from error
    return entries


def _check_names(path: str, check: Callable[[str], None], names: Iterable[str]) -> list[str]:
    found = list(names)
    for name in found:
        try:
            check(name)
        except RequestError as error:
            raise click.UsageError(f"{path}: {error.remark}") from error
    return found


def _update(
    tool: Tool,
    kind: str,
    names: list[str],
    broker: str | None,
    cluster: str | None,
    change: Callable[[Servers, str], Deferred[Any]],
) -> None:
    async def work(servers: Servers) -> Report:
        targets = await owner_addresses(servers, broker, cluster)
        done = await on_each(targets, lambda address: change(servers, address))
        return Report(
            {kind: names, "brokers": done},
            lines=[f"{len(names)} {kind} are on {address}" for address in done],
        )

    tool.report(work)
