"""Keys of master and slave."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.role.state import Role, RoleState, configured_role
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import change
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.replication.links.settings import ha_settings
from tests.support.broker import BrokerInMemory
from tests.support.interpreter import collect_garbage


class TakenPort(MemoryReactorClock):
    """A reactor where port 20001 is taken."""

    def listenTCP(self, port: int, *args: Any, **options: Any) -> Any:
        if port == 20001:
            raise CannotListenError("127.0.0.1", port, OSError(98, "Address already in use"))
        return super().listenTCP(port, *args, **options)


def test_the_ha_port_is_the_one_above_unless_it_is_named() -> None:
    for ha_port, expected in ((0, 10912), (10999, 10999)):
        plane = BrokerInMemory(ha_listen_port=ha_port)
        assert [server[0] for server in plane.clock.tcpServers] == [10911, 10909, expected]


def test_an_ha_port_that_is_taken_is_named_unless_the_kernel_chose() -> None:
    with pytest.raises(OSError, match=r"127.0.0.1:20001 .*already in use.*haListenPort"):
        BrokerInMemory(clock=TakenPort(), address="127.0.0.1:20000")
    plane = BrokerInMemory(clock=TakenPort(), address="127.0.0.1:0", ha_listen_port=0)
    assert plane.clock.tcpServers


@pytest.mark.parametrize("role, broker_id", [("SLAVE", 0), ("SYNC_MASTER", 1), ("ASYNC_MASTER", 2)])
def test_roles_and_ids_that_do_not_fit_are_refused(role: str, broker_id: int) -> None:
    with pytest.raises(ConfigError, match=f"brokerRole={role} with brokerId={broker_id}"):
        configured_role(BrokerConfig(broker_id=broker_id), MessageStoreConfig(broker_role=role))


@pytest.mark.parametrize(
    "role, broker_id, expected",
    [
        ("SLAVE", 1, RoleState(Role.SLAVE, 1)),
        ("SYNC_MASTER", 0, RoleState(Role.MASTER, 0, synchronous=True)),
        ("ASYNC_MASTER", 0, RoleState(Role.MASTER, 0)),
    ],
)
def test_roles_and_ids_that_fit(role: str, broker_id: int, expected: RoleState) -> None:
    config = BrokerConfig(broker_id=broker_id)
    assert configured_role(config, MessageStoreConfig(broker_role=role)) == expected


def test_both_names_of_the_gap() -> None:
    assert MessageStoreConfig().max_gap == 256 << 20
    assert MessageStoreConfig(ha_slave_fallbehind_max=5).max_gap == 5
    assert MessageStoreConfig(ha_max_gap_not_in_sync=7).max_gap == 7


def test_settings_of_a_broker_that_is_gone_are_not_kept() -> None:
    config = MessageStoreConfig()
    settings = ha_settings(config, BrokerConfig())
    change(config, {"inSyncReplicas": "3"})
    assert settings.in_sync_replicas == 3
    gone = ref(settings)
    del settings
    collect_garbage()
    assert gone() is None
    change(config, {"inSyncReplicas": "2"})


def test_of_settings_that_are_gone_no_subscription_is_left() -> None:
    config = MessageStoreConfig()
    for _ in range(50):
        ha_settings(config, BrokerConfig())
    collect_garbage()
    kept = ha_settings(config, BrokerConfig())
    assert len(config._subscribers) == 1
    change(config, {"inSyncReplicas": "2"})
    assert kept.in_sync_replicas == 2
