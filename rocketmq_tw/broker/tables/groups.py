"""The consumer groups' configurations, in `config/subscriptionGroup.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.attributes import GROUP_ATTRIBUTES, alter_attributes
from rocketmq_tw.broker.tables.encoding import EntryCache
from rocketmq_tw.broker.tables.keeper import Keeper, TableFile, reported
from rocketmq_tw.broker.tables.permissions import READ
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import names
from rocketmq_tw.runtime.slices import InSlices, all_steps
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.wire.bodies.base import decode_table, encode_body
from rocketmq_tw.wire.bodies.data_version import DataVersion
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupTable
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: The groups that stock 5.3.3 has from its first start.
BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
#: No group is created by a mere mention once there are so many.
MAX_AUTO_CREATED_GROUPS = 100_000

log = Logger()


class GroupTable:
    """Group name → whether and how it may consume."""

    def __init__(
        self,
        config: BrokerConfig,
        file: TableFile,
        now_ms: Callable[[], int],
        role: RoleHolder,
        in_thread: InThread = at_once,
        in_slices: InSlices = all_steps,
        *,
        lmq: bool = False,
    ) -> None:
        """`lmq`: groups of light queues are there without being in the table."""
        self._lmq = lmq
        self._config = config
        self._role = role
        self._file = file
        self._now_ms = now_ms
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in BUILT_IN_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.data_version = DataVersion(timestamp=now_ms())
        self._cache = EntryCache()
        self._keeper = Keeper(file, in_thread, self.table, self.encode, self._take, in_slices)

    def load(self) -> None:
        """Adds what the file has; raises what the file's reading raises where it is damaged."""
        table = self._file.read(lambda data: decode_table(SubscriptionGroupTable, data))
        if table is not None:
            self._groups.update(table.subscription_group_table)
            self._forbidden = dict(table.forbidden_table or {})
            self.data_version = table.data_version
            self._keeper.loaded()

    def when_kept(self) -> Deferred[None]:
        """Fires once nothing is being written any more."""
        return self._keeper.when_idle()

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; made with the defaults where the broker's own allows it. A
        slave makes none: it only serves the group as if its master had. Nobody waits for a new one
        to be written: forgotten, it is made again on its next use."""
        known = self._groups.get(group)
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
        """The group's configuration as `get` finds it; raises `RequestError` that says why there is
        none and what to do."""
        config = self.get(group)
        if config is not None:
            return config
        remark = f"{group} is no consumer group of this broker: create it (rmqadmin updateSubGroup)"
        if len(self._groups) >= MAX_AUTO_CREATED_GROUPS:
            remark += (
                f"; with {len(self._groups)} groups none is made by its first use any more: delete"
                " those that nobody needs (rmqadmin deleteSubGroup)"
            )
        raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def contains(self, group: str) -> bool:
        return group in self._groups

    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        """The live table; not to be changed."""
        return self._groups

    def table(self) -> SubscriptionGroupTable:
        """All groups as they are now with the version: what the file and the wire carry."""
        return SubscriptionGroupTable(
            subscription_group_table=dict(self._groups),
            forbidden_table=self._forbidden,
            data_version=self.data_version,
        )

    def encode(self, table: SubscriptionGroupTable) -> bytes:
        """`table` in its wire form; may be called in any thread."""
        entries: Any = self._cache.encode(table.subscription_group_table)
        return encode_body(msgspec.structs.replace(table, subscription_group_table=entries))

    def update(self, *configs: SubscriptionGroupConfig) -> Deferred[None]:
        """Creates or replaces; raises `RequestError` for an illegal one, changing nothing. Fires
        once all is kept, or fails with one; then nothing is changed either."""
        changed = []
        for config in configs:
            names.check_group(config.group_name)
            known = self._groups.get(config.group_name)
            attributes = alter_attributes(
                GROUP_ATTRIBUTES,
                None if known is None else known.attributes or {},
                config.attributes or {},
            )
            changed.append(msgspec.structs.replace(config, attributes=attributes))
        return self._put(changed)

    def delete(self, group: str) -> Deferred[None]:
        """Fires once it is kept that the group is not there, and fails where that cannot be; its
        offsets are the offset table's to remove."""
        if group not in self._groups:
            return succeed(None)
        del self._groups[group]
        if group in self._forbidden:
            self._forbidden = self._forbidden.copy()
            del self._forbidden[group]
        return self._keep()

    def may_read(self, group: str, topic: str) -> bool:
        """Whether the group may read this topic; `set_readable` says which it may not."""
        return not self._forbidden.get(group, {}).get(topic, 0) & READ

    def set_readable(self, group: str, topic: str, readable: bool) -> Deferred[None]:
        """Forbids the group to read a topic or allows it again; fires once that is kept, and fails
        where it cannot be. Raises `RequestError` for names that cannot be."""
        names.check_group(group)
        names.check_topic(topic)
        if readable is self.may_read(group, topic):
            return succeed(None)
        bits = self._forbidden.get(group, {}).get(topic, 0) ^ READ
        topics = self._forbidden.get(group, {}) | {topic: bits}
        if not bits:
            del topics[topic]
        self._forbidden = self._forbidden | {group: topics}
        if not topics:
            del self._forbidden[group]
        return self._keep()

    def replace_all(self, table: SubscriptionGroupTable) -> None:
        """Takes over a master's table and its version; where they cannot be kept, both are again
        what they were, and the next look at the master finds them to differ."""
        self._take(table)
        self._keeper.keep().addErrback(reported)

    def _may_create(self, group: str) -> bool:
        allowed = self._config.auto_create_subscription_group or (
            self._config.enable_create_sys_group and group.startswith(names.SYSTEM_GROUP_PREFIX)
        )
        if not allowed or len(group) > names.MAX_GROUP_LENGTH or not names.is_legal(group):
            return False
        return len(self._groups) < MAX_AUTO_CREATED_GROUPS

    def _put(self, configs: Iterable[SubscriptionGroupConfig]) -> Deferred[None]:
        for config in configs:
            self._groups[config.group_name] = config
        return self._keep()

    def _keep(self) -> Deferred[None]:
        self.data_version = self.data_version.next(self._now_ms(), self._role.state_version)
        return self._keeper.keep()

    def _take(self, table: SubscriptionGroupTable) -> None:
        self._groups = dict(table.subscription_group_table)
        self._forbidden = dict(table.forbidden_table or {})
        self.data_version = table.data_version
