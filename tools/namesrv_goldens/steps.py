"""What a conversation with a name server is made of: requests, and the bodies that they carry."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from rocketmq_tw.wire.codes import RequestCode as Code
from rocketmq_tw.wire.command import SerializeType

V4_9_7, V5_3_3 = 407, 479

Step = dict[str, Any]


def topic(name: str, *, queues: int = 8, perm: int = 6, flag: int = 0) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def registration(
    topics: list[dict[str, Any]],
    counter: int = 1,
    *,
    filter_servers: tuple[str, ...] = (),
    mappings: dict[str, Any] | None = None,
) -> str:
    body: dict[str, Any] = {
        "filterServerList": list(filter_servers),
        "topicConfigSerializeWrapper": {
            "dataVersion": version(counter),
            "topicConfigTable": {str(config["topicName"]): config for config in topics},
        },
    }
    if mappings is not None:
        body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = mappings
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def version(counter: int) -> dict[str, int]:
    return {"counter": counter, "stateVersion": 0, "timestamp": 1700000000000}


def compressed(topics: list[dict[str, Any]], counter: int, *, mapping_count: bool) -> bytes:
    """The body of a registration with compressed=true: length-prefixed parts, deflated."""

    def part(text: str) -> bytes:
        data = text.encode()
        return len(data).to_bytes(4, "big") + data

    parts = [part(json.dumps(version(counter))), len(topics).to_bytes(4, "big")]
    for config in topics:
        fields = ("topicName", "readQueueNums", "writeQueueNums", "perm")
        text = " ".join(str(config[name]) for name in fields)
        parts.append(part(f"{text} SINGLE_TAG {{}}" if mapping_count else f"{text} SINGLE_TAG"))
    parts.append(part("[]"))
    if mapping_count:
        parts.append((0).to_bytes(4, "big"))
    return zlib.compress(b"".join(parts), 9)


def step(
    name: str,
    code: int,
    body: str | bytes = b"",
    *,
    version: int = V5_3_3,
    serialization: SerializeType = SerializeType.JSON,
    **fields: object,
) -> Step:
    data = body.encode() if isinstance(body, str) else body
    return {
        "name": name,
        "request": {
            "code": int(code),
            "fields": {key: str(value) for key, value in fields.items()},
            "version": version,
            "serialization": int(serialization),
            **as_text(data),
        },
    }


def as_text(data: bytes) -> dict[str, str]:
    try:
        return {"body": data.decode()} if data else {}
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def broker(name: str, number: int = 0, port: int = 10911, **more: Any) -> dict[str, Any]:
    return {
        "brokerName": name,
        "brokerAddr": f"127.0.0.1:{port}",
        "clusterName": "DefaultCluster",
        "haServerAddr": f"127.0.0.1:{port + 1}",
        "brokerId": number,
        **more,
    }


def route(name: str, topic: str, version: int = V5_3_3, **more: Any) -> Step:
    return step(name, Code.GET_ROUTEINFO_BY_TOPIC, version=version, topic=topic, **more)


def since_5(part: Callable[[], Iterator[Step]]) -> Callable[[], Iterator[Step]]:
    """Marks steps that stock 4.9.7 does not know."""

    def marked() -> Iterator[Step]:
        for item in part():
            item["since"] = "5.0.0"
            yield item

    return marked
