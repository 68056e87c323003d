"""Properties that leave hardly room: what is accepted can be asked about and given back."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.sending import send
from rocketmq_tw.broker.transactions.part import Transactions
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH, join_properties
from rocketmq_tw.message.room import MOST_SENT_PROPERTIES
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import pass_time
from tests.support.transactions import (
    COMMIT,
    GIVEN_UP,
    UNKNOWN,
    answer,
    bodies,
    connect,
    let,
    questions,
)

TOPIC, GROUP = "T" * 127, "G" * 200


def sent(broker: BrokerInMemory, size: int, topic: str = "Topic", **properties: str) -> int:
    """Sends a message whose stored properties have `size` bytes; returns its offset in the log."""
    own = {"UNIQ_KEY": "u" * 32} | properties
    broker.add_topic(topic, read_queue_nums=1, write_queue_nums=1)
    added = join_properties(
        {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
    )
    left = size - len(added) - len(join_properties(own)) - len("z\x01\x02")
    properties, born = own | {"z": "x" * left}, broker.now_ms()
    answered = ok(broker.send(b"x", topic=topic, properties=properties, born_timestamp=born))
    return int(answered["msgId"][-16:], 16)


@pytest.fixture
def as_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are stored without room for what comes later."""
    monkeypatch.setattr(send, "check_room", lambda message, batch: None)


def give_back(broker: BrokerInMemory, offset: int, group: str = "G", level: int = 0) -> None:
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group=group, delay_level=level)
    if group not in broker.groups:
        broker.groups.update(SubscriptionGroupConfig(group_name=group))
    ok(
        broker.request(
            RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header), broker.peer
        )
    )


class TestWhatIsSent:
    def test_more_than_leaves_room_is_refused(self) -> None:
        broker = BrokerInMemory()
        sent(broker, MOST_SENT_PROPERTIES)
        refused = broker.send(properties={"UNIQ_KEY": "u", "z": "x" * MOST_SENT_PROPERTIES})
        assert refused is not None and refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert "leave no room" in (refused.remark or "")

    def test_in_a_batch_too(self) -> None:
        broker = BrokerInMemory(max_message_size=1 << 20)
        for size, code in (
            (MOST_SENT_PROPERTIES - 200, 0),
            (MOST_SENT_PROPERTIES, ResponseCode.MESSAGE_ILLEGAL),
        ):
            own = join_properties({"z": "x" * (size - 3)})
            batch = encode_batch([BatchedMessage(0, b"1", b""), BatchedMessage(0, b"2", own)])
            answered = broker.send(batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
            assert answered is not None and answered.code == code

    def test_delayed_ones_too(self) -> None:
        broker = BrokerInMemory()
        refused = broker.send(properties={"DELAY": "1", "z": "x" * (MOST_SENT_PROPERTIES - 50)})
        assert refused is not None and refused.code == ResponseCode.MESSAGE_ILLEGAL

    @pytest.mark.parametrize("less", [0, 1, 2, 10])
    def test_it_is_given_back_again_and_again(self, less: int) -> None:
        broker = BrokerInMemory()
        offset = sent(broker, MOST_SENT_PROPERTIES - less, TOPIC)
        for times in range(1, 4):
            give_back(broker, offset, GROUP)
            pass_time(broker, 80)
            retried = broker.consume(f"%RETRY%{GROUP}")
            assert len(retried) == times
            assert "z" in retried[-1].properties
            offset = retried[-1].physical_offset
        give_back(broker, offset, GROUP, level=-1)
        (dead,) = broker.consume(f"%DLQ%{GROUP}")
        assert "z" in dead.properties and dead.properties["RETRY_TOPIC"] == TOPIC

    def test_a_half_message_is_asked_about_until_it_is_decided(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        sent(broker, MOST_SENT_PROPERTIES - 120, TRAN_MSG="true", PGROUP="P")
        let(broker, 100, 1.0)
        assert len(questions(peer)) >= 2
        assert answer(broker, questions(peer)[-1], COMMIT).code == 0
        let(broker, 1)
        assert bodies(broker) == {b"x": 1}


@pytest.mark.usefixtures("as_stock")
class TestWhatStockHasStored:
    @pytest.mark.parametrize("left", [0, 20, 21, 80, 158, 250, 400, 800])
    def test_it_is_given_back_or_dead(self, left: int) -> None:
        broker = BrokerInMemory()
        offset = sent(broker, MAX_PROPERTIES_LENGTH - left, TOPIC)
        for _ in range(3):
            with capturedLogs() as logs:
                give_back(broker, offset, GROUP)
            pass_time(broker, 80)
            dead = broker.consume(f"%DLQ%{GROUP}")
            if dead:
                break
            offset = broker.consume(f"%RETRY%{GROUP}")[-1].physical_offset
        else:
            assert left == 800
            return
        (message,) = dead
        assert message.body == b"x"
        assert message.properties["RETRY_TOPIC"] == TOPIC
        assert message.properties["UNIQ_KEY"] == "u" * 32
        said = [formatEvent(event) or "" for event in logs]
        assert ("z" not in message.properties) == any("without its" in line for line in said)

    def test_a_client_that_gives_it_back_itself(self) -> None:
        """What stock's client does where 36 is refused: it sends to the retry topic."""
        broker = BrokerInMemory()
        broker.groups.update(SubscriptionGroupConfig(group_name="G"))
        properties = {"RETRY_TOPIC": "Topic", "UNIQ_KEY": "u", "DELAY": "3", "RECONSUME_TIME": "1"}
        left = 10
        size = MAX_PROPERTIES_LENGTH - left - len(join_properties(properties)) - 3
        ok(
            broker.send(
                b"x", topic="%RETRY%G", properties=properties | {"z": "x" * size}, reconsume_times=1
            )
        )
        pass_time(broker, 20)
        (dead,) = broker.consume("%DLQ%G")
        assert "z" not in dead.properties and dead.properties["RETRY_TOPIC"] == "Topic"

    @pytest.mark.parametrize("left", [0, 10, 30, 60, 100, 158])
    def test_a_half_message_is_asked_about(self, left: int) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        redirected = len(
            join_properties({"REAL_TOPIC": "Topic", "REAL_QID": "0", "__transactionId__": "u" * 32})
        )
        size = MAX_PROPERTIES_LENGTH - left - redirected
        sent(broker, size, TRAN_MSG="true", PGROUP="P")
        let(broker, 100, 1.0)
        assert len(questions(peer)) >= 2
        assert answer(broker, questions(peer)[-1], UNKNOWN).code == 0
        assert answer(broker, questions(peer)[-1], COMMIT).code == 0
        let(broker, 1)
        (message,) = broker.consume()
        assert message.body == b"x" and "z" in message.properties
        work = broker.broker[Transactions].work
        assert work is not None and work.pending == 0

    def test_a_half_message_without_anything_to_leave_out_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rocketmq_tw.message.room._OF_BROKERS", ())
        broker = BrokerInMemory()
        connect(broker)
        sent(broker, MAX_PROPERTIES_LENGTH - 100, TRAN_MSG="true", PGROUP="P")
        let(broker, 30, 1.0)
        assert bodies(broker, GIVEN_UP) == {b"x": 1}
        work = broker.broker[Transactions].work
        assert work is not None and work.pending == 0

    @pytest.mark.parametrize("rolls", [False, True])
    def test_a_timed_message_comes(self, rolls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rocketmq_tw.broker.timer.redirect._ADDED_LATER", 0)
        broker = BrokerInMemory(**{"timer_roll_window_slot": 10} if rolls else {})
        waits = {"REAL_TOPIC": "Topic", "REAL_QID": "0", "TIMER_OUT_MS": "1" * 13}
        size = MAX_PROPERTIES_LENGTH - len(join_properties(waits))
        sent(broker, size, TIMER_DELAY_SEC="30")
        pass_time(broker, 40)
        (message,) = broker.consume()
        assert message.body == b"x" and "z" in message.properties
