"""Requests about consumer groups: 200, 207 and 225 change them, 201 and 352 show them, 353 forbids
a group to read a topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.changes import (
    ONLY_A_MASTER_CHANGES,
    Check,
    check_entry_body,
    check_list_bytes,
    check_list_length,
)
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.message import names
from rocketmq_tw.net.changes import changed, listed, said_once_made, who
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.whole_tables import WholeTables
from rocketmq_tw.wire.bodies.base import decode_request, encode_body
from rocketmq_tw.wire.bodies.groups import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from rocketmq_tw.wire.headers.topics import UpdateGroupForbiddenRequestHeader

log = Logger()


class GroupOffsets(Protocol):
    """The consumer offsets of groups."""

    def told_of_group(self, group: str) -> Iterator[str]:
        """Yields a text for each queue in which a group has an offset."""
        ...

    def remove_group(self, group: str) -> Iterator[None]:
        """Removes a group's offsets at once; the steps free them."""
        ...


class Topics(Protocol):
    """The topics of the broker."""

    def known(self, name: str) -> object:
        """Returns a topic; raises `RequestError` where it does not exist."""
        ...


class GroupRequests:
    """Changes and shows the table of groups."""

    def __init__(
        self,
        groups: GroupTable,
        topics: Topics,
        offsets: GroupOffsets,
        role: RoleHolder,
        growing: GrowingAnswers,
        whole: WholeTables,
    ) -> None:
        self._growing = growing
        self._whole = whole
        self._groups = groups
        self._topics = topics
        self._offsets = offsets
        self._role = role

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbidden,
        }

    def checks(self) -> dict[int, Check]:
        """Returns what raises `RequestError` for each change that would be refused, and changes
        nothing."""
        groups = self._groups
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda asked: groups.check(
                _wanted(asked)
            ),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda asked: groups.check(
                *_all_wanted(asked)
            ),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: _unwanted,
        }

    def update(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 200: makes or changes a group."""
        written = self._update(peer, _wanted(request))
        return written.addCallback(lambda _: request.response())

    def update_list(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 225: makes or changes all of the groups or none."""
        configs = _all_wanted(request)
        written = self._update(peer, *configs) if configs else succeed(None)
        return written.addCallback(lambda _: request.response())

    def delete(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 207: removes a group, and its offsets where the request says so."""
        header = _unwanted(request)
        name, with_offsets = header.group_name, header.clean_offset or header.remove_offset
        offsets = listed(self._offsets.told_of_group(name)) if with_offsets else ""
        group = changed(name, self._groups.all().get(name))

        def deleted(_: None) -> RemotingCommand | Deferred[RemotingCommand]:
            # Only now: a deletion that cannot be written must leave all as it was.
            if with_offsets:
                freed = self._offsets.remove_group(name)
                return self._growing.after(freed, request.response)
            return request.response()

        said = said_once_made(
            self._groups.delete(name),
            log,
            "{peer} deletes the group {group}{and_offsets}",
            peer=who(peer),
            group=group,
            and_offsets=f" and its offsets: {offsets}" if with_offsets else "",
        )
        return said.addCallback(deleted)

    def _update(self, peer: IPeer, *configs: SubscriptionGroupConfig) -> Deferred[None]:
        # Not get(), which would make it.
        before = self._groups.all().get
        changes = (changed(each, before(each.group_name)) for each in configs)
        told = listed(changes, len(configs))
        return said_once_made(
            self._groups.update(*configs),
            log,
            "{peer} makes or changes {n} groups: {groups}",
            peer=who(peer),
            n=len(configs),
            groups=told,
        )

    def all(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 201: all groups, as slaves and tools copy them."""
        groups = self._groups
        return self._whole.answer(
            request, peer, "groups", lambda: partial(groups.encode, groups.table())
        )

    def get(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 352: one group; one that may be made by its first use is made."""
        name = request.header(GetSubscriptionGroupConfigRequestHeader).group
        return request.response(body=encode_body(self._groups.known(name)))

    def forbidden(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 353: whether a group may read a topic, after changing it where the request says
        so."""
        header = request.header(UpdateGroupForbiddenRequestHeader)
        name, topic = header.group, header.topic

        def answer(_: None) -> RemotingCommand:
            readable = self._groups.may_read(name, topic)
            body = GroupForbidden(group=name, topic=topic, readable=readable)
            return request.response(body=encode_body(body))

        if header.readable is None:
            return answer(None)
        if not self._role.is_master:
            raise RequestError(ResponseCode.SYSTEM_ERROR, ONLY_A_MASTER_CHANGES)
        self._groups.check_known(name)
        names.check_topic(topic)
        if not header.readable:
            # Of a topic that is gone it may be taken back.
            self._topics.known(topic)
        change = changed(header.readable, self._groups.may_read(name, topic))
        said = said_once_made(
            self._groups.set_readable(name, topic, header.readable),
            log,
            "{peer} sets whether the group {group!r} may read {topic!r}: {change}",
            peer=who(peer),
            group=name,
            topic=topic,
            change=change,
        )
        return said.addCallback(answer)


def _wanted(request: RemotingCommand) -> SubscriptionGroupConfig:
    check_entry_body(request.body)
    return decode_request(SubscriptionGroupConfig, request.body)


def _all_wanted(request: RemotingCommand) -> list[SubscriptionGroupConfig]:
    check_list_bytes(request.body)
    configs = decode_request(SubscriptionGroupList, request.body).group_config_list
    check_list_length(configs)
    return configs


def _unwanted(request: RemotingCommand) -> DeleteSubscriptionGroupRequestHeader:
    return request.header(DeleteSubscriptionGroupRequestHeader)
