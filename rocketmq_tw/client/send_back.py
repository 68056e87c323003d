"""What becomes of a message that a listener refused, or that cannot be read."""

from twisted.logger import Logger

from rocketmq_tw.client.errors import check_success
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.client.session import Session
from rocketmq_tw.message.names import dlq_topic
from rocketmq_tw.message.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader

SEND_BACK_TIMEOUT = 5.0
#: The levels with which a message is given back: the broker chooses when it comes again; never.
_LATER = 0
_NEVER = -1
#: Stock's number of tries where the consumer names none.
_RECONSUME_TIMES = 16


class SendBack:
    """Gives messages of one group back to the broker; in a `broadcast` they are dropped."""

    log = Logger()

    def __init__(
        self, session: Session, group: str, *, broadcast: bool, max_reconsume_times: int
    ) -> None:
        self._session = session
        self._group = group
        self._broadcast = broadcast
        self._max_reconsume_times = (
            _RECONSUME_TIMES if max_reconsume_times < 0 else max_reconsume_times
        )

    async def retry_later(self, message: ReceivedMessage) -> None:
        """The broker brings the message again later, or puts it in the dead-letter queue where it
        came too often."""
        if self._broadcast:
            self.log.warn("dropping {id}: broadcast messages come once", id=message.message_id)
            return
        await self._give_back(message, _LATER)

    async def put_aside(self, message: ReceivedMessage) -> str:
        """Gives a damaged message to the dead-letter queue, and says where it is now: no later try
        could read it, and the copy in a retry topic would get a CRC that fits the damaged body."""
        dead_letters = dlq_topic(self._group)
        if self._broadcast:
            return "it is left out: broadcast messages come once"
        if message.queue.topic == dead_letters:
            return "it is left out, and stays there"
        await self._give_back(message, _NEVER)
        return f"it is in {dead_letters} now"

    async def _give_back(self, message: ReceivedMessage, delay_level: int) -> None:
        address = self._session.broker_address(message.queue.broker_name)
        properties = message.properties
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=properties.get(ORIGIN_MESSAGE_ID, message.message_id),
            origin_topic=properties.get(RETRY_TOPIC, message.topic),
            max_reconsume_times=self._max_reconsume_times,
            bname=message.queue.broker_name,
        )
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self._session.ask(address, command, check_success, SEND_BACK_TIMEOUT)
