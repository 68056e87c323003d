"""How tests that wait for servers are spread over the processes of pytest-xdist.

The tests of a file stay together, since they share servers; the files that take longest come first,
so that no process is left alone with one at the end. All of Spark's go to one process, for one
session.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark"
#: Folders and files that take a minute or more, the longest first.
_LONGEST = (
    "spark",
    "test_upgrade.py",
    "test_pop_stores.py",
    "test_mqadmin_compare.py",
    "test_dledger_brokers.py",
    "test_tls.py",
    "test_grpc_scenarios.py",
    "test_controller_mode.py",
    "test_auto_switch.py",
    "test_control.py",
    "test_kill_proxy.py",
    "test_replication_links.py",
    "test_replication.py",
    "test_newcomer.py",
    "test_pop.py",
    "test_timers.py",
    "test_controllers.py",
    "test_sql_filters.py",
    "test_kill_pop.py",
    "test_dashboard.py",
    "test_acting.py",
    "test_static_topics.py",
    "test_classic_proxy.py",
    "test_order.py",
    "test_exporter.py",
    "test_identity.py",
    "test_memory.py",
    "test_controller_samples.py",
    "test_dledger.py",
    "test_pre_online.py",
    "test_kill_broker.py",
)
#: Files that take some seconds.
_SHORTEST = (
    "test_push.py",
    "test_topics.py",
    "test_retry.py",
    "test_pull.py",
    "test_send.py",
    "test_our_clients.py",
    "test_transactions.py",
    "test_typed_tools.py",
    "test_dledger_docs.py",
    "test_dledger_idle.py",
    "test_store_truncation.py",
)


def place_in_order(path: PurePath) -> int:
    """Returns which file comes first: the one with the smaller number."""
    for number, longest in enumerate(_LONGEST):
        if longest in (path.name, path.parent.name):
            return number
    return len(_LONGEST) + (path.name in _SHORTEST)


class ByServers(LoadScopeScheduling):
    """As `--dist loadfile`, but for Spark's files, which go to one process."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        # Not by their number of tests.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(f"{SPARK}/") else nodeid.partition("::")[0]
