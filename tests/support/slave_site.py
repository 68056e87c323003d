"""A master and its slave of one kind, with what the calls of `SLAVE_CASES` ask about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.mqadmin_cases import Case
from tests.support.mqadmin_site import AWAY, GROUP, TOPIC, Site
from tests.support.processes import BrokerProcess
from tests.support.replicas import offsets_of, wait_equal
from tests.support.wait import wait_until

_TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")


class SlaveSite(Site):
    """The site of mqadmin's calls, with a slave that has all that its master has."""

    @contextmanager
    def running(self) -> Iterator[SlaveSite]:
        """Starts it all and ends it again."""
        with super().running():
            (names,), master = self._cluster.name_servers, self._cluster.broker
            slave = self._make_broker("slave", names, brokerId="1", brokerRole="SLAVE")
            _copy_tables(master, slave)
            with slave:
                wait_equal(master, slave)
                offsets = _offsets(master)
                wait_until(lambda: _offsets(slave) == offsets, "the slave's offsets")
                self._values["slave"] = slave.address
                # A client beats to a broker once it has seen it in a route.
                members = Case("consumerConnection -g $group -b $slave")
                client = self._values["client"]
                wait_until(lambda: client in self.run(members), "the member at the slave")
                yield self


def _copy_tables(master: BrokerProcess, slave: BrokerProcess) -> None:
    """Gives a slave its master's tables before it starts: stock's asks for them a minute later."""
    offsets = _offsets(master)
    wait_until(
        lambda: {group: _kept_offsets(master, group) for group in offsets} == offsets,
        "the master's offsets in its file",
    )
    config = slave.store / "config"
    config.mkdir(parents=True)
    for name in _TABLES:
        shutil.copy(master.store / "config" / name, config)


def _offsets(broker: BrokerProcess) -> dict[str, dict[int, int]]:
    return {group: offsets_of(broker, TOPIC, group) for group in (GROUP, AWAY)}


def _kept_offsets(broker: BrokerProcess, group: str) -> dict[int, int]:
    kept = broker.stored_offsets(TOPIC, group)
    return {int(queue): offset for queue, offset in kept.items()}
