from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.net.errors import ConnectError, ConnectionLost, RemotingError, RequestTimeout
from rocketmq_tw.proxy.messaging import decisions, orphans, transactions
from rocketmq_tw.proxy.messaging.orphans import OrphanQuestions
from rocketmq_tw.proxy.messaging.transaction_ids import TransactionId, parse_transaction_id
from rocketmq_tw.proxy.messaging.transactions import HalfPlaces, TransactionDecisions
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.proto.messages import (
    Code,
    Encoding,
    EndTransactionRequest,
    EndTransactionResponse,
    MessageType,
    Resource,
    TransactionResolution,
    TransactionSource,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import LanguageCode, RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tests.support.broker import Threads
from tests.support.proxy import FakeCall, FakeClient, PlayedBrokers, answer_of


class Proxy:
    """The service, which remembers one half message of topic T for 30 s."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.brokers = PlayedBrokers()
        self.brokers.add_topic("T", {"a": 4, "b": 4})
        self.brokers.answer(RequestCode.END_TRANSACTION, lambda request: request.response())
        self.halves = HalfPlaces(self.clock, 30)
        self.halves.remember("T", TransactionId("TX", "a", 7, 4096))
        self.service = TransactionDecisions(self.clock, self.brokers, self.halves)
        self.threads = Threads(eager=False)
        unpacking = Unpacking(ProxyConfig(), self.threads)
        self.questions = OrphanQuestions(self.brokers, self.halves, unpacking)

    def end(self, **fields: Any) -> EndTransactionResponse:
        values = {
            "topic": Resource(name="T"),
            "message_id": "ID",
            "transaction_id": "TX",
            "resolution": TransactionResolution.COMMIT,
            "source": TransactionSource.SOURCE_CLIENT,
        }
        ((_, method),) = self.service.methods().items()
        request = EndTransactionRequest(**(values | fields))
        return answer_of(method.handler(request, FakeCall()), self.clock)

    def take(self) -> None:
        """Brokers take decisions from now on."""
        self.brokers.answer(RequestCode.END_TRANSACTION, lambda request: request.response())

    def lose(self, error: RemotingError | RequestError) -> None:
        """Brokers fail with decisions from now on, or refuse them."""
        if isinstance(error, RequestError):
            code, remark = error.code, error.remark
            self.brokers.answer(
                RequestCode.END_TRANSACTION, lambda request: request.response(code, remark)
            )
        else:
            self.brokers.answer(RequestCode.END_TRANSACTION, error)

    def hang(self) -> list[Deferred[RemotingCommand]]:
        """Brokers do not answer from now on; what they answer later."""
        answers: list[Deferred[RemotingCommand]] = []

        def wait(request: RemotingCommand) -> Deferred[RemotingCommand]:
            answers.append(Deferred())
            return answers[-1]

        self.brokers.answer(RequestCode.END_TRANSACTION, wait)
        return answers

    @property
    def headers(self) -> list[EndTransactionRequestHeader]:
        return [each.request.header(EndTransactionRequestHeader) for each in self.brokers.asked]


def question(
    body: bytes | None = None, content: bytes = b"half", sys_flag: int = 0, **fields: Any
) -> RemotingCommand:
    half = StoredMessage(
        topic="T",
        queue_id=0,
        body=content,
        sys_flag=sys_flag,
        properties=join_properties({"UNIQ_KEY": "TX", "TRAN_MSG": "true", "PGROUP": "T", "n": "1"}),
        born_host=("10.0.0.7", 1),
        store_host=("10.0.0.8", 10911),
    )
    values = {
        "tran_state_table_offset": 8,
        "commit_log_offset": 9000,
        "transaction_id": "TX",
        "bname": "b",
    }
    header = CheckTransactionStateRequestHeader(**(values | fields))
    return RemotingCommand.request(
        RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(half) if body is None else body
    )


@pytest.mark.parametrize(
    ("resolution", "decision"),
    [
        (TransactionResolution.COMMIT, TRANSACTION_COMMIT),
        (TransactionResolution.ROLLBACK, TRANSACTION_ROLLBACK),
    ],
)
@pytest.mark.parametrize(
    ("source", "from_check"),
    [
        (TransactionSource.SOURCE_CLIENT, False),
        (TransactionSource.SOURCE_SERVER_CHECK, True),
        (TransactionSource.SOURCE_UNSPECIFIED, False),
    ],
)
def test_a_decision_goes_to_the_broker_of_the_half_message(
    resolution: int, decision: int, source: int, from_check: bool
) -> None:
    proxy = Proxy()
    assert proxy.end(resolution=resolution, source=source).status.code == Code.OK
    (asked,), (header,) = proxy.brokers.asked, proxy.headers
    assert asked.broker_name == "a"
    assert not asked.request.is_oneway
    assert header == EndTransactionRequestHeader(
        producer_group="T",
        tran_state_table_offset=7,
        commit_log_offset=4096,
        commit_or_rollback=decision,
        msg_id="ID",
        topic="T",
        from_transaction_check=from_check,
        transaction_id="TX",
        bname="a",
    )


def test_what_is_not_decided_yet_is_not_told() -> None:
    proxy = Proxy()
    undecided = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
    assert proxy.end(resolution=undecided).status.code == Code.OK
    assert proxy.brokers.asked == []


COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK
#: The half message that the proxy remembers, by its place.
PLACED = "TX/a/7/4096"


@pytest.mark.parametrize("resolution", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("transaction_id", ["TX", PLACED])
def test_a_broker_hears_of_a_decision_once(transaction_id: str, resolution: int) -> None:
    proxy = Proxy()
    for _ in range(3):
        done = proxy.end(transaction_id=transaction_id, resolution=resolution)
        assert done.status.code == Code.OK
        proxy.clock.advance(600)
    assert len(proxy.headers) == 1


@pytest.mark.parametrize(("first", "word"), [(COMMIT, "committed"), (ROLLBACK, "rolled back")])
def test_what_was_decided_is_not_decided_otherwise(first: int, word: str) -> None:
    proxy = Proxy()
    other = ROLLBACK if first == COMMIT else COMMIT
    assert proxy.end(resolution=first).status.code == Code.OK
    for transaction_id in ("TX", PLACED):
        status = proxy.end(resolution=other, transaction_id=transaction_id).status
        assert status.code == Code.INVALID_TRANSACTION_ID
        assert f"TX was {word}:" in status.message
    assert len(proxy.headers) == 1


def test_a_clients_own_decision_long_after_that_of_its_checker_is_none_of_its_own() -> None:
    proxy, client = Proxy(), FakeClient()
    answer_of(proxy.questions.recover(client, question()), proxy.clock)
    source = TransactionSource.SOURCE_SERVER_CHECK
    assert proxy.end(transaction_id="TX/b/8/9000", source=source).status.code == Code.OK
    proxy.clock.advance(600)
    assert proxy.end(transaction_id=PLACED).status.code == Code.OK
    status = proxy.end(transaction_id=PLACED, resolution=ROLLBACK).status
    assert status.code == Code.INVALID_TRANSACTION_ID
    assert len(proxy.headers) == 1


def test_a_decision_is_repeated_though_the_broker_has_asked_since() -> None:
    """The question was on its way when the decision came."""
    proxy, client = Proxy(), FakeClient()
    assert proxy.end(transaction_id=PLACED).status.code == Code.OK
    answer_of(proxy.questions.recover(client, question()), proxy.clock)
    assert proxy.end(transaction_id=PLACED).status.code == Code.OK
    assert len(proxy.headers) == 1
    # The question is about what stands elsewhere by now, which its broker has to know of.
    assert proxy.end(transaction_id="TX/b/8/9000").status.code == Code.OK
    assert [asked.broker_name for asked in proxy.brokers.asked] == ["a", "b"]


def test_an_answer_that_comes_late_counts() -> None:
    proxy = Proxy()
    answers = proxy.hang()
    status = proxy.end().status
    assert status.code == Code.PROXY_TIMEOUT and "decide again" in status.message
    # It may be asked for meanwhile, not decided otherwise.
    other = proxy.end(resolution=ROLLBACK).status
    assert other.code == Code.INVALID_TRANSACTION_ID and "TX is being committed" in other.message
    assert proxy.end().status.code == Code.PROXY_TIMEOUT
    answers[0].callback(proxy.brokers.asked[0].request.response())
    assert proxy.end().status.code == Code.OK
    assert proxy.end(resolution=ROLLBACK).status.code == Code.INVALID_TRANSACTION_ID
    assert len(proxy.headers) == 1


LOST = [
    RequestTimeout("a:1", 37, 15),
    ConnectionLost("a:1", "reset"),
    RequestError(ResponseCode.SYSTEM_ERROR, "failed behind what it stored"),
]


@pytest.mark.parametrize("lost", LOST)
def test_a_commit_without_an_answer_is_repeated_before_brokers_of_ours_alone(
    lost: RemotingError | RequestError,
) -> None:
    for language, codes, asked in (
        (LanguageCode.PYTHON, (Code.OK, Code.OK), 2),
        (LanguageCode.JAVA, (Code.INVALID_TRANSACTION_ID, Code.INVALID_TRANSACTION_ID), 1),
    ):
        proxy = Proxy()
        proxy.brokers.language = language
        proxy.lose(lost)
        assert proxy.end().status.code in (Code.PROXY_TIMEOUT, Code.INTERNAL_SERVER_ERROR)
        proxy.take()
        statuses = [proxy.end().status for _ in range(2)]
        assert tuple(status.code for status in statuses) == codes
        if language is LanguageCode.JAVA:
            assert "broker a did not say whether TX was committed" in statuses[0].message
            assert "the broker asks about it" in statuses[0].message
        assert len(proxy.headers) == asked


def test_a_rollback_without_an_answer_may_be_repeated_at_any_broker() -> None:
    proxy = Proxy()
    proxy.brokers.language = LanguageCode.JAVA
    proxy.lose(LOST[0])
    assert proxy.end(resolution=ROLLBACK).status.code == Code.PROXY_TIMEOUT
    proxy.take()
    assert proxy.end().status.code == Code.INVALID_TRANSACTION_ID
    assert proxy.end(resolution=ROLLBACK).status.code == Code.OK
    assert len(proxy.headers) == 2


def test_where_no_answer_came_the_question_of_the_broker_is_answered() -> None:
    proxy, client = Proxy(), FakeClient()
    proxy.brokers.language = LanguageCode.JAVA
    proxy.lose(LOST[0])
    assert proxy.end(transaction_id=PLACED).status.code == Code.PROXY_TIMEOUT
    proxy.take()
    answer_of(proxy.questions.recover(client, question(bname="a")), proxy.clock)
    # Be it by the checker, or by the client that goes on with its first id.
    assert proxy.end(transaction_id=PLACED).status.code == Code.OK
    assert proxy.end(transaction_id="TX/a/8/9000").status.code == Code.OK
    assert [header.commit_log_offset for header in proxy.headers] == [4096, 9000]


@pytest.mark.parametrize(
    "refusal",
    [
        ConnectError("a:1", "refused"),
        RequestError(ResponseCode.SYSTEM_BUSY, "later"),
        RequestError(ResponseCode.ILLEGAL_OPERATION, "it was rolled back before"),
    ],
)
def test_what_no_broker_took_is_not_decided(refusal: RemotingError | RequestError) -> None:
    proxy = Proxy()
    proxy.brokers.language = LanguageCode.JAVA
    proxy.lose(refusal)
    assert proxy.end().status.code != Code.OK
    proxy.take()
    assert proxy.end(resolution=ROLLBACK).status.code == Code.OK
    assert len(proxy.headers) == 2


def test_decisions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST_DECISIONS", 3)
    proxy = Proxy()
    ids = [f"{name}/a/7/4096" for name in "abcd"]
    for transaction_id in ids:
        assert proxy.end(transaction_id=transaction_id).status.code == Code.OK
    assert len(proxy.headers) == 4
    for transaction_id, asked in ((ids[-1], 4), (ids[0], 5)):
        assert proxy.end(transaction_id=transaction_id).status.code == Code.OK
        assert len(proxy.headers) == asked
    proxy.clock.advance(decisions.DECISION_SECONDS)
    assert proxy.end(transaction_id=ids[-1]).status.code == Code.OK
    assert len(proxy.headers) == 6


def test_not_too_many_decisions_wait_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST_UNDER_WAY", 1)
    proxy = Proxy()
    proxy.hang()
    for transaction_id, code in (
        ("TX", Code.PROXY_TIMEOUT),
        ("TX", Code.PROXY_TIMEOUT),
        ("TX2/a/7/4096", Code.TOO_MANY_REQUESTS),
    ):
        assert proxy.end(transaction_id=transaction_id).status.code == code
    assert len(proxy.headers) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transaction_id": ""}, Code.INVALID_TRANSACTION_ID),
        ({"transaction_id": "  "}, Code.INVALID_TRANSACTION_ID),
        ({"transaction_id": "other"}, Code.INVALID_TRANSACTION_ID),
        ({"topic": Resource(name="Other")}, Code.INVALID_TRANSACTION_ID),
        ({"topic": Resource()}, Code.ILLEGAL_TOPIC),
    ],
)
def test_decisions_about_nothing(fields: dict[str, Any], code: int) -> None:
    proxy = Proxy()
    assert proxy.end(**fields).status.code == code
    assert proxy.brokers.asked == []


def test_what_the_broker_says_is_told() -> None:
    proxy = Proxy()
    proxy.brokers.answer(
        RequestCode.END_TRANSACTION,
        lambda request: request.response(ResponseCode.ILLEGAL_OPERATION, "it was rolled back"),
    )
    status = proxy.end().status
    assert status.code == Code.INVALID_TRANSACTION_ID
    assert status.message.endswith("it was rolled back")
    proxy.brokers.answer(
        RequestCode.END_TRANSACTION,
        lambda request: request.response(ResponseCode.ILLEGAL_OPERATION, "too late"),
    )
    status = proxy.end().status
    assert (status.code, status.message) == (Code.BAD_REQUEST, "too late")
    no_half = "Find prepared transaction message failed"
    for remark, code in ((no_half, Code.INVALID_TRANSACTION_ID), ("", Code.INTERNAL_SERVER_ERROR)):
        proxy.brokers.answer(
            RequestCode.END_TRANSACTION,
            lambda request, said=remark: request.response(ResponseCode.SYSTEM_ERROR, said),
        )
        assert proxy.end().status.code == code
    proxy.brokers.answer(RequestCode.END_TRANSACTION, RequestTimeout("a:1", 37, 3))
    assert proxy.end().status.code == Code.PROXY_TIMEOUT


def test_a_half_message_is_forgotten_after_its_time() -> None:
    for seconds, code in ((29.9, Code.OK), (30, Code.INVALID_TRANSACTION_ID)):
        proxy = Proxy()
        proxy.clock.advance(seconds)
        assert proxy.end().status.code == code


def test_a_decision_at_another_proxy_or_much_later_finds_the_half_message() -> None:
    proxy = Proxy()
    proxy.clock.advance(3600)
    assert proxy.end(transaction_id="A/TX/a/7/4096").status.code == Code.OK
    (header,) = proxy.headers
    assert proxy.brokers.asked[0].broker_name == "a"
    assert (header.tran_state_table_offset, header.commit_log_offset) == (7, 4096)
    assert header.transaction_id == "A/TX"


@pytest.mark.parametrize(
    "text",
    ["TX", "a/7/1", "TX/a/7", "TX//7/1", "/a/7/1", "TX/a/-7/1", "TX/a/7/x", "TX/a/7/1" * 500],
)
def test_ids_that_name_no_place(text: str) -> None:
    assert parse_transaction_id(text) is None
    proxy = Proxy()
    proxy.clock.advance(3600)
    assert proxy.end(transaction_id=text).status.code == Code.INVALID_TRANSACTION_ID
    assert proxy.brokers.asked == []


def test_a_broker_that_only_the_id_names_is_not_asked() -> None:
    proxy = Proxy()
    assert proxy.end(transaction_id="TX2/elsewhere/7/4096").status.code == Code.BAD_REQUEST
    assert proxy.brokers.asked == []


def test_the_longest_remembered_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_HALVES", 3)
    clock = Clock()
    halves = HalfPlaces(clock, 30)
    for name in "abacd":
        halves.remember("T", TransactionId(name, "broker", 1, 2))
    assert [name for name in "abcd" if halves.find("T", name)] == ["a", "c", "d"]
    clock.advance(30)
    halves.remember("T", TransactionId("e", "broker", 1, 2))
    assert len(halves) == 1


def test_a_client_is_asked_about_an_orphan_and_its_decision_finds_the_way() -> None:
    proxy, client = Proxy(), FakeClient()
    answer_of(proxy.questions.recover(client, question()), proxy.clock)
    ((command),) = (told.recover_orphaned_transaction_command for told in client.told)
    assert command.transaction_id == "TX/b/8/9000"
    assert command.message.body == b"half"
    assert command.message.topic.name == "T"
    assert dict(command.message.user_properties) == {"n": "1"}
    assert command.message.system_properties.message_id == "TX"
    assert command.message.system_properties.message_type == MessageType.TRANSACTION
    source = TransactionSource.SOURCE_SERVER_CHECK
    proxy.end(source=source, transaction_id=command.transaction_id)
    # A decision that was late counts for the copy that the broker asked about, also where another
    # broker gave it to that one.
    for late in ("TX/b/7/4096", "TX/a/7/4096"):
        assert proxy.end(transaction_id=late).status.code == Code.OK
    ((asked,), (header,)) = proxy.brokers.asked, proxy.headers
    assert asked.broker_name == "b"
    assert (header.tran_state_table_offset, header.commit_log_offset) == (8, 9000)
    assert header.transaction_id == "TX"


def test_another_message_with_the_same_id_has_its_own_decision() -> None:
    """Clients choose the ids of their messages."""
    proxy, client = Proxy(), FakeClient()
    answer_of(proxy.questions.recover(client, question(bname="a")), proxy.clock)
    proxy.end(transaction_id="TX/a/20/12000")
    (header,) = proxy.headers
    assert (header.tran_state_table_offset, header.commit_log_offset) == (20, 12_000)


def test_an_old_broker_is_known_by_its_address() -> None:
    proxy, client = Proxy(), FakeClient()
    proxy.brokers.routes["T"].broker_datas[0].broker_addrs[0] = "10.0.0.8:10911"
    answer_of(proxy.questions.recover(client, question(bname=None)), proxy.clock)
    assert proxy.halves.find("T", "TX") is not None
    assert proxy.halves.find("T", "TX").log_offset == 9000
    assert proxy.halves.find("T", "TX").broker_name == "a"


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (question(b"nonsense"), "cannot be read"),
        (question(bname=None), "unknown broker"),
    ],
)
def test_questions_that_cannot_be_handed_on(asked: RemotingCommand, word: str) -> None:
    proxy, client = Proxy(), FakeClient()
    with pytest.raises(RequestError, match=word):
        answer_of(proxy.questions.recover(client, asked), proxy.clock)
    assert client.told == []


def test_a_client_without_a_stream_cannot_be_asked() -> None:
    proxy, client = Proxy(), FakeClient()
    client.has_stream = False
    with pytest.raises(RequestError, match="no stream"):
        answer_of(proxy.questions.recover(client, question()), proxy.clock)


def packed_question(size: int, kind: CompressionType) -> RemotingCommand:
    return question(content=compress(bytes(size), kind), sys_flag=compression_flag(kind))


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_a_large_packed_half_message_is_unpacked_in_a_thread(kind: CompressionType) -> None:
    proxy, client = Proxy(), FakeClient()
    proxy.questions.recover(client, packed_question(1 << 10, kind))
    assert [len(body) for body in bodies_of(client)] == [1 << 10]
    asked = proxy.questions.recover(client, packed_question(3 << 20, kind))
    assert (len(client.told), len(proxy.threads.waiting)) == (1, 1)
    proxy.threads.run()
    answer_of(asked, proxy.clock)
    assert [len(body) for body in bodies_of(client)] == [1 << 10, 3 << 20]
    system = client.told[1].recover_orphaned_transaction_command.message.system_properties
    assert system.body_encoding == Encoding.IDENTITY


def bodies_of(client: FakeClient) -> list[bytes]:
    return [told.recover_orphaned_transaction_command.message.body for told in client.told]


def test_packed_half_messages_wait_for_a_client_that_reads_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orphans, "MAX_PACKED", 3)
    proxy, client = Proxy(), FakeClient()
    client.stream.ready = False
    asked = packed_question(3 << 20, CompressionType.ZSTD)
    for _ in range(3):
        proxy.questions.recover(client, asked)
    assert proxy.threads.waiting == []
    with pytest.raises(RequestError, match="ask again later"):
        answer_of(proxy.questions.recover(client, asked), proxy.clock)
    # Others do not wait for it.
    other = FakeClient("other")
    proxy.questions.recover(other, asked)
    proxy.threads.run()
    assert len(other.told) == 1
    for number in range(1, 4):
        client.stream.take()
        assert (proxy.threads.run(), len(client.told)) == (1, number)
    client.stream.ready = True
    proxy.questions.recover(client, asked)
    proxy.threads.run()
    assert len(client.told) == 4


def test_a_client_that_goes_while_its_question_waits_is_not_asked() -> None:
    proxy, client = Proxy(), FakeClient()
    client.stream.ready = False
    asked = proxy.questions.recover(client, packed_question(3 << 20, CompressionType.LZ4))
    client.has_stream = False
    client.stream.finish()
    assert proxy.threads.waiting == []
    with pytest.raises(RequestError, match="no stream"):
        answer_of(asked, proxy.clock)
