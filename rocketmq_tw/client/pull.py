"""The pull consumer: the application chooses queues and offsets."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.client import commands
from rocketmq_tw.client.members import GroupMember
from rocketmq_tw.client.message import PullResult
from rocketmq_tw.client.name_servers import REQUEST_TIMEOUT
from rocketmq_tw.client.routes import subscribe_queues
from rocketmq_tw.client.session import Session
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.message.logic_queues import LOGIC_BROKER
from rocketmq_tw.message.names import check_group
from rocketmq_tw.message.tags import TAG_TYPE
from rocketmq_tw.wire.bodies.clients import ConsumerData
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.command import RemotingCommand

#: Above the time for which a broker holds an empty pull.
_HOLD_MARGIN = 10.0


class QueuePuller:
    """Requests about single queues; what pull and push consumers are made of."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.group = group
        #: Queue -> broker id that the last pull was told to go on at.
        self._read_from: dict[MessageQueue, int] = {}

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Returns the readable queues of a topic; raises `NoRouteError` where there is no such
        topic."""
        return subscribe_queues(topic, await self.session.route(topic))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = "*",
        expression_type: str = TAG_TYPE,
        max_messages: int = 32,
        suspend_seconds: float = 0.0,
        sub_version: int = 0,
        commit_offset: int | None = None,
        timeout: float | None = None,
        keep_damaged: bool = False,
    ) -> PullResult:
        """Returns messages from `offset` on, from the broker that the last answer named; also
        commits `commit_offset` where that is the master, of a physical queue. With `keep_damaged`
        what is wrong with bodies stands in the result's `problems`; raises `BodyError` for them
        otherwise. Raises `BrokerError`, `NoRouteError` and the errors of the connection."""
        broker_id = self._read_from.get(queue, MASTER_ID)
        # Only a master keeps offsets, and stock's take that of a logic queue for a physical one.
        if broker_id != MASTER_ID or queue.broker_name == LOGIC_BROKER:
            commit_offset = None

        def make(there: MessageQueue) -> RemotingCommand:
            return commands.pull_command(
                self.group,
                there,
                offset,
                expression=expression,
                expression_type=expression_type,
                max_messages=max_messages,
                commit_offset=commit_offset,
                suspend_seconds=suspend_seconds,
                sub_version=sub_version,
            )

        def read(address: str, response: RemotingCommand) -> PullResult:
            return commands.read_pull(
                address, response, queue, expression, expression_type, keep_damaged=keep_damaged
            )

        limit = timeout or REQUEST_TIMEOUT + (suspend_seconds and suspend_seconds + _HOLD_MARGIN)
        result = await self.session.ask_about(queue, make, read, limit, broker_id)
        self._read_from[queue] = result.suggested_broker_id
        return result

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the queue's next message gets."""
        return await self.session.ask_about(
            queue, commands.max_offset_command, commands.read_max_offset
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the oldest offset of the queue."""
        return await self.session.ask_about(
            queue, commands.min_offset_command, commands.read_min_offset
        )

    async def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Returns the first offset stored at or after a time in ms since 1970; `upper`: the last at
        or before it."""
        return await self.session.ask_about(
            queue,
            lambda there: commands.search_offset_command(there, timestamp_ms, upper=upper),
            commands.read_search_offset,
        )

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """Returns where the group goes on; None where it has committed nothing."""
        return await self.session.ask_about(
            queue,
            lambda there: commands.committed_offset_command(self.group, there),
            commands.read_committed_offset,
        )

    async def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Commits where the group goes on, at the queue's master."""
        await self.session.ask_about(
            queue,
            lambda there: commands.commit_offset_command(self.group, there, offset),
            commands.check_success,
        )


class PullConsumer(GroupMember):
    """Reads queues at offsets of the application's choice. Every method returns a Deferred."""

    def __init__(
        self,
        reactor: Any,
        name_servers: str | Sequence[str],
        group: str,
        *,
        session: Session | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.session = session or Session(reactor, name_servers, tls=tls)
        self._reader = QueuePuller(self.session, group)
        self._is_started = False

    def start(self) -> Deferred[None]:
        """Joins the group, as brokers show it; it takes no queues from others of the group."""
        self.session.add_consumer(self)
        self._is_started = True
        self.session.start()
        return self.session.heartbeat()

    def stop(self) -> Deferred[None]:
        """Leaves the group and closes the connections, unless others share the session; a second
        call changes nothing."""
        return Deferred.fromCoroutine(self._stop())

    def queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """Fires with the queues to read of a topic; fails with `NoRouteError` where there is no
        such topic."""
        return Deferred.fromCoroutine(self._reader.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = "*",
        expression_type: str = TAG_TYPE,
        max_messages: int = 32,
        suspend_seconds: float = 0.0,
        timeout: float | None = None,
    ) -> Deferred[PullResult]:
        """Fires with messages from `offset` on. With `suspend_seconds` the broker holds the answer
        for so long where there is none yet."""
        return Deferred.fromCoroutine(
            self._reader.pull(
                queue,
                offset,
                expression=expression,
                expression_type=expression_type,
                max_messages=max_messages,
                suspend_seconds=suspend_seconds,
                timeout=timeout,
            )
        )

    def max_offset(self, queue: MessageQueue) -> Deferred[int]:
        """Fires with the offset that the next message of the queue gets."""
        return Deferred.fromCoroutine(self._reader.max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> Deferred[int]:
        """Fires with the oldest offset that is still there."""
        return Deferred.fromCoroutine(self._reader.min_offset(queue))

    def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False
    ) -> Deferred[int]:
        """Fires with the first offset stored at or after a time in ms; `upper`: the last at or
        before it."""
        return Deferred.fromCoroutine(self._reader.search_offset(queue, timestamp_ms, upper=upper))

    def committed_offset(self, queue: MessageQueue) -> Deferred[int | None]:
        """Fires with where the group goes on; None where it has committed nothing."""
        return Deferred.fromCoroutine(self._reader.committed_offset(queue))

    def commit_offset(self, queue: MessageQueue, offset: int) -> Deferred[None]:
        """Says that the group goes on at `offset`."""
        return Deferred.fromCoroutine(self._reader.commit_offset(queue, offset))

    async def _stop(self) -> None:
        if not self._is_started:
            await self.session.close_unused()
            return
        self._is_started = False
        await self.session.remove_consumer(self.group)
        await self.session.stop()

    def describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
        )
