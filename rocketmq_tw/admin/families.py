"""The commands by family: the module that has each, and its line in the list of all. Help and
completion take them from here, so that they import no command."""

from __future__ import annotations

from collections.abc import Mapping

#: The family of commands of mqadmin that nothing here can do.
REFUSED = "Refused"
#: Family to module of this package to the commands that stand in it, each with the first paragraph
#: of its help.
FAMILIES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "Clusters and brokers": {
        "cluster": {
            "clusterList": "Lists clusters, their brokers and how these are doing.",
        },
        "health": {
            "health": (
                "Says what is wrong with name servers and brokers; the exit status is 1 where an "
                "error is."
            ),
        },
        "broker_status": {
            "brokerStatus": (
                "Shows everything that brokers say of how they are doing; of a cluster slaves too."
            ),
            "brokerConsumeStats": (
                "Shows how far all groups of a broker are behind, queue by queue."
            ),
        },
        "traffic": {
            "statsAll": "Shows for each topic and its groups how many messages come and go.",
        },
        "broker_config": {
            "getBrokerConfig": "Shows the configuration that brokers work with.",
            "updateBrokerConfig": "Changes one key of the configuration of running brokers.",
        },
        "upkeep": {
            "cleanExpiredCQ": "Removes units of queues whose messages are gone.",
            "cleanUnusedTopic": "Removes the queues of topics that brokers do not have any more.",
            "deleteExpiredCommitLog": "Deletes the files of the log that are old enough, at once.",
            "resetMasterFlushOffset": "Tells a slave how far its master has flushed the log.",
            "exportPopRecord": (
                "Has brokers bring the records of pops back from their key-value store, as before "
                "5.3.3."
            ),
            "setCommitLogReadAheadMode": "Sets whether the log is read ahead.",
        },
        "cold_reads": {
            "getColdDataFlowCtrInfo": (
                "Shows how much groups may read from the disk, and what they read."
            ),
            "updateColdDataFlowCtrGroupConfig": "Sets how much a group may read from the disk.",
            "removeColdDataFlowCtrGroupConfig": (
                "Removes the limit of what a group may read from the disk."
            ),
        },
        "ha": {
            "haStatus": "Shows how replication is doing.",
        },
        "epochs": {
            "getBrokerEpoch": (
                "Shows which master's reign each part of the brokers' logs comes from."
            ),
        },
        "exports": {
            "exportMetadata": "Writes the topics and groups of users to metadata.json.",
            "exportConfigs": (
                "Writes how large a cluster is, and how its masters are configured, to "
                "configs.json."
            ),
            "exportMetrics": (
                "Writes what a cluster's masters have to do, and with what, to metrics.json."
            ),
        },
    },
    "Topics": {
        "topic": {
            "topicList": "Lists all topics that the name servers know.",
            "topicRoute": "Shows which brokers have a topic, with how many queues.",
            "topicStatus": "Shows the offsets of each queue of a topic and when it last changed.",
            "updateTopic": (
                "Creates a topic, or gives one the settings of this call; what is left out becomes "
                "the default."
            ),
            "deleteTopic": (
                "Deletes a topic with its messages from a cluster's brokers and from the name "
                "servers."
            ),
        },
        "topic_use": {
            "updateTopicPerm": (
                "Changes whether a topic may be read and written; the rest of it stays."
            ),
            "topicClusterList": "Lists the clusters that have a topic.",
            "allocateMQ": "Shows which queues of a topic the members of a group would get.",
        },
        "lists": {
            "updateTopicList": "Creates or changes all topics of a file.",
            "updateSubGroupList": "Creates or changes all consumer groups of a file.",
        },
        "static_topic": {
            "updateStaticTopic": "Makes a static topic, or gives one more queues.",
            "remappingStaticTopic": (
                "Moves the queues of a static topic to some brokers; they keep their ids and "
                "offsets."
            ),
        },
    },
    "Groups and clients": {
        "consumer": {
            "consumerProgress": "Shows how far a consumer group is behind, or all groups in short.",
        },
        "members": {
            "consumerStatus": "Shows what the members of a group say of themselves.",
            "consumer": (
                "Shows what the members of a group say of themselves, and whether they subscribe "
                "alike."
            ),
            "getConsumerStatus": (
                "Shows which offsets the members of a group have in mind for the queues of a topic."
            ),
        },
        "connections": {
            "producerConnection": (
                "Shows the producers of a group that are connected to the brokers of a topic."
            ),
            "consumerConnection": (
                "Shows the members of a group that are connected, and what they subscribe to."
            ),
            "producer": "Shows all producers that are connected to a broker.",
        },
        "monitoring": {
            "startMonitoring": (
                "Shows all groups again and again: how far they are behind, and whether members "
                "subscribe alike."
            ),
        },
        "group": {
            "updateSubGroup": (
                "Creates a consumer group, or gives one the settings of this call; what is left "
                "out becomes the default."
            ),
            "getConsumerConfig": (
                "Shows the settings of a consumer group on each master that has it."
            ),
            "deleteSubGroup": (
                "Deletes a consumer group; from a cluster with its retry and dead-letter topics."
            ),
        },
        "consume_mode": {
            "setConsumeMode": (
                "Sets whether a group pulls a topic or pops it, for members that leave that to the "
                "broker."
            ),
        },
        "offsets": {
            "resetOffsetByTime": (
                "Lets a group consume again what was stored since a time, or go on there."
            ),
            "resetOffsetByTimeOld": "Does as resetOffsetByTime, with the options of old.",
            "skipAccumulatedMessage": "Lets a group pass over all that is there now.",
            "cloneGroupOffset": "Lets a group go on in a topic where another one is.",
        },
    },
    "Messages": {
        "send_message": {
            "sendMessage": "Sends a message, or one for each line of a file.",
        },
        "consume_message": {
            "consumeMessage": (
                "Shows messages of a topic, the oldest ones of each queue first; nothing is "
                "consumed."
            ),
        },
        "message_queries": {
            "queryMsgByKey": "Shows the messages of a topic that have a key.",
            "queryMsgByUniqueKey": (
                "Shows the message with a unique id, or has a member of a group consume it once "
                "more."
            ),
            "queryMsgByOffset": "Shows the message at an offset of a queue.",
            "decodeMessageId": (
                "Says which broker an offset message id names, and where in its log the message is."
            ),
        },
        "message_by_id": {
            "queryMsgById": "Shows one message, or has a member of a group consume it once more.",
        },
        "message_printing": {
            "printMsg": "Prints all messages of a topic, one line each, queue after queue.",
            "printMsgByQueue": (
                "Prints all messages of a queue, one line each, or counts them by tag."
            ),
        },
        "message_trace": {
            "queryMsgTraceById": (
                "Shows who sent a message and who consumed it, where their clients trace."
            ),
        },
        "queue_units": {
            "queryCq": (
                "Shows units of a consume queue, and with a group whether its filter takes them."
            ),
        },
        "send_times": {
            "sendMsgStatus": (
                "Sends messages to a broker, and shows how each was taken and how long it took."
            ),
            "checkMsgSendRT": (
                "Sends messages to the queues of a topic in turn, and shows how long each took."
            ),
            "clusterRT": (
                "Sends messages to the brokers of clusters again and again, and shows how long "
                "that takes."
            ),
        },
    },
    "Name servers": {
        "name_servers": {
            "updateKvConfig": "Sets a value on all name servers.",
            "deleteKvConfig": "Deletes a value from all name servers.",
            "getNamesrvConfig": "Shows the configuration that name servers work with.",
            "updateNamesrvConfig": "Changes one key of the configuration of all name servers.",
            "wipeWritePerm": (
                "Takes the write permission of all topics of a broker, so that producers pass it "
                "over."
            ),
            "addWritePerm": "Gives the topics of a broker their write permission back.",
            "updateOrderConf": (
                "Shows, sets or deletes how many queues brokers have of an ordered topic."
            ),
        },
    },
    "Controllers and containers": {
        "controller": {
            "getSyncStateSet": "Shows masters and which replicas have all of their logs.",
            "getControllerMetaData": (
                "Shows who leads the controllers, as the first of -a that answers says it."
            ),
            "electMaster": "Makes a replica the master that is alive and in the SyncStateSet.",
            "cleanBrokerMetadata": "Makes the controllers forget brokers that are gone for good.",
            "getControllerConfig": "Shows the configuration of each controller that -a names.",
            "updateControllerConfig": "Changes one key of each running controller that -a names.",
        },
        "container": {
            "addBroker": "Starts one more broker in a container.",
            "removeBroker": "Stops a broker of a container and takes it out.",
        },
    },
    "This machine": {
        "context": {
            "context": "Keeps name servers, TLS, credentials and the form of output under names.",
        },
        "store.commands": {
            "store": "Checks, repairs and shows the files of a store; no server is asked.",
        },
    },
    REFUSED: {
        "refused": {
            **dict.fromkeys(
                (
                    "createUser",
                    "updateUser",
                    "deleteUser",
                    "getUser",
                    "listUser",
                    "copyUser",
                    "createAcl",
                    "updateAcl",
                    "deleteAcl",
                    "getAcl",
                    "listAcl",
                    "copyAcl",
                    "clusterAclConfigVersion",
                    "getAclConfig",
                    "updateAclConfig",
                    "deleteAclConfig",
                    "updateGlobalWhiteAddr",
                ),
                "Is refused: there is no access control yet, and nothing is changed.",
            ),
            **dict.fromkeys(
                (
                    "checkRocksdbCqWriteProgress",
                    "rocksDBConfigToJson",
                    "exportMetadataInRocksDB",
                ),
                "Is refused: nothing is in RocksDB here.",
            ),
            "dumpCompactionLog": (
                "Is refused: there are no compacted topics here, so there is no log of theirs to "
                "show."
            ),
        },
    },
}
