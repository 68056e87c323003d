"""A moment of each behaviour of `tools/hostile_campaign.py`."""

from pathlib import Path

from tools.hostile.campaign import BEHAVIOURS, MIB, Campaign

SECONDS = 0.3
#: Bytes that a behaviour may add to the memory of the server that it attacks.
GROWTH = 192 * MIB
#: Seconds of an honest request on a machine that does much else.
TIMEOUT = 60.0


def test_hostile_peers_disturb_nobody(tmp_path: Path) -> None:
    faults = []
    with Campaign(tmp_path, timeout=TIMEOUT, seed=1) as campaign:
        for outcome in campaign.run(BEHAVIOURS, SECONDS):
            faults += outcome.faults(GROWTH)
    assert faults == []
