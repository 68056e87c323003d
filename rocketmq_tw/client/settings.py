"""The settings that an application chooses of a producer and of a push consumer."""

from enum import Enum

import attrs

#: Seconds that a send may take, all its tries together.
SEND_TIMEOUT = 3.0
#: Further tries after the first one, as in stock.
SEND_RETRIES = 2
#: Bytes from which a body is compressed, as in stock's producer.
COMPRESS_OVER = 4096
#: Seconds that the stop of a consumer waits for its listener.
_STOP_SECONDS = 10.0


class StartFrom(Enum):
    """Where a group begins with a queue that it has no offset of; a value is stock's name."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@attrs.frozen(kw_only=True)
class ProducerSettings:
    """How a producer sends."""

    send_timeout: float = SEND_TIMEOUT
    retries: int = SEND_RETRIES
    compress_over: int = COMPRESS_OVER
    #: Where the round over a topic's queues begins: a number by chance spreads producers that send
    #: a message each.
    first_queue: int = 0


@attrs.frozen(kw_only=True)
class ConsumerSettings:
    """How a push consumer reads and consumes."""

    #: One message of each queue at a time, in the queue's order.
    orderly: bool = False
    #: Each consumer of the group gets all messages; those that fail are dropped.
    broadcast: bool = False
    start_from: StartFrom = StartFrom.LAST
    #: Milliseconds since 1970, for `StartFrom.TIMESTAMP`.
    start_timestamp_ms: int = 0
    #: Messages that are with the listener at a time, unless `orderly`.
    concurrency: int = 20
    #: Messages that one pull brings at most.
    batch_size: int = 32
    #: Tries after the first before a message goes to the dead-letter queue; -1: stock's 16, or
    #: without end where `orderly`.
    max_reconsume_times: int = -1
    #: Seconds that a stop waits for messages that are with the listener.
    stop_seconds: float = _STOP_SECONDS
    #: Where the offsets of a broadcast are kept; None: in memory.
    offset_file: str | None = None


DEFAULT_PRODUCER = ProducerSettings()
DEFAULT_CONSUMER = ConsumerSettings()
