"""pytest on the software NIC.

The fixture `rdma` is for programs that a test starts. `pytest --rdma`, or `rdma = true` in pytest's settings, starts pytest itself on
the software NIC, so that verbs in the test's own process (pyverbs, ctypes, extension modules) find a device; tests that
need that have the mark `rdma`, and are skipped otherwise.
"""

import os
import sys

import pytest

import vervain


def pytest_addoption(parser):
    does = "start pytest itself on the software NIC, for verbs in the tests' own process"
    parser.getgroup("vervain").addoption("--rdma", action="store_true", help=does)
    parser.addini("rdma", does, type="bool", default=False)


# The outermost of all: before output is captured, and before a conftest.py may import something that opens devices.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    wanted = early_config.known_args_namespace.rdma or early_config.getini("rdma")
    if wanted and not vervain.is_on_software_nic():
        start_again()
    yield


def start_again():
    """Becomes the same Python with the same arguments, on the software NIC."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(vervain.program(), ["vervain", "run", "--", sys.executable, *sys.orig_argv[1:]])


def pytest_configure(config):
    config.addinivalue_line("markers", "rdma: needs the software NIC in pytest's own process (pytest --rdma)")


def pytest_runtest_setup(item):
    if item.get_closest_marker("rdma") and not vervain.is_on_software_nic():
        pytest.skip("needs pytest itself on the software NIC: pytest --rdma")


@pytest.fixture
def rdma():
    """Starts programs on the software NIC, in a run directory of the test's own: see vervain.Rdma."""
    with vervain.Rdma() as host:
        yield host
