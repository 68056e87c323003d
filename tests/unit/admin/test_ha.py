MASTER, SLAVE = "10.0.0.2:10911", "10.0.0.3:10911"


def test_a_master_shows_its_slaves(world) -> None:
    outcome = world.rmqadmin(f"haStatus -b {MASTER}")
    assert outcome.lines[0] == f"{MASTER} is a master: log end 0, 0 slaves, 0 in sync".split()
    (status,) = world.rmqadmin("haStatus -c DefaultCluster --output json").json["brokers"]
    assert status == {
        "address": MASTER,
        "role": "master",
        "logEnd": 0,
        "inSync": 0,
        "slaves": [],
        "error": None,
    }


def test_a_slave_shows_its_master(world) -> None:
    world.add_broker("broker-a", "10.0.0.3", broker_id=1, store={"broker_role": "SLAVE"})
    (status,) = world.rmqadmin(f"haStatus -b {SLAVE} --output json").json["brokers"]
    assert (status["role"], status["master"], status["logEnd"]) == ("slave", "10.0.0.2:10912", 0)
    assert world.rmqadmin(f"haStatus -b {SLAVE}").lines[2][:2] == ["10.0.0.2:10912", "0"]


def test_one_of_broker_and_cluster_is_asked_for(world) -> None:
    for arguments in ("haStatus", f"haStatus -b {MASTER} -c DefaultCluster"):
        outcome = world.rmqadmin(arguments)
        assert outcome.status == 2
        assert "give one of -b, a broker's address, and -c, a cluster's name" in outcome.err
