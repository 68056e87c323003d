"""Hours of a broker whose clients, groups, topics, pops, timers and transactions come and go."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.message.names import DLQ_PREFIX, RETRY_PREFIX
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import (
    SubscriptionData,
)
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    MessageQueue,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode as Code
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketmq_tw.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.pop import NotificationRequestHeader
from rocketmq_tw.wire.headers.pull import QueryMessageRequestHeader
from rocketmq_tw.wire.headers.send import (
    CheckTransactionStateRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
)
from rocketmq_tw.wire.headers.topics import (
    DeleteTopicRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from tests.support.broker import BrokerInMemory
from tests.support.heartbeats import heartbeat_of, push_consumer
from tests.support.pops import PoppedMessage, Popper
from tests.support.remoting import topic_header
from tests.support.transactions import COMMIT, ROLLBACK, end_request

#: Clients of one hour, and what one hour has of most things.
CLIENTS, NUMBER = 12, 6
_SILENT = 130.0


class Applicant:
    """A client with its connection, which answers what the broker asks of it."""

    def __init__(self, hours: BrokerHours, host: str, client_id: str) -> None:
        self.hours = hours
        self.client_id = client_id
        self.asked: list[RemotingCommand] = []
        self.remoting: RemotingClient = hours.broker.network.client(host)
        for code in (
            Code.NOTIFY_CONSUMER_IDS_CHANGED,
            Code.CHECK_TRANSACTION_STATE,
            Code.RESET_CONSUMER_CLIENT_OFFSET,
            Code.GET_CONSUMER_STATUS_FROM_CLIENT,
            Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
        ):
            self.remoting.register(code, self._asked)

    def _asked(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand | None:
        self.asked.append(request)
        return None if request.is_oneway else request.response()

    def begin(
        self, code: int, header: Header | None = None, body: object = b""
    ) -> Deferred[RemotingCommand]:
        """Asks, and goes on."""
        data = body if isinstance(body, bytes) else encode_body(body)
        request = RemotingCommand.request(code, header, data)
        return self.remoting.request(self.hours.broker.address, request, 60.0)

    def ask(self, code: int, header: Header | None = None, body: object = b"") -> RemotingCommand:
        """The answer, however long it takes."""
        return self.hours.result(self.begin(code, header, body))

    def send(self, topic: str, body: bytes = b"body", **properties: str) -> dict[str, str]:
        """What the answer to a send says."""
        request = self.hours.broker.send_request(body, topic=topic, properties=properties)
        answer = self.hours.result(self.remoting.request(self.hours.broker.address, request, 10.0))
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer.ext_fields

    def heartbeat(self, group: str, *topics: str, expression: str = "*") -> None:
        """A consumer, and a producer, of the group says that it is there."""
        kind = "TAG" if expression == "*" else "SQL92"
        wanted = [
            SubscriptionData(
                topic=topic,
                sub_string=expression,
                expression_type=kind,
                sub_version=self.hours.broker.now_ms(),
            )
            for topic in topics
        ]
        data = heartbeat_of(self.client_id, push_consumer(group, *wanted), producer=group)
        assert self.ask(Code.HEART_BEAT, body=data).code == ResponseCode.SUCCESS


class _NetworkPopper(Popper):
    """A popper over the network."""

    def __init__(self, client: Applicant, topic: str, group: str, **fields: Any) -> None:
        super().__init__(client.hours.broker, topic, group, **fields)
        self.client = client

    def ask(self, **fields: Any) -> RemotingCommand | None:
        return self.client.hours.result(self.begin(self.request(**fields)))

    def begin(self, request: RemotingCommand) -> Deferred[RemotingCommand]:
        """Asks, and goes on."""
        return self.client.remoting.request(self.broker.address, request, 60.0)

    def done(self, request: RemotingCommand) -> RemotingCommand:
        """The answer."""
        return self.client.hours.result(self.begin(request))


class BrokerHours:
    """A broker, and `hour`, which lets everything come and go that clients may do there."""

    def __init__(self, **settings: Any) -> None:
        self.broker = BrokerInMemory(
            broker={
                "transaction_time_out": 5_000,
                "transaction_check_interval": 10_000,
                "transaction_check_max": 2,
                "enable_property_filter": True,
                **settings,
            },
            enable_consume_queue_ext=True,
        )
        self.clock = self.broker.clock
        self._numbers = count(1)
        #: A topic, a group and a client that stay.
        self.topic, self.group = "Stays", "stays"
        self.client = Applicant(self, "10.8.8.8", "stays")
        self._make_topic(self.client, self.topic)
        self._make_group(self.client, self.group)

    def result(self, deferred: Deferred[Any]) -> Any:
        """What it fires with, while time passes."""
        found: list[Any] = []
        deferred.addBoth(found.append)
        for turn in range(2000):
            if found:
                break
            self.clock.advance(0 if turn < 20 else 0.05)
        assert found, "no answer"
        assert isinstance(found[0], RemotingCommand), found[0]
        return found[0]

    def roots(self) -> Iterable[object]:
        """The server, and what is due."""
        return self.broker.broker, self.clock

    def day(self) -> None:
        """A day passes in which little happens."""
        for _ in range(26 * 18):
            self.clock.advance(200)
            self.client.heartbeat(self.group, self.topic, expression="a > 1")

    def pass_time(self, seconds: float) -> None:
        """Everything periodic happens some times."""
        self.clock.pump([0.5] * round(seconds * 2))

    def hour(self) -> None:
        """Clients come, use what is theirs, and go in every way; nothing of theirs is left in the
        broker's tables at the end."""
        number = next(self._numbers)
        topics = [f"T{number}-{kind}" for kind in ("plain", "fifo", "auto", "gone")]
        plain, fifo, made, gone = topics
        groups = [f"G{number}-{each}" for each in range(CLIENTS // 2)]
        clients = [
            Applicant(self, f"10.{number % 250}.0.{each}", f"c{number}-{each}")
            for each in range(1, CLIENTS + 1)
        ]
        admin = Applicant(self, "10.9.9.9", f"admin{number}")
        for topic in (plain, fifo, gone):
            self._make_topic(admin, topic)
        for each, group in enumerate(groups):
            self._make_group(admin, group, in_order=each == len(groups) - 1)
        for each, client in enumerate(clients):
            group = groups[each % len(groups)]
            client.heartbeat(group, plain, gone, expression="a > 1" if each % 3 else "*")
        self.client.heartbeat(self.group, self.topic, plain, expression="a > 1")
        # The client that stays is in a group for an hour, and one that goes in the group that
        # stays; topics that stay are used by groups that go, and the reverse.
        self.client.heartbeat(groups[0], self.topic, plain)
        clients.append(Applicant(self, "10.8.8.8", f"h{number}"))
        clients[-1].heartbeat(self.group, self.topic, fifo, expression="a > 1")
        for topic, group in (
            (plain, self.group),
            (self.topic, groups[0]),
            (self.topic, self.group),
        ):
            self._use([self.client], [group], topic, fifo)
            self._settings(admin, [group, groups[2]], topic)
        for client in clients:
            for each in range(NUMBER):
                client.send(plain, b"%d" % each, KEYS=f"{client.client_id}-{each}", a="2")
            client.send(made)
            client.send(fifo)
            client.send(gone)
        self._use(clients, groups, plain, fifo)
        self._settings(admin, groups, plain)
        # One topic goes while its clients are there.
        admin.ask(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=gone))
        self.pass_time(60)
        self._leave(clients, groups)
        self.pass_time(120)
        for topic in (plain, fifo, made):
            admin.ask(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
        for group in groups:
            admin.ask(
                Code.DELETE_SUBSCRIPTIONGROUP,
                DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=True),
            )
            # As tools do, but for the last one: whose topic stays, nobody knows from the group.
            for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group, f"{RETRY_PREFIX}{group}_Stays"):
                admin.ask(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
        self.result(self._closed(admin))
        self.pass_time(30)
        # What comes once in minutes.
        for _ in range(30):
            self.clock.advance(100)
            self.client.heartbeat(self.group, self.topic, expression="a > 1")

    def _closed(self, client: Applicant) -> Deferred[Any]:
        return client.remoting.close().addCallback(lambda _: RemotingCommand.request(0))

    def _use(self, clients: list[Applicant], groups: list[str], plain: str, fifo: str) -> None:
        self._wait(clients, groups, plain)
        self._pop(clients, groups, plain, fifo)
        self._pull(clients, groups, plain)
        self._locks(clients, groups, plain)

    def _make_group(self, admin: Applicant, group: str, *, in_order: bool = False) -> None:
        config = SubscriptionGroupConfig(
            group_name=group, consume_message_orderly=in_order, retry_max_times=2
        )
        answer = admin.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
        assert answer.code == ResponseCode.SUCCESS

    def _make_topic(self, admin: Applicant, topic: str) -> None:
        answer = admin.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_header(topic, queues=2))
        assert answer.code == ResponseCode.SUCCESS

    def _wait(self, clients: list[Applicant], groups: list[str], topic: str) -> None:
        """Messages that wait: delays, times, transactions, messages that are given back."""
        for each, client in enumerate(clients):
            group = groups[each % len(groups)]
            sent = client.send(topic, DELAY="1")
            client.send(topic, TIMER_DELAY_SEC="20")
            timed = client.send(topic, TIMER_DELAY_SEC="40")
            handle = timed.get("recallHandle")
            if handle is not None and each % 2:
                client.ask(
                    Code.RECALL_MESSAGE,
                    RecallMessageRequestHeader(topic=topic, recall_handle=handle),
                )
            for kind in range(3):
                half = client.send(
                    topic,
                    TRAN_MSG="true",
                    PGROUP=group,
                    UNIQ_KEY=f"{client.client_id}-{kind}",
                    TAGS="a",
                )
                if kind < 2:
                    request = end_request(half, COMMIT if kind else ROLLBACK, producer_group=group)
                    client.remoting.request(self.broker.address, request, 10.0)
            sent = client.send(topic)
            back = ConsumerSendMsgBackRequestHeader(
                offset=int(sent["msgId"][-16:], 16), group=group, delay_level=1, origin_topic=topic
            )
            assert client.ask(Code.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUCCESS

    def _pop(self, clients: list[Applicant], groups: list[str], plain: str, fifo: str) -> None:
        """Some messages are acknowledged, some hidden for another time, the others come back."""
        for each, client in enumerate(clients):
            group = groups[each % len(groups)]
            popper = _NetworkPopper(client, plain, group, invisible_time=15_000, max_msg_nums=4)
            popped = popper.pop()
            for one, message in enumerate(popped):
                self._deal_with(popper, one, message)
        popper = _NetworkPopper(clients[0], fifo, groups[-1], order=True, invisible_time=15_000)
        for message in popper.pop()[:2]:
            popper.done(popper.ack_request(message))
        for each, client in enumerate(clients[:4]):
            held = _NetworkPopper(client, plain, groups[0], invisible_time=5_000)
            # Held until their time is over, or their clients are gone.
            held.begin(held.request(poll_time=40_000 * (1 + each), queue_id=-1)).addBoth(_nothing)
            notice = NotificationRequestHeader(
                consumer_group=groups[0],
                topic=fifo,
                queue_id=-1,
                poll_time=30_000 * (1 + each),
                born_time=self.broker.now_ms(),
            )
            client.begin(200054, notice).addBoth(_nothing)

    def _deal_with(self, popper: _NetworkPopper, number: int, message: PoppedMessage) -> None:
        if number == 0:
            popper.done(popper.ack_request(message))
        elif number == 1:
            popper.done(popper.hide_request(message, 20_000))

    def _pull(self, clients: list[Applicant], groups: list[str], topic: str) -> None:
        """Pulls that find something, and such that are held."""
        for each, client in enumerate(clients):
            group = groups[each % len(groups)]
            for offset, suspend in ((0, None), (10_000, 40_000), (10_000, 200_000)):
                request = self.broker.pull_request(
                    offset, suspend_ms=suspend, consumer_group=group, topic=topic
                )
                asked = client.remoting.request(self.broker.address, request, 60.0)
                if suspend is None:
                    self.result(asked)
                else:
                    asked.addBoth(_nothing)
            commit = UpdateConsumerOffsetRequestHeader(
                consumer_group=group, topic=topic, queue_id=0, commit_offset=3
            )
            client.ask(Code.UPDATE_CONSUMER_OFFSET, commit)
            key = QueryMessageRequestHeader(
                topic=topic,
                key=f"{client.client_id}-1",
                max_num=5,
                begin_timestamp=0,
                end_timestamp=self.broker.now_ms() + 1000,
            )
            client.ask(Code.QUERY_MESSAGE, key)

    def _settings(self, admin: Applicant, groups: list[str], topic: str) -> None:
        """What administrators set of topics and groups."""
        for each, group in enumerate(groups):
            mode = SetMessageRequestModeRequestBody(
                topic=topic, consumer_group=group, mode="POP", pop_share_queue_num=1
            )
            admin.ask(Code.SET_MESSAGE_REQUEST_MODE, body=mode)
            wanted = QueryAssignmentRequestBody(
                topic=topic, consumer_group=group, client_id="x", strategy_name="AVG"
            )
            admin.ask(Code.QUERY_ASSIGNMENT, body=wanted)
            reset = ResetOffsetRequestHeader(
                topic=topic, group=group, timestamp=0, queue_id=each % 2
            )
            if each % 2:
                reset = ResetOffsetRequestHeader(topic=topic, group=group, queue_id=0, offset=1)
            admin.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
            admin.ask(
                Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                GetConsumerStatusRequestHeader(topic=topic, group=group),
            )
            forbidden = UpdateGroupForbiddenRequestHeader(group=group, topic=topic, readable=False)
            admin.ask(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, forbidden)
        clone = CloneGroupOffsetRequestHeader(
            src_group=groups[0], dest_group=groups[1], topic=topic, offline=True
        )
        admin.ask(Code.CLONE_GROUP_OFFSET, clone)
        limits = f"{groups[0]}=1000\n".encode()
        admin.ask(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=limits)
        admin.ask(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=groups[0].encode())

    def _locks(self, clients: list[Applicant], groups: list[str], topic: str) -> None:
        for each, client in enumerate(clients):
            queues = [
                MessageQueue(topic=topic, broker_name="broker-a", queue_id=number)
                for number in range(4)
            ]
            body = LockBatchRequestBody(
                consumer_group=groups[each % len(groups)],
                client_id=client.client_id,
                mq_set=queues,
            )
            client.ask(Code.LOCK_BATCH_MQ, body=body)
            if each % 2:
                client.ask(Code.UNLOCK_BATCH_MQ, body=body)

    def _leave(self, clients: list[Applicant], groups: list[str]) -> None:
        """They decide late on some transactions, then say goodbye, are cut off, or are silent."""
        for each, client in enumerate(clients):
            group = groups[each % len(groups)]
            for asked in client.asked[:1]:
                if asked.code == Code.CHECK_TRANSACTION_STATE:
                    header = asked.header(CheckTransactionStateRequestHeader)
                    late = {
                        "queueOffset": str(header.tran_state_table_offset),
                        "msgId": header.offset_msg_id or "",
                        "transactionId": header.transaction_id or "",
                    }
                    request = end_request(
                        late, COMMIT, producer_group=group, from_transaction_check=True
                    )
                    client.remoting.request(self.broker.address, request, 10.0)
            if each % 3 == 0:
                leave = UnregisterClientRequestHeader(
                    client_id=client.client_id, producer_group=group, consumer_group=group
                )
                client.ask(Code.UNREGISTER_CLIENT, leave)
            if each % 3 < 2:
                self.result(self._closed(client))
        leave = UnregisterClientRequestHeader(
            client_id=self.client.client_id, producer_group=groups[0], consumer_group=groups[0]
        )
        self.client.ask(Code.UNREGISTER_CLIENT, leave)
        for _ in range(4):
            self.client.heartbeat(self.group, self.topic, expression="a > 1")
            self.pass_time(_SILENT / 4)
        for client in clients:
            client.remoting.close()


def _nothing(_: object) -> None:
    return None
