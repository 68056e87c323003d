"""`twistd rmq-spark-receiver`: a group member whose messages go to Spark's network receiver."""

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from twisted.application import service
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.failure import Failure

from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.settings import ConsumerSettings, StartFrom
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.message.names import check_group, check_topic
from rocketmq_tw.net.address import name_server_addresses
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.failed_start import KeysToChange, refuse_to_start
from rocketmq_tw.services.options import (
    read_tls_option,
    refuse_arguments,
    settle_twistd,
    whole_number,
)
from rocketmq_tw.services.process import prepare_process
from rocketmq_tw.spark.dstreams.ports import ControlPort, ReceiverFeed
from rocketmq_tw.spark.dstreams.records import record_of
from rocketmq_tw.spark.dstreams.unconfirmed import Unconfirmed
from rocketmq_tw.wire.errors import RequestError

#: Seconds that a stop waits for confirmations that are on their way; jobs may take hours.
_STOP_SECONDS = 1.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Options(usage.Options):
    """What `twistd rmq-spark-receiver` takes."""

    synopsis = "-g group -t topic [options]"
    optParameters: ClassVar[list[list[Any]]] = [
        ["namesrv", "n", None, "Name servers as host:port, several with ';' between them."],
        ["group", "g", None, "The consumer group that it joins."],
        ["topic", "t", None, "The topic; several with commas between them."],
        ["expression", "e", "*", "The tags to take, as in 'a || b'."],
        ["from", None, "first", "Where a new group starts: first or last."],
        ["interface", "i", "127.0.0.1", "Where to listen; others than loopback need a secret."],
        ["data", "d", 9880, "The port for Spark's receiver.", whole_number("--data", 0, 65535)],
        ["control", "c", 9881, "The port for confirmations.", whole_number("--control", 0, 65535)],
        [
            "max-unconfirmed",
            "m",
            10000,
            "Take no more messages while so many are open.",
            whole_number("--max-unconfirmed", 1),
        ],
        [
            "tls-config",
            None,
            None,
            "Speak TLS as the tls.client keys of this .properties file say.",
        ],
    ]
    optFlags: ClassVar[list[list[Any]]] = [
        ["tls", None, "Speak TLS, without a look at who answers."],
    ]
    #: How name servers and brokers are spoken to; None: in the clear.
    tls: TlsConfig | None = None

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__()
        self._environ = environ
        #: What a job must give with its confirmations. From the environment, so that no list of
        #: processes shows it.
        self.secret = environ.get("RMQ_SPARK_SECRET", "")

    def parseArgs(self, *given: str) -> None:
        refuse_arguments(given)

    def postOptions(self) -> None:
        self["namesrv"] = self["namesrv"] or self._environ.get("NAMESRV_ADDR")
        for name in ("namesrv", "group", "topic"):
            if not self[name]:
                raise usage.UsageError(f"--{name} is missing")
        try:
            name_server_addresses(self["namesrv"])
        except ValueError as error:
            raise usage.UsageError(f"--namesrv: {error}") from error
        if self["from"] not in ("first", "last"):
            raise usage.UsageError(f"--from is {self['from']}: give first or last")
        if self["interface"] not in _LOOPBACK and not self.secret:
            raise usage.UsageError(
                f"--interface {self['interface']} lets others confirm messages: set"
                " RMQ_SPARK_SECRET for both sides, or listen on 127.0.0.1"
            )
        self.tls = read_tls_option(self["tls-config"]) or (TlsConfig() if self["tls"] else None)
        try:
            check_group(self["group"])
            for topic in self.topics:
                check_topic(topic)
        except RequestError as error:
            raise usage.UsageError(error.remark) from error
        settle_twistd(self.parent, LogConfig(), self["data"])

    @property
    def topics(self) -> list[str]:
        return [topic.strip() for topic in self["topic"].split(",") if topic.strip()]


class SparkReceiverService(service.Service):
    """Joins the group when it starts; leaves it, with the confirmed offsets kept, when it stops."""

    log = Logger()

    def __init__(self, reactor: Any, options: Options) -> None:
        self.setName("rmq-spark-receiver")
        self.reactor = reactor
        self.secret = options.secret
        self.unconfirmed = Unconfirmed()
        self._options = options
        self._feed: ReceiverFeed | None = None
        self._ports: list[Any] = []
        #: Fires once the group is joined, or the start has failed.
        self.started: Deferred[None] = succeed(None)
        first = options["from"] == "first"
        settings = ConsumerSettings(
            start_from=StartFrom.FIRST if first else StartFrom.LAST,
            concurrency=options["max-unconfirmed"],
            stop_seconds=_STOP_SECONDS,
        )
        self._consumer = PushConsumer(
            reactor,
            options["namesrv"],
            options["group"],
            self._received,
            tls=options.tls,
            settings=settings,
        )
        for topic in options.topics:
            self._consumer.subscribe(topic, options["expression"])

    def startService(self) -> None:
        interface = self._options["interface"]
        for kind, port in (("data", ReceiverFeed), ("control", ControlPort)):
            factory = Factory.forProtocol(lambda make=port: make(self))  # type: ignore[misc]
            factory.noisy = False
            try:
                self._ports.append(
                    self.reactor.listenTCP(self._options[kind], factory, interface=interface)
                )
            except CannotListenError as error:
                refuse_to_start(self.reactor, error, KeysToChange(f"--{kind}", "--interface"))
                return
        super().startService()
        data, control = (port.getHost().port for port in self._ports)
        self.log.info("data on {data}, control on {control}", data=data, control=control)
        self.started = self._consumer.start()
        self.started.addErrback(self._failed)

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        if self._feed is not None:
            self._feed.drop()
        closed = [port.stopListening() or succeed(None) for port in self._ports]
        # Open messages stay open: the next owner of their queues gets them.
        return gatherResults([*closed, self._consumer.stop()])

    def feed_connected(self, feed: ReceiverFeed) -> None:
        """Takes the newest receiver: an older one has failed without noticing."""
        if self._feed is not None:
            self._feed.drop()
        self._feed = feed
        records = self.unconfirmed.records()
        self.log.info("a receiver came; {count} messages are open", count=len(records))
        for record in records:
            feed.give(record)

    def feed_lost(self, feed: ReceiverFeed) -> None:
        if self._feed is feed:
            self._feed = None
            self.log.info("the receiver left")

    def _received(self, message: ReceivedMessage) -> Deferred[None]:
        """Gives the message to the receiver, and fires once a job confirmed it."""
        done: Deferred[None] = Deferred()
        record = record_of(message)._replace(topic=message.queue.topic)
        self.unconfirmed.add(message.queue, record, lambda: done.callback(None))
        if self._feed is not None:
            self._feed.give(record)
        return done

    def _failed(self, failure: Failure) -> None:
        refuse_to_start(self.reactor, failure.value, KeysToChange())


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    from twisted.internet import reactor

    prepare_process(reactor)
    server = SparkReceiverService(reactor, options)
    return with_start_report(options, server, lambda: server.started)
