"""Answers what administrators change: 205, 327 permissions; 216, 217 topics; 318, 319
configuration."""

from collections.abc import Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.namesrv.brokers import check_name
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.net.changes import changed, listed, who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.live_config import LiveConfig
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.wire.bodies.base import decode_request
from rocketmq_tw.wire.bodies.route import QueueData, TopicQueuesBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

#: Of one topic; a broker takes 130.
MAX_ROUTE_BYTES = 256 * 1024


class NamesrvAdminRequests:
    """Changes brokers' permissions, topics and the configuration, and logs who asked for it."""

    log = Logger()

    def __init__(self, table: RouteTable, config: LiveConfig, in_slices: Slices) -> None:
        self._in_slices = in_slices
        self._table = table
        self._config = config

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    # As in stock, something missing is no error: the answer is the usual success.

    def wipe_write_permission(
        self, request: RemotingCommand, peer: IPeer
    ) -> Deferred[RemotingCommand]:
        """Answers 205: takes the write permission of all topics of a broker; tells how many they
        are. Asked by a stranger, that holds until the broker's next registration."""
        name = request.header(WipeWritePermOfBrokerRequestHeader).broker_name
        what = f"took the write permission of broker {name!r}"
        return self._set_writable(name, False, peer, what).addCallback(
            lambda count: request.response(
                remark=_how_long(count, peer),
                header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count),
            )
        )

    def add_write_permission(
        self, request: RemotingCommand, peer: IPeer
    ) -> Deferred[RemotingCommand]:
        """Answers 327: gives all topics of a broker read and write permission, for as long as 205
        takes the latter; tells how many they are."""
        name = request.header(AddWritePermOfBrokerRequestHeader).broker_name
        what = f"gave broker {name!r} its write permission"
        return self._set_writable(name, True, peer, what).addCallback(
            lambda count: request.response(
                remark=_how_long(count, peer),
                header=AddWritePermOfBrokerResponseHeader(add_topic_count=count),
            )
        )

    def _set_writable(
        self, broker_name: str, writable: bool, peer: IPeer, what: str
    ) -> Deferred[int]:
        if not peer.identity.is_administrator:
            self._table.overrule(broker_name)
        changes: dict[tuple[int, int], int] = {}
        count, steps = self._table.set_writable(broker_name, writable, changes)

        def end(_: object) -> int:
            told = (f"perm {changed(*perms)} in {n}" for perms, n in changes.items())
            self._say_changed(peer, f"{what} in {count} topics: {listed(told)}", count)
            return count

        return self._in_slices(steps).addCallback(end)

    def delete_topic(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 216: forgets a topic, of one cluster's brokers or of all."""
        header = request.header(DeleteTopicFromNamesrvRequestHeader)
        before = dict(self._table.queues.of_topic(header.topic))
        count = self._table.delete_topic(header.topic, header.cluster_name)
        for name in self._table.queues.of_topic(header.topic):
            del before[name]
        what = changed(f"deleted topic {header.topic!r}", _describe_queues(before))
        self._say_changed(peer, what, count)
        return request.response()

    def register_topic(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 217: adds the queues of a topic to registered brokers. Raises SYSTEM_ERROR where
        they have more than `MAX_ROUTE_BYTES`, are not sound, or find no room in the table."""
        header = request.header(RegisterTopicRequestHeader)
        if len(request.body) > MAX_ROUTE_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the queues of a topic in {len(request.body)} bytes: send at most"
                f" {MAX_ROUTE_BYTES}",
            )
        route = decode_request(TopicQueuesBody, request.body) if request.body else TopicQueuesBody()
        check_name("topic", header.topic)
        known = self._table.queues.of_topic(header.topic)
        names = {each.broker_name for each in route.queue_datas}
        before = {name: known[name] for name in sorted(names) if name in known}
        if self._table.register_topic(header.topic, route.queue_datas):
            now = {each.broker_name: each for each in route.queue_datas}
            self._say_registered(peer, header.topic, now, before)
        else:
            self._log_change(
                peer, f"named a broker that is not registered for topic {header.topic!r}"
            )
        return request.response()

    def _say_registered(
        self,
        peer: IPeer,
        topic: str,
        now: Mapping[str, QueueData],
        before: Mapping[str, QueueData],
    ) -> None:
        # Brokers with enableSingleTopicRegister may say the same again and again.
        if now != before:
            told = changed(_describe_queues(now), _describe_queues(before) if before else None)
            self._log_change(peer, f"registered topic {topic!r}: {told}")

    def update_config(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 318: changes keys; fails as `LiveConfig.update` does."""
        updated = self._config.update(request.body, peer)
        return updated.addCallback(lambda remark: request.response(remark=remark or None))

    def get_config(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 319: every key that may be told, as .properties text."""
        return request.response(body=self._config.text().encode())

    def _say_changed(self, peer: IPeer, what: str, count: int) -> None:
        if count:
            self._log_change(peer, what)

    def _log_change(self, peer: IPeer, what: str) -> None:
        self.log.info("{peer} {what}", peer=who(peer), what=what)


def _how_long(count: int, peer: IPeer) -> str | None:
    """Says that permissions that a stranger changed do not last."""
    if peer.identity.is_administrator or not count:
        return None
    return (
        "it holds until the broker registers again, as its registerNameServerPeriod says (30 s by"
        " default): ask from the name server's own machine, or add"
        f" {host_of(peer.address)} to adminAddresses in its file and restart it"
    )


def _describe_queues(queues: Mapping[str, QueueData]) -> str:
    """Says which queues a topic has on which brokers."""
    told = (
        f"{name}: {each.read_queue_nums} to read, {each.write_queue_nums} to write,"
        f" perm {each.perm}"
        for name, each in queues.items()
    )
    return listed(told, len(queues))
