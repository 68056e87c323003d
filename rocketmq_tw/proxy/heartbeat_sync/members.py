"""The consumers that other proxies tell of.

A server that may write into the topic says what it likes, so that all of it is bounded, and no
client of this proxy is among them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import attrs
from twisted.logger import Logger

from rocketmq_tw.proxy.heartbeat_sync.records import (
    REGISTER,
    ClientChannel,
    ConsumerHeartbeat,
    heartbeat_subscriptions,
)
from rocketmq_tw.runtime.clock import is_ahead
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.wire.bodies.clients import Connection, SubscriptionData

#: Members of all groups, and of one.
MAX_MEMBERS = 100_000
MAX_IN_GROUP = 10_000
#: Bytes of the messages from which the groups' subscriptions are read.
MAX_VIEW_BYTES = 32 * 1024 * 1024

log = Logger()


@attrs.define(eq=False)
class Member:
    """A consumer in one group; `is_gone` remembers for a while that it went, since an older message
    may come by another queue. `by_wrong_clock`: that of the proxy that told of it last is
    wrong."""

    key: tuple[str, str]
    connection: Connection
    proxy: str
    told_ms: int
    heard_at: float
    is_gone: bool = False
    by_wrong_clock: bool = False


@attrs.define(eq=False)
class _Group:
    members: dict[str, Member] = attrs.field(factory=dict)
    #: How its members consume, as the last of them told, and the bytes that this takes.
    view: ConsumerHeartbeat | None = None
    view_bytes: int = 0


class Members:
    """Members by group. `silence`: seconds after which one is gone that is told of no more."""

    def __init__(self, silence: Callable[[], float]) -> None:
        self._silence = silence
        self._groups: dict[str, _Group] = {}
        #: All members; the one that was heard longest ago is first. A dictionary would look at the
        #: places of all that are gone to find it.
        self._heard: OrderedDict[tuple[str, str], Member] = OrderedDict()
        self._view_bytes = 0
        self._is_full = False
        #: Told of a group whose members are others now.
        self.changed: Listeners[str] = Listeners("the members of a group at other proxies changed")

    def __len__(self) -> int:
        return len(self._heard)

    def take(
        self,
        record: ConsumerHeartbeat,
        channel: ClientChannel,
        size: int,
        heard_at: float,
        heard_ms: int,
    ) -> None:
        """Takes what a proxy told in a message of `size` bytes. `heard_at` is when, in seconds of
        the caller's clock, `heard_ms` by the time of day; what is older than the silence allows may
        be left out by the caller."""
        key = _key(record, channel)
        group = self._groups.get(record.group)
        member = None if group is None else group.members.get(key[1])
        wrong = is_ahead(record.last_update_timestamp, heard_ms)
        if member is not None and self._is_overtaken(record, member, by_wrong_clock=wrong):
            return
        is_here = record.heartbeat_type == REGISTER
        if member is None:
            if not self._has_room(group):
                return
            group = self._groups.setdefault(record.group, _Group())
            member = Member(key, Connection(), record.local_proxy_id, 0, heard_at, is_gone=True)
            group.members[key[1]] = member
        assert group is not None
        was_here = not member.is_gone
        member.connection = Connection(
            client_id=record.client_id,
            client_addr=channel.remote_address,
            language=record.language,
            version=record.version,
        )
        member.proxy, member.told_ms = record.local_proxy_id, record.last_update_timestamp
        member.heard_at, member.is_gone, member.by_wrong_clock = heard_at, not is_here, wrong
        self._heard.pop(key, None)
        self._heard[key] = member
        if is_here:
            self._see(group, record, size)
        if was_here is not is_here:
            self.changed.tell(record.group)

    def has(self, record: ConsumerHeartbeat, channel: ClientChannel) -> bool:
        """Returns whether whom a proxy tells of is a member here."""
        member = self._heard.get(_key(record, channel))
        return member is not None and not member.is_gone

    def of(self, group: str) -> list[Member]:
        """Returns the members of a group, each client id once."""
        known = self._groups.get(group)
        if known is None:
            return []
        here = (member for member in known.members.values() if not member.is_gone)
        return list({member.connection.client_id: member for member in here}.values())

    def view(self, group: str) -> ConsumerHeartbeat | None:
        """Returns how the members of a group consume, as one of them told; None where nobody
        did."""
        known = self._groups.get(group)
        return None if known is None else known.view

    def expire(self, now: float) -> Iterator[None]:
        """Forgets members that are silent, in steps."""
        number = 0
        while self._heard:
            member = next(iter(self._heard.values()))
            if now - member.heard_at < self._silence():
                break
            self._forget(member)
            if every(number):
                yield
            number += 1

    def _is_overtaken(
        self, record: ConsumerHeartbeat, member: Member, *, by_wrong_clock: bool
    ) -> bool:
        """Returns whether a later message was read before this one, from another queue. What is
        told earlier than that by more than a message may be old is of a clock that was set back, or
        the other one of a clock that was wrong; that one is also where it alone is ahead."""
        if member.by_wrong_clock and not by_wrong_clock:
            return False
        earlier_ms = member.told_ms - record.last_update_timestamp
        return 0 < earlier_ms < self._silence() * 1000

    def _has_room(self, group: _Group | None) -> bool:
        is_full = len(self._heard) >= MAX_MEMBERS or (
            group is not None and len(group.members) >= MAX_IN_GROUP
        )
        if is_full and not self._is_full:
            log.warn(
                "other proxies tell of more than {most} consumers, or of {group} in one group:"
                " further ones are passed over",
                most=MAX_MEMBERS,
                group=MAX_IN_GROUP,
            )
        self._is_full = is_full
        return not is_full

    def _see(self, group: _Group, record: ConsumerHeartbeat, size: int) -> None:
        if self._view_bytes - group.view_bytes + size > MAX_VIEW_BYTES:
            return
        self._view_bytes += size - group.view_bytes
        group.view, group.view_bytes = record, size

    def _forget(self, member: Member) -> None:
        del self._heard[member.key]
        name, key = member.key
        group = self._groups[name]
        del group.members[key]
        if not group.members:
            self._view_bytes -= group.view_bytes
            del self._groups[name]
        if not member.is_gone:
            self.changed.tell(name)


def _key(record: ConsumerHeartbeat, channel: ClientChannel) -> tuple[str, str]:
    name = f"{channel.remote_proxy_ip}@{channel.remote_address}@{channel.local_address}"
    return record.group, f"{record.client_id}@{name}@{channel.type}"


def subscription_table(view: ConsumerHeartbeat | None) -> dict[str, SubscriptionData]:
    """Returns what a group subscribes to, by topic."""
    wanted = [] if view is None else heartbeat_subscriptions(view)
    return {subscription.topic: subscription for subscription in wanted}
