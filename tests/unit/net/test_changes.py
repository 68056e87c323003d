"""What the log tells of a change by an administrator."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.net.changes import MAX_TOLD, changed, who
from rocketmq_tw.net.interfaces import ANONYMOUS, PeerIdentity
from rocketmq_tw.wire.bodies.groups import SimpleSubscriptionData, SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import (
    LogicQueueMappingItem,
    TopicConfig,
    TopicQueueMappingDetail,
)
from tests.support.network import FakePeer
from tests.support.traced_memory import traced_memory

#: Items of a list, or characters, that a peer may send.
MANY = 50_000
GROUP = SubscriptionGroupConfig(group_name="Named")
MAPPING = TopicQueueMappingDetail(topic="Named")


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        pytest.param(ANONYMOUS, "10.0.0.1:4321", id="nobody has identified it"),
        pytest.param(PeerIdentity("alice"), "10.0.0.1:4321 (alice)", id="an account"),
    ],
)
def test_a_peer_is_told_by_its_address_and_its_name(identity: PeerIdentity, told: str) -> None:
    peer = FakePeer("10.0.0.1:4321", identity=identity)
    assert who(peer) == f"{told} at {peer.local_address}", "of which server, where one log has two"


@pytest.mark.parametrize(
    ("now", "before", "told"),
    [
        pytest.param(
            SubscriptionGroupConfig(
                group_name="Named",
                subscription_data_set=[SimpleSubscriptionData(topic="T", expression="it's")],
            ),
            GROUP,
            "Named with subscriptionDataSet=[{'topic': 'T', 'expressionType': None,"
            " 'expression': \"it's\", 'version': 0}] (was None)",
            id="a list of structs",
        ),
        pytest.param(
            TopicQueueMappingDetail(
                topic="Named", curr_id_map={3: 4, 5: 6}, hosted_queues={3: [], 5: []}
            ),
            None,
            "Named with currIdMap={'3': 4, '5': 6}, hostedQueues={'3': [], '5': []}"
            " (was not there)",
            id="mappings by numbers",
        ),
        pytest.param(
            TopicConfig(topic_name="Named", order=True, attributes={"a": "b"}),
            TopicConfig(topic_name="Named", perm=4),
            "Named with perm=6 (was 4), order=True (was False), attributes={'a': 'b'} (was {})",
            id="several fields",
        ),
    ],
)
def test_a_change_is_told_as_the_wire_has_it(now: Any, before: Any, told: str) -> None:
    assert changed(now, before) == told


@pytest.mark.parametrize(
    ("now", "before"),
    [
        pytest.param(
            SubscriptionGroupConfig(
                group_name="Named", subscription_data_set=[SimpleSubscriptionData()] * MANY
            ),
            GROUP,
            id="a list",
        ),
        pytest.param(
            TopicQueueMappingDetail(
                topic="Named",
                hosted_queues={key: [LogicQueueMappingItem()] for key in range(MANY)},
            ),
            MAPPING,
            id="a mapping",
        ),
        pytest.param(
            TopicQueueMappingDetail(
                topic="Named", hosted_queues={0: [LogicQueueMappingItem()] * MANY}
            ),
            MAPPING,
            id="a list in a mapping",
        ),
        pytest.param(TopicConfig(topic_filter_type="x" * MANY), TopicConfig(), id="a text"),
        pytest.param(TopicConfig(topic_name="x" * MANY), None, id="a name"),
        pytest.param(TopicConfig(attributes={"x" * MANY: ""}), TopicConfig(), id="a key"),
        pytest.param("x" * MANY, None, id="a text alone"),
    ],
)
def test_of_a_huge_change_no_more_text_is_made_than_told(now: Any, before: Any) -> None:
    for one, other in ((now, before), (before, now), (now, None), (None, now)):
        changed(GROUP, None)
        with traced_memory() as traced:
            told = changed(one, other)
            most = traced.peak
        assert len(told) <= 2 * MAX_TOLD + 100
        assert "..." in told
        assert most < 50_000
