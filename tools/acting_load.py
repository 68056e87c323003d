"""A master dies with messages of all kinds under way; what comes through the other group, and when.

    nice python -m tools.acting_load
    python -m tools.acting_load --delayed 1000 --timed 1000 --halves 100 --popped 1000 --after 40

Two groups in processes of their own. Of each kind the table says how many came, how often one came
again, and how late they were stored, in seconds behind their time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import pop_retry_topic
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader
from rocketmq_tw.wire.headers.pull import PULL_SUBSCRIPTION, PullMessageRequestHeader
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.load import send_until_accepted
from tests.support.processes import BrokerProcess
from tests.support.remoting import Connection
from tests.support.replicas import log_end
from tests.support.wait import wait_until

LATE, POPPED, HALF, GROUP = "Late", "Popped", "RMQ_SYS_TRANS_HALF_TOPIC", "G"
DELAYED = "SCHEDULE_TOPIC_XXXX"
QUEUES, AT_ONCE, SPREAD_SECONDS = 4, 200, 30
#: Seconds between a slave's copies of offsets, and for which messages may be late at most.
COPY_SECONDS, PATIENCE = 6, 300


def send(broker: BrokerProcess, topic: str, bodies: Iterable[str], **properties: str) -> None:
    """Sends plain or special messages, many at a time; all have to be accepted."""
    requests = []
    for number, body in enumerate(bodies):
        own = {key: value.format(number=number) for key, value in properties.items()}
        header = SendMessageRequestHeaderV2(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=number % QUEUES,
            sys_flag=4 if "TRAN_MSG" in own else 0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties=join_properties(own | {"UNIQ_KEY": body}).decode(),
        )
        requests.append(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body.encode()))
    with Connection(broker.address) as connection:
        for first in range(0, len(requests), AT_ONCE):
            some = requests[first : first + AT_ONCE]
            connection.send(*some)
            for _ in some:
                answer = connection.receive()
                assert answer.code == ResponseCode.SUCCESS, answer.remark


def pop(broker: BrokerProcess, count: int, invisible_ms: int) -> int:
    """Pops at least so many messages where there are; returns how many came."""
    header = PopMessageRequestHeader(
        consumer_group=GROUP,
        topic=POPPED,
        queue_id=-1,
        max_msg_nums=32,
        invisible_time=invisible_ms,
        poll_time=0,
        born_time=0,
        init_mode=0,
    )
    found, empty = 0, 0
    with Connection(broker.address) as connection:
        while found < count and empty < 50:
            answer = connection.request(RemotingCommand.request(RequestCode.POP_MESSAGE, header))
            some = len(decode_records(answer.body)) if answer.code == 0 else 0
            found, empty = found + some, 0 if some else empty + 1
    return found


def stored(broker: BrokerProcess, topic: str) -> list[StoredMessage]:
    """All messages of a topic."""
    found: list[StoredMessage] = []
    with Connection(broker.address) as connection:
        for queue in range(QUEUES):
            offset = 0
            while True:
                header = PullMessageRequestHeader(
                    consumer_group="readers",
                    topic=topic,
                    queue_id=queue,
                    queue_offset=offset,
                    max_msg_nums=32,
                    sys_flag=PULL_SUBSCRIPTION,
                    commit_offset=0,
                    suspend_timeout_millis=0,
                    sub_version=0,
                    subscription="*",
                )
                request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
                answer = connection.request(request)
                some = decode_records(answer.body) if answer.code == 0 else []
                if not some:
                    break
                found += some
                offset += len(some)
    return found


class Run:
    """One run; `after` are the seconds from the first message to the first that is due."""

    def __init__(self, options: argparse.Namespace, home: Path, stack: ExitStack) -> None:
        self._options = options
        names = stack.enter_context(
            make_name_server(OURS, home / "names", {"supportActingMaster": "true"})
        )
        keys = {
            "enableSlaveActingMaster": "true",
            "enableRemoteEscape": "true",
            "messageDelayLevel": f"{options.after}s",
        }
        self.brokers = []
        for name, number in (("b", 0), ("a", 0), ("a", 1)):
            role = "SLAVE" if number else "ASYNC_MASTER"
            its = {"brokerId": str(number), "brokerRole": role}
            broker = make_broker(OURS, name, home / f"{name}{number}", [names], settings=keys | its)
            stack.callback(broker.close)
            broker.start()
            self.brokers.append(broker)
        self.other, self.master, self.slave = self.brokers
        for topic in (LATE, POPPED):
            for broker in (self.other, self.master):
                send_until_accepted(broker.address, topic, b"first")

    def run(self) -> int:
        """Returns the exit status: 0 where none is missing."""
        options = self._options
        kinds = ("delayed", "timed", "half", "popped")
        counts = (options.delayed, options.timed, options.halves, options.popped)
        bodies = {
            kind: [f"{kind}{number}" for number in range(count)]
            for kind, count in zip(kinds, counts, strict=True)
        }
        began = time.time()
        first_ms = int((began + options.after) * 1000)
        send(self.master, POPPED, bodies["popped"])
        send(self.master, LATE, bodies["half"], TRAN_MSG="true", PGROUP="P")
        send(self.master, LATE, bodies["delayed"], DELAY="1")
        due: dict[str, int] = {}
        for second in range(SPREAD_SECONDS):
            some = bodies["timed"][second::SPREAD_SECONDS]
            due |= dict.fromkeys(some, first_ms + second * 1000)
            send(self.master, LATE, some, TIMER_DELIVER_MS=str(first_ms + second * 1000))
        for one in stored(self.master, DELAYED):
            # The delay runs from here, not from when the message was made.
            due[one.body.decode()] = one.store_timestamp + options.after * 1000
        popped = pop(self.master, options.popped, options.after * 1000)
        wait_until(lambda: log_end(self.slave) == log_end(self.master), "the copy", limit=600)
        time.sleep(COPY_SECONDS)
        print(f"all under way after {time.time() - began:.0f} s, {popped} popped", flush=True)
        if time.time() * 1000 > first_ms:
            print("too slow: a larger --after is needed")
            return 2
        self.master.kill()
        end = began + options.after * 2 + SPREAD_SECONDS + PATIENCE
        found: dict[str, list[StoredMessage]] = {}
        while time.time() < end:
            time.sleep(10)
            found = self._found()
            if all(len({one.body for one in found[kind]}) >= len(bodies[kind]) for kind in kinds):
                break
        missing = 0
        print("kind | sent | came | came again | late by at most, on average")
        for kind in kinds:
            times = Counter(one.body.decode() for one in found[kind])
            missing += len(set(bodies[kind]) - times.keys())
            late = [one.store_timestamp - due.get(one.body.decode(), 0) for one in found[kind]]
            shown = f"{max(late) / 1000:.1f} s, {sum(late) / len(late) / 1000:.1f} s"
            print(
                f"{kind} | {len(bodies[kind])} | {len(times)} | {sum(times.values()) - len(times)}"
                f" | {'-' if kind in ('half', 'popped') or not late else shown}"
            )
        print(f"missing: {missing}")
        return 1 if missing else 0

    def _found(self) -> dict[str, list[StoredMessage]]:
        """What the other group has, by kind."""
        late = stored(self.other, LATE)
        # What the other master put back when it asked is no second one.
        halves = [
            one for one in stored(self.other, HALF) if b"TRAN_PREPARED_QUEUE" not in one.properties
        ]
        return {
            "delayed": [one for one in late if one.body.startswith(b"delayed")],
            "timed": [one for one in late if one.body.startswith(b"timed")],
            "half": halves,
            "popped": [
                one
                for one in stored(self.other, pop_retry_topic(POPPED, GROUP))
                if one.body.startswith(b"popped")
            ],
        }


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    for kind, count in (("delayed", 10_000), ("timed", 10_000), ("halves", 1_000)):
        parser.add_argument(f"--{kind}", type=int, default=count, help="how many")
    parser.add_argument("--popped", type=int, default=10_000, help="how many")
    parser.add_argument("--after", type=int, default=240, help="seconds until the first is due")
    with TemporaryDirectory() as home, ExitStack() as stack:
        return Run(parser.parse_args(), Path(home), stack).run()


if __name__ == "__main__":
    sys.exit(main())
