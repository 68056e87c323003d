"""The groups that a client's request names, and the client that a broker's request is for."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.wire.bodies.clients import HeartbeatData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.clients import UnregisterClientRequestHeader

#: What brokers may ask of clients.
ASKED_OF_CLIENTS = frozenset(
    {
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    }
)


class Membership(NamedTuple):
    """A group that a client consumes or produces in."""

    group: str
    is_consumer: bool


def groups_of_heartbeat(data: HeartbeatData) -> list[Membership]:
    """Returns the groups that a heartbeat (34) names, all that its client is in."""
    return [
        *(Membership(consumer.group_name, True) for consumer in data.consumer_data_set),
        *(Membership(producer.group_name, False) for producer in data.producer_data_set),
    ]


def groups_of_unregistration(request: RemotingCommand) -> list[Membership]:
    """Returns the groups that an unregistration (35) takes a client out of; raises
    `RequestError`."""
    header = request.header(UnregisterClientRequestHeader)
    groups = []
    if header.producer_group is not None:
        groups.append(Membership(header.producer_group, False))
    if header.consumer_group is not None:
        groups.append(Membership(header.consumer_group, True))
    return groups


def unregistration_of(client_id: str, membership: Membership) -> RemotingCommand:
    """Returns the request (35) that takes a client out of a group."""
    header = UnregisterClientRequestHeader(client_id=client_id)
    if membership.is_consumer:
        header.consumer_group = membership.group
    else:
        header.producer_group = membership.group
    return RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header)


class Addressee(NamedTuple):
    """Whom a broker asks: a member of a group, by its id where the request names one."""

    membership: Membership | None
    client_id: str | None


def addressee_of(request: RemotingCommand) -> Addressee:
    """Returns whom a request of a broker (39, 40, 220, 221, 307, 309, 326) is for; raises
    `WireError` where the message in it cannot be read."""
    fields = request.ext_fields
    if request.code == RequestCode.CHECK_TRANSACTION_STATE:
        properties = props.parse_properties(decode_record(request.body).properties)
        return Addressee(Membership(properties.get(props.PGROUP, ""), False), None)
    if request.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
        properties = props.parse_properties(fields.get("properties", "").encode())
        return Addressee(None, properties.get(props.REPLY_TO_CLIENT))
    group = fields.get("consumerGroup") or fields.get("group") or ""
    return Addressee(Membership(group, True), fields.get("clientId"))
