"""Plays one conversation with a stock name server and records its answers as golden data.

    python -m tools.namesrv_goldens --lib DIR_OF_STOCK_JARS --version 5.3.3

writes tests/unit/namesrv/goldens/5.3.3.json: the steps of the conversation, each with the request
and stock's answer. The unit tests replay them against our name server.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from rocketmq_tw.wire.codes import RequestCode as Code
from rocketmq_tw.wire.command import (
    LanguageCode,
    RemotingCommand,
    SerializeType,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.frame import FrameDecoder
from tools.namesrv_goldens.conversation import conversation
from tools.namesrv_goldens.steps import as_text

GOLDENS = Path(__file__).resolve().parents[2] / "tests" / "unit" / "namesrv" / "goldens"


class Server:
    """A stock name server on a port of the kernel's choice."""

    def __init__(self, lib: Path, home: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        # 4.9.7 does not start without its logging configuration.
        (home / "conf").mkdir()
        (home / "conf" / "logback_namesrv.xml").write_text("<configuration/>")
        config = home / "namesrv.properties"
        config.write_text(f"listenPort={self.port}\norderMessageEnable=true\n")
        self.process = subprocess.Popen(
            [
                os.environ.get("JAVA", "java"),
                "-Xmx256m",
                f"-Duser.home={home}",
                "-cp",
                f"{lib}/*",
                "org.apache.rocketmq.namesrv.NamesrvStartup",
                "-c",
                str(config),
            ],
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.socket = self._connect()
        self.decoder = FrameDecoder()

    def _connect(self) -> socket.socket:
        give_up = time.monotonic() + 60
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", self.port))
            except ConnectionRefusedError:
                if time.monotonic() > give_up or self.process.poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                connection.settimeout(5)
                return connection

    def ask(self, request: dict[str, Any]) -> RemotingCommand:
        body = bytes.fromhex(request["hex"]) if "hex" in request else b""
        command = RemotingCommand(
            request["code"],
            ext_fields=request["fields"],
            body=body or request.get("body", "").encode(),
            version=request["version"],
            language=LanguageCode.JAVA,
            serialization=SerializeType(request["serialization"]),
        )
        self.socket.sendall(encode_command(command))
        while True:
            for frame in self.decoder.feed(self.socket.recv(65536)):
                return decode_command(frame)

    def stop(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait()


def capture(lib: Path, version: str) -> None:
    recorded = []
    with tempfile.TemporaryDirectory() as home:
        server = Server(lib, Path(home))
        try:
            for item in conversation():
                if item.get("since", "") > version:
                    continue
                answer = server.ask(item["request"])
                item["answer"] = {
                    "code": answer.code,
                    "fields": answer.ext_fields,
                    **as_text(answer.body),
                }
                recorded.append(item)
                if item["request"]["code"] == Code.UNREGISTER_BROKER:
                    time.sleep(0.2)  # 5.x removes brokers from a queue, after its answer.
        finally:
            server.stop()
    GOLDENS.mkdir(parents=True, exist_ok=True)
    path = GOLDENS / f"{version}.json"
    path.write_text(json.dumps({"stock": version, "steps": recorded}, indent=1) + "\n")
    print(f"{len(recorded)} answers of stock {version} in {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", type=Path, required=True, help="directory of the stock jars")
    parser.add_argument("--version", required=True, help="their version, 4.9.7 or 5.3.3")
    options = parser.parse_args()
    capture(options.lib, options.version)
