"""The messages of MessagingService, and the two of protobuf that are their parts: protobuf's own
where these are in C, and on PyPy, where they are not, what stands in for them.

Everything else imports them from here, and does not know which of the two it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_tw.interpreter import IS_PYPY

if TYPE_CHECKING or not IS_PYPY:
    from google.protobuf.duration_pb2 import Duration as Duration
    from google.protobuf.timestamp_pb2 import Timestamp as Timestamp

    from rocketmq_tw.proxy.proto.messaging_pb2 import *  # noqa: F403

    def as_original(message: Any) -> Any:
        """Returns a message as one of protobuf's own, for what of protobuf takes no other."""
        return message
else:
    from google.protobuf import duration_pb2, timestamp_pb2

    from rocketmq_tw.proxy.proto import messaging_pb2
    from rocketmq_tw.proxy.proto.messaging_pb2 import *  # noqa: F403
    from rocketmq_tw.proxy.proto.plain import stand_ins

    globals().update(stand_ins(duration_pb2, timestamp_pb2, messaging_pb2))

    def as_original(message: Any) -> Any:
        """Returns a message as one of protobuf's own, for what of protobuf takes no other."""
        return message.original()
