"""Requests 11 and 361: a consumer reads a queue, and may wait for what is not there yet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.filters.compile_budget import BudgetSpent
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.interfaces import (
    GetStatus,
    IMessageStore,
    MessageFilter,
    QueueRead,
)
from rocketmq_tw.broker.reading.held_pulls import HeldPulls
from rocketmq_tw.broker.reading.logic_pull import LogicPull, Offsets
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.static_topics.others import OtherBrokers
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rocketmq_tw.wire.permissions import is_readable

#: `forbiddenType` of a NO_PERMISSION answer: what forbids the pull.
BROKER_FORBIDDEN = 1
GROUP_FORBIDDEN = 2
TOPIC_FORBIDDEN = 3
BROADCASTING_FORBIDDEN = 4
SUBSCRIPTION_FORBIDDEN = 5

_NO_LIMIT = 0x7FFFFFFF
_SYSTEM_GROUP = "CID_RMQ_SYS_"

#: How a read ended to the code of the answer; where nothing is in the queue see `_code`.
_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}

#: Codes of answers that have the header of a read.
_PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)

log = Logger()


class _Forbidden(RequestError):
    """NO_PERMISSION with the reason as stock's clients read it."""

    def __init__(self, forbidden_type: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


class PullRequests:
    """Reads queues for consumers: answers at once, or holds the read with `held`."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        role: RoleHolder,
        store: IMessageStore,
        tables: Tables,
        clients: ClientRegistry,
        filters: MessageFilters,
        others: OtherBrokers,
        held: HeldPulls,
        pulled: Callable[[str, str, int, int, float], None],
        master_is_near: Callable[[], bool],
        seconds: Callable[[], float],
    ) -> None:
        """`pulled(topic, group, messages, bytes, seconds)` is told what each answer takes along
        and how long its read took by the clock `seconds`; `master_is_near` tells a slave whether
        clients will find its master."""
        self._config = config
        self._store_config = store_config
        self._role = role
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clients = clients
        self._mappings = tables.mappings
        self._others = others
        self._filters = filters
        self._held = held
        self._pulled = pulled
        self._master_is_near = master_is_near
        self._seconds = seconds

    def handlers(self) -> dict[int, Handler]:
        pull = self._filters.budget.retrying(self.pull)
        return {RequestCode.PULL_MESSAGE: pull, RequestCode.LITE_PULL_MESSAGE: pull}

    def pull(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        """The answer, or what fires with it; None where the read is held and answered later."""
        return self._serve(request, peer, may_suspend=True)

    def _resume(self, request: RemotingCommand, peer: IPeer) -> None:
        def refuse(failure: Failure) -> RemotingCommand:
            error = failure.value
            if isinstance(error, RequestError):
                return request.response(error.code, error.remark)
            log.failure("a held pull of {address}", failure=failure, address=peer.address)
            return request.response(
                ResponseCode.SYSTEM_ERROR, "the pull failed; see the broker's log"
            )

        try:
            response = self._serve(request, peer, may_suspend=False)
        except BudgetSpent:
            self._filters.budget.postpone(peer, lambda: self._resume(request, peer))
            return
        except Exception:
            response = refuse(Failure())
        if isinstance(response, Deferred):
            response.addErrback(refuse).addCallback(peer.reply)
        else:
            assert response is not None
            peer.reply(response)

    def _serve(
        self, request: RemotingCommand, peer: IPeer, *, may_suspend: bool
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        if self._role.copies_log and not self._config.slave_read_enable:
            return self._send_to_master(request)
        header = request.header(PullMessageRequestHeader)
        if header.topic not in self._mappings or header.lo is False:
            return self._answer(request, header, None, peer, may_suspend=may_suspend)
        queue = self._mappings.queue(header.topic, header.queue_id)
        logic = LogicPull(queue, header)
        if self._mappings.is_here(logic.item):
            return self._answer(request, logic.header, logic, peer, may_suspend=may_suspend)
        return Deferred.fromCoroutine(self._elsewhere(request, logic))

    async def _elsewhere(self, request: RemotingCommand, logic: LogicPull) -> RemotingCommand:
        """Reads a physical queue of another broker."""
        header = logic.for_other_broker()
        answer = await self._others.ask(
            logic.item.bname, header.topic, RequestCode.PULL_MESSAGE, header
        )
        if answer.code not in _PULL_CODES:
            raise RequestError(answer.code, answer.remark or "")
        read = answer.header(PullMessageResponseHeader)
        offsets = logic.logic(
            Offsets(
                ResponseCode(answer.code), read.next_begin_offset, read.min_offset, read.max_offset
            )
        )
        found = msgspec.structs.replace(
            read,
            suggest_which_broker_id=MASTER_ID,
            next_begin_offset=offsets.next,
            min_offset=offsets.min,
            max_offset=offsets.max,
            offset_delta=offsets.delta,
        )
        return request.response(offsets.code, answer.remark, header=found, body=answer.body)

    def _answer(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        logic: LogicPull | None,
        peer: IPeer,
        *,
        may_suspend: bool,
    ) -> RemotingCommand | None:
        """Reads a physical queue; `logic` has what of it is asked for by its logic queue."""
        try:
            group, topic = self._check(request.code, header)
            wanted = self._filter(header, group, peer)
        except _Forbidden as error:
            response = request.response(error.code, error.remark)
            response.ext_fields["forbiddenType"] = str(error.forbidden_type)
            return response
        reset, took = None, 0.0
        if self._config.use_server_side_reset_offset:
            reset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            read, code = self._reset_to(header, reset), ResponseCode.PULL_OFFSET_MOVED
        else:
            began = self._seconds()
            read = self._read(header, wanted)
            took = self._seconds() - began
            code = _code(read.status, header.queue_offset)
            if may_suspend and header.sys_flag & PULL_COMMIT_OFFSET:
                self._commit_offset(header, peer)
        self._offsets.pulled.note(
            header.consumer_group, header.topic, header.queue_id, read.next_offset
        )
        suggested = self._suggest_broker(read, group)
        if self._role.copies_log:
            code = self._code_of_slave(code)
        next_offset, min_offset, max_offset = read.next_offset, read.min_offset, read.max_offset
        delta = None
        if logic is not None:
            rewrite = logic.logic if reset is None else logic.moved_to
            code, next_offset, min_offset, max_offset, delta = rewrite(
                Offsets(code, next_offset, min_offset, max_offset)
            )
        if code is ResponseCode.PULL_NOT_FOUND and may_suspend and header.sys_flag & PULL_SUSPEND:
            # Nothing of it is read, and it would be kept as long as the request.
            request.body = b""
            held = self._held.hold(
                (header.topic, header.queue_id),
                header.queue_offset,
                wanted,
                header.suspend_timeout_millis,
                peer,
                lambda: self._resume(request, peer),
            )
            if held:
                return None
        self._pulled(header.topic, header.consumer_group, read.messages, len(read.data), took)
        return request.response(
            code,
            read.status.name if reset is None else "OFFSET_RESET",
            header=PullMessageResponseHeader(
                suggest_which_broker_id=suggested,
                next_begin_offset=next_offset,
                min_offset=min_offset,
                max_offset=max_offset,
                offset_delta=delta,
                topic_sys_flag=topic.topic_sys_flag,
                group_sys_flag=group.group_sys_flag or 0,
            ),
            body=read.data,
        )

    # Checks

    def _check(
        self, code: int, header: PullMessageRequestHeader
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        config = self._config
        if not is_readable(config.broker_permission):
            raise _Forbidden(
                BROKER_FORBIDDEN, f"the broker {config.broker_ip1} may not be read from"
            )
        if code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise _Forbidden(
                BROKER_FORBIDDEN, f"the broker {config.broker_ip1} takes no lite pull consumers"
            )
        group = self._groups.known(header.consumer_group)
        if not group.consume_enable:
            raise _Forbidden(GROUP_FORBIDDEN, f"group {header.consumer_group} may not consume")
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"{header.topic} is no topic of this broker: create it (rmqadmin updateTopic)",
            )
        if not is_readable(topic.perm):
            raise _Forbidden(TOPIC_FORBIDDEN, f"the topic {header.topic} may not be read from")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{header.topic} has no queue {header.queue_id}:"
                f" it has {topic.read_queue_nums} to read from",
            )
        return group, topic

    def _filter(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig, peer: IPeer
    ) -> MessageFilter:
        """What the pull's own expression or the group's subscription asks for."""
        if header.sys_flag & PULL_SUBSCRIPTION:
            wanted = self._filters.of_expression(header.subscription, header.expression_type)
        else:
            wanted = self._subscribed_filter(header, group)
        if self._config.reject_pull_consumer_enable:
            self._check_pull_consumer(header.consumer_group, peer)
        return wanted

    def _subscribed_filter(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> MessageFilter:
        consumers = self._clients.consumer_group(header.consumer_group)
        if consumers is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no consumer of group {header.consumer_group} is known: send a heartbeat first",
            )
        if consumers.is_broadcasting and not group.consume_broadcast_enable:
            raise _Forbidden(
                BROADCASTING_FORBIDDEN, f"group {header.consumer_group} may not broadcast"
            )
        if not self._groups.may_read(header.consumer_group, header.topic):
            raise _Forbidden(
                SUBSCRIPTION_FORBIDDEN,
                f"group {header.consumer_group} may not read the topic {header.topic}",
            )
        subscription = consumers.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"group {header.consumer_group} does not subscribe to {header.topic}:"
                " all its consumers must have the same subscriptions",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of {header.consumer_group} is older than the pull's:"
                " send a heartbeat first",
            )
        return self._filters.of_subscription(consumers, subscription, header.sub_version)

    def _check_pull_consumer(self, name: str, peer: IPeer) -> None:
        consumers = self._clients.consumer_group(name)
        if consumers is not None and consumers.consume_type != "CONSUME_ACTIVELY":
            return
        if (consumers is None or peer not in consumers.clients) and not name.startswith(
            _SYSTEM_GROUP
        ):
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the broker takes no pull consumers (rejectPullConsumerEnable); group {name}",
            )

    # The read

    def _read(self, header: PullMessageRequestHeader, wanted: MessageFilter) -> QueueRead:
        """The store has limits of its own; the client may ask for less."""
        return self._store.read_queue(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            header.max_msg_bytes or _NO_LIMIT,
            wanted,
        )

    def _reset_to(self, header: PullMessageRequestHeader, offset: int) -> QueueRead:
        topic, queue_id = header.topic, header.queue_id
        return QueueRead(
            status=GetStatus.OFFSET_FOUND_NULL,
            data=b"",
            messages=0,
            next_offset=offset,
            min_offset=self._store.min_queue_offset(topic, queue_id),
            max_offset=self._store.max_queue_offset(topic, queue_id),
        )

    def _commit_offset(self, header: PullMessageRequestHeader, peer: IPeer) -> None:
        if header.commit_offset >= 0:
            self._offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                peer.address,
            )

    def _suggest_broker(self, read: QueueRead, group: SubscriptionGroupConfig) -> int:
        """Where the consumer had better pull next."""
        if not self._config.slave_read_enable:
            return MASTER_ID
        if read.suggest_slave:
            return group.which_broker_when_consume_slowly
        return MASTER_ID if self._role.copies_log else group.broker_id

    def _code_of_slave(self, code: ResponseCode) -> ResponseCode:
        """A slave may lag behind: what it lacks is asked of the master before it is believed, and
        waited for while there is none."""
        if code is ResponseCode.SUCCESS:
            return code
        moved = code is ResponseCode.PULL_OFFSET_MOVED
        if moved and self._store_config.offset_check_in_slave:
            return code
        if self._master_is_near():
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return ResponseCode.PULL_NOT_FOUND if moved else code

    def _send_to_master(self, request: RemotingCommand) -> RemotingCommand:
        """Nobody reads here (slaveReadEnable): stock 4.9's answer while there is a master, 5.3's,
        which makes a client pause, while there is none."""
        if not self._master_is_near():
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                "this broker is a slave that serves no reads (slaveReadEnable) and has no master",
            )
        header = request.header(PullMessageRequestHeader)
        topic, queue_id = header.topic, header.queue_id
        return request.response(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "this broker is a slave that serves no reads (slaveReadEnable): ask its master",
            header=PullMessageResponseHeader(
                suggest_which_broker_id=MASTER_ID,
                next_begin_offset=header.queue_offset,
                min_offset=self._store.min_queue_offset(topic, queue_id),
                max_offset=self._store.max_queue_offset(topic, queue_id),
            ),
        )


def _code(status: GetStatus, offset: int) -> ResponseCode:
    code = _CODES.get(status)
    if code is None:
        # The queue is empty or not there: an offset other than 0 cannot be right.
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return code
