"""Brokers that want to know who asks, and connections that nobody reads."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

from rocketmq_tw.client.commands import Credentials
from rocketmq_tw.client.message import Message
from tests.support.cluster import Cluster
from tests.support.guarded import KEYS, guarded_cluster
from tests.support.spark import patient_client
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Stock 4.9.7 with its ACL, and ten messages."""
    home = tmp_path_factory.mktemp("guarded")
    with guarded_cluster(home) as cluster:
        with patient_client(cluster.namesrv, credentials=Credentials(**KEYS)) as client:
            sent = client.send_batch([Message("guarded", b"m%d" % n) for n in range(10)])
            # Stock puts what it has stored into its queues a little later.
            wait_until(lambda: client.max_offset(sent.queue) == 10, "all in their queue")
        yield cluster


def test_keys_open_a_guarded_broker(guarded: Cluster, spark: Any) -> None:
    reader = spark.read.format("rocketmq").options(nameServers=guarded.namesrv, topic="guarded")
    with pytest.raises(PySparkException, match=r"AccessKey|accessKey|acl"):
        reader.load().count()
    keys = {"accessKey": KEYS["access_key"], "secretKey": KEYS["secret_key"]}
    frame = reader.options(**keys).load()
    assert frame.count() == 10
    frame.select("body").write.format("rocketmq").options(
        nameServers=guarded.namesrv, topic="guarded", **keys
    ).mode("append").save()
    wait_until(lambda: reader.options(**keys).load().count() == 20, "what was written")


def test_tls(topics: Any, spark: Any) -> None:
    topic = topics.filled(10)
    assert topics.reader(spark.read, topic, useTls=True).load().count() == 10
    with pytest.raises(PySparkException, match="cannot connect"):
        topics.reader(spark.read, topic, useTls=True, tlsVerify=True).load()
