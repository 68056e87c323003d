"""Which Python a server says that it runs on."""

import platform
import sys
import sysconfig

import pytest

from rocketmq_tw.interpreter import python_version


@pytest.mark.parametrize(
    ("prefix", "options", "is_told"),
    [
        ("/usr", "'--enable-shared' '--prefix=/usr'", False),
        ("/usr/local", "'--enable-optimizations' '--with-lto'", False),
        ("/root/.pyenv/versions/3.11.7", "'--enable-shared'", True),
        ("/opt/python", None, True),
    ],
)
def test_a_build_without_optimizations_is_told(
    prefix: str, options: str | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "pypy_version_info", raising=False)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(sysconfig, "get_config_var", {"CONFIG_ARGS": options}.get)
    told = " (built without --enable-optimizations)" if is_told else ""
    assert python_version() == platform.python_version() + told


@pytest.mark.parametrize(
    ("step", "told"), [("1M", ""), (None, ", PYPY_GC_INCREMENT_STEP is not set")]
)
def test_pypy_is_told_with_its_own_version(
    step: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pypy_version_info", (8, 0, 1, "final", 0), raising=False)
    monkeypatch.delenv("PYPY_GC_INCREMENT_STEP", raising=False)
    if step is not None:
        monkeypatch.setenv("PYPY_GC_INCREMENT_STEP", step)
    assert python_version() == f"{platform.python_version()} (PyPy 8.0.1{told})"
