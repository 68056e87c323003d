import pytest
from twisted.internet.task import Clock

from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.net.requests import RequestTable
from rocketmq_tw.wire.command import RemotingCommand


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return RequestTable(clock, "10.0.0.1:10911")


def add(table, opaque, timeout, code=310):
    outcome = []
    table.add(RemotingCommand(code, opaque=opaque), timeout).addBoth(outcome.append)
    return outcome


def test_a_response_goes_to_the_request_with_its_opaque(table):
    first, second = add(table, 1, 3), add(table, 2, 3)
    response = RemotingCommand(0, opaque=2, flag=1)
    assert table.answer(response)
    assert second == [response] and first == []


def test_a_second_response_finds_nobody(table):
    outcome = add(table, 1, 3)
    response = RemotingCommand(0, opaque=1, flag=1)
    assert table.answer(response)
    assert not table.answer(response)
    assert len(outcome) == 1


def test_a_timeout_names_address_and_code(table, clock):
    outcome = add(table, 1, 3, code=105)
    clock.advance(2.999)
    assert outcome == []
    clock.advance(0.001)
    error = outcome[0].value
    assert isinstance(error, RequestTimeout)
    assert str(error) == "10.0.0.1:10911: no answer to request 105 within 3 s"
    assert len(table) == 0


def test_many_requests_share_one_timer_and_each_expires_at_its_time(table, clock):
    outcomes = {timeout: add(table, timeout, timeout) for timeout in (5, 3, 9, 7)}
    assert len(clock.getDelayedCalls()) == 1
    for now in range(1, 10):
        clock.advance(1)
        assert {t for t, outcome in outcomes.items() if outcome} == {
            t for t in outcomes if t <= now
        }
    assert clock.getDelayedCalls() == []


def test_an_earlier_deadline_moves_the_timer(table, clock):
    late, early = add(table, 1, 30), add(table, 2, 1)
    clock.advance(1)
    assert len(early) == 1 and late == []


def test_a_lost_link_fails_all_and_leaves_no_timer(table, clock):
    outcomes = [add(table, opaque, 3) for opaque in range(3)]
    table.fail_all("reset by peer")
    for outcome in outcomes:
        assert outcome[0].check(ConnectionLost)
        assert outcome[0].value.address == "10.0.0.1:10911"
    assert clock.getDelayedCalls() == []


def test_a_cancelled_request_is_forgotten(table, clock):
    waiting = table.add(RemotingCommand(1, opaque=1), 3)
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    assert len(table) == 0
    assert not table.answer(RemotingCommand(0, opaque=1, flag=1))
    clock.advance(3)


def test_an_opaque_that_waits_already_is_refused(table):
    add(table, 1, 3)
    with pytest.raises(ValueError, match="opaque 1 waits"):
        table.add(RemotingCommand(1, opaque=1), 3)
