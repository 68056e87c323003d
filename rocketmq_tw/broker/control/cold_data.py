"""Settings about cold data, messages that are in no page cache: 2001 and 2002 set and remove a
group's limit, 2003 shows them, 2004 sets how the log is read ahead.

They are kept until the broker stops, as in stock, so that stock's tools can be used. Nothing here
measures cold reads or slows them down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.logger import Logger

from rocketmq_tw.config.properties import ConfigError, read_properties
from rocketmq_tw.config.schema import stock_default
from rocketmq_tw.config.values import LONG, integer
from rocketmq_tw.message import names
from rocketmq_tw.net.changes import changed, listed, who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

log = Logger()

#: Groups with a limit of their own at most.
MAX_LIMITED_GROUPS = 1_000
#: Bytes of one request.
_MAX_BYTES = 16 * 1024

#: What 2004 may ask of the system: its own read-ahead, or none, as for random reads.
_NORMAL, _RANDOM = "0", "1"
_MODE_FIELD = "READ_AHEAD_MODE"

_threshold = integer(0, LONG[1])


def _default(name: str) -> Any:
    """Returns the value that stock's broker has for a key without an effect here."""
    found = stock_default(["BrokerConfig"], name)
    assert found is not None, name
    return found[1]


class ColdDataRequests:
    """Keeps the limits of groups, in bytes of cold reads, and the mode of reading ahead."""

    def __init__(self) -> None:
        self._thresholds: dict[str, int] = {}
        self._mode = _NORMAL

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.update,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.remove,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.show,
            RequestCode.SET_COMMITLOG_READ_MODE: self.set_mode,
        }

    def keys(self) -> Mapping[str, str]:
        """Returns the keys of the configuration that these requests change."""
        return {"dataReadAheadEnable": str(self._mode == _NORMAL).lower()}

    def update(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 2001: sets limits, as .properties text of groups and bytes; all or none."""
        wanted = {}
        try:
            for setting in read_properties(_text(request.body), "the request"):
                names.check_group(setting.key, ResponseCode.INVALID_PARAMETER)
                wanted[setting.key] = _threshold(setting.value)
        except (ConfigError, ValueError) as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"the limit: {error}") from error
        if len(self._thresholds.keys() | wanted.keys()) > MAX_LIMITED_GROUPS:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"more than {MAX_LIMITED_GROUPS} groups with a limit: remove some of them first",
            )
        before = self._thresholds.copy()
        self._thresholds |= wanted
        limits = (f"{each}={changed(wanted[each], before.get(each))}" for each in wanted)
        log.info(
            "{peer} sets limits of cold reads: {limits}",
            peer=who(peer),
            limits=listed(limits, len(wanted)),
        )
        return request.response()

    def remove(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 2002: removes the limit of the group that the body names; one without is no
        error."""
        group = _text(request.body).strip()
        before = self._thresholds.pop(group, None)
        if before is not None:
            log.info(
                "{peer} removes {group}'s limit of cold reads (was {before})",
                peer=who(peer),
                group=group,
                before=before,
            )
        return request.response()

    def show(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 2003: the limits; nothing is read as cold here."""
        shown = {
            "runtimeTable": {},
            "configTable": self._thresholds,
            "cgColdReadThreshold": _default("cgColdReadThreshold"),
            "globalColdReadThreshold": _default("globalColdReadThreshold"),
            "globalAcc": 0,
        }
        return request.response(body=msgspec.json.encode(shown))

    def set_mode(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 2004: sets how the log is read ahead."""
        mode = request.ext_fields.get(_MODE_FIELD, "")
        if mode not in (_NORMAL, _RANDOM):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{_MODE_FIELD}={mode}: give {_NORMAL} to read ahead or {_RANDOM} not to",
            )
        log.info(
            "{peer} sets the mode of reading ahead: {change}",
            peer=who(peer),
            change=changed(mode, self._mode),
        )
        self._mode = mode
        # Tools show it.
        return request.response(remark=f"set commitlog readahead mode success, mode: {mode}")


def _text(body: bytes) -> str:
    if len(body) > _MAX_BYTES:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER, f"{len(body)} bytes: send at most {_MAX_BYTES}"
        )
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"the body: {error}") from error
