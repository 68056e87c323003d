"""Which client a call comes from."""

from __future__ import annotations

from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messaging_pb2 import Code

#: Characters of a client's id.
MAX_CLIENT_ID = 255


def client_id_of(call: ICall) -> str:
    """Returns the id that the client gave itself; raises `StatusError` where it gave none."""
    client_id = call.metadata.get("x-mq-client-id", "").strip()
    if not client_id:
        raise StatusError(
            Code.CLIENT_ID_REQUIRED, "the call has no metadata x-mq-client-id: give the client's id"
        )
    if len(client_id) > MAX_CLIENT_ID:
        raise StatusError(
            Code.BAD_REQUEST,
            f"a client id of {len(client_id)} characters: use at most {MAX_CLIENT_ID}",
        )
    return client_id
