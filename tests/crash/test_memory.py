"""What a broker keeps in memory of many messages: next to nothing."""

import shutil
from pathlib import Path

from rocketmq_tw.wire.codes import ResponseCode
from tests.support.load import encode_batch, read_topic, send_request
from tests.support.remoting import Connection
from tests.support.servers import OurBroker, on_pypy

MESSAGES = 400_000
BATCH = 500
#: Messages of a batch that have a key of their own; the index takes the time of a send for each.
INDEXED = 50
WINDOW = 4
MIB = 1024 * 1024


def test_many_messages_leave_the_broker_small(tmp_path: Path) -> None:
    # Stock's file sizes: what a user's broker holds open is what is measured.
    settings = {
        "mappedFileSizeCommitLog": str(1 << 30),
        "mappedFileSizeConsumeQueue": "6000000",
        "maxHashSlotNum": "5000000",
        "maxIndexNum": "20000000",
    }
    broker = OurBroker("memory", tmp_path, [], settings=settings)
    plain = encode_batch([b"x" * 1024] * (BATCH - INDEXED))
    try:
        broker.start()
        before = broker.resident_bytes()
        with Connection(broker.address, timeout=60) as connection:
            for number in range(MESSAGES // BATCH):
                keyed = b"".join(
                    encode_batch([b"x" * 1024], b"KEYS\1order-%d-%d\2" % (number, each))
                    for each in range(INDEXED)
                )
                connection.send(send_request("many", number % 4, plain + keyed, batch=True))
                if number >= WINDOW:
                    assert connection.receive().code == ResponseCode.SUCCESS
            for _ in range(WINDOW):
                assert connection.receive().code == ResponseCode.SUCCESS
        written = broker.resident_bytes()
        served = sum(1 for _ in read_topic(broker.address, "many"))
        read = broker.resident_bytes()
        print(f"resident MiB: {before >> 20} empty, {written >> 20} written, {read >> 20} read")
        assert served == MESSAGES
        # PyPy takes 140 MiB by itself, and as much again for code that it has compiled and for
        # garbage, which waits longer in short steps of its collector.
        assert max(written, read) < (400 if on_pypy() else 100) * MIB
    finally:
        broker.close()
        shutil.rmtree(broker.store, ignore_errors=True)
