"""Epochs of a log: what a master begins, what is forgotten, and up to where two logs are one."""

import pytest

from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochError, EpochTable


def table(*entries: tuple[int, int]) -> EpochTable:
    return EpochTable(EpochEntry(*entry) for entry in entries)


def pairs(of: EpochTable) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in of.entries]


class TestAgreement:
    @pytest.mark.parametrize(
        "slave, slave_end, master, master_end, point",
        [
            # The six examples of the design, A the former master, B and C the others.
            pytest.param([(0, 0)], 1000, [(0, 0), (1, 900)], 1100, 900, id="1-unconfirmed-tail"),
            pytest.param([(0, 0)], 900, [(0, 0), (1, 1000)], 1200, 900, id="2-lost-by-async-flush"),
            pytest.param(
                [(0, 0), (1, 900)], 1200, [(0, 0), (1, 900), (2, 1200)], 1300, 1200, id="3-nothing"
            ),
            pytest.param(
                [(0, 0), (1, 1000)],
                1100,
                [(0, 0), (2, 900)],
                1000,
                900,
                id="4-an-epoch-nobody-else-has",
            ),
            pytest.param(
                [(0, 0), (1, 500), (2, 900)],
                1000,
                [(0, 0), (1, 500), (3, 800)],
                1100,
                800,
                id="5-two-tails-B",
            ),
            pytest.param(
                [(0, 0), (1, 500)], 950, [(0, 0), (1, 500), (3, 800)], 1100, 800, id="5-two-tails-C"
            ),
            pytest.param(
                [(0, 0), (1, 1100)], 1200, [(0, 0), (2, 1000)], 1000, 1000, id="6-before-any-bytes"
            ),
            # Beyond the design.
            pytest.param([(1, 100)], 700, [(1, 200)], 700, None, id="starts-differ"),
            pytest.param([(1, 0)], 700, [(4, 900)], 1000, None, id="epochs-forgotten"),
            pytest.param([(4, 900)], 1000, [(1, 0)], 700, None, id="epochs-forgotten-here"),
            pytest.param([(1, 0)], 700, [(2, 0), (3, 90)], 100, 0, id="nothing-in-common"),
            pytest.param([(1, 0)], 900, [(0, 0), (1, 200)], 200, None, id="controllers-anew"),
            pytest.param([(0, 0), (2, 50)], 900, [(1, 0)], 200, None, id="before-epochs-here"),
            pytest.param([(1, 0)], 500, [(1, 0)], 0, 0, id="an-empty-master"),
            pytest.param([(1, 0), (2, 800)], 700, [(1, 0)], 750, 700, id="an-epoch-behind-the-end"),
            pytest.param([], 0, [(1, 0)], 700, None, id="a-new-replica"),
            pytest.param(
                [(1, 0)], 100, [(1, 0), (2, 0)], 500, 0, id="the-master-began-with-nothing"
            ),
            pytest.param([(1, 0), (2, 0)], 100, [(1, 0), (2, 0)], 500, 100, id="all-without-bytes"),
            pytest.param(
                [(1, 0), (2, 300), (3, 500)], 700, [(1, 0), (2, 300), (3, 500)], 600, 600, id="same"
            ),
        ],
    )
    def test_up_to_where_two_logs_are_one(self, slave, slave_end, master, master_end, point):
        agreed = table(*slave).agreement(slave_end, table(*master), master_end)
        assert (None if agreed is None else agreed.offset) == point


class TestBegin:
    @pytest.mark.parametrize(
        "before, epoch, end, start, after",
        [
            ([], 1, 0, 0, [(1, 0)]),
            # Without messages all stay: with none of them before it a stock slave that names one
            # would find no way.
            ([(1, 0)], 2, 0, 0, [(1, 0), (2, 0)]),
            ([(1, 0), (2, 0)], 3, 0, 0, [(1, 0), (2, 0), (3, 0)]),
            ([(1, 0), (2, 0)], 3, 70, 0, [(1, 0), (2, 0), (3, 70)]),
            ([(1, 0)], 2, 500, 0, [(1, 0), (2, 500)]),
            # Two epochs with one start: stock leaves the later one out, and logs that differ agree.
            ([(1, 0), (7, 1000)], 8, 1000, 0, [(1, 0), (8, 1000)]),
            # One that is begun once more is another one, as in stock.
            ([(1, 0), (7, 1000)], 7, 1500, 0, [(1, 0), (7, 1500)]),
            ([(1, 0), (7, 1000)], 7, 1000, 0, [(1, 0), (7, 1000)]),
            # Controllers that were started anew count from 1 again.
            ([(1, 0)], 1, 9790, 0, [(0, 0), (1, 9790)]),
            ([(0, 0), (1, 100)], 1, 9790, 0, [(0, 0), (1, 9790)]),
            # It lost what its epoch had.
            ([(1, 0), (7, 1000)], 7, 800, 0, [(1, 0), (7, 800)]),
            # A log that is older than its group's controller.
            ([], 1, 500, 0, [(0, 0), (1, 500)]),
            ([], 1, 500, 200, [(0, 0), (1, 500)]),
            ([(3, 100)], 4, 500, 200, [(3, 100), (4, 500)]),
        ],
    )
    def test_a_master_begins(self, before, epoch, end, start, after):
        epochs = table(*before)
        epochs.begin(epoch, end, start)
        assert pairs(epochs) == after

    def test_of_very_many_epochs_without_messages_the_newest_stay(self):
        epochs = table()
        for epoch in range(1, 1001):
            epochs.begin(epoch, 0, 0)
        assert pairs(epochs)[-2:] == [(999, 0), (1000, 0)]
        assert len(epochs.entries) == 101

    def test_no_epoch_begins_behind_a_later_one(self):
        epochs = table((1, 0), (3, 100))
        with pytest.raises(EpochError, match="epoch 2 is over"):
            epochs.begin(2, 200, 0)
        assert pairs(epochs) == [(1, 0), (3, 100)]


class TestLearn:
    def test_a_slave_takes_its_masters_epochs(self):
        epochs = table((1, 0))
        assert epochs.learn(EpochEntry(3, 100))
        assert not epochs.learn(EpochEntry(3, 100))
        assert epochs.learn(EpochEntry(4, 100)), "epoch 3 had no bytes"
        assert pairs(epochs) == [(1, 0), (4, 100)]

    def test_those_without_messages_stay_where_there_is_nothing_else(self):
        epochs = table((1, 0))
        assert epochs.learn(EpochEntry(2, 0))
        assert epochs.learn(EpochEntry(4, 30))
        assert pairs(epochs) == [(1, 0), (2, 0), (4, 30)]

    @pytest.mark.parametrize("entry", [(3, 200), (2, 200)])
    def test_no_epoch_follows_a_later_one_or_moves(self, entry):
        with pytest.raises(EpochError):
            table((1, 0), (3, 100)).learn(EpochEntry(*entry))


class TestAdopt:
    @pytest.mark.parametrize(
        "own, master, point, names",
        [
            ([(1, 0), (7, 100)], [(1, 0), (7, 150)], 150, [(1, 0)]),
            ([(1, 0), (7, 100)], [(1, 0), (8, 120), (9, 150)], 140, [(1, 0), (8, 120)]),
            # Of another count of epochs, and of one whose oldest files are gone.
            ([(4, 0)], [(0, 0), (1, 150)], 100, [(0, 0)]),
            ([(1, 0), (2, 50), (7, 100)], [(3, 80), (7, 150)], 150, [(1, 0), (2, 50), (3, 80)]),
            # The master names nothing of it.
            ([(1, 0)], [(2, 100)], 100, [(1, 0)]),
        ],
    )
    def test_what_is_the_masters_has_its_names(self, own, master, point, names):
        epochs = table(*own)
        epochs.adopt(table(*master), point)
        assert pairs(epochs) == names


class TestRestart:
    def test_a_log_without_bytes_has_the_epochs_that_its_master_began_there(self):
        epochs = table((1, 0), (5, 0))
        epochs.restart(table((1, 0), (2, 0)))
        assert pairs(epochs) == [(1, 0), (2, 0)]
        # The second has bytes, and files of it may be gone: it is learned with them.
        epochs.restart(table((1, 0), (2, 0), (3, 90)))
        assert pairs(epochs) == [(1, 0)]
        epochs.restart(table((3, 90)))
        assert pairs(epochs) == []


class TestTruncation:
    @pytest.mark.parametrize("offset, left", [(150, 1), (300, 1), (301, 2), (9999, 3)])
    def test_by_offset(self, offset, left):
        epochs = table((1, 100), (2, 300), (3, 500))
        epochs.truncate_suffix_by_offset(offset)
        assert len(epochs.entries) == left

    @pytest.mark.parametrize(
        "offset, left", [(99, 3), (299, 3), (300, 2), (499, 2), (500, 1), (99999, 1)]
    )
    def test_with_deleted_files(self, offset, left):
        epochs = table((1, 100), (2, 300), (3, 500))
        assert epochs.truncate_prefix_by_offset(offset) == (left < 3)
        assert len(epochs.entries) == left


def test_whose_an_offset_is():
    epochs = table((1, 100), (2, 300))
    assert epochs.covering(99) is None
    assert epochs.covering(100) == (EpochEntry(1, 100), 300)
    assert epochs.covering(299) == (EpochEntry(1, 100), 300)
    assert epochs.covering(300) == (EpochEntry(2, 300), None)


@pytest.mark.parametrize("entries", [[(2, 0), (1, 100)], [(1, 0), (1, 100)], [(1, 100), (2, 99)]])
def test_epochs_that_do_not_grow_are_refused(entries):
    with pytest.raises(EpochError):
        table(*entries)
