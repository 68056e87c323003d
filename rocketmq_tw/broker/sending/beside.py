"""Gives what consumers give back to a slave in a container to a master of the container.

The slave's log takes nothing, so the message goes to the group's retry topic at that master, as a
consumer sends it that could not give it back. The master knows the group's limit, and buries the
message where it was tried too often.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.sending.send_back import answer_given_back, level_of, marked, message_at
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.writing.commit import STORED
from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.layout import V6_FLAGS
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
)


class GivenBackBeside:
    """Answers consumers that give a message back (36) to this slave, whether it acts for its master
    or not: a master of its container takes the message."""

    def __init__(
        self, host: Host, store: IMessageStore, groups: GroupTable, brokers: BrokerClient
    ) -> None:
        self._config = host.config
        self._neighbours = host.neighbours
        self._store = store
        self._groups = groups
        self._brokers = brokers

    def handlers(self, otherwise: Handler) -> dict[int, Handler]:
        """`otherwise` answers while the container has no other master."""

        def send_back(
            request: RemotingCommand, peer: IPeer
        ) -> Deferred[RemotingCommand] | RemotingCommand | None:
            masters = [each for each in self._neighbours.masters() if each != self._own]
            if not masters:
                return otherwise(request, peer)
            return Deferred.fromCoroutine(self._send_back(request, masters))

        return {RequestCode.CONSUMER_SEND_MSG_BACK: send_back}

    @property
    def _own(self) -> str:
        return self._config.broker_name

    async def _send_back(self, request: RemotingCommand, masters: list[str]) -> RemotingCommand:
        header = request.header(ConsumerSendMsgBackRequestHeader)
        group = self._groups.get(header.group)
        if group is not None and group.retry_queue_nums <= 0:
            return request.response()
        message = message_at(self._store, header.offset)
        refusal = RequestError(ResponseCode.SYSTEM_BUSY, "no master of the container answers")
        for master in masters:
            try:
                answer = await self._send(master, self._header(master, message, header), message)
            except RequestError as error:
                refusal = error
            else:
                if answer.code in STORED:
                    return answer_given_back(request, ResponseCode(answer.code))
                refusal = RequestError(answer.code, f"{master}: {answer.remark or 'no remark'}")
        raise refusal

    async def _send(
        self, master: str, header: SendMessageRequestHeaderV2, message: StoredMessage
    ) -> RemotingCommand:
        code = RequestCode.SEND_MESSAGE_V2
        asked = self._neighbours.ask(master, RemotingCommand.request(code, header, message.body))
        if asked is not None:
            return await asked
        # A topic that every broker of the cluster has: the retry topic need not be there yet.
        topic = self._config.broker_cluster_name
        return await self._brokers.ask(master, topic, code, header, message.body)

    def _header(
        self, master: str, message: StoredMessage, header: ConsumerSendMsgBackRequestHeader
    ) -> SendMessageRequestHeaderV2:
        properties = marked(message)
        properties[props.DELAY] = str(level_of(message, header))
        config = self._config
        return SendMessageRequestHeaderV2(
            producer_group=f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
            topic=names.retry_topic(header.group),
            default_topic=names.AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            # Of the master's choice.
            queue_id=-1,
            sys_flag=message.sys_flag & ~V6_FLAGS,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=join_properties(properties).decode(),
            reconsume_times=message.reconsume_times + 1,
            unit_mode=header.unit_mode,
            # One that is never to come again has been tried once too often.
            max_reconsume_times=0 if header.delay_level < 0 else header.max_reconsume_times,
            broker_name=master,
        )
