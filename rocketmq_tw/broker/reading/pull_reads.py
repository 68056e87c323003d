"""Reads what a pull finds in a physical queue of this broker, as a master or a slave answers it.

Rules: stock's `PullMessageProcessor` and `DefaultPullMessageResultHandler` (codes, next offsets),
and `DefaultMessageStore.getMessage` (when a slave is suggested).
"""

from __future__ import annotations

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.store.interface import GetStatus, MessageFilter, QueueRead
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import (
    PULL_COMMIT_OFFSET,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)

_NO_LIMIT = 0x7FFFFFFF
#: Of the answer that tells a group where it was reset to, as stock's.
RESET_REMARK = "OFFSET_RESET"

#: How a read ended -> the code of the answer; for an empty queue see `_code`.
_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer to a pull, unless it is held: the offsets in `header` count in the queue that was
    read."""

    code: ResponseCode
    remark: str | None
    header: PullMessageResponseHeader
    data: bytes = b""
    #: How many messages `data` has, and how many seconds it took to read them.
    messages: int = 0
    seconds: float = 0.0
    #: Nothing was read, since the group's offset was reset.
    is_reset: bool = False


class PullReads(Part):
    """Reads for pulls that are authorised, keeps their groups' offsets, and counts what is
    answered."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        stats: Stats,
        replicas: Replicas,
    ) -> None:
        self._config = host.config
        self._store_config = host.store_config
        self._seconds = host.reactor.seconds
        self._role = role
        self._store = writing.store
        self._offsets = tables.offsets
        self._stats = stats
        #: Tells a slave whether clients will find its master.
        self._clients_find_master = replicas.clients_find_master

    @property
    def is_unserved(self) -> bool:
        """Whether the broker is a slave that serves no reads (`slaveReadEnable`); one that acts for
        its master does."""
        return self._role.is_slave and not self._config.slave_read_enable

    def read(
        self,
        header: PullMessageRequestHeader,
        wanted: MessageFilter,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        committer: str | None,
    ) -> PullAnswer:
        """Reads the queue of `header`, of this group and topic, or tells the group where its offset
        was reset to. The offset that the pull commits is taken over in the name of `committer`, an
        address; None: it was when the pull came first."""
        queue_id = header.queue_id
        reset, seconds = None, 0.0
        if self._config.use_server_side_reset_offset:
            reset = self._offsets.take_reset(header.consumer_group, header.topic, queue_id)
        if reset is not None:
            read, code = self._at_reset(header, reset), ResponseCode.PULL_OFFSET_MOVED
        else:
            began = self._seconds()
            # The store has limits of its own; the client may ask for less.
            read = self._store.read_queue(
                header.topic,
                queue_id,
                header.queue_offset,
                header.max_msg_nums,
                header.max_msg_bytes or _NO_LIMIT,
                wanted,
                check_fresh=False,
            )
            seconds = self._seconds() - began
            code = _code(read.status, header.queue_offset)
            if committer is not None and header.sys_flag & PULL_COMMIT_OFFSET:
                self._commit_offset(header, committer)
        self._offsets.pulled.note(header.consumer_group, header.topic, queue_id, read.next_offset)
        return PullAnswer(
            self._code_of_slave(code) if self._role.is_slave else code,
            read.status.name if reset is None else RESET_REMARK,
            PullMessageResponseHeader(
                suggest_which_broker_id=self._suggest_broker(read, group),
                next_begin_offset=read.next_offset,
                min_offset=read.min_offset,
                max_offset=read.max_offset,
                topic_sys_flag=topic.topic_sys_flag,
                group_sys_flag=group.group_sys_flag or 0,
            ),
            read.data,
            read.messages,
            seconds,
            reset is not None,
        )

    def count(self, header: PullMessageRequestHeader, answer: PullAnswer) -> None:
        """Counts an answer that leaves now."""
        topic, group, messages = header.topic, header.consumer_group, answer.messages
        self._stats.pulled(topic, group, messages, len(answer.data), answer.seconds)
        if messages:
            took = int(answer.seconds * 1000)
            self._stats.traffic.answered(topic, group, header.queue_id, took)

    def send_to_master(self, header: PullMessageRequestHeader) -> PullAnswer:
        """Returns the answer where `is_unserved`: stock 4.9's while there is a master, 5.3's, which
        makes a client pause, while there is none."""
        if not self._clients_find_master():
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                "this broker is a slave that serves no reads (slaveReadEnable) and has no master",
            )
        topic, queue_id = header.topic, header.queue_id
        return PullAnswer(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "this broker is a slave that serves no reads (slaveReadEnable): ask its master",
            PullMessageResponseHeader(
                suggest_which_broker_id=MASTER_ID,
                next_begin_offset=header.queue_offset,
                min_offset=self._store.min_queue_offset(topic, queue_id),
                max_offset=self._store.max_queue_offset(topic, queue_id),
            ),
        )

    def _at_reset(self, header: PullMessageRequestHeader, offset: int) -> QueueRead:
        topic, queue_id = header.topic, header.queue_id
        return QueueRead(
            status=GetStatus.OFFSET_FOUND_NULL,
            data=b"",
            messages=0,
            next_offset=offset,
            min_offset=self._store.min_queue_offset(topic, queue_id),
            max_offset=self._store.max_queue_offset(topic, queue_id),
        )

    def _commit_offset(self, header: PullMessageRequestHeader, committer: str) -> None:
        if header.commit_offset >= 0:
            self._offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                committer,
            )

    def _suggest_broker(self, read: QueueRead, group: SubscriptionGroupConfig) -> int:
        """Returns the id of the broker from which the consumer had better pull next."""
        if not self._config.slave_read_enable or self._config.is_in_broker_container:
            return MASTER_ID
        if self._role.role is Role.ACTING_MASTER:
            # Clients take the acting master for the master.
            return MASTER_ID
        if read.suggest_slave:
            return group.which_broker_when_consume_slowly
        return MASTER_ID if self._role.copies_log else group.broker_id

    def _code_of_slave(self, code: ResponseCode) -> ResponseCode:
        """A slave may lag behind: for what it lacks clients are sent to the master, and wait while
        there is none."""
        if code is ResponseCode.SUCCESS:
            return code
        moved = code is ResponseCode.PULL_OFFSET_MOVED
        if moved and self._store_config.offset_check_in_slave:
            return code
        if self._clients_find_master():
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return ResponseCode.PULL_NOT_FOUND if moved else code


def _code(status: GetStatus, offset: int) -> ResponseCode:
    code = _CODES.get(status)
    if code is None:
        # The queue is empty or not there: an offset other than 0 cannot be right.
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return code
