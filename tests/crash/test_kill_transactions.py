"""kill -9 under transactional load: what was decided is there once, or never, as it was decided."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import HeartbeatData, ProducerData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tests.support.cluster import make_broker
from tests.support.load import read_topic, send_request
from tests.support.remoting import Connection
from tests.support.storecheck import check_store
from tests.support.wait import wait_until

KILLS = 5
THREADS = 3
TOPIC = "transactional"
GROUP = "deciders"
SETTINGS = {"transactionTimeOut": "1000", "transactionCheckInterval": "2000"}


def decision_of(body: bytes) -> int:
    """What the producer thinks of a message, whenever it is asked."""
    number = int(body.rpartition(b"-")[2])
    return TRANSACTION_ROLLBACK if number % 3 == 0 else TRANSACTION_COMMIT


def decides_itself(body: bytes) -> bool:
    """Whether the producer decides at once, without being asked."""
    return int(body.rpartition(b"-")[2]) % 5 != 0


def half_request(body: bytes) -> RemotingCommand:
    request = send_request(TOPIC, 0, body)
    own = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": body.decode()}
    request.ext_fields["i"] = join_properties(own).decode()
    return request


def end_request(
    body: bytes, log_offset: int, queue_offset: int, *, asked: bool = False
) -> RemotingCommand:
    header = EndTransactionRequestHeader(
        producer_group=GROUP,
        tran_state_table_offset=queue_offset,
        commit_log_offset=log_offset,
        commit_or_rollback=decision_of(body),
        msg_id=body.decode(),
        from_transaction_check=asked,
    )
    return RemotingCommand.request(RequestCode.END_TRANSACTION, header)


class Producers:
    """Threads that send and decide until the broker is gone. `sent` has what was acknowledged;
    the broker asks any producer that is connected as `GROUP` about messages without a decision."""

    def __init__(self, address: str, prefix: str) -> None:
        self.sent: list[bytes] = []
        self.decided: list[bytes] = []
        self._address = address
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"{prefix}-{n}",)) for n in range(THREADS)
        ]
        self._threads.append(threading.Thread(target=self._answer))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, prefix: str) -> None:
        try:
            with Connection(self._address) as connection:
                for number in itertools.count():
                    if self._stopped.is_set():
                        return
                    self._one(connection, f"{prefix}-{number}".encode())
        except OSError:
            # Killed, as the test means it to be.
            return

    def _one(self, connection: Connection, body: bytes) -> None:
        answer = connection.request(half_request(body))
        assert answer.code == ResponseCode.SUCCESS, answer
        self.sent.append(body)
        if decides_itself(body):
            fields = answer.ext_fields
            place = parse_offset_message_id(fields["msgId"]).offset
            # Twice, as where a client tries again: the first answer counts, whichever it is.
            connection.send(
                *(end_request(body, place, int(fields["queueOffset"])) for _ in range(2))
            )
            assert connection.receive().code == ResponseCode.SUCCESS
            self.decided.append(body)
            assert connection.receive().code == ResponseCode.SUCCESS

    def _answer(self) -> None:
        try:
            with Connection(self._address, timeout=1) as connection:
                answer_questions(connection, self._stopped.is_set)
        except OSError:
            return


def answer_questions(connection: Connection, is_over: Callable[[], bool]) -> None:
    """Answers, as a producer of `GROUP`, what the broker asks, until `is_over()`."""
    data = HeartbeatData(client_id="asked", producer_data_set=[ProducerData(group_name=GROUP)])
    # Its answer is passed over below: a busy broker may need longer than one look takes.
    connection.send(RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data)))
    while not is_over():
        try:
            command = connection.receive()
        except TimeoutError:
            continue
        if command.code == RequestCode.CHECK_TRANSACTION_STATE and not command.is_response:
            asked = command.header(CheckTransactionStateRequestHeader)
            body = decode_record(command.body).body
            connection.send(
                end_request(
                    body, asked.commit_log_offset, asked.tran_state_table_offset, asked=True
                )
            )


def _has_decided(load: Producers, enough: int) -> bool:
    return len(load.decided) >= enough


def test_no_decision_is_lost_or_counts_twice(servers: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    broker = make_broker(servers, "killed", tmp_path, [], settings=SETTINGS)
    sent: set[bytes] = set()
    committed: set[bytes] = set()
    try:
        broker.start()
        for kill in range(KILLS):
            load = Producers(broker.address, f"round{kill}")
            enough = dice.randrange(100, 1500)
            wait_until(partial(_has_decided, load, enough), "decisions")
            broker.kill()
            load.stop()
            sent |= set(load.sent)
            committed |= {body for body in load.decided if decision_of(body) == TRANSACTION_COMMIT}
            broker.start()
            there = {record.body for record in read_topic(broker.address, TOPIC)}
            lost = committed - there
            assert not lost, f"committed and gone: {list(lost)[:5]}"
        expected = {body for body in sent if decision_of(body) == TRANSACTION_COMMIT}

        def seen() -> Counter[bytes]:
            return Counter(record.body for record in read_topic(broker.address, TOPIC))

        over = threading.Event()
        with Connection(broker.address, timeout=1) as connection:
            producer = threading.Thread(target=answer_questions, args=(connection, over.is_set))
            producer.start()
            try:
                wait_until(lambda: expected <= set(seen()), "all that is committed", interval=1)
                # Nobody is asked any more, and what came stays as it is.
                time_of_one_more_question = float(SETTINGS["transactionCheckInterval"]) / 1000
                until = time.monotonic() + 2 * time_of_one_more_question
                wait_until(lambda: time.monotonic() > until, "further questions", interval=0.5)
            finally:
                over.set()
                producer.join()
        found = seen()
        twice = {body: count for body, count in found.items() if count > 1}
        assert not twice, f"delivered more than once: {list(twice.items())[:5]}"
        wrong = [body for body in found if decision_of(body) == TRANSACTION_ROLLBACK]
        assert not wrong, f"rolled back and delivered: {wrong[:5]}"
        broker.stop()
        check_store(broker.store)
    finally:
        broker.close()
