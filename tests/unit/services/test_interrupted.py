"""Ctrl-C while a program still starts ends it with a word and status 130, without a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.support.jars import PROJECT
from tests.support.wait import LIMIT

#: Interrupts this process as it loads the module.
INTERRUPT = """if True:
    import os, signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)
    class Interrupting:
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                os.kill(os.getpid(), signal.SIGINT)
    sys.meta_path.insert(0, Interrupting())
    sys.argv = {argv!r}
"""
#: Sends it a signal as the server begins to serve, before the reactor takes signals.
LATE = """
    from rocketmq_tw.services.namesrv import NamesrvService
    start = NamesrvService.startService
    def started(self):
        os.kill(os.getpid(), signal.{name})
        start(self)
    NamesrvService.startService = started
"""
#: Interrupts it where an exception comes to nothing, as in what the import of a module calls.
UNHEARD = """
    import gc
    from rocketmq_tw.services.namesrv import Options
    class Passing:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
    parse = Options.parseOptions
    def parsed(self, options=None):
        Passing()
        # For PyPy, where nothing else calls __del__.
        gc.collect()
        parse(self, options)
    Options.parseOptions = parsed
"""
RMQSPARK = "    from rocketmq_tw.spark.jobs.main import main\n    main()\n"
RMQADMIN = "    from rocketmq_tw.admin.main import main\n    main()\n"
TWISTD = "    from twisted.scripts.twistd import run\n    run()\n"


#: Interrupts it while a question waits, which fails as the reactor ends.
WAITING = """if True:
    import os, signal
    from twisted.internet.defer import Deferred
    from rocketmq_tw.admin.settings import Access
    from rocketmq_tw.admin.tool import run_reactor
    from rocketmq_tw.client.errors import ClientError
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def work(servers):
        question = Deferred()
        fail = lambda: question.errback(ClientError("the connection was lost"))
        servers.reactor.addSystemEventTrigger("during", "shutdown", fail)
        servers.reactor.callLater(0, os.kill, os.getpid(), signal.SIGINT)
        await question

    run_reactor("", work, Access())
"""


@pytest.mark.parametrize(
    ("argv", "module", "code", "program"),
    [
        ("rmqadmin topicList -n a:1", "click", RMQADMIN, "rmqadmin"),
        ("rmqadmin topicList -n a:1", "rocketmq_tw.admin.topic", RMQADMIN, "rmqadmin"),
        ("rmqadmin topicList -n a:1", "rocketmq_tw.net.client", RMQADMIN, "rmqadmin"),
        ("rmqspark lag T -g g -n a:1", "rich_click", RMQSPARK, "rmqspark"),
        ("rmqspark lag T -g g -n a:1", "pyarrow", RMQSPARK, "rmqspark"),
        ("twistd -n rmq-namesrv", "rocketmq_tw.services.namesrv", TWISTD, "rmq-namesrv"),
        ("twistd -n rmq-broker", "rocketmq_tw.broker.broker", TWISTD, "rmq-broker"),
        ("twistd -n rmq-broker -n a:1", "rocketmq_tw.services.reactor", TWISTD, "rmq-broker"),
    ],
)
def test_a_start_is_interrupted(
    argv: str, module: str, code: str, program: str, tmp_path: os.PathLike[str]
) -> None:
    done = run(INTERRUPT.format(module=module, argv=argv.split()) + code, tmp_path)
    assert (done.returncode, done.stderr) == (130, f"\n{program}: stopped\n")


def test_an_interrupt_is_not_lost_where_exceptions_are(tmp_path: os.PathLike[str]) -> None:
    argv = ["twistd", "-n", "rmq-namesrv", "-o", "listenPort=0"]
    done = run(INTERRUPT.format(module="", argv=argv) + UNHEARD + TWISTD, tmp_path)
    assert (done.returncode, done.stderr) == (130, "\nrmq-namesrv: stopped\n")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_server_that_begins_to_serve_stops_as_it_always_does(
    name: str, tmp_path: os.PathLike[str]
) -> None:
    argv = ["twistd", "-n", "rmq-namesrv", "-o", "listenPort=0", "-o", "bindAddress=127.0.0.1"]
    late = LATE.format(name=name)
    done = run(INTERRUPT.format(module="", argv=argv) + late + TWISTD, tmp_path)
    assert done.returncode == -signal.Signals[name], done.stderr
    assert f"{name}: the server stops" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_start_that_is_refused_ends_as_such_after_a_signal_too(
    tmp_path: os.PathLike[str],
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        argv = f"twistd -n rmq-namesrv -o listenPort={port} -o bindAddress=127.0.0.1".split()
        late = LATE.format(name="SIGTERM")
        done = run(INTERRUPT.format(module="", argv=argv) + late + TWISTD, tmp_path)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_second_signal_ends_a_start_that_hangs(tmp_path: os.PathLike[str]) -> None:
    argv = ["twistd", "-n", "rmq-namesrv", "-o", "listenPort=0", "-o", "bindAddress=127.0.0.1"]
    twice = LATE.format(name="SIGTERM").replace(
        "start(self)", "os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = run(INTERRUPT.format(module="", argv=argv) + twice + TWISTD, tmp_path)
    assert done.returncode == -signal.SIGTERM


def test_a_question_that_waits_is_interrupted(tmp_path: os.PathLike[str]) -> None:
    """No server has failed then."""
    done = run(WAITING, tmp_path)
    assert (done.returncode, done.stderr) == (130, "")


def run(code: str, home: os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
