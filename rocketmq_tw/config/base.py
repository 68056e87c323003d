"""The base of all typed configurations.

One `Config` for each of stock's configuration classes, in a module named after it (`store.py` for
MessageStoreConfig). A field is a stock key that has an effect here, in snake_case, with stock
5.3.3's default; `rename="camel"` gives the key's name in a .properties file.
"""

import msgspec


class Config(msgspec.Struct, rename="camel", kw_only=True):
    """Typed keys; mutable, since the admin protocol changes some of them at run time."""
