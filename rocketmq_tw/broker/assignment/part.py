"""Answers requests 400, 401 and 402, about how consumers share queues: a part of the broker.

Asked by a member of a group (400), the broker divides the queues of a topic among the members that
are connected to it; whether they pull them or pop them an administrator sets for each group (401).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.assignment.dividing import STRATEGIES, allocate_for_pop
from rocketmq_tw.broker.assignment.modes import RequestModes
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.clients.registry import BROADCASTING, ClientRegistry
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.changes import left_to_the_master
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.client.routes import subscribe_queues
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import LMQ_PREFIX, RETRY_PREFIX
from rocketmq_tw.net.changes import changed, said_once_made, who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.retries import RETRY_SLOW
from rocketmq_tw.wire.bodies.base import FEW_VALUES, decode_request, encode_body
from rocketmq_tw.wire.bodies.queues import (
    MessageQueue,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import is_readable

PULL, POP = "PULL", "POP"
#: Seconds between two looks for modes of topics and groups that are gone.
_FORGET_SECONDS = 600.0
_ONLY_A_MASTER_SETS = "this broker is no master, how groups read is the master's: set it there"

Queues = Sequence[MessageQueue]

log = Logger()


class Assignment(Part):
    """Keeps how groups read topics, and divides queues among their members."""

    def __init__(
        self, host: Host, role: RoleHolder, tables: Tables, clients: Clients, brokers: BrokerClient
    ) -> None:
        self.modes = RequestModes(
            host.table_file("messageRequestMode"), host.in_thread, host.in_slices
        )
        self._host = host
        self._tables = tables
        queues = ClusterQueues(host.config, tables.topics, brokers)
        self._handlers = AssignmentRequests(
            host, role, self.modes, tables, clients.registry, queues.of
        ).handlers()

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return self._handlers

    def tables(self) -> Iterable[KeptTable]:
        modes = self.modes
        return [KeptTable("the modes of reading", modes.load, modes.save, RETRY_SLOW)]

    def periodic(self) -> Iterable[Periodic]:
        # A slave has its master's.
        yield Periodic("forgetting modes of reading", _FORGET_SECONDS, self._forget, {Role.MASTER})

    def _forget(self) -> Deferred[Any]:
        return self._host.in_slices(self.modes.forget_unused(self._is_there))

    def _is_there(self, topic: str, group: str) -> bool:
        is_group = group in self._tables.groups or group.startswith(LMQ_PREFIX)
        return is_group and self._tables.topics.get(topic) is not None


class ClusterQueues:
    """The queues of a topic on all brokers of the cluster, as name servers know them or knew them
    up to `loadBalancePollNameServerInterval` ago. A broker without name servers has only its own
    queues."""

    def __init__(self, config: BrokerConfig, topics: TopicTable, brokers: BrokerClient) -> None:
        self._config = config
        self._topics = topics
        self._brokers = brokers

    def of(self, topic: str, logic: bool) -> Deferred[Queues | None]:
        """Fires with all readable queues, sorted, of a static topic the `logic` or the physical
        ones; with None where no name server knows the topic."""
        if not self._brokers.has_name_servers:
            return succeed(self._queues_here(topic))

        def use_last(failure: Failure) -> TopicRouteData | None:
            # What was known stays in use: brokers may well be there.
            log.warn(
                "the route of {topic} is not known, the last known one is used: {why}",
                topic=topic,
                why=failure.getErrorMessage(),
            )
            return self._brokers.last_route(topic)

        def queues_of(route: TopicRouteData | None) -> Queues | None:
            return None if route is None else subscribe_queues(topic, route, logic=logic)

        interval = self._config.load_balance_poll_name_server_interval
        found = self._brokers.find_route(topic, max_age_ms=interval)
        return found.addErrback(use_last).addCallback(queues_of)

    def _queues_here(self, topic: str) -> Queues | None:
        config = self._topics.get(topic)
        if config is None or not is_readable(config.perm):
            return None
        name = self._config.broker_name
        return [
            MessageQueue(topic=topic, broker_name=name, queue_id=queue_id)
            for queue_id in range(config.read_queue_nums)
        ]


class AssignmentRequests:
    """Answers requests 400 to 402. `queues_of(topic, logic)` fires with all queues of a topic
    in the cluster, or None where name servers know no such topic."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        modes: RequestModes,
        tables: Tables,
        clients: ClientRegistry,
        queues_of: Callable[[str, bool], Deferred[Queues | None]],
    ) -> None:
        self._config = host.config
        self._role = role
        self._modes = modes
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = clients
        self._queues_of = queues_of
        self._whole = tables.whole

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.assignment,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    def assignment(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Fires with the queues of one consumer."""
        body = decode_request(QueryAssignmentRequestBody, request.body, max_values=FEW_VALUES)
        mode = self._mode(body.topic, body.consumer_group)

        def answer(queues: Queues | None) -> RemotingCommand:
            mine = None if queues is None else self._divide(body, mode, queues)
            assignments = None
            if mine is not None:
                assignments = [
                    MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in mine
                ]
            return request.response(
                body=encode_body(QueryAssignmentResponseBody(message_queue_assignments=assignments))
            )

        # A pop is about physical queues.
        return self._queues_of(body.topic, mode.mode != POP).addCallback(answer)

    def set_mode(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 401: sets whether a group pulls or pops a topic, on a master. Raises
        `RequestError` for what no broker takes, and while this one has no role."""
        if self._role.copies_log:
            return left_to_the_master(request, peer, self._wanted, _ONLY_A_MASTER_SETS)
        if not self._role.is_master:
            raise RequestError(ResponseCode.SYSTEM_ERROR, _ONLY_A_MASTER_SETS)
        body = self._wanted(request)
        change = changed(body, self._modes.get(body.topic, body.consumer_group))
        said = said_once_made(
            self._modes.set(body),
            log,
            "{peer} sets how {group} reads {topic}: {change}",
            peer=who(peer),
            group=body.consumer_group,
            topic=body.topic,
            change=change,
        )
        return said.addCallback(lambda _: request.response())

    def _wanted(self, request: RemotingCommand) -> SetMessageRequestModeRequestBody:
        body = decode_request(SetMessageRequestModeRequestBody, request.body, max_values=FEW_VALUES)
        if body.topic.startswith(RETRY_PREFIX):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the retry topic {body.topic} has no mode of its own: name the topic itself",
            )
        if body.mode not in (PULL, POP):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the mode {body.mode!r} is unknown: use PULL or POP",
            )
        self._topics.known(body.topic)
        self._groups.known(body.consumer_group)
        return body

    def all_modes(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 402: the modes of all groups, for slaves."""
        return self._whole.answer(request, peer, "modes", self._modes.encoded)

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """Returns the mode that was set for the topic and group, or the default; retry topics are
        pulled."""
        known = self._modes.get(topic, group)
        if known is not None:
            return known
        is_retry = topic.startswith(RETRY_PREFIX)
        return SetMessageRequestModeRequestBody(
            topic=topic,
            consumer_group=group,
            mode=PULL if is_retry else self._config.default_message_request_mode,
            pop_share_queue_num=self._config.default_pop_share_queue_num,
        )

    def _divide(
        self,
        body: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
        queues: Queues,
    ) -> Queues | None:
        """Returns None where it is not known now: the client keeps what it has."""
        if body.message_model == BROADCASTING or not self._config.server_load_balancer_enable:
            return queues
        group = self._clients.consumer_group(body.consumer_group)
        strategy = STRATEGIES.get(body.strategy_name)
        if group is None or strategy is None:
            log.warn(
                "no queues of {topic} for {client}: {why}",
                topic=body.topic,
                client=body.client_id,
                why=(
                    f"no consumer of {body.consumer_group} is known"
                    if group is None
                    else f"there is no strategy {body.strategy_name!r}"
                ),
            )
            return None
        members = sorted(group.client_ids())
        if mode.mode == POP:
            return allocate_for_pop(
                strategy, queues, members, body.client_id, mode.pop_share_queue_num
            )
        return strategy(queues, members, body.client_id)
