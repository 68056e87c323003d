"""The calls of stock's mqadmin and admin client that are compared: one line each, in the order in
which they run.

A line has `$name` where a site says the value (`tests/support/mqadmin_site.py`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from string import Template

import attrs

OLD, NEW = "4.9.7", "5.3.3"


@attrs.frozen
class Case:
    """One call of mqadmin."""

    line: str
    #: Which versions of mqadmin have it.
    versions: tuple[str, ...] = (OLD, NEW)
    #: Lines come in the order of a hash table.
    unordered: bool = False
    #: Numbers are compared too.
    exact: bool = False
    #: Ours may have lines that stock has not.
    more_is_fine: bool = False
    #: Why our answer differs; empty where it must not.
    unlike: str = ""
    #: What ours prints, as a pattern: where it differs, and where both could print too little.
    prints: str = ""
    #: All lines in which ours differs, as a diff has them; empty where `prints` says enough.
    differs: tuple[str, ...] = ()
    #: Lines that match are compared by nobody.
    without: str = ""

    @property
    def command(self) -> str:
        return self.line.split()[0]

    def arguments(self, values: Mapping[str, str]) -> list[str]:
        """The words of the call with the values of a site."""
        return [Template(word).substitute(values) for word in shlex.split(self.line)]


@attrs.frozen
class AdminCall(Case):
    """A call of stock's admin client: the name of its method and the arguments."""


@attrs.frozen
class EndlessCall(Case):
    """A call of mqadmin that runs until it is killed. The pattern `first_round` is what it prints
    or logs in its first round."""

    first_round: str = attrs.field(kw_only=True)


def _both(*lines: str) -> Iterator[Case]:
    return map(Case, lines)


def _new(*lines: str) -> Iterator[Case]:
    return (Case(line, (NEW,)) for line in lines)


#: Messages for another try come into the table of a group's progress a while after its start.
_progress = partial(Case, without="%RETRY%")
#: What ours tells beside what stock does, and what follows from the time.
_status = partial(Case, more_is_fine=True)
#: Keys of a configuration that are left out: each server's ports, places that ours does not tell,
#: and keys that tests give to stock alone.
NOT_COMPARED_KEYS = (
    "listenPort|haListenPort|rocketmqHome|brokerConfigPath|configStorePath|kvConfigPath"
    "|controllerStorePath"
    # Ours tells its figures to its own machine unless the file says otherwise (docs/monitoring.md).
    "|metricsPromExporterHost"
    "|osPageCacheBusyTimeOutMills|transactionMetricFlushInterval|timerFlushIntervalMs"
)
_config = partial(Case, unordered=True, exact=True, more_is_fine=True, without=NOT_COMPARED_KEYS)

_slave_config = partial(
    _config,
    unlike="the same, but for accessMessageInMemoryMaxRatio, which ours shows as it is set: on a"
    " slave both go by 10 less",
    prints="^accessMessageInMemoryMaxRatio += +40$",
    differs=("-accessMessageInMemoryMaxRatio = 30",),
)

#: Addresses and ports again, in base64.
_HOST_BYTES = '"array": '
#: How often a table was changed: a tool that has no answer in time is called again.
_CHANGES = '"counter": '

_without_accounts = partial(
    Case,
    versions=(NEW,),
    unlike="there are no accounts yet: refused with code 3, not supported, where stock says 1",
    prints=r"CODE: 3  DESC: request code \d+ is not supported",
)
_rocksdb = partial(
    Case,
    versions=(NEW,),
    unlike="nothing is in RocksDB: the refusal says so, where stock starts a check or writes"
    " nothing",
    prints="CODE: 3  DESC: queues and tables of this broker are plain files",
)
_fails_on_newer = partial(
    Case,
    versions=(OLD,),
    unlike="works; on stock's servers of 5.3.3 this tool of 4.9.7 has a NullPointerException",
)
_not_live = partial(
    Case,
    unlike="refused: it takes effect at a start; stock says success and goes on as before, or not",
    prints=r"CODE: 16  DESC: \w+ (has no effect here|cannot be changed while the server runs)",
)
_checked = partial(
    Case,
    unlike="refused with what the key accepts; stock says success and changes nothing",
    prints="CODE: ((29|1)  DESC: .*: give |16  DESC: unknownKey is no known key; keys that can be)",
)


def _accounts(where: str) -> Iterator[Case]:
    return (
        _without_accounts(line.format(where))
        for line in (
            "createUser {} -u somebody -p secret",
            "getUser {} -u somebody",
            "listUser {}",
            "updateUser {} -u somebody -p other",
            "deleteUser {} -u somebody",
            "createAcl {} -s User:somebody -r Topic:* -a PUB -d ALLOW",
            "getAcl {} -s User:somebody",
            "listAcl {}",
            "updateAcl {} -s User:somebody -r Topic:* -a SUB -d ALLOW",
            "deleteAcl {} -s User:somebody",
        )
    )


def _stricter(broker: str) -> Iterator[Case]:
    """What a broker of stock's takes and one of ours refuses."""
    no_use = "refused: stock makes a topic that nobody can send to or read"
    yield Case(
        f"updateTopic -b {broker} -t odd -r 4 -w 4 -p 9",
        (OLD,),
        unlike=no_use,
        prints="CODE: 29  DESC: perm 9: add up 4 to read",
    )
    yield Case(
        f"updateTopic -b {broker} -t minus -r -1 -w -1",
        unlike=no_use,
        prints="CODE: 29  DESC: -1 queues of minus: give 0 to",
    )
    yield Case(
        f"updateTopic -b {broker} -t compacted -a +cleanup.policy=COMPACTION",
        (NEW,),
        unlike="refused: there are no compacted topics, and all messages would stay",
        prints="CODE: 1  DESC: .*this broker has no queues for COMPACTION",
    )
    for group in ("''", "'bad group'"):
        yield Case(
            f"updateSubGroup -b {broker} -g {group}",
            unlike="refused: stock makes a group of a name that no client may have",
            prints="CODE: 1  DESC: the group (is blank|'bad group' has an illegal character)",
        )
    for limit in ("x", "-1"):
        yield Case(
            f"updateColdDataFlowCtrGroupConfig -b {broker} -g $group -v {limit}",
            (NEW,),
            unlike="refused: a limit is 0 or more bytes; stock says success",
            prints="CODE: 29  DESC: the limit: give an integer from 0",
        )
    yield _checked(f"updateBrokerConfig -b {broker} -k traceOn -v ''")


CASES: list[Case] = [
    # topics
    *_both(
        "updateTopic -c $cluster -t made -r 4 -w 4",
        "updateTopic -b $address -t made -r 3 -w 3 -p 6 -o false",
        "updateTopic -b $address -t ordered -r 2 -w 2 -o true",
        "updateTopic -b $address -t unit -u true -s true",
        "updateTopic -b $address -t 'bad name'",
        "updateTopic -b $address -t made -r 0 -w 0",
        "updateTopicPerm -b $address -t made -p 4",
        "updateTopicPerm -b $address -t made -p 6",
        "updateTopicPerm -c $cluster -t made -p 2",
        "updateTopicPerm -c $cluster -t made -p 6",
        "updateTopicPerm -b $address -t missing -p 6",
    ),
    *_new(
        "updateTopic -b $address -t fifo -a +message.type=FIFO",
        "updateTopic -b $address -t fifo -a +message.type=WRONG",
        "updateTopic -b $address -t fifo -a +unknown.key=1",
        "updateTopicList -b $address -f $topics_file",
        "updateTopicList -c $cluster -f $topics_file",
    ),
    *_both(
        "topicRoute -t $topic",
        "topicRoute -t $topic -l",
        "topicRoute -t missing",
        "topicClusterList -t $topic",
        "topicClusterList -t missing",
        "topicStatus -t $topic",
        "topicStatus -t made",
        "topicStatus -t missing",
    ),
    *_new("topicStatus -t $topic -c $cluster"),
    Case("topicList", unordered=True),
    Case("topicList -c", unordered=True),
    *_both(
        "updateOrderConf -t ordered -m put -v broker-a:2",
        "updateOrderConf -t ordered -m get",
        "updateOrderConf -t ordered -m delete",
        "updateOrderConf -t ordered -m get",
        "allocateMQ -t $topic -i 192.0.2.1,192.0.2.2",
        "deleteTopic -t made -c $cluster",
        "deleteTopic -t missing -c $cluster",
    ),
    # groups
    *_both(
        "updateSubGroup -c $cluster -g made-group -s true -r 3 -q 2",
        "updateSubGroup -b $address -g made-group -m true -d false -i 0 -w 1 -a true",
        "getConsumerConfig -g made-group",
        "getConsumerConfig -g missing-group",
        "consumerProgress -g missing-group",
        "consumerConnection -g $group",
        "consumerConnection -g $group -b $address",
        "consumerConnection -g missing-group",
        "producerConnection -g $producers -t $topic",
        "producerConnection -g missing -t $topic",
        "consumerStatus -g $group",
        "consumerStatus -g $group -i $client",
        "getConsumerStatus -g $group -t $topic",
        "getConsumerStatus -g $group -t $topic -i $client",
        "updateSubGroup -b $address -g cloned-group",
        "cloneGroupOffset -s $group -d cloned-group -t $topic",
        "resetOffsetByTime -g $group -t $topic -s -1",
        "resetOffsetByTime -g away-group -t $topic -s 0",
        "resetOffsetByTime -g missing-group -t $topic -s 0",
        "resetOffsetByTimeOld -g $group -t $topic -s -1",
        "skipAccumulatedMessage -g $group -t $topic",
        "skipAccumulatedMessage -g away-group -t $topic",
    ),
    _progress("consumerProgress", unordered=True),
    _progress("consumerProgress -g $group"),
    _progress("consumerProgress -g $group -s true"),
    _progress("consumerProgress -g $group -t $topic", (NEW,)),
    _progress("consumerProgress -g $group -c $cluster", (NEW,)),
    # Left out: producers inside of clients, which beat when they like.
    Case("producer -b $address", unordered=True, without="_INNER_"),
    *_new(
        "updateSubGroup -b $address -g made-group -o true -p '$policy'",
        "updateSubGroup -b $address -g made-group --attributes +lite.sub.model=Shared",
        "updateSubGroupList -b $address -f $groups_file",
        "consumer -g $group",
        "resetOffsetByTime -g $group -t $topic -s -1 -b $broker -q 0 -o 1",
        "resetOffsetByTime -g $group -t $topic -s -1 -c $cluster",
        "setConsumeMode -b $address -t $topic -g made-group -m PULL -q 0",
        "setConsumeMode -c $cluster -t $topic -g made-group -m POP -q 2",
        "setConsumeMode -b $address -t $topic -g made-group -m WRONG",
        "exportPopRecord -b $address -d true",
        "exportPopRecord -c $cluster",
    ),
    *_both(
        "deleteSubGroup -b $address -g made-group",
        "deleteSubGroup -c $cluster -g made-group -r true",
        "deleteSubGroup -b $address -g missing-group",
    ),
    # messages
    Case("queryMsgById -i $offset_id", (OLD,)),
    Case("queryMsgById -i $unique_id", (OLD,)),
    *_new(
        "queryMsgById -i $offset_id -t $topic",
        "queryMsgById -i $unique_id -t $topic",
        "queryMsgById -i $offset_id -t $topic -f UTF-8",
        "queryMsgById -i $offset_id -t $topic -g $group -d $client",
        "queryMsgByKey -t $topic -k key-1 -m 4 -c $cluster",
        "queryMsgByOffset -t $topic -b $broker -i 0 -o 0 -f UTF-8",
        "queryMsgByUniqueKey -t $topic -i $unique_id -a -c $cluster",
        "queryMsgTraceById -i $unique_id -t RMQ_SYS_TRACE_TOPIC -c 4",
    ),
    *_both(
        "queryMsgByKey -t $topic -k key-1",
        "queryMsgByKey -t $topic -k missing",
        "queryMsgByOffset -t $topic -b $broker -i 0 -o 0",
        "queryMsgByOffset -t $topic -b $broker -i 0 -o 99",
        "queryMsgByOffset -t $topic -b missing -i 0 -o 0",
        "queryMsgByUniqueKey -t $topic -i $unique_id",
        "queryMsgByUniqueKey -t $topic -i $unique_id -a",
        "queryMsgByUniqueKey -t $topic -i 00000000000000000000000000000000",
        "queryMsgTraceById -i $unique_id",
        "printMsg -t $topic",
        "printMsg -t $topic -s tag-a -d true",
        "printMsg -t missing",
        "printMsgByQueue -t $topic -a $broker -i 0 -p true -d true -f true",
        "printMsgByQueue -t $topic -a $broker -i 0 -p true",
        "consumeMessage -t $topic -b $broker -i 0 -o 0 -c 2",
        "consumeMessage -t $topic -c 2",
        "consumeMessage -t $topic -g away-group -c 1",
        "consumeMessage -t $topic -s 0 -e 1",
        "sendMessage -t $topic -p body -k key-s -c tag-s",
        "sendMessage -t $topic -p body -b $broker -i 1",
        "sendMessage -t missing-too -p body",
        "sendMsgStatus -b $broker -s 128 -c 2",
        "checkMsgSendRT -t $topic -a 2 -s 128",
        "queryCq -t $topic -q 0 -i 0 -c 2",
        "queryCq -t $topic -q 0 -i 0 -c 2 -b $address",
        "queryCq -t $topic -q 0 -i 0 -c 2 -g $group",
        "queryCq -t missing -q 0 -i 0",
    ),
    Case(
        "queryCq -t $topic -q 0 -i 99",
        unlike="stock's answer has no body, and the tool a NullPointerException",
        prints=r"^Queue data: \n(.*\n)*max: \d+, min: 0",
    ),
    # brokers
    *_both(
        "clusterList -m",
        "statsAll",
        "statsAll -t $topic",
        "cleanExpiredCQ -b $address",
        "cleanExpiredCQ -c $cluster",
        "cleanUnusedTopic -b $address",
        "cleanUnusedTopic -c $cluster",
        "deleteExpiredCommitLog -b $address",
        "deleteExpiredCommitLog -c $cluster",
    ),
    Case("clusterList", (NEW,)),
    _fails_on_newer("clusterList", prints="#Cluster Name .*\n.*broker"),
    _status("brokerStatus -b $address"),
    _status("brokerStatus -c $cluster"),
    # Stock counts up to its last sample, which may be ten seconds old, and what is older than a
    # minute once there are samples of ten minutes.
    Case("statsAll -a", without="NO_CONSUMER", more_is_fine=True),
    Case("brokerConsumeStats -b $address", unordered=True),
    Case("brokerConsumeStats -b $address -l 0 -t 5000 -o false", unordered=True),
    *_new(
        "clusterList -c $cluster",
        "haStatus -b $address",
        "haStatus -c $cluster",
        "getBrokerEpoch -b $broker",
        "getBrokerEpoch -c $cluster",
        "resetMasterFlushOffset -b $address -o 0",
        "updateColdDataFlowCtrGroupConfig -b $address -g $group -v 1024",
        "updateColdDataFlowCtrGroupConfig -c $cluster -g $group -v 2048",
        "getColdDataFlowCtrInfo -b $address",
        "getColdDataFlowCtrInfo -c $cluster",
        "removeColdDataFlowCtrGroupConfig -b $address -g $group",
        "removeColdDataFlowCtrGroupConfig -c $cluster -g missing-group",
        "setCommitLogReadAheadMode -b $address -m 0",
        "setCommitLogReadAheadMode -c $cluster -m 1",
        "setCommitLogReadAheadMode -b $address -m 7",
        "rocksDBConfigToJson -b $address -t topics",
        "exportMetadataInRocksDB -p $folder/none -t topics",
        "dumpCompactionLog -f $folder/none",
        "updateStaticTopic -t static -qn 2 -c $cluster",
        "remappingStaticTopic -t static -c $cluster",
    ),
    *(
        Case(line, (OLD,))
        for line in (
            "clusterAclConfigVersion -b $address",
            "getAclConfig -b $address",
            "updateAclConfig -b $address -a somebody -s secret-key",
            "deleteAclConfig -b $address -a somebody",
            "updateGlobalWhiteAddr -b $address -g 192.0.2.1",
        )
    ),
    *_accounts("-b $address"),
    _without_accounts("copyUser -f $address -t $address"),
    _without_accounts("copyAcl -f $address -t $address"),
    _rocksdb("checkRocksdbCqWriteProgress -c $cluster"),
    _rocksdb("rocksDBConfigToJson -c $cluster -t topics"),
    # configuration
    _checked("updateBrokerConfig -b $address -k fileReservedTime -v many"),
    _checked("updateBrokerConfig -b $address -k unknownKey -v 1"),
    _checked("updateNamesrvConfig -k unknownKey -v 1"),
    _config("getBrokerConfig -b $address"),
    _config("getBrokerConfig -c $cluster"),
    _config("getNamesrvConfig"),
    *_both(
        "updateBrokerConfig -b $address -k fileReservedTime -v 71",
        "updateBrokerConfig -c $cluster -k fileReservedTime -v 72",
        "updateBrokerConfig -b $address -k brokerConfigPath -v /tmp/x",
        "updateNamesrvConfig -k scanNotActiveBrokerInterval -v 5000",
        "updateNamesrvConfig -k kvConfigPath -v /tmp/x",
        "updateKvConfig -s space -k key -v value",
        "deleteKvConfig -s space -k key",
        "wipeWritePerm -b $broker",
        "addWritePerm -b $broker",
        "wipeWritePerm -b missing",
        "exportMetadata -c $cluster -f $folder/exported",
        "exportMetadata -b $address -t -f $folder/exported",
        "exportMetadata -b $address -g -f $folder/exported",
    ),
    # Brokers have one more key for tools of 4.9.
    _status("exportConfigs -c $cluster -f $folder/exported", (NEW,)),
    _fails_on_newer(
        "exportConfigs -c $cluster -f $folder/exported", prints="^export .*configs.json success"
    ),
    Case("exportMetrics -c $cluster -f $folder/exported", (NEW,)),
    _fails_on_newer(
        "exportMetrics -c $cluster -f $folder/exported", prints="^export .*metrics.json success"
    ),
    # options that no call before has
    *_new(
        "consumerStatus -g $group -s",
        "queryMsgByUniqueKey -t $topic -i $unique_id -g $group -d $client",
        "queryMsgByKey -t $topic -k key-1 -b 0 -e 9999999999999",
        "queryMsgByKey -t $topic -k key-1 -b 0 -e 1",
        "queryMsgTraceById -i $unique_id -b 0 -e 9999999999999",
        "queryMsgTraceById -i $unique_id -b 0 -e 1",
    ),
    Case(
        "printMsg -t $topic -b 2020-01-01#00:00:00:000 -e 9999999999999 -c GBK",
        (NEW,),
        # Those that sendMessage sent are in any queue.
        unordered=True,
    ),
    *_new(
        "printMsg -t $topic -b 0 -e 1",
        "printMsg -t %LMQ%none -l $topic",
        "printMsgByQueue -t $topic -a $broker -i 0 -p true -d true -s tag-a -c GBK",
        "printMsgByQueue -t $topic -a $broker -i 0 -p true -s nix",
        "printMsgByQueue -t $topic -a $broker -i 0 -p true -b 0 -e 1",
        "resetOffsetByTime -g $group -t $topic -s 0 -f false",
        "skipAccumulatedMessage -g away-group -t $topic -f true -c $cluster",
        "cloneGroupOffset -s $group -d cloned-group -t $topic -o true",
        "updateSubGroupList -c $cluster -f $groups_file",
        "exportMetadata -c $cluster -s -f $folder/exported",
        "updateStaticTopic -t static-named -qn 2 -b $broker",
        "remappingStaticTopic -t static-named -b $broker",
        "queryMsgById -i $unique_id -t $topic -s true -u unit -c $cluster",
        "sendMessage -t $topic -p body -m true",
    ),
    # what stock's dashboard asks, and no command
    AdminCall("viewMessage $topic $unique_id", without=_HOST_BYTES),
    AdminCall("viewMessage $topic $offset_id", without=_HOST_BYTES),
    AdminCall("viewMessage $topic 00000000000000000000000000000000"),
    AdminCall("examineTopicConfig $address $topic", exact=True),
    AdminCall("examineTopicConfig $address ordered", exact=True),
    AdminCall("examineTopicConfig $address missing"),
    AdminCall("getAllTopicConfig $address 30000", exact=True, without=_CHANGES),
    AdminCall("getAllSubscriptionGroup $address 30000", exact=True, without=_CHANGES),
    # What stock takes and ours refuses; stock has it from now on.
    Case("queryMsgByKey -t $topic -k key-1 -m 0", (NEW,)),
    Case("updateTopic -b $address -t odd -r 4 -w 4 -p 9", (NEW,)),
    Case("queryCq -t $topic -q -1 -i 0"),
    Case(
        "queryCq -t $topic -q 0 -i -1",
        unlike="shows no units; stock's answer has no body, and the tool a NullPointerException",
        prints=r"^Queue data: \n(.*\n)*max: \d+, min: 0",
    ),
    *_stricter("$address"),
    _not_live("updateBrokerConfig -b $address -k maxMessageSize -v 5000000"),
    _not_live("updateBrokerConfig -b $address -k flushDiskType -v SYNC_FLUSH"),
    _not_live("updateNamesrvConfig -k listenPort -v 9999"),
    _not_live("updateNamesrvConfig -k clusterTest -v true"),
    Case(
        "updateKvConfig -s '' -k '' -v value",
        unlike="refused: stock keeps a value under an empty name",
        prints="CODE: 1  DESC: the namespace is empty",
    ),
    # The last one, as lists of topics have it from now on.
    Case(
        "updateTopic -b $address -t batched -a +queue.type=BatchCQ",
        (NEW,),
        unlike="refused: there are no queues of batches, and queues of another kind would be made",
        prints="CODE: 1  DESC: .*this broker has no queues for BatchCQ",
    ),
]

ENDLESS = [
    EndlessCall(
        "clusterRT -a 2 -s 64 -m room -p true -c $cluster -i 3600",
        (NEW,),
        first_round=r"^.*\|room\|.*$",
    ),
    EndlessCall(
        "clusterRT -a 2 -c $cluster -i 3600",
        (OLD,),
        first_round=r"^#Cluster Name.*\n.* 2 +0 *$",
    ),
    EndlessCall(
        "startMonitoring",
        # Topics and groups come in the order of hash tables; its own group is one of them by then
        # or not yet.
        unordered=True,
        without=r"^(?!.*\[MONITOR\])|__MONITOR_CONSUMER",
        # Both could say nothing of any group.
        prints=r"(?s)(?=.*=group-a, topic=topic-a,)(?=.*=group-a, topic=%RETRY%group-a,)",
        # It begins after 20 s.
        first_round=r"^.*\[MONITOR\] =+beginRound(?s:.*?)\[MONITOR\] =+endRound$",
    ),
]

#: About a group that a controller leads and about a container, on servers of their own.
ELECTED_CASES: list[Case] = [
    *_new(
        "getControllerMetaData -a $controller",
        "getSyncStateSet -a $controller -b $broker",
        "getSyncStateSet -a $controller -c $cluster",
        "getSyncStateSet -a $controller -b missing",
        "getSyncStateSet -a $controller -c missing",
        "getSyncStateSet -a $controller",
        "getBrokerEpoch -b $broker",
        "getBrokerEpoch -c $cluster",
        "getBrokerEpoch -b missing",
        "electMaster -a $controller -b $slave_id -bn missing -c $cluster",
        "electMaster -a $controller -b 9 -bn $broker -c $cluster",
        "electMaster -a $controller -b $master_id -bn $broker -c $cluster",
        "electMaster -a $controller -b $slave_id -bn $broker -c $cluster",
        "updateControllerConfig -a $controller -k electMasterMaxRetryCount -v 7",
        "updateControllerConfig -a $controller -k configStorePath -v /tmp/x",
    ),
    _config("getControllerConfig -a $controller", (NEW,)),
    _checked("updateControllerConfig -a $controller -k unknownKey -v 1", (NEW,)),
    _checked("updateControllerConfig -a $controller -k electMasterMaxRetryCount -v many", (NEW,)),
    Case(
        "updateControllerConfig -a $controller -k controllerStorePath -v /tmp/x",
        (NEW,),
        unlike="refused: paths stay as they are; stock says success and shows the new one",
        prints="CODE: 16  DESC: controllerStorePath cannot be changed over the wire",
    ),
    *_new(
        "cleanBrokerMetadata -a $controller -bn $broker",
        "cleanBrokerMetadata -a $controller -bn missing -c $cluster",
        "cleanBrokerMetadata -a $controller -bn $broker -c $cluster",
        "cleanBrokerMetadata -a $controller -bn $broker -c $cluster -b $slave_id",
        "cleanBrokerMetadata -a $controller -bn $broker -c $cluster -b 9",
        "cleanBrokerMetadata -a $controller -bn $broker -c $cluster -b some",
        "cleanBrokerMetadata -a $controller -bn $broker -c $cluster -b $master_id -l",
        "getSyncStateSet -a $controller -b $broker",
        # containers
        "addBroker -c $container -b $file",
        "addBroker -c $container -b $file",
        "addBroker -c $container -b $slave_file",
        "addBroker -c $container -b $replicas_file",
        "addBroker -c $container -b $folder/none",
        "updateBrokerConfig -b $container -k brokerConfigPaths -v /tmp/x",
        "removeBroker -c $container -b DefaultCluster:added:1",
        "removeBroker -c $container -b DefaultCluster:added:0",
        "removeBroker -c $container -b DefaultCluster:added:0",
        "removeBroker -c $container -b DefaultCluster:added:x",
        "removeBroker -c $container -b DefaultCluster:added:-1",
        "removeBroker -c $container -b added",
    ),
    _config(
        "getBrokerConfig -b $container",
        (NEW,),
        unlike="the same, but for the buffers of sockets, which stock's containers set and ours"
        " leave to the system",
        prints="^serverSocketSndBufSize += +0$",
        differs=tuple(
            f"-{side}Socket{way}BufSize = 131072"
            for side in ("client", "server")
            for way in ("Rcv", "Snd")
        ),
    ),
    _checked("updateBrokerConfig -b $container -k unknownKey -v 1", (NEW,)),
]

#: About a slave, and about all brokers of a cluster that has one. First what changes nothing:
#: stock's slave has what it was told to change until its next copy.
SLAVE_CASES: list[Case] = [
    *_both(
        "topicRoute -t $topic",
        "topicClusterList -t $topic",
        "topicStatus -t $topic",
        "clusterList -m",
        "consumerConnection -g $group -b $slave",
        "consumerConnection -g missing-group -b $slave",
        "consumerStatus -g $group -b $slave",
        "queryCq -t $topic -q 0 -i 0 -c 2 -b $slave",
        "queryCq -t $topic -q 0 -i 0 -c 2 -g $group -b $slave",
        "queryCq -t missing -q 0 -i 0 -b $slave",
    ),
    Case("clusterList", (NEW,)),
    Case("producer -b $slave", unordered=True, without="_INNER_"),
    Case("brokerConsumeStats -b $slave", unordered=True),
    Case("brokerConsumeStats -b $slave -l 0 -t 5000 -o false", unordered=True),
    _status("brokerStatus -b $slave"),
    _status("brokerStatus -c $cluster"),
    _slave_config("getBrokerConfig -b $slave"),
    _slave_config("getBrokerConfig -c $cluster"),
    *_both(
        "exportMetadata -b $slave -t -f $folder/exported",
        "exportMetadata -b $slave -g -f $folder/exported",
    ),
    _status("exportConfigs -c $cluster -f $folder/exported", (NEW,)),
    Case("exportMetrics -c $cluster -f $folder/exported", (NEW,)),
    AdminCall("examineTopicConfig $slave $topic", exact=True),
    AdminCall("examineTopicConfig $slave missing"),
    AdminCall("getAllTopicConfig $slave 30000", exact=True, without=_CHANGES),
    AdminCall("getAllSubscriptionGroup $slave 30000", exact=True, without=_CHANGES),
    *_new(
        "haStatus -b $slave",
        "haStatus -b $address",
        "haStatus -c $cluster",
        "getBrokerEpoch -b $broker",
        "getBrokerEpoch -c $cluster",
        "getColdDataFlowCtrInfo -b $slave",
        "getColdDataFlowCtrInfo -c $cluster",
        "exportPopRecord -b $slave -d true",
        "exportPopRecord -b $slave",
        "exportPopRecord -c $cluster",
        "rocksDBConfigToJson -b $slave -t topics",
    ),
    # what changes the slave itself
    *_both(
        "cleanExpiredCQ -b $slave",
        "cleanExpiredCQ -c $cluster",
        "cleanUnusedTopic -b $slave",
        "cleanUnusedTopic -c $cluster",
        "deleteExpiredCommitLog -b $slave",
        "deleteExpiredCommitLog -c $cluster",
        "updateBrokerConfig -b $slave -k fileReservedTime -v 71",
        "updateBrokerConfig -b $slave -k brokerConfigPath -v /tmp/x",
    ),
    *_new(
        "updateBrokerConfig -c $cluster -a true -k fileReservedTime -v 70",
        "resetMasterFlushOffset -b $slave -o 0",
        "updateColdDataFlowCtrGroupConfig -b $slave -g $group -v 1024",
        "removeColdDataFlowCtrGroupConfig -b $slave -g $group",
        "removeColdDataFlowCtrGroupConfig -b $slave -g missing-group",
        "setCommitLogReadAheadMode -b $slave -m 0",
        "setCommitLogReadAheadMode -c $cluster -m 1",
        "setCommitLogReadAheadMode -b $slave -m 7",
        "resetOffsetByTime -g $group -t $topic -s -1 -b $slave -q 0 -o 1",
    ),
    *(
        Case(line, (OLD,))
        for line in (
            "clusterAclConfigVersion -b $slave",
            "getAclConfig -b $slave",
            "updateAclConfig -b $slave -a somebody -s secret-key",
            "deleteAclConfig -b $slave -a somebody",
            "updateGlobalWhiteAddr -b $slave -g 192.0.2.1",
            "updateAclConfig -c $cluster -a somebody -s secret-key",
            "deleteAclConfig -c $cluster -a somebody",
            "updateGlobalWhiteAddr -c $cluster -g 192.0.2.1",
        )
    ),
    *_accounts("-b $slave"),
    *_accounts("-c $cluster"),
    _without_accounts("copyUser -f $address -t $slave"),
    _without_accounts("copyAcl -f $slave -t $address"),
    # what its master is to change
    *_new(
        "setConsumeMode -b $slave -t $topic -g $group -m POP -q 2",
        "setConsumeMode -b $slave -t missing -g $group -m POP",
        "setConsumeMode -b $slave -t $topic -g missing-group -m POP",
        "setConsumeMode -b $slave -t $topic -g $group -m WRONG",
    ),
    *_both(
        "updateTopic -b $slave -t made -r 3 -w 3 -p 6",
        "updateTopic -b $slave -t 'bad name'",
        "updateTopicPerm -b $slave -t $topic -p 4",
        "updateSubGroup -b $slave -g made-group -m true",
        "deleteSubGroup -b $slave -g made-group",
        "deleteSubGroup -b $slave -g missing-group -r true",
    ),
    *_new(
        "updateTopic -b $slave -t odd -r 4 -w 4 -p 9",
        "updateTopic -b $slave -t fifo -a +message.type=FIFO",
        "updateTopic -b $slave -t fifo -a +message.type=WRONG",
        "updateTopic -b $slave -t fifo -a +unknown.key=1",
        "updateTopicList -b $slave -f $topics_file",
        "updateSubGroup -b $slave -g made-group --attributes +lite.sub.model=Shared",
        "updateSubGroupList -b $slave -f $groups_file",
        # deletions ask the slave too
        "updateStaticTopic -t static -qn 2 -c $cluster",
        "remappingStaticTopic -t static -c $cluster",
    ),
    *_both(
        "updateSubGroup -c $cluster -g doomed-group",
        "deleteSubGroup -c $cluster -g doomed-group -r true",
        "updateTopic -c $cluster -t doomed -r 1 -w 1",
        "deleteTopic -t doomed -c $cluster",
        "deleteTopic -t missing -c $cluster",
    ),
    *_stricter("$slave"),
    _checked("updateBrokerConfig -b $slave -k fileReservedTime -v many"),
    _checked("updateBrokerConfig -b $slave -k unknownKey -v 1"),
    _not_live("updateBrokerConfig -b $slave -k brokerRole -v ASYNC_MASTER"),
]
