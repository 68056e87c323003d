"""Adds the members that brokers do not know to what they say of a group: those at proxies that do
not register their clients, and those here that there is no connection for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rocketmq_tw.proxy.heartbeat_sync.members import Member, Members, subscription_table
from rocketmq_tw.wire.bodies.base import Body, decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import ConsumerConnection, ConsumerIdList
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

B = TypeVar("B", bound=Body)
_SUCCESS = ResponseCode.SUCCESS


def with_other_members(
    request: RemotingCommand,
    answer: RemotingCommand,
    group: str,
    members: Members,
    unseen: Sequence[str],
) -> RemotingCommand:
    """Returns the answer to 38, 203 or 307; raises `BodyError` where a broker's cannot be read.
    `unseen` are the ids of members here that brokers do not know."""
    others = members.of(group)
    if not others and not unseen:
        return answer
    if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
        ids = _known(answer, ConsumerIdList())
        known = dict.fromkeys(ids.consumer_id_list)
        known.update(dict.fromkeys(unseen))
        known.update(dict.fromkeys(member.connection.client_id or "" for member in others))
        ids.consumer_id_list = list(known)
        return _answered(request, ids)
    if request.code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
        found = _known(answer, ConsumerConnection())
        here = {connection.client_id for connection in found.connection_set}
        found.connection_set += [
            member.connection for member in others if member.connection.client_id not in here
        ]
        view = members.view(group)
        if not found.subscription_table:
            found.subscription_table = subscription_table(view)
        if view is not None:
            found.consume_type = found.consume_type or view.consume_type
            found.message_model = found.message_model or view.message_model
            found.consume_from_where = found.consume_from_where or view.consume_from_where
        return _answered(request, found)
    return _elsewhere(request, answer, others)


def _answered(request: RemotingCommand, body: Body) -> RemotingCommand:
    return request.response(body=encode_body(body))


def _known(answer: RemotingCommand, nothing: B) -> B:
    """Returns what a broker says; `nothing` where it knows no member."""
    return decode_body(type(nothing), answer.body) if answer.code == _SUCCESS else nothing


def _elsewhere(
    request: RemotingCommand, answer: RemotingCommand, others: Iterable[Member]
) -> RemotingCommand:
    """Says at which proxy a client is that the broker does not know."""
    client_id = request.ext_fields.get("clientId")
    if answer.code == _SUCCESS:
        return answer
    for member in others:
        if member.connection.client_id == client_id:
            remark = f"{client_id} is at the proxy {member.proxy}, which alone can ask it"
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    return answer
