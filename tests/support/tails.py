"""Hand-overs in which the former master has a tail that its successor never got."""

from __future__ import annotations

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.controller import EpochEntryCache
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.controlled import ControlledGroup
from tests.support.load import encode_batch, send_request
from tests.support.remoting import Connection, ask
from tests.support.replicas import log_end
from tests.support.wait import wait_until

#: What a group of two needs in its files: a send that its slave does not have is answered soon, and
#: who is paused stays one that may be elected, however long the sends take.
SETTINGS = {
    "slaveTimeout": "500",
    "controllerHeartBeatTimeoutMills": "60000",
    "haMaxTimeSlaveNotCatchup": "60000",
}
#: 256 KiB; the connections of this machine hold less than `MANY`, those of hosts with small buffers
#: less than `FEW`.
_BODIES = [b"tail" * 4096] * 16
MANY, FEW = 96, 4
_ATTEMPTS = 5


def hand_over_with_tail(
    group: ControlledGroup, topic: str, *, killed: bool, batches: int = MANY
) -> int:
    """The master of two takes `batches` that the other one never gets; the other one follows it,
    since it was killed or by the controller's word. Returns how many bytes were cut off it, once
    both logs are equal."""
    old = group.master.broker_id
    assert old is not None
    new = 3 - old
    _send_unconfirmed(group, old, new, topic, batches)
    end = log_end(group[old])
    if killed:
        group[old].kill()
        group[new].resume()
        group.wait_master(new)
    else:
        group.elect(new)
        # Until then it sends the rest to any reader.
        wait_until(lambda: _shown_id(group[old].address) == old, f"{old} to be master no more")
        group[new].resume()
    group.wait_accepts(new, topic)
    kept = log_end(group[new])
    assert kept < end, f"{new} has all of the tail up to {end}"
    # Acknowledged or not, it must be in both logs: a former master that comes back meanwhile may be
    # slow.
    _send(group[new].address, topic, 1)
    if killed:
        group[old].start()
    group.wait_in_sync(1, 2)
    group.check_equal(new)
    return end - kept


def _send_unconfirmed(group: ControlledGroup, old: int, new: int, topic: str, batches: int) -> None:
    """Pauses the other one and sends what it never confirms. A link that was lost right before
    takes it out of the SyncStateSet, and the master confirms alone: then once more."""
    for _ in range(_ATTEMPTS):
        group[new].pause()
        codes = _send(group[old].address, topic, batches)
        if codes == {ResponseCode.FLUSH_SLAVE_TIMEOUT}:
            return
        group[new].resume()
        group.wait_in_sync(1, 2)
    raise AssertionError(f"the tail was answered with {codes}")


def _shown_id(address: str) -> int:
    """The id that a broker has in its role: 0 for the master."""
    answer = ask(address, RemotingCommand.request(RequestCode.GET_BROKER_EPOCH_CACHE))
    return decode_body(EpochEntryCache, answer.body).broker_id


def _send(address: str, topic: str, batches: int) -> set[int]:
    """Sends at once; what was answered."""
    batch = encode_batch(_BODIES)
    with Connection(address, timeout=60) as connection:
        for _ in range(batches):
            connection.send(send_request(topic, 0, batch, batch=True, queues=4))
        return {connection.receive().code for _ in range(batches)}
