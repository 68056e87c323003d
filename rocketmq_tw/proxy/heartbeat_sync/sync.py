"""Tells other proxies of this one's consumers, and hears of theirs."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.heartbeat_sync.members import Members
from rocketmq_tw.proxy.heartbeat_sync.reading import TopicReader
from rocketmq_tw.proxy.heartbeat_sync.records import UNREGISTER, ProxyIdentity, decode_consumer
from rocketmq_tw.proxy.heartbeat_sync.telling import Telling
from rocketmq_tw.proxy.heartbeat_sync.topic import HeartbeatSyncTopic
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.wire.errors import BodyError

_SCAN_SECONDS = 10.0
#: Seconds between two lines of the log about messages that cannot be read.
_WARN_SECONDS = 60.0

log = Logger()


class HeartbeatSync:
    """`members` are the consumers at proxies that brokers know nothing of; `telling` is told of
    those here. `topic` is the topic's name, empty where proxies tell each other nothing; `silence`
    is after how many seconds a member is gone that is told of no more."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        identity: ProxyIdentity,
        topic: str,
        cluster: str,
        silence: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._identity = str(identity)
        self._silence = silence
        self._now_ms = now_ms
        self.topic = topic
        self._warned = LogThrottle[None](_WARN_SECONDS)
        in_slices = Slices(clock)
        place = HeartbeatSyncTopic(clock, brokers, topic, cluster, now_ms)
        self.members = Members(silence)
        self.telling = Telling(clock, place, identity, now_ms)
        self._reader = TopicReader(clock, brokers, place, self.take, silence, in_slices, now_ms)
        self._expiring = PeriodicCall(
            clock,
            "the scan for silent consumers of other proxies",
            _SCAN_SECONDS,
            lambda: in_slices(self.members.expire(clock.seconds())),
        )

    def start(self) -> None:
        """Tells and hears from now on."""
        if self.topic:
            self.telling.start()
            self._reader.start()
            self._expiring.start()

    def stop(self) -> Deferred[None]:
        """Hears no more; fires when others were told that the clients here are gone."""
        self._reader.stop()
        self._expiring.stop()
        return self.telling.stop()

    def take(self, body: bytes, age: float) -> None:
        """Takes a message that is so many seconds old, whatever it holds."""
        if age >= self._silence():
            return
        try:
            record, channel = decode_consumer(body)
        except BodyError as error:
            if self._warned.is_due(None, self._clock.seconds()):
                log.warn(
                    "a message in the topic of proxies tells of no consumer and is passed over:"
                    " {error}",
                    error=error,
                )
            return
        if record.local_proxy_id == self._identity:
            return
        if record.is_known_to_brokers:
            # Which say so themselves; they may not have known it before.
            if not self.members.has(record, channel):
                return
            record.heartbeat_type = UNREGISTER
        heard_at = self._clock.seconds() - age
        heard_ms = self._now_ms() - round(age * 1000)
        self.members.take(record, channel, len(body), heard_at, heard_ms)
