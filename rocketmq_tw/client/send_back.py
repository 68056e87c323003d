"""Gives a consumer's messages back: for a later try, or to the dead-letter queue."""

from twisted.logger import Logger

from rocketmq_tw.client.errors import ClientError, check_success
from rocketmq_tw.client.message import ReceivedMessage, SendStatus
from rocketmq_tw.client.preparing import prepare_again
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.session import Session
from rocketmq_tw.client.settings import ConsumerSettings
from rocketmq_tw.message.logic_queues import LOGIC_BROKER
from rocketmq_tw.message.names import dlq_topic, retry_topic
from rocketmq_tw.message.properties import (
    DELAY,
    FIRST_RETRY_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
)
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader

SEND_BACK_TIMEOUT = 5.0
#: The levels with which a message is given back: the broker chooses when it comes again; never.
_LATER = 0
_NEVER = -1
#: Stock's number of tries where the consumer names none.
_RECONSUME_TIMES = 16
#: The group in whose name stock's consumers send.
_INNER_PRODUCERS = "CLIENT_INNER_PRODUCER"


class SendBack:
    """Gives messages of one group back to the broker; in a broadcast they are dropped."""

    log = Logger()

    def __init__(self, session: Session, group: str, settings: ConsumerSettings) -> None:
        self._session = session
        self._group = group
        self._producer = Producer(
            session.reactor, session.names.addresses, _INNER_PRODUCERS, session=session
        )
        self._broadcast = settings.broadcast
        wanted = settings.max_reconsume_times
        self._max_reconsume_times = _RECONSUME_TIMES if wanted < 0 else wanted

    async def retry_later(self, message: ReceivedMessage) -> None:
        """Has the broker bring the message again later, or put it in the dead-letter queue where it
        came too often. Where the message's own broker does not, another one is sent it. Raises what
        that send does."""
        if self._is_dropped(message):
            return
        try:
            await self._give_back(message, _LATER)
        except (RemotingError, ClientError) as error:
            if message.queue.broker_name == LOGIC_BROKER:
                raise
            self.log.info("sending {id} again: {error}", id=message.message_id, error=error)
            await self._send_again(message, _LATER)

    async def give_up(self, message: ReceivedMessage) -> None:
        """Gives a message that was tried often enough to the dead-letter queue. It is sent, since
        brokers go by how often it came from them. Raises what the send does."""
        if not self._is_dropped(message):
            await self._send_again(message, _NEVER)

    async def put_aside(self, message: ReceivedMessage) -> str:
        """Gives a damaged message to the dead-letter queue, and says where it is now: no later try
        could read it, and the copy in a retry topic would get a CRC that fits the damaged body."""
        dead_letters = dlq_topic(self._group)
        if self._broadcast:
            return "it is left out: broadcast messages come once"
        if message.queue.topic == dead_letters:
            return "it is left out, and stays there"
        await self._give_back(message, _NEVER, is_damaged=True)
        return f"it is in {dead_letters} now"

    def _is_dropped(self, message: ReceivedMessage) -> bool:
        if self._broadcast:
            self.log.warn("dropping {id}: broadcast messages come once", id=message.message_id)
        return self._broadcast

    async def _give_back(
        self, message: ReceivedMessage, delay_level: int, *, is_damaged: bool = False
    ) -> None:
        if message.queue.broker_name == LOGIC_BROKER:
            await self._send_again(message, delay_level, is_damaged=is_damaged)
            return
        address = self._session.broker_address(message.queue.broker_name)
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.properties.get(ORIGIN_MESSAGE_ID, message.message_id),
            origin_topic=message.properties.get(RETRY_TOPIC, message.topic),
            max_reconsume_times=self._max_reconsume_times,
            bname=message.queue.broker_name,
        )
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self._session.ask(address, command, check_success, SEND_BACK_TIMEOUT)

    async def _send_again(
        self, message: ReceivedMessage, delay_level: int, *, is_damaged: bool = False
    ) -> None:
        """Sends a message to the retry topic, as stock's consumers do with one of a logic queue,
        where it is not known which broker has it in its log. Raises what the send does."""
        properties = dict(message.properties)
        properties.pop(TRAN_MSG, None)
        properties.setdefault(RETRY_TOPIC, message.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        properties[DELAY] = str(delay_level or FIRST_RETRY_LEVEL + message.reconsume_times)
        properties[WAIT] = "true"
        again = prepare_again(
            message,
            retry_topic(self._group),
            properties,
            0 if delay_level == _NEVER else self._max_reconsume_times,
            is_damaged=is_damaged,
        )
        result = await self._producer.send_prepared(again, timeout=SEND_BACK_TIMEOUT)
        if result.status is not SendStatus.SEND_OK:
            raise ClientError(f"it is given back, but not safe yet: {result.status.name}")
