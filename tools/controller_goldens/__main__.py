"""Plays one conversation with a stock controller and records its answers as golden data.

    python -m tools.controller_goldens --lib DIR_OF_STOCK_JARS --version 5.3.3

writes tests/unit/controller/goldens/5.3.3.json: the steps of the conversation with stock's
answers, and the bodies of the entries that stock wrote into its log. The unit tests replay the
steps against our controller.
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

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.raft.store.ledger import open_data
from rocketmq_tw.raft.store.recovery import scan
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import (
    LanguageCode,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.frame import FrameDecoder
from tools.controller_goldens.conversation import ADMIN, conversation

GOLDENS = Path(__file__).resolve().parents[2] / "tests" / "unit" / "controller" / "goldens"
_DATA_FILE_SIZE = 1 << 20


class Connection:
    """One connection to the controller."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._decoder = FrameDecoder()

    def ask(self, code: int, fields: dict[str, str], body: str) -> RemotingCommand:
        command = RemotingCommand(
            code, ext_fields=fields, body=body.encode(), language=LanguageCode.JAVA
        )
        self._socket.sendall(encode_command(command))
        while True:
            for frame in self._decoder.feed(self._socket.recv(65536)):
                return decode_command(frame)

    def close(self) -> None:
        self._socket.close()


class Controller:
    """A stock controller that is a group by itself, on a port of the kernel's choice."""

    def __init__(self, lib: Path, home: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = home / "controller.conf"
        self._store = home / "store"
        config.write_text(
            "controllerDLegerGroup=g\n"
            f"controllerDLegerPeers=n0-127.0.0.1:{self.port}\n"
            "controllerDLegerSelfId=n0\n"
            f"controllerStorePath={self._store}\n"
            f"mappedFileSize={_DATA_FILE_SIZE}\n"
            # Its retries write an event each, and so do its scans.
            "electMasterMaxRetryCount=1\n"
            "scanInactiveMasterInterval=100000000\n"
        )
        self._process = subprocess.Popen(
            [
                os.environ.get("JAVA", "java"),
                "-Xmx256m",
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
                "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
                "--add-opens=java.base/java.lang=ALL-UNNAMED",
                f"-Duser.home={home}",
                "-cp",
                f"{lib}/*",
                "org.apache.rocketmq.controller.ControllerStartup",
                "-c",
                str(config),
            ],
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._connections: dict[str, Connection] = {}

    def wait_until_it_leads(self) -> None:
        give_up = time.monotonic() + 180
        while True:
            try:
                answer = self.ask(
                    ADMIN, RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": "x"}, ""
                )
            except OSError:
                answer = None
            if answer is not None and answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                return
            if time.monotonic() > give_up or self._process.poll() is not None:
                raise TimeoutError("the controller does not lead")
            time.sleep(0.2)

    def ask(self, over: str, code: int, fields: dict[str, str], body: str) -> RemotingCommand:
        if over not in self._connections:
            self._connections[over] = Connection(self.port)
        return self._connections[over].ask(code, fields, body)

    def close(self, name: str) -> None:
        self._connections.pop(name).close()
        # The election comes from threads of its own.
        time.sleep(1.5)

    def stop(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._process.terminate()
        self._process.wait()

    def entries(self) -> list[bytes]:
        """The bodies in the log of a controller that is stopped."""
        data = open_data(PosixFiles(), f"{self._store}/dledger-n0", _DATA_FILE_SIZE)
        bodies = [entry.body for entry in scan(data, data.starts[0])]
        data.close()
        return bodies


def _play(controller: Controller) -> list[dict[str, Any]]:
    steps = []
    for step in conversation():
        if "close" in step:
            controller.close(step["close"])
        else:
            answer = controller.ask(step["over"], step["code"], step["fields"], step["body"])
            step["answer"] = {
                "code": answer.code,
                "remark": answer.remark,
                "fields": answer.ext_fields,
                "body": answer.body.decode(),
            }
        steps.append(step)
    return steps


def capture(lib: Path, version: str) -> None:
    """Records the answers of stock's jars in `lib`."""
    with tempfile.TemporaryDirectory() as home:
        controller = Controller(lib, Path(home))
        try:
            controller.wait_until_it_leads()
            steps = _play(controller)
        finally:
            controller.stop()
        entries = [body.decode("latin-1") for body in controller.entries()]
    GOLDENS.mkdir(parents=True, exist_ok=True)
    path = GOLDENS / f"{version}.json"
    recorded = {"stock": version, "steps": steps, "entries": entries}
    path.write_text(json.dumps(recorded, indent=1) + "\n")
    print(f"{len(steps)} answers and {len(entries)} entries of stock {version} in {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", type=Path, required=True, help="directory of the stock jars")
    parser.add_argument("--version", required=True, help="their version, 5.3.3")
    options = parser.parse_args()
    capture(options.lib, options.version)
