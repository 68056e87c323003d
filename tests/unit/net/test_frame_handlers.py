"""Handlers that take requests before these become commands."""

from __future__ import annotations

from typing import Any

import pytest
from zope.interface.verify import verifyObject

from rocketmq_tw.broker.assembly.fast_failure import FastFailure
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.checks import RequestChecks
from rocketmq_tw.net.connection import REQUEST_OVERHEAD
from rocketmq_tw.net.interfaces import AccessChecks, IFramePeer, ISelectiveCheck, RequestCheck
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import (
    ONEWAY_FLAG,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.frame import Frame
from tests.support.memory_server import BIG, MemoryServer
from tests.support.network import FakePeer

CODE, OTHER = 310, 311


class World:
    """A server that takes frames with CODE, and answers them when it is told to; what is left to it
    as a command has a remark. A body `leave` is left."""

    def __init__(self, *checks: RequestCheck, **config: int) -> None:
        self.server = MemoryServer(access=AccessChecks(requests=checks), **config)
        self.taken: list[tuple[IFramePeer, RemotingCommand]] = []
        self.came: list[bytes] = []
        self.seen: list[object] = []
        self.server.listener.observe(lambda result, _: self.seen.append(result))
        handlers = {**self.server.listener.handlers, CODE: self.command, OTHER: self.command}
        self.server.listener.serve(handlers, {CODE: self.take})
        self.client = self.server.connect()

    def take(self, frame: Frame, peer: IFramePeer) -> bool:
        command = decode_command(frame)
        if frame.body == b"leave" or not peer.accepts(frame, CODE):
            return False
        if peer.has_open(command.opaque):
            return False
        oneway = bool(command.flag & ONEWAY_FLAG)
        peer.opened(CODE, command.opaque, len(frame.body), oneway=oneway)
        self.came.append(frame.body)
        self.taken.append((peer, command))
        return True

    def command(self, request: RemotingCommand, peer: object) -> RemotingCommand:
        self.came.append(request.body)
        return request.response(remark="a command")

    def send(self, *requests: tuple[int, bytes], flag: int = 0, first: int = 1) -> None:
        self.client.transport.write(
            b"".join(
                encode_command(RemotingCommand(code, body=body, opaque=opaque, flag=flag))
                for opaque, (code, body) in enumerate(requests, first)
            )
        )
        self.server.clock.advance(0)

    def answer(self) -> None:
        for peer, command in self.taken:
            answer = encode_command(command.response(remark="taken"))
            peer.reply_encoded(command.opaque, b"" if command.is_oneway else answer)
        self.taken.clear()
        self.server.clock.advance(0)

    @property
    def remarks(self) -> dict[int, str | None]:
        return {each.opaque: each.remark for each in self.client.responses}


def nobody(request: RemotingCommand, peer: object) -> None:
    raise RequestError(ResponseCode.NO_PERMISSION, "nobody")


def anybody(request: RemotingCommand, peer: object) -> None:
    """It does not say what passes it."""


def test_it_takes_what_it_knows_in_the_order_in_which_it_comes() -> None:
    world = World()
    world.send((CODE, b"1"), (OTHER, b"2"), (CODE, b"leave"), (CODE, b"4"), (CODE, b"5"))
    assert world.came == [b"1", b"2", b"leave", b"4", b"5"]
    world.answer()
    assert world.remarks == {
        1: "taken",
        2: "a command",
        3: "a command",
        4: "taken",
        5: "taken",
    }
    assert verifyObject(IFramePeer, next(iter(world.server.listener.connections._open)))


def test_a_request_counts_until_it_is_answered() -> None:
    world = World()
    world.send((CODE, bytes(1000)), (CODE, bytes(10)))
    assert world.server.used == 1010 + 2 * REQUEST_OVERHEAD
    (connection,) = world.server.listener.connections._open
    assert connection.unanswered == 2 and world.seen == []
    world.answer()
    assert world.server.used == 0 and connection.unanswered == 0
    assert world.seen == [(CODE, 0, False, "success")] * 2


def test_a_oneway_request_is_over_without_an_answer() -> None:
    world = World()
    world.send((CODE, bytes(1000)), flag=ONEWAY_FLAG)
    (connection,) = world.server.listener.connections._open
    assert connection.unanswered == 0 and world.server.used == 1000 + REQUEST_OVERHEAD
    world.answer()
    assert world.server.used == 0 and world.remarks == {}
    assert world.seen == [(CODE, 0, False, "oneway")]


def test_a_lost_connection_ends_it_once() -> None:
    world = World()
    world.send((CODE, bytes(1000)))
    world.client.transport.abortConnection()
    world.server.clock.advance(0)
    assert world.server.used == 0
    world.answer()
    assert world.server.used == 0
    assert world.seen == [(CODE, None, False, "write_channel_failed")]


def test_an_opaque_that_is_open_is_left_to_the_other_way() -> None:
    world = World()
    world.send((CODE, b"1"))
    world.send((CODE, b"2"))
    assert world.came == [b"1", b"2"] and len(world.taken) == 1
    world.answer()
    assert [each.remark for each in world.client.responses] == ["a command", "taken"]
    assert world.server.used == 0


def test_without_memory_it_is_left_to_the_other_way() -> None:
    world = World(max_bytes_in_flight=3000)
    world.send((CODE, bytes(2000)), (CODE, b"2"))
    assert len(world.taken) == 1
    assert world.client.responses[0].code == ResponseCode.SYSTEM_BUSY


def test_a_long_header_is_left_to_the_other_way() -> None:
    world = World()
    command = RemotingCommand(CODE, {"field": "x" * 600}, opaque=1)
    world.client.transport.write(encode_command(command))
    world.server.clock.advance(0)
    assert world.remarks == {1: "a command"}


@pytest.mark.parametrize(("check", "remark"), [(nobody, "nobody"), (anybody, "a command")])
def test_a_check_that_may_refuse_it_sees_it(check: RequestCheck, remark: str) -> None:
    world = World(check)
    world.send((CODE, b"1"))
    assert world.taken == [] and world.remarks == {1: remark}


def test_it_waits_while_answers_are_not_taken() -> None:
    world = World()
    world.client.transport.hold()
    world.send(*[(BIG, b"")] * 12, (CODE, b"1"), first=100)
    assert world.taken == []
    world.client.transport.let_go()
    for _ in range(50):
        world.server.clock.advance(0)
    assert len(world.taken) == 1


@pytest.mark.parametrize("code", RequestCode)
def test_a_check_says_of_what_it_would_refuse_nothing(code: RequestCode) -> None:
    net = NettyServerConfig(cluster_addresses="10.9.9.9", admin_addresses="10.9.9.9")
    busy: list[Any] = [FastFailure(BrokerConfig(), lambda s=s: s) for s in (0.0, 0.1, 1000.0)]
    for check in (*request_checks(net, lambda: 0.0), *busy):
        refused = False
        try:
            check(RemotingCommand(code), FakePeer("10.0.0.1:5000"))
        except RequestError:
            refused = True
        assert verifyObject(ISelectiveCheck, check)
        checks = RequestChecks([check])
        assert not refused or (checks.of(code) == (check,) and not checks.let_all_pass(code))
        assert checks.let_all_pass(CODE) or check in busy[1:]


def test_a_handler_that_is_registered_has_all_requests_of_its_code() -> None:
    world = World()
    world.server.listener.register(CODE, world.command)
    world.send((CODE, b"a"))
    assert not world.taken
    assert world.came == [b"a"]


def test_nothing_is_taken_of_a_connection_that_closes() -> None:
    world = World()
    closing = []

    def close(frame: Frame, peer: Any) -> bool:
        taken = world.take(frame, peer)
        peer.close("it is enough")
        closing.append(peer)
        return taken

    world.server.listener.serve({CODE: world.command}, {CODE: close})
    world.send((CODE, b"1"), (CODE, b"2"))
    assert world.came == [b"1"]
