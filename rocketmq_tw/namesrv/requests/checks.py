"""What a name or an address from outside has to look like."""

from rocketmq_tw.net.address import split_address
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: A name beyond this is no file's name either; "%RETRY%" with the longest group fits.
MAX_REGISTERED_NAME = 255


def check_name(field: str, name: str) -> None:
    """Raises `RequestError` unless `name` has a length that some broker could use."""
    if not 0 < len(name) <= MAX_REGISTERED_NAME:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{field} has {len(name)} characters: give it 1 to {MAX_REGISTERED_NAME}",
        )


def check_address(field: str, address: str) -> None:
    """Raises `RequestError` unless `address` is `host:port`."""
    try:
        host, _ = split_address(address)
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{field}: {error}") from error
    check_name(field, host)
