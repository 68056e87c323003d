"""Structs with types, and their JSON: `msgspec` where it is, and what this package uses of it,
written in Python, where it cannot be: it is made of CPython's own structures, and PyPy has none.

Everything else imports `msgspec` from here, and does not know which of the two it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_tw.interpreter import IS_PYPY

if TYPE_CHECKING or not IS_PYPY:
    import msgspec as msgspec
    from msgspec import Meta as Meta
    from msgspec import field as field
    from msgspec import structs as structs
    from msgspec.structs import astuple as astuple
    from msgspec.structs import fields as fields
    from msgspec.structs import force_setattr as force_setattr
    from msgspec.structs import replace as replace
else:
    from rocketmq_tw.structs import plain

    msgspec = plain
    from rocketmq_tw.structs.plain import Meta as Meta
    from rocketmq_tw.structs.plain import field as field
    from rocketmq_tw.structs.plain import structs as structs
    from rocketmq_tw.structs.plain.structs import astuple as astuple
    from rocketmq_tw.structs.plain.structs import fields as fields
    from rocketmq_tw.structs.plain.structs import force_setattr as force_setattr
    from rocketmq_tw.structs.plain.structs import replace as replace
