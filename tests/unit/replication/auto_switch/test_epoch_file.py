"""The epoch file in stock's format, and what is left of it after a crash."""

import pytest
from twisted.internet.defer import maybeDeferred

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.replication.auto_switch.epoch_file import (
    EpochFile,
    EpochFileError,
    KeptEpochs,
    decode_epochs,
    encode_epochs,
)
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from tests.support import auto_switch_goldens as goldens

PATH = "/store/epochFileCheckpoint"
#: The example that stock's own documentation of the format gives.
STOCKS = b"2\n773307083\n7-7000\n8-8000\n"
ENTRIES = (EpochEntry(7, 7000), EpochEntry(8, 8000))


def kept(**contents: bytes) -> tuple[MemoryFiles, EpochFile]:
    files = MemoryFiles()
    files.make_dirs("/store")
    for name, data in contents.items():
        file = files.open(PATH + {"file": "", "copy": ".bak"}[name], create=True)
        file.pwrite(data, 0)
    return files, EpochFile(files, PATH)


def test_stocks_bytes():
    assert encode_epochs(EpochTable(ENTRIES)) == STOCKS
    assert decode_epochs(STOCKS).entries == ENTRIES


@pytest.mark.parametrize("data", [goldens.EPOCH_FILE, goldens.EPOCH_FILE_BAK])
def test_files_that_a_stock_broker_wrote(data):
    assert encode_epochs(decode_epochs(data)) == data


def test_no_file_is_no_epochs():
    assert kept()[1].load().entries == ()


def test_a_change_keeps_the_former_content_beside_it():
    files, file = kept()
    file.save(EpochTable(ENTRIES[:1]))
    file.save(EpochTable(ENTRIES))
    assert files.read(PATH) == STOCKS
    assert decode_epochs(files.read(f"{PATH}.bak")).entries == ENTRIES[:1]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"2\n773307083\n7-7000\n",
        b"3\n773307083\n7-7000\n8-8000\n",
        b"2\n773307083\n7-7000\n8-8001\n",
    ],
)
def test_a_damaged_file_is_read_from_its_copy(damaged):
    assert kept(file=damaged, copy=STOCKS)[1].load().entries == ENTRIES


def test_a_crc_of_zero_is_not_checked():
    assert decode_epochs(b"1\n0\n3-30\n").entries == (EpochEntry(3, 30),)


@pytest.mark.parametrize(
    "damaged", [b"x", b"2\n1\n7-7000\n", b"1\n0\n7-1-1\n", b"\xff\xfe", b"1\n"]
)
def test_without_a_readable_copy_nothing_is_guessed(damaged):
    with pytest.raises(EpochFileError, match="restore it from a backup"):
        kept(file=damaged, copy=damaged)[1].load()


def test_no_epochs_are_no_file():
    files, file = kept(file=STOCKS, copy=STOCKS)
    file.save(EpochTable())
    assert file.load().entries == ()
    assert files.list("/store") == []


def test_a_power_loss_leaves_the_old_epochs_or_the_new():
    old, new = EpochTable(ENTRIES[:1]), EpochTable(ENTRIES)
    files, file = kept()
    file.save(old)
    file.save(new)
    assert EpochFile(files.crash(), PATH).load().entries == ENTRIES


@pytest.mark.parametrize(("log_end", "left"), [(6999, 0), (7000, 1), (7999, 1), (8000, 2), (9, 0)])
def test_epochs_of_bytes_that_a_crash_took_are_forgotten(log_end, left):
    epochs = KeptEpochs(kept(file=STOCKS)[1], maybeDeferred)
    epochs.load(log_end)
    assert epochs.table.entries == ENTRIES[:left]
