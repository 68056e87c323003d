"""The checks that requests pass before their handlers, found by a request's code.

Most checks leave most requests alone, and say which (`ISelectiveCheck`). They are asked that once,
so that a message that comes meets only those that may refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from rocketmq_tw.net.interfaces import ISelectiveCheck, RequestCheck


class _Check(NamedTuple):
    """A check, and what it says of itself."""

    look: RequestCheck
    #: The codes of the requests that it may refuse; None: of all.
    codes: Set[int] | None
    lets_all_pass: Callable[[], bool]

    def concerns(self, code: int) -> bool:
        return self.codes is None or code in self.codes


class _OfCode(NamedTuple):
    """What requests of a code pass, in order."""

    looks: tuple[RequestCheck, ...] = ()
    let_all_pass: tuple[Callable[[], bool], ...] = ()


class RequestChecks:
    """Checks, in the order in which requests pass them."""

    def __init__(self, checks: Iterable[RequestCheck] = ()) -> None:
        # Keys, since the same check may be added twice.
        self._by_key = {object(): _described(check) for check in checks}
        self._arrange()

    def add(self, check: RequestCheck) -> Callable[[], None]:
        """Has requests pass `check` too, behind the others, from now on; what is returned ends
        that, and does nothing when it is called again."""
        key = object()
        self._by_key[key] = _described(check)
        self._arrange()

        def remove() -> None:
            if self._by_key.pop(key, None) is not None:
                self._arrange()

        return remove

    def of(self, code: int) -> tuple[RequestCheck, ...]:
        """Returns those that a request of a code passes."""
        return self._of_codes.get(code, self._of_others).looks

    def let_all_pass(self, code: int) -> bool:
        """Returns whether they are sure to let each request of a code pass now, whatever is in
        it."""
        for lets_all_pass in self._of_codes.get(code, self._of_others).let_all_pass:
            if not lets_all_pass():
                return False
        return True

    def _arrange(self) -> None:
        checks = self._by_key.values()
        codes = {int(code) for check in checks for code in check.codes or ()}
        self._of_codes = {
            code: _of_code([check for check in checks if check.concerns(code)]) for code in codes
        }
        self._of_others = _of_code([check for check in checks if check.codes is None])


def _described(check: RequestCheck) -> _Check:
    if not ISelectiveCheck.providedBy(check):
        return _Check(check, None, _is_never_sure)
    selective: Any = check
    return _Check(check, selective.codes, selective.lets_all_pass)


def _of_code(checks: list[_Check]) -> _OfCode:
    return _OfCode(
        tuple([check.look for check in checks]), tuple([check.lets_all_pass for check in checks])
    )


def _is_never_sure() -> bool:
    return False
