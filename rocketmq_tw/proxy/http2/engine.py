"""The HTTP/2 state of a server's connection, kept by h2."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from rocketmq_tw.proxy.http2.frames import PREFACE
from rocketmq_tw.proxy.http2.limits import Http2Limits

#: The table of headers that we keep for a client; it may ask for less, and not for more.
HEADER_TABLE_SIZE = 4096
#: HTTP/2's window at the beginning.
_FIRST_WINDOW = 65535


class Http2Engine(H2Connection):
    """h2's connection without what grows with the streams there ever were, or are."""

    #: Streams that are remembered when they are over.
    MAX_CLOSED_STREAMS = 100

    def __init__(self, limits: Http2Limits) -> None:
        # Header names and pseudo-headers of requests are checked by gRPC, ours are right.
        super().__init__(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        # They hold at once, and not only when the client has acknowledged them.
        self.decoder.max_header_list_size = limits.header_list
        self.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_list,
                SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
            },
        )
        self.initiate_connection()
        self.increment_flow_control_window(limits.connection_window - _FIRST_WINDOW)
        # The frames that come are those behind the preface.
        self.receive_data(PREFACE)

    @property
    def open_inbound_streams(self) -> int:
        """None that h2 need count: that looks at every stream for each new one, and one too many
        would end the connection. `Http2Connection` counts and refuses them."""
        return 0

    def forget(self, stream_id: int) -> None:
        """Drops a stream that is over."""
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self._closed_streams[stream_id] = stream.closed_by

    def bound_header_table(self) -> None:
        """Keeps our table of headers small, whatever size the client's settings allow."""
        if self.encoder.header_table_size > HEADER_TABLE_SIZE:
            self.encoder.header_table_size = HEADER_TABLE_SIZE
