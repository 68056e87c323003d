"""Groups of controllers in memory."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.sim.controllers import AskingBroker, Controllers


@pytest.fixture
def controllers() -> Controllers:
    return Controllers()


@pytest.fixture
def make_controllers() -> Callable[..., Controllers]:
    """Takes keys of their configuration."""

    def make(**config: Any) -> Controllers:
        return Controllers(**config)

    return make


@pytest.fixture
def three(controllers: Controllers) -> list[AskingBroker]:
    """Three brokers of one group, all in the SyncStateSet of the first, which is the master."""
    return group_of_three(controllers)


def group_of_three(controllers: Controllers) -> list[AskingBroker]:
    brokers = [AskingBroker(controllers, number) for number in (1, 2, 3)]
    for broker in brokers:
        broker.come_up()
    first = brokers[0].client
    controllers.result(first.elect_master("C", "g", 1))
    controllers.result(first.alter_sync_state_set("g", 1, 1, [1, 2, 3], 1))
    for broker in brokers:
        broker.told.clear()
    return brokers
