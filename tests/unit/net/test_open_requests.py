"""What a request that is not over yet costs, and when it is over."""

from sys import getsizeof

import pytest

from rocketmq_tw.net.connection import FIELD_OVERHEAD, MAX_HEADER_FIELD, REQUEST_OVERHEAD
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, SerializeType, encode_command
from tests.support.interpreter import cpython_only
from tests.support.memory_server import ECHO, HELD, LATER, MemoryServer

ONEWAY = 2


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def client(server):
    return server.connect()


def end_all(server: MemoryServer) -> None:
    """Answers what is open, in whatever way its handler does."""
    for request, answer in server.held:
        answer.callback(request.response())
    for request, peer in server.later:
        peer.reply(request.response())


@pytest.mark.parametrize("code", [HELD, LATER])
@pytest.mark.parametrize("flag", [0, ONEWAY])
@pytest.mark.parametrize("opaques", [(1, 2, 3), (1, 1, 1)], ids=["own opaques", "one opaque"])
def test_each_counts_until_it_is_answered(server, client, code, flag, opaques):
    for opaque in opaques:
        client.send(code, bytes(1000), opaque, flag)
    server.clock.advance(0)
    assert server.used == 3 * (1000 + REQUEST_OVERHEAD)
    end_all(server)
    server.clock.advance(0)
    assert server.used == 0
    assert [response.opaque for response in client.responses] == ([] if flag else list(opaques))


@pytest.mark.parametrize("form", SerializeType)
@pytest.mark.parametrize("code", [ECHO, HELD, LATER, 99])
def test_an_opaque_used_again_frees_nothing_of_the_first(server, client, code, form):
    client.send(LATER, bytes(1000), 7)
    command = RemotingCommand(code, body=b"second", opaque=7, serialization=form)
    client.transport.write(encode_command(command))
    server.clock.advance(0)
    first = server.later.pop(0)
    end_all(server)
    server.clock.advance(0)
    assert [response.opaque for response in client.responses] == [7]
    assert server.used == 1000 + REQUEST_OVERHEAD
    server.later, server.held = [first], []
    end_all(server)
    server.clock.advance(0)
    assert [response.opaque for response in client.responses] == [7, 7]
    assert server.used == 0


def test_the_answer_to_another_request_meanwhile_does_not_hide_one(server, client):
    def hold_and_answer_the_first(request, peer):
        first, _ = server.later.pop(0)
        server.later.append((request, peer))
        peer.reply(first.response())

    server.listener.register(5, hold_and_answer_the_first)
    client.send(LATER, opaque=1)
    client.send(5, bytes(1000), opaque=2)
    server.clock.advance(0)
    assert server.used == 1000 + REQUEST_OVERHEAD


def test_a_body_that_its_handler_lets_go_costs_nothing(server, client):
    def hold(request, peer):
        request.body = b""
        server.later.append((request, peer))

    server.listener.register(LATER, hold)
    client.send(LATER, bytes(100_000))
    server.clock.advance(0)
    assert server.used == REQUEST_OVERHEAD


def test_many_short_fields_cost_what_they_take_in_memory(server, client):
    fields = {f"f{number}": "x" for number in range(10_000)}
    client.transport.write(encode_command(RemotingCommand(LATER, fields, opaque=1)))
    server.clock.advance(0)
    assert 1_000_000 < server.used < 2_000_000
    end_all(server)
    assert server.used == 0


@pytest.mark.parametrize("character", ["x", "é", "中", "😀"])
@pytest.mark.parametrize("form", SerializeType)
def test_long_texts_cost_what_they_may_take_in_memory(server, client, character, form):
    fields = {"i": character + 600 * "x", f"name {character}": "", "n": 300 * character}
    command = RemotingCommand(LATER, fields, b"body", opaque=1, serialization=form)
    client.transport.write(encode_command(command))
    server.clock.advance(0)
    of_texts = server.used - REQUEST_OVERHEAD - 4 - 3 * FIELD_OVERHEAD
    texts = [*fields, *fields.values()]
    assert sum(len(text.encode()) for text in texts) <= of_texts
    assert of_texts <= sum(100 + 4 * len(text) for text in texts)


@cpython_only("PyPy does not tell the size of a text")
@pytest.mark.parametrize("character", ["x", "é", "中", "😀"])
@pytest.mark.parametrize("form", SerializeType)
def test_long_texts_cost_what_they_take_in_memory(server, client, character, form):
    fields = {"i": character + 600 * "x", f"name {character}": "", "n": 300 * character}
    command = RemotingCommand(LATER, fields, b"body", opaque=1, serialization=form)
    client.transport.write(encode_command(command))
    server.clock.advance(0)
    # Without the UTF-8 that a text remembers once it was encoded.
    texts = [text.encode().decode() for text in (*fields, *fields.values())]
    assert server.used == REQUEST_OVERHEAD + 4 + sum(map(getsizeof, texts)) + 3 * FIELD_OVERHEAD


def test_oneway_requests_over_the_budget_are_not_carried_out():
    server = MemoryServer(max_bytes_in_flight=10_000)
    client = server.connect()
    for _ in range(5):
        client.send(LATER, bytes(4_000), flag=ONEWAY)
        server.clock.advance(0)
    assert len(server.later) == 2
    client.send(ECHO, opaque=2)
    server.clock.advance(0)
    assert [response.code for response in client.responses] == [ResponseCode.SYSTEM_BUSY]


def test_who_holds_little_is_served_whatever_another_one_holds():
    server = MemoryServer(max_bytes_in_flight=40_000)
    greedy, honest = server.connect(), server.connect()
    for opaque in range(20):
        greedy.send(LATER, bytes(4_000), opaque=opaque)
    server.clock.advance(0)
    assert {response.code for response in greedy.responses} == {ResponseCode.SYSTEM_BUSY}
    held = server.used
    assert held > 40_000
    honest.send(ECHO, b"small", opaque=1)
    honest.transport.write(b"\x00\x00\x40\x00" + bytes(4000))
    server.clock.advance(0)
    assert [response.body for response in honest.responses] == [b"small"]
    assert not honest.lost, "a frame that comes in pieces may end"
    assert server.used == held + 4004


def test_what_many_hold_stays_within_one_and_a_half_budgets():
    server = MemoryServer(max_bytes_in_flight=100_000)
    clients = [server.connect() for _ in range(20)]
    for client in clients:
        for opaque in range(10):
            client.send(LATER, bytes(8_000), opaque=opaque)
            server.clock.advance(0)
    assert server.used <= 150_000
    for client in clients:
        client.send(LATER, opaque=10)
    server.clock.advance(0)
    assert server.used <= 150_000


def test_what_a_coroutine_works_on_counts_although_its_connection_is_lost(server, client):
    client.send(HELD, bytes(1000))
    client.send(LATER, bytes(1000))
    server.clock.advance(0)
    client.transport.abortConnection()
    server.clock.advance(0)
    assert server.used == 1000 + REQUEST_OVERHEAD, "the other one is forgotten by who held it"
    end_all(server)
    assert server.used == 0


def test_a_oneway_request_ends_with_its_coroutine(server, client):
    async def nothing(request, peer):
        return None

    server.listener.register(LATER, nothing)
    for _ in range(2):
        client.send(LATER, bytes(1000), flag=ONEWAY)
        server.clock.advance(0)
        assert server.used == 0
    client.send(ECHO)
    server.clock.advance(0)
    assert len(client.responses) == 1


@pytest.mark.parametrize("form", SerializeType)
@pytest.mark.parametrize("flag", [0, ONEWAY])
@pytest.mark.parametrize(
    ("name", "length", "is_served"),
    [
        ("topicList", MAX_HEADER_FIELD, True),
        ("topicList", MAX_HEADER_FIELD + 1, False),
        ("properties", MAX_HEADER_FIELD + 1, True),
        ("i", MAX_HEADER_FIELD + 1, True),
    ],
)
def test_a_field_that_no_client_sends_reaches_no_handler(
    server, client, form, flag, name, length, is_served
):
    fields = {"before": "short", name: "x" * length}
    command = RemotingCommand(ECHO, ext_fields=fields, opaque=7, flag=flag, serialization=form)
    client.transport.write(encode_command(command))
    server.clock.advance(0)
    assert server.served == is_served
    code = ResponseCode.SUCCESS if is_served else ResponseCode.SYSTEM_ERROR
    expected = [] if flag else [(7, code)]
    assert [(each.opaque, each.code) for each in client.responses] == expected
    assert server.used == 0
