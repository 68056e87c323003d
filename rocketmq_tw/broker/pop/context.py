"""What the requests of popping and the revival share."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.pop.check_points import ReviveLog
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing


@dataclass(frozen=True)
class PopContext:
    """The broker's host, role, log and tables, and the books on what is popped."""

    host: Host
    role: RoleHolder
    writing: Writing
    tables: Tables
    revive_log: ReviveLog
    order: OrderBook
    in_flight: InFlight
