"""updateSubGroup, getConsumerConfig, deleteSubGroup."""

from __future__ import annotations

from typing import Any

import click

from rocketmq_tw.admin.brokers import in_cluster, owner_addresses
from rocketmq_tw.admin.each_server import ask_each, masters_of, on_each, unfinished
from rocketmq_tw.admin.known_names import group_hint, groups_of_masters
from rocketmq_tw.admin.options import (
    SWITCH,
    ask_first,
    broker_option,
    check_attributes,
    check_broker_or_cluster,
    cluster_option,
    yes_option,
)
from rocketmq_tw.admin.output import Column, Listing, Report, plain
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.client.each import at_each
from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.message.names import check_group, dlq_topic, retry_topic
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import convert_body
from rocketmq_tw.wire.bodies.groups import (
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import BodyError, RequestError

_POLICIES = ("EXPONENTIAL", "CUSTOMIZED")


def _group_name(context: click.Context, option: click.Parameter, name: str) -> str:
    try:
        check_group(name.strip())
    except RequestError as error:
        raise click.BadParameter(error.remark) from error
    return name.strip()


def named_group_option(long_name: str) -> Any:
    """Makes the option -g, whose long name differs among mqadmin's commands."""
    return click.option(
        "-g",
        f"--{long_name}",
        "group",
        required=True,
        metavar="NAME",
        callback=_group_name,
        help="The consumer group.",
    )


group_option = named_group_option("groupName")


def _retry_policy(
    context: click.Context, option: click.Parameter, text: str | None
) -> GroupRetryPolicy | None:
    if text is None:
        return None
    try:
        policy: GroupRetryPolicy = convert_body(GroupRetryPolicy, msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"no JSON of a retry policy: {error}") from error
    except BodyError as error:
        raise click.BadParameter(f"no JSON of a retry policy: {error.remark}") from error
    if policy.type not in _POLICIES:
        raise click.BadParameter(f"the type {policy.type!r} is none of {', '.join(_POLICIES)}")
    return policy


@click.command("updateSubGroup")
@broker_option
@cluster_option
@group_option
@click.option(
    "-s", "--consumeEnable", "consume", **SWITCH, default=True, show_default=True,
    help="Whether the group may consume.",
)  # fmt: skip
@click.option(
    "-m", "--consumeFromMinEnable", "from_min", **SWITCH, default=False, show_default=True,
    help="Whether it may begin at the oldest message.",
)  # fmt: skip
@click.option(
    "-d", "--consumeBroadcastEnable", "broadcast", **SWITCH, default=False, show_default=True,
    help="Whether it may consume in broadcasting mode.",
)  # fmt: skip
@click.option(
    "-o", "--consumeMessageOrderly", "orderly", **SWITCH, default=False, show_default=True,
    help="Whether it consumes in order.",
)  # fmt: skip
@click.option(
    "-q", "--retryQueueNums", "retry_queues", type=click.IntRange(min=0), default=1,
    show_default=True, help="Queues of its retry topic; 0: nothing is retried.",
)  # fmt: skip
@click.option(
    "-r", "--retryMaxTimes", "retries", type=click.IntRange(min=-1), default=16,
    show_default=True, help="Tries before a message goes to the dead-letter queue.",
)  # fmt: skip
@click.option(
    "-p", "--groupRetryPolicy", "policy", metavar="JSON", callback=_retry_policy,
    help='Delays between tries: {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}',
)  # fmt: skip
@click.option(
    "-i", "--brokerId", "broker_id", type=click.IntRange(min=0), default=0, show_default=True,
    help="The ID of the broker to consume from.",
)  # fmt: skip
@click.option(
    "-w", "--whichBrokerWhenConsumeSlowly", "when_slow", type=click.IntRange(min=0), default=1,
    show_default=True, help="The ID of the broker to consume from when the group is behind.",
)  # fmt: skip
@click.option(
    "-a", "--notifyConsumerIdsChanged", "notify", **SWITCH, default=True, show_default=True,
    help="Whether members are told when another one comes or goes.",
)  # fmt: skip
@click.option(
    "--attributes", metavar="+A=B,-C", callback=check_attributes,
    help="Attributes to set and to drop.",
)  # fmt: skip
@click.pass_obj
def update_group(
    tool: Tool,
    broker: str | None,
    cluster: str | None,
    group: str,
    consume: bool,
    from_min: bool,
    broadcast: bool,
    orderly: bool,
    retry_queues: int,
    retries: int,
    policy: GroupRetryPolicy | None,
    broker_id: int,
    when_slow: int,
    notify: bool,
    attributes: str | None,
) -> None:
    """Creates a consumer group, or gives one the settings of this call; what is left out becomes
    the default."""
    check_broker_or_cluster(broker, cluster)
    config = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=consume,
        consume_from_min_enable=from_min,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_queue_nums=retry_queues,
        retry_max_times=retries,
        group_retry_policy=policy or GroupRetryPolicy(),
        broker_id=broker_id,
        which_broker_when_consume_slowly=when_slow,
        notify_consumer_ids_changed_enable=notify,
        attributes=_changes(attributes),
    )

    async def work(servers: Servers) -> Report:
        return await _update(servers, config, await owner_addresses(servers, broker, cluster))

    tool.report(work)


def _changes(attributes: str | None) -> dict[str, str]:
    """Makes the attributes of a group's configuration in the request's form: names keep their + or
    - sign."""
    parts = (change.partition("=") for change in attributes.split(",")) if attributes else ()
    return {name: value for name, _, value in parts}


async def _update(servers: Servers, config: SubscriptionGroupConfig, targets: list[str]) -> Report:
    done = await on_each(targets, lambda address: servers.admin.update_group(address, config))
    settings = _settings(config)
    shown = [f"{name}={plain(value)}" for name, value in settings.items() if _is_plain(value)]
    return Report(
        {**settings, "brokers": done},
        lines=[
            *(f"group {config.group_name} is on {address}" for address in done),
            "  " + " ".join(shown[1:]),
        ],
    )


def _settings(config: SubscriptionGroupConfig) -> dict[str, Any]:
    return {
        "group": config.group_name,
        "consume": config.consume_enable,
        "fromMin": config.consume_from_min_enable,
        "broadcast": config.consume_broadcast_enable,
        "orderly": config.consume_message_orderly,
        "retryQueues": config.retry_queue_nums,
        "retries": config.retry_max_times,
        "retryPolicy": config.group_retry_policy,
        "brokerId": config.broker_id,
        "whenSlow": config.which_broker_when_consume_slowly,
        "notify": config.notify_consumer_ids_changed_enable,
        "attributes": config.attributes,
    }


_CONFIGS = (
    Column("Cluster", "cluster"),
    Column("Broker", "brokerName"),
    Column("Consume", "consume"),
    Column("Broadcast", "broadcast"),
    Column("Orderly", "orderly"),
    Column("Retry queues", "retryQueues"),
    Column("Retries", "retries"),
    Column("Policy", "retryPolicy", lambda policy: policy.type if policy is not None else ""),
    Column("Notify", "notify"),
)


@click.command("getConsumerConfig")
@group_option
@click.pass_obj
def get_group(tool: Tool, group: str) -> None:
    """Shows the settings of a consumer group on each master that has it."""

    async def work(servers: Servers) -> Report:
        info = await servers.admin.cluster_info()
        where = {
            address: {"cluster": cluster, "brokerName": name}
            for cluster in sorted(info.cluster_addr_table)
            for name, address in masters_of(servers, in_cluster(info, cluster)).items()
        }
        rows = [
            where[answer.address] | _settings(answer.value.subscription_group_table[group])
            for answer in await ask_each(servers, where, servers.admin.groups)
            if answer.value is not None and group in answer.value.subscription_group_table
        ]
        if not rows:
            hint = await group_hint(servers, group)
            fail(servers.conclusion(f"no broker has a group {group}: {hint}"))
        return Report({"group": group, "brokers": rows}, [Listing(_CONFIGS, rows)])

    tool.report(work)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | str)


@click.command("deleteSubGroup")
@broker_option
@cluster_option
@group_option
@click.option(
    "-r", "--removeOffset", "remove_offset", **SWITCH, default=False, show_default=True,
    help="Whether its offsets go too; kept, a group of the same name goes on from there.",
)  # fmt: skip
@yes_option
@click.pass_obj
def delete_group(
    tool: Tool,
    broker: str | None,
    cluster: str | None,
    group: str,
    remove_offset: bool,
    yes: bool,
) -> None:
    """Deletes a consumer group; from a cluster with its retry and dead-letter topics."""
    check_broker_or_cluster(broker, cluster)
    if cluster is not None:
        ask_first(
            yes,
            f"Delete group {group} with its retry and dead-letter messages from cluster {cluster}?",
        )
    else:
        ask_first(yes, f"Delete group {group} from {broker}?")

    async def work(servers: Servers) -> Report:
        targets = await owner_addresses(servers, broker, cluster)
        return await _delete(servers, group, targets, cluster, remove_offset)

    tool.report(work)


async def _delete(
    servers: Servers, group: str, targets: list[str], cluster: str | None, remove_offset: bool
) -> Report:
    admin = servers.admin
    topics = [] if cluster is None else [retry_topic(group), dlq_topic(group)]
    if not await _is_known(servers, group, targets, topics, cluster):
        where = targets[0] if cluster is None else f"cluster {cluster}"
        # All that were asked to delete it said so: the hint alone asks others.
        servers.is_quiet = True
        places = ", ".join(await _places(servers, group))
        hint = f"it is at {places}" if places else await group_hint(servers, group)
        fail(servers.conclusion(f"there is no group {group} at {where}: {hint}"))
    done = await on_each(
        targets, lambda address: admin.delete_group(address, group, clean_offset=remove_offset)
    )
    lines = [f"group {group} is deleted from {address}" for address in done]
    for topic in topics:
        try:
            await _delete_topic(servers, topic, targets, cluster)
        except (RemotingError, ClientError) as error:
            fail(unfinished(error, done), error)
        lines.append(
            f"topic {topic} is deleted there, and stays with the name servers: delete it again"
            if servers.missing
            else f"topic {topic} is deleted from the cluster"
        )
    return Report(
        {"group": group, "cluster": cluster, "brokers": done, "topics": topics}, lines=lines
    )


async def _is_known(
    servers: Servers, group: str, targets: list[str], topics: list[str], cluster: str | None
) -> bool:
    """Returns whether there is something to delete: a call that broke off leaves topics behind.
    Raises why a target did not answer where no other one knows of anything."""
    failures: list[Exception] = []
    for address in targets:
        try:
            known = await servers.admin.groups(address)
        except (RemotingError, ClientError) as error:
            failures.append(error)
            continue
        if group in known.subscription_group_table:
            return True
    for topic in topics:
        route = await servers.admin.topic_route(topic)
        if route is not None and any(data.cluster == cluster for data in route.broker_datas):
            return True
    if failures:
        raise failures[0]
    return False


async def _places(servers: Servers, group: str) -> list[str]:
    """Returns the masters that have a group, or messages that it is to try again."""
    route = await servers.admin.topic_route(retry_topic(group))
    retrying = {data.broker_name for data in route.broker_datas} if route is not None else set()
    return sorted(
        f"{data.broker_name} of {data.cluster}"
        for data, groups in await groups_of_masters(servers)
        if data.broker_name in retrying or group in groups
    )


async def _delete_topic(
    servers: Servers, topic: str, targets: list[str], cluster: str | None
) -> None:
    """Deletes a topic from brokers and name servers, from these only where no broker is `missing`;
    a topic that does not exist is no error."""

    async def delete(address: str) -> None:
        try:
            await servers.admin.delete_topic(address, topic)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise

    await at_each(targets, delete)
    if not servers.missing:
        await servers.admin.delete_topic_in_names(topic, cluster)
