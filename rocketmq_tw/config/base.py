"""The base of all typed configurations.

One `Config` for each of stock's configuration classes, in a module named after it (`store.py` for
MessageStoreConfig). A field is a stock key that has an effect here, in snake_case, with stock
5.3.3's default; `rename="camel"` gives the key's name in a .properties file. What the field accepts
stands in its annotation (`constraints.py`).
"""

from collections.abc import Callable
from functools import cached_property

import msgspec

#: Is told the names of the keys that changed, as files write them.
OnChange = Callable[[frozenset[str]], None]


class Config(msgspec.Struct, rename="camel", kw_only=True, frozen=True, dict=True):
    """Typed keys. Attributes cannot be assigned: another configuration is made with
    `msgspec.structs.replace`, and what may change while the server runs goes through
    `rocketmq_tw.config.change.change`."""

    @cached_property
    def _subscribers(self) -> dict[object, OnChange]:
        # Beside the fields, so that a copy or a comparison takes no notice of them.
        return {}
