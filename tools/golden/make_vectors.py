"""Makes the golden vectors of a stock version, for tests/unit/wire/golden.

    python tools/golden/make_vectors.py --version 5.3.3 --jars DIRECTORY_OF_JARS \\
        --out tests/unit/wire/golden/stock-5.3.3.json

needs a JDK (17 or later) on the path; the directory holds rocketmq-broker of that version and all
that it depends on (`mvn dependency:copy-dependencies`). `GoldenVectors.java` beside this file does
the work; this compiles it against the jars and runs it. Two runs differ only in the order of sets
whose members Java orders by where they lie in memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

#: Joined by commas, as the driver takes them.
BODIES = (
    "DataVersion,TopicConfig,TopicConfigSerializeWrapper,"
    "TopicConfigAndMappingSerializeWrapper,TopicList,CreateTopicListRequestBody,GroupList,"
    "QueueData,BrokerData,TopicRouteData,ClusterInfo,BrokerMemberGroup,"
    "GetBrokerMemberGroupResponseBody,RegisterBrokerBody,SubscriptionGroupConfig,"
    "SubscriptionGroupWrapper,SubscriptionGroupList,GroupForbidden,HeartbeatData,"
    "CheckClientRequestBody,MessageQueue,ConsumerOffsetSerializeWrapper,"
    "DelayOffsetSerializeWrapper,TopicStatsTable,ConsumeStats,ConsumeStatsList,"
    "ResetOffsetBody,ResetOffsetBodyForC,GetConsumerStatusBody,QueryCorrectionOffsetBody,"
    "QueryConsumeTimeSpanBody,LockBatchRequestBody,LockBatchResponseBody,"
    "UnlockBatchRequestBody,KVTable,GetConsumerListByGroupResponseBody,ConsumerConnection,"
    "ProducerConnection,ProducerTableInfo,ConsumerRunningInfo,ConsumeMessageDirectlyResult,"
    "QuerySubscriptionResponseBody,QueryConsumeQueueResponseBody,BrokerStatsData,"
    "HARuntimeInfo"
)


def header_names() -> list[str]:
    """The header classes that the project has; they bear stock's names."""
    root = Path(__file__).resolve().parents[2] / "rocketmq_tw" / "wire" / "headers"
    names = []
    for module in sorted(root.glob("*.py")):
        if module.stem == "base":
            continue
        for line in module.read_text().splitlines():
            if line.startswith("class "):
                names.append(line[6 : line.index("(")])
    return names


def make(version: str, jars: Path) -> dict[str, object]:
    """The document that `GoldenVectors` prints for these jars."""
    source = Path(__file__).with_name("GoldenVectors.java")
    with tempfile.TemporaryDirectory() as classes:
        classpath = f"{classes}:{jars}/*"
        subprocess.run(
            ["javac", "-nowarn", "-cp", classpath, "-d", classes, str(source)], check=True
        )
        command = ["java", "-cp", classpath, "GoldenVectors"]
        command += [version, BODIES, ",".join(header_names())]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    document: dict[str, object] = json.loads(printed)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description="golden vectors from stock's jars")
    parser.add_argument("--version", required=True, help="the version of the jars, as in 5.3.3")
    parser.add_argument("--jars", required=True, type=Path, help="the directory of the jars")
    parser.add_argument("--out", required=True, type=Path, help="the JSON file to write")
    arguments = parser.parse_args()
    if not any(arguments.jars.glob(f"rocketmq-remoting-{arguments.version}.jar")):
        sys.exit(f"{arguments.jars} has no rocketmq-remoting-{arguments.version}.jar")
    document = make(arguments.version, arguments.jars)
    arguments.out.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
