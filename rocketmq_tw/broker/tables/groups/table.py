"""The consumer groups' configurations, in `config/subscriptionGroup.json` in stock's form
(docs/formats/config-files.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.tables.attributes import GROUP_ATTRIBUTES, alter_attributes
from rocketmq_tw.broker.tables.changes import MAX_ENTRIES, check_sizes, check_table_room
from rocketmq_tw.broker.tables.log_place import LogPlace
from rocketmq_tw.broker.tables.versioned import RoleTable, TableContext, TableFile, reported
from rocketmq_tw.message import names
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupTable
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import READ

#: The groups that stock 5.3.3 has from its first start.
GROUPS_AT_FIRST = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
#: Groups from which on a request that names another one does not create it.
MAX_AUTO_CREATED_GROUPS = 100_000
#: Pairs of a group and a topic that it may not read; stock has no limit.
MAX_FORBIDDEN = 100_000

log = Logger()


class GroupTable(RoleTable[SubscriptionGroupConfig, SubscriptionGroupTable]):
    """Group name → whether and how it may consume. A light queue's group is there without being in
    the table."""

    BODY, FIELD = SubscriptionGroupTable, "subscription_group_table"

    def __init__(self, file: TableFile, context: TableContext) -> None:
        #: Group to topic to bits. What a group has is replaced and never changed: a write that is
        #: under way has it.
        self._forbidden: dict[str, dict[str, int]] = {}
        self._pairs = 0
        #: Groups that popped in front of this place of the log are in the table, or were deleted.
        #: Not in the file, which has each group soon after its first use.
        self.as_of = LogPlace()
        #: Places of the log at which groups may have popped that a former master, or this one
        #: before it was killed, made and this table lacks.
        self._uncopied = range(0)
        built_in = {name: SubscriptionGroupConfig(group_name=name) for name in GROUPS_AT_FIRST}
        super().__init__(file, built_in, context)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Returns the group's configuration, or None; makes one with defaults where the broker's
        configuration allows it. A slave makes none: it serves the group as if its master had. It
        does not wait until a new one is written: one that is lost is made again on its next use."""
        known = self._entries.get(group)
        if known is None and self._lmq and group.startswith(names.LMQ_PREFIX):
            return SubscriptionGroupConfig(group_name=group)
        if known is not None or not self._may_create(group):
            return known
        created = SubscriptionGroupConfig(group_name=group)
        if self._role.copies_log:
            return created
        log.info("the group {group!r} made on first use", group=group)
        self._put([created]).addErrback(reported)
        return created

    def known(self, group: str) -> SubscriptionGroupConfig:
        """Returns the group's configuration as `get` does; raises a `RequestError` that says why
        there is none and what to do."""
        config = self.get(group)
        if config is None:
            raise self._unknown(group)
        return config

    def lead(self, log_end: int, now: Callable[[], int], offsets_place: int | None) -> None:
        """Begins a role as the master, whose log ended at `log_end` then; `now` tells as of which
        place of the log the table is from here on. At a start that is not known of before: groups
        may be missing that popped behind the place of the groups' offsets, where a kill came before
        they were written."""
        place = offsets_place if self.as_of.place is None else self.as_of.place
        self._uncopied = range(log_end if place is None else place, log_end)
        self.as_of.begin(now)

    def make_uncopied(self, group: str, popped_at: int) -> bool:
        """Makes a group that popped at a place of the log, if it may be that a former master made
        it since its groups were copied; returns whether it is there then. One that was deleted
        before is not made, nor one that the configuration does not allow."""
        return popped_at in self._uncopied and self.get(group) is not None

    def check_known(self, group: str) -> None:
        """Raises a `RequestError` that says what to do where the group is not in the table."""
        if group not in self._entries:
            raise self._unknown(group)

    def check_made(self, group: str) -> None:
        """Raises `RequestError` for a group that is not in the table, unless it is a light one,
        which never is."""
        if not (self._lmq and group.startswith(names.LMQ_PREFIX)):
            self.check_known(group)

    def _unknown(self, group: str) -> RequestError:
        remark = f"{group} is no consumer group of this broker: create it (rmqadmin updateSubGroup)"
        if len(self._entries) >= MAX_AUTO_CREATED_GROUPS:
            remark += (
                f"; with {len(self._entries)} groups none is made by its first use any more: delete"
                " groups that nobody needs (rmqadmin deleteSubGroup)"
            )
        return RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def table(self) -> SubscriptionGroupTable:
        """Returns all groups as they are now with the version: what the file and the wire have."""
        table = super().table()
        table.forbidden_table = dict(self._forbidden)
        return table

    def update(self, *configs: SubscriptionGroupConfig) -> Deferred[None]:
        """Creates or replaces; raises `RequestError` for an illegal one, changing nothing. Fires
        once all is in the file, or fails with one; then nothing is changed either."""
        return self._put(self.check(*configs))

    def check(self, *configs: SubscriptionGroupConfig) -> list[SubscriptionGroupConfig]:
        """Returns what `update` puts into the table; raises `RequestError` for what cannot be
        made."""
        changed = []
        for config in configs:
            names.check_group(config.group_name)
            known = self._entries.get(config.group_name)
            attributes = alter_attributes(
                GROUP_ATTRIBUTES,
                None if known is None else known.attributes or {},
                config.attributes or {},
            )
            changed.append(msgspec.structs.replace(config, attributes=attributes))
        check_sizes("group", {config.group_name: config for config in changed})
        made = [config.group_name for config in changed]
        check_table_room("groups", self._entries, made, MAX_ENTRIES, "deleteSubGroup")
        return changed

    def delete(self, *groups: str) -> Deferred[None]:
        """Deletes groups with the topics forbidden to them; see `VersionedTable.delete`."""
        for group in groups:
            if group in self._entries:
                self._pairs -= len(self._forbidden.pop(group, ()))
        return super().delete(*groups)

    def may_read(self, group: str, topic: str) -> bool:
        """Returns whether the group may read this topic; `set_readable` forbids it."""
        return not self._forbidden.get(group, {}).get(topic, 0) & READ

    def set_readable(self, group: str, topic: str, readable: bool) -> Deferred[None]:
        """Forbids the group to read a topic or allows it again; fires once that is in the file, and
        fails where it cannot be. Raises `RequestError` for illegal names, and where that would be
        one pair too many."""
        names.check_group(group)
        names.check_topic(topic)
        if readable is self.may_read(group, topic):
            return succeed(None)
        known = self._forbidden.get(group, {})
        bits = known.get(topic, 0) ^ READ
        if topic not in known and self._pairs >= MAX_FORBIDDEN:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"groups are kept from {self._pairs} topics, and there is room for no more: let"
                " some read them again (353 with readable=true), or delete groups that nobody needs"
                " (rmqadmin deleteSubGroup)",
            )
        topics = known | {topic: bits}
        if not bits:
            del topics[topic]
        self._pairs += len(topics) - len(known)
        self._forbidden[group] = topics
        if not topics:
            del self._forbidden[group]
        return self._changed()

    def _may_create(self, group: str) -> bool:
        allowed = self._config.auto_create_subscription_group or (
            self._config.enable_create_sys_group and group.startswith(names.SYSTEM_GROUP_PREFIX)
        )
        if not allowed or len(group) > names.MAX_GROUP_LENGTH or not names.is_legal(group):
            return False
        return len(self._entries) < MAX_AUTO_CREATED_GROUPS

    def _put(self, configs: Iterable[SubscriptionGroupConfig]) -> Deferred[None]:
        for config in configs:
            self._entries[config.group_name] = config
        return self._changed()

    def _take(self, table: SubscriptionGroupTable) -> None:
        super()._take(table)
        self._forbidden = dict(table.forbidden_table or {})
        self._pairs = sum(map(len, self._forbidden.values()))
