"""Timed messages, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.engine import TimerEngine
from rocketmq_tw.broker.timer.off import TimerOff
from rocketmq_tw.broker.timer.recall import RecallRequests
from rocketmq_tw.broker.timer.redirect import TimerRedirect
from rocketmq_tw.broker.writing.part import STORAGE, Writing
from rocketmq_tw.broker.writing.redirects import Stage
from rocketmq_tw.message.properties import TIMER_PROPERTIES
from rocketmq_tw.metrics.instruments import Metric, gauge, labelled
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError


class Timer(Part):
    """Delivers timed messages, recalls some (request 370), and tells how far it is (60) and how
    many wait (61). With timerWheelEnable=false it leaves the files as they are and follows its
    master's checkpoint only.
    """

    def __init__(
        self, host: Host, addresses: Addresses, role: RoleHolder, writing: Writing, tables: Tables
    ) -> None:
        self.engine: TimerEngine | TimerOff
        if host.store_config.timer_wheel_enable:
            self.engine = TimerEngine(host, role, writing, tables.topics)
            writing.truncation.register(self.engine.derived)
        else:
            self.engine = TimerOff(host, writing)
        self.books = self.engine.books
        self.progress = self.books.progress
        redirect = TimerRedirect(host, self.books.rules, self.books.files.number)
        writing.redirects.by_property(Stage.TIMER, TIMER_PROPERTIES, redirect.redirect)
        writing.store.retention.still_needed.register("timed messages", self.engine.places)
        tables.topics.removed.add(self.books.counts.forget_figures)
        self._recall = RecallRequests(host, addresses, tables.topics, writing)

    # Life

    def start(self) -> Deferred[Any] | None:
        return self.engine.start()

    def enter(self, state: RoleState) -> Deferred[Any] | None:
        # A slave that is to act for its master follows it no more.
        return self.engine.end() if state.role is Role.ACTING_MASTER else None

    def ready(self, state: RoleState) -> None:
        self.engine.begin()

    def leave(self, state: RoleState) -> Deferred[Any] | None:
        ended = self.engine.end()
        if state.role is Role.ACTING_MASTER:
            ended.addCallback(lambda _: self.engine.begin())
        return ended

    def stop(self) -> Deferred[Any] | None:
        return self.engine.close()

    def tables(self) -> Iterable[KeptTable]:
        yield self.engine.table()

    def periodic(self) -> Iterable[Periodic]:
        return self.engine.periodic()

    # Requests and figures

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint,
            RequestCode.GET_TIMER_METRICS: self.metrics_table,
        } | self._recall.handlers(role)

    def checkpoint(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers request 60. Raises `RequestError` where there is no checkpoint, as stock with its
        timer off: a zero would make a slave of stock believe that time starts anew."""
        checkpoint = self.engine.checkpoint()
        if checkpoint is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "no timer was ever at work here")
        return request.response(body=checkpoint.encode())

    def metrics_table(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers request 61. Raises `RequestError` where there is no timer."""
        return request.response(body=encode_body(self.engine.counts()))

    def runtime_info(self) -> Mapping[str, str]:
        """Returns the timer's figures; all are 0 where there is no timer, as in stock."""
        books = self.books
        entered, delivered = books.rates()
        return {
            "timerReadBehind": str(self.engine.behind_ms() // 1000),
            "timerOffsetBehind": str(self.engine.messages_behind),
            "timerCongestNum": str(max(books.waiting, 0)),
            "timerEnqueueTps": f"{entered:.1f}",
            "timerDequeueTps": f"{delivered:.1f}",
        }

    def metrics(self) -> Iterable[Metric]:
        return labelled(self._figures(), STORAGE)

    def _figures(self) -> Iterable[Metric]:
        books, engine = self.books, self.engine
        yield gauge("rocketmq_timer_enqueue_lag", engine.messages_behind)
        yield gauge(
            "rocketmq_timer_enqueue_latency", engine.enqueue_latency_ms, unit="milliseconds"
        )
        yield gauge("rocketmq_timer_dequeue_lag", max(books.waiting, 0))
        yield gauge("rocketmq_timer_dequeue_latency", engine.behind_ms(), unit="milliseconds")
        yield from books.counts.metrics()
        yield from engine.snapshot()
