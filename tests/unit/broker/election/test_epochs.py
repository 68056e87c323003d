"""Which epochs a broker takes for over, for a former process's and for its own."""

from __future__ import annotations

from rocketmq_tw.broker.election.epochs import KnownEpochs


def test_only_epochs_from_before_the_process_are_a_former_ones() -> None:
    epochs = KnownEpochs()
    assert not epochs.is_former(1), "nothing was asked yet"
    epochs.note_first(4)
    epochs.note_first(6)
    assert [epochs.is_former(each) for each in (3, 4, 5)] == [True, True, False]


def test_the_newest_epoch_heard_of_never_goes_back() -> None:
    epochs = KnownEpochs()
    epochs.note_heard(5)
    epochs.note_heard(3)
    assert epochs.heard == 5


def test_an_epoch_that_was_begun_is_ended_and_not_given_up() -> None:
    epochs = KnownEpochs()
    assert not epochs.end(3, led=3)
    epochs.entering = 5
    assert not epochs.end(5, led=3)
    assert (epochs.ended, epochs.given_up) == (5, None)


def test_an_epoch_that_was_not_begun_is_given_up() -> None:
    epochs = KnownEpochs()
    assert epochs.end(4, led=3) and epochs.end(6, led=None)
    assert (epochs.ended, epochs.given_up) == (6, 6)
