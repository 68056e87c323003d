"""The clients that are connected to a broker."""

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)


class MemberAdmin(ServerRequests):
    """The members of consumer groups, as a broker knows them."""

    def consumer_connections(self, broker: str, group: str) -> Deferred[ConsumerConnection]:
        """The connected members of a group and what they subscribe to."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        return self._body(
            broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header
        )

    def consumer_running_info(
        self, broker: str, group: str, client_id: str, *, jstack: bool = False
    ) -> Deferred[ConsumerRunningInfo]:
        """What one member says of itself; with `jstack` also its threads."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=jstack
        )
        return self._body(
            broker, RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfo, header
        )

    def consume_directly(
        self, broker: str, group: str, client_id: str, topic: str, message_id: str
    ) -> Deferred[ConsumeMessageDirectlyResult]:
        """Has one member consume the message with an offset message id, which is in the broker's
        log, once more."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, topic=topic, msg_id=message_id
        )
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return self._body(broker, code, ConsumeMessageDirectlyResult, header)
