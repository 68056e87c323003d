"""What the log tells of a change by an administrator."""

from __future__ import annotations

import pytest

from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import ANONYMOUS, PeerIdentity
from tests.support.network import FakePeer


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        pytest.param(ANONYMOUS, "10.0.0.1:4321", id="nobody has identified it"),
        pytest.param(PeerIdentity("alice"), "10.0.0.1:4321 (alice)", id="an account"),
    ],
)
def test_a_peer_is_told_by_its_address_and_its_name(identity: PeerIdentity, told: str) -> None:
    assert who(FakePeer("10.0.0.1:4321", identity=identity)) == told
