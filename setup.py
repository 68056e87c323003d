"""Builds the hot modules with mypyc where `ROCKETMQ_TW_COMPILED=1` asks for it.

Everything else about the package stands in setup.cfg; without the variable nothing is compiled and
no compiler is needed.
"""

import os

from setuptools import setup

#: What every send passes through; modules of Twisted's and msgspec's classes gain nothing.
HOT = (
    "broker/requests/send",
    "broker/commit",
    "message/batch",
    "message/properties",
    "message/record",
    "message/tags",
    "store/commit_log",
    "store/consume_queue",
    "store/dispatch",
    "store/index",
    "store/index_file",
    "store/index_slots",
    "store/message_store",
    "store/queues",
    "store/segments",
    "wire/frame",
)

extensions = []
if os.environ.get("ROCKETMQ_TW_COMPILED") == "1":
    # Reads the types of what is imported, so not in an isolated build.
    from mypyc.build import mypycify

    extensions = mypycify(
        ["--config-file=setup.cfg", *(f"rocketmq_tw/{module}.py" for module in HOT)],
        opt_level="3",
        debug_level="0",
    )
    for extension in extensions:
        # Where it cannot be built the sources serve as well.
        extension.optional = True

setup(ext_modules=extensions)
