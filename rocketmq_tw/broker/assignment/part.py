"""The division of queues among consumers, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part
from rocketmq_tw.broker.assignment.cluster_queues import ClusterQueues
from rocketmq_tw.broker.assignment.modes import RequestModes
from rocketmq_tw.broker.assignment.requests import AssignmentRequests
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.net.interfaces import Handler


class Assignment(Part):
    """Keeps how groups read topics, and divides queues among their members."""

    def __init__(self, host: Host, role: RoleHolder, tables: Tables, clients: Clients) -> None:
        self.modes = RequestModes(
            host.table_file("messageRequestMode"), host.in_thread, host.in_slices
        )
        queues = ClusterQueues(host.config, tables.topics, host.client, host.elapsed_ms)
        self._handlers = AssignmentRequests(
            host.config, role, self.modes, tables, clients.registry, queues.of, host.in_thread
        ).handlers()

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return self._handlers

    def tables(self) -> Iterable[KeptTable]:
        return [KeptTable("the modes of reading", self.modes.load, self.modes.when_written)]
