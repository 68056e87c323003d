"""Groups of three with one and with two stock DLedger nodes; the client is stock's."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tests.support.dledger import (
    Appended,
    DLedgerGroup,
    Member,
    OurMember,
    StockDLedgerClient,
    StockMember,
    Timing,
    running_group,
)
from tests.support.wait import wait_until

pytestmark = pytest.mark.interop

#: Of each kind of group; there are two.
KILLS = 5
KINDS = {"one_stock": ("ours", "ours", "stock"), "two_stock": ("ours", "stock", "stock")}
SUCCESS = 200

Running = tuple[DLedgerGroup, StockDLedgerClient]


@pytest.fixture(scope="module", params=KINDS.values(), ids=list(KINDS))
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("dledger")
    with running_group(home, request.param, Timing(100, 50, 150)) as both:
        yield both


def append(client: StockDLedgerClient, text: str) -> Appended:
    """Stock's client gives up while there is no leader, so it is asked again."""

    def succeeded() -> Appended | None:
        answer = client.append(text)
        return answer if answer.code == SUCCESS else None

    answer = wait_until(succeeded, "an append to be acknowledged")
    assert answer is not None
    return answer


def append_led_by(
    group: DLedgerGroup, client: StockDLedgerClient, target: Member, text: str
) -> Appended:
    """Hands the lead over; again where a busy machine's late heartbeats let others take it."""

    def led() -> Appended | None:
        leader = group.wait_leader()
        if leader is target:
            answer = append(client, text)
            if answer.leader == target.name:
                return answer
        term = append(client, "before").term
        client.transfer(leader.name, target.name, term)
        return None

    answer = wait_until(led, f"{target.name} to lead", interval=0.1)
    assert answer is not None
    return answer


def test_each_kind_leads_and_each_kind_follows(running: Running) -> None:
    group, client = running
    for kind in (OurMember, StockMember, OurMember):
        target = next(one for one in group.members.values() if isinstance(one, kind))
        text = f"led-by-{target.name}-é"
        index = append_led_by(group, client, target, text).index
        # Empty while there is no leader to ask.
        assert wait_until(partial(client.get, index), "the entry") == text


class Appender:
    """Appends as fast as stock's client can; remembers what was acknowledged, and where."""

    def __init__(self, client: StockDLedgerClient) -> None:
        self._client = client
        self.acknowledged: dict[int, str] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            text = f"entry-{number}"
            answer = self._client.append(text)
            if answer.code == SUCCESS:
                self.acknowledged[answer.index] = text

    def wait_for_more(self) -> None:
        wanted = len(self.acknowledged) + 8
        wait_until(lambda: len(self.acknowledged) >= wanted, "appends to go on")

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def test_nothing_acknowledged_is_lost_when_whoever_leads_is_killed(running: Running) -> None:
    """The last test of a group: it stops the members to read their files."""
    group, client = running
    appender = Appender(client)
    kills = 0
    try:
        for _ in range(KILLS):
            appender.wait_for_more()
            leader = group.wait_leader()
            leader.kill()
            kills += 1
            # A JVM takes its time, so it starts while the others vote.
            leader.launch()
            group.wait_leader()
            appender.wait_for_more()
            leader.wait_ready()
    finally:
        appender.end()
    last = append(client, "the-last").index
    members = list(group.members.values())

    def are_equal() -> bool:
        """A former leader may have entries up to there that nobody acknowledged, for a while."""
        logs = [member.entries() for member in members]
        return logs[0] == logs[1] == logs[2] and bool(logs[0]) and logs[0][-1].index >= last

    wait_until(are_equal, "every member to have the last entry", interval=0.2)
    for member in members:
        member.stop()
    logs = [member.entries() for member in members]
    assert logs[0] == logs[1] == logs[2]
    bodies = {entry.index: entry.body.decode() for entry in logs[0]}
    assert kills == KILLS and len(appender.acknowledged) >= 16 * KILLS
    assert {index: bodies[index] for index in appender.acknowledged} == appender.acknowledged
