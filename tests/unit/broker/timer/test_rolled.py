"""Copies of timed messages that have rolled, behind what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.timer.rolled import RolledMessages
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.store.interface import QueueRead
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import make_message, open_store, put


def test_copies_behind_what_a_slave_cannot_read_are_found(
    files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(files, is_copy=lambda: True)
    copies = [b"UNIQ_KEY\x01u%d\x02TIMER_ROLL_TIMES\x011\x02" % number for number in range(20)]
    put(store, *[make_message(topic=TIMER_TOPIC, properties=copy) for copy in copies])
    read_queue, hole = MessageStore.read_queue, range(5, 9)

    def read(self: MessageStore, topic: str, queue_id: int, offset: int, *rest: Any) -> QueueRead:
        found = read_queue(self, topic, queue_id, offset, 1, *rest[1:])
        return found._replace(next_offset=offset, data=b"") if offset in hole else found

    monkeypatch.setattr(MessageStore, "read_queue", read)
    rolled = RolledMessages(store)
    for _ in rolled.find(0):
        pass
    assert rolled.are_found(20)
    taken = [rolled.take({"UNIQ_KEY": f"u{number}"}) for number in range(20)]
    assert taken == [number not in hole for number in range(20)]
