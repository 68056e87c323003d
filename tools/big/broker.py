"""A broker with very much: each step of its life."""

from __future__ import annotations

import time
import urllib.request
from datetime import datetime
from pathlib import Path

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.load import send_request
from tests.support.ports import ReservedPort
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import Connection
from tests.support.wait import wait_until
from tools.bench.subjects import OURS, SETTINGS, make_broker, make_name_server
from tools.big.crowd import Crowd
from tools.big.steps import Steps, cpu_seconds
from tools.big.store import Scale, make_store
from tools.big.watch import Watch

_START_LIMIT = 1200.0
_WINDOW = 256
#: Seconds between registrations, so that some come in a short time.
_PERIOD = 10
#: What administrators and slaves ask, with the fields.
_QUESTIONS: dict[str, tuple[int, dict[str, str]]] = {
    "21, all topics": (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
    "43, all consumer offsets": (RequestCode.GET_ALL_CONSUMER_OFFSET, {}),
    "201, all groups": (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
    "45, delay offsets": (RequestCode.GET_ALL_DELAY_OFFSET, {}),
    "28, runtime info": (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
    "202, a topic's offsets": (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "big-topic-00000"}),
    "208, a group's progress": (
        RequestCode.GET_CONSUME_STATS,
        {"consumerGroup": "big-group-00000"},
    ),
    "317, all groups' progress": (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    "300, who consumes a topic": (
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        {"topic": "big-topic-00000"},
    ),
    "306, queues that are left over": (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}),
    "316, topics that nobody has": (RequestCode.CLEAN_UNUSED_TOPIC, {}),
    "329, retention": (RequestCode.DELETE_EXPIRED_COMMITLOG, {}),
}
_OF_CLIENTS: dict[str, tuple[int, dict[str, str]]] = {
    "328, all producers": (RequestCode.GET_ALL_PRODUCER_INFO, {}),
    "203, a group's members": (
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        {"consumerGroup": "big-group-00000"},
    ),
    "307, as it comes to nobody": (
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": "big-group-00000", "clientId": "nobody", "jstackEnable": "false"},
    ),
}


class BigBroker:
    """One run of a broker of `kind` below `home`."""

    def __init__(self, kind: str, home: Path, scale: Scale, settings: dict[str, str]) -> None:
        self.steps = Steps()
        self._kind, self._scale, self._home = kind, scale, home
        self._metrics = ReservedPort()
        self._name_server: NameServerProcess = make_name_server(kind, home / "namesrv")
        own = {
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": str(self._metrics.number),
            "metricsPromExporterHost": "127.0.0.1",
        }
        self._broker: BrokerProcess = make_broker(
            kind,
            home / "broker",
            self._name_server,
            SETTINGS
            | {
                "autoCreateTopicEnable": "true",
                "registerNameServerPeriod": str(_PERIOD * 1000),
                # Only when it is asked for.
                "deleteWhen": str((datetime.now().hour + 12) % 24),
                "diskMaxUsedSpaceRatio": "95",
                "diskSpaceCleanForciblyRatio": "85",
                "cleanFileForciblyEnable": "false",
            }
            | (own if kind == OURS else {})
            | settings,
        )

    def run(self, seconds: float) -> None:
        """Goes through all steps; `seconds`: of each in which nothing is asked."""
        make_store(self._broker.store, self._scale)
        self._name_server.start()
        try:
            self._start("start until a first send")
            self._serve(seconds)
            self._stop("stop")
            self._start("start after a clean stop")
            self._touch_all()
            self._watch_no_more()
            self._broker.kill()
            self._start("start after kill -9, all queues touched")
            self._stop("stop")
        finally:
            self._watch_no_more()
            self._broker.close()
            self._name_server.close()
            self._metrics.release()

    def _start(self, name: str) -> None:
        began = time.perf_counter()
        self._broker.launch()
        self.steps.pid = self._broker.pid
        wait_until(self._takes_a_message, "a first message", limit=_START_LIMIT, interval=0.02)
        self.steps.note(name, time.perf_counter() - began, cpu_seconds(self._broker.pid))
        with self.steps.step("from there until all topics have routes"):
            self._broker.wait_ready(_START_LIMIT)
            last = self._scale.topic_names()[-1]
            wait_until(
                lambda: self._name_server.routes(last, [self._broker]), "the route of all topics"
            )
        self.steps.watch = Watch(
            self._broker.address,
            self._broker.pid,
            RequestCode.GET_MAX_OFFSET,
            {"topic": self._scale.topic_names()[0], "queueId": "0"},
        )

    def _stop(self, name: str) -> None:
        self._watch_no_more()
        with self.steps.step(name):
            self._broker.stop(_START_LIMIT)

    def _watch_no_more(self) -> None:
        watch, self.steps.watch = self.steps.watch, None
        if watch is not None:
            watch.close()

    def _takes_a_message(self) -> bool:
        if not self._broker.running:
            self._broker.wait_ready()
        with Connection(self._broker.address, 600) as connection:
            return not connection.request(send_request("big-topic-00000", 0, b"x")).code

    def _serve(self, seconds: float) -> None:
        steps, scale = self.steps, self._scale
        with steps.step(f"{seconds:g} s of nothing, registrations among them"):
            time.sleep(seconds)
        self._ask_all(_QUESTIONS)
        self._touch_all()
        with steps.step(f"{seconds:g} s after a send to each queue, its checkpoint"):
            time.sleep(seconds)
        self._commit_offsets()
        with steps.step(f"{seconds:g} s after an offset of each queue, its file"):
            time.sleep(seconds)
        self._new_topics(10)
        if self._kind == OURS:
            with steps.step("metrics"):
                url = f"http://127.0.0.1:{self._metrics.number}/metrics"
                urllib.request.urlopen(url, timeout=600).read()
        with steps.step(f"{scale.connections} connections"):
            crowd = Crowd(self._broker.address, scale)
        with crowd:
            with steps.step("a first heartbeat of each"):
                crowd.beat()
            with steps.step("a second heartbeat of each"):
                crowd.beat()
            self._ask_all(_OF_CLIENTS)
            with steps.step(f"{seconds:g} s beside them"):
                time.sleep(seconds)
            if self._kind == OURS:
                with steps.step("metrics beside them"):
                    url = f"http://127.0.0.1:{self._metrics.number}/metrics"
                    urllib.request.urlopen(url, timeout=600).read()
        with steps.step(f"the connections end, {seconds:g} s"):
            time.sleep(seconds)

    def _ask_all(self, questions: dict[str, tuple[int, dict[str, str]]]) -> None:
        for name, (code, fields) in questions.items():
            request = RemotingCommand.request(code)
            request.ext_fields = dict(fields)
            with self.steps.step(name), Connection(self._broker.address, 600) as connection:
                connection.request(request)

    def _pipelined(self, requests: list[RemotingCommand]) -> None:
        with Connection(self._broker.address, 600) as connection:
            waiting = 0
            for request in requests:
                if waiting == _WINDOW:
                    connection.receive()
                    waiting -= 1
                connection.send(request)
                waiting += 1
            for _ in range(waiting):
                connection.receive()

    def _touch_all(self) -> None:
        scale = self._scale
        requests = [
            send_request(topic, queue, b"x" * 128, queues=scale.queues_each)
            for queue in range(scale.queues_each)
            for topic in scale.topic_names()
        ]
        with self.steps.step("a send to each queue"):
            self._pipelined(requests)

    def _commit_offsets(self) -> None:
        requests = []
        for number, topic in enumerate(self._scale.topic_names()):
            for queue in range(self._scale.queues_each):
                request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET)
                request.ext_fields = {
                    "consumerGroup": f"big-group-{number % self._scale.groups:05}",
                    "topic": topic,
                    "queueId": str(queue),
                    "commitOffset": "2",
                }
                requests.append(request)
        with self.steps.step("an offset of each queue"):
            self._pipelined(requests)

    def _new_topics(self, count: int) -> None:
        requests = [
            send_request(f"big-new-{number}", 0, b"x", queues=self._scale.queues_each)
            for number in range(count)
        ]
        with self.steps.step(f"{count} new topics, one after the other"):
            for request in requests:
                with Connection(self._broker.address, 600) as connection:
                    connection.request(request)
