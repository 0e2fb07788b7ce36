"""RDMA without RDMA hardware: verbs programs, as they are, on a software NIC.

The package carries the program `vervain`, which is also installed as a command, and its library. `Rdma` starts programs
on the software NIC from Python; `vervain.pytest_plugin` makes it a fixture.
"""

import os
import sys
from pathlib import Path

from vervain.rdma import Failed, Rdma

__all__ = ["Failed", "Rdma", "is_on_software_nic", "program"]


def program():
    """The path of the program: $VERVAIN, or that of this package."""
    return os.environ.get("VERVAIN") or str(Path(__file__).with_name("bin") / "vervain")


def is_on_software_nic():
    """Whether this process itself, and what it starts, has the software NIC's libibverbs."""
    return "libvervain_verbs" in os.environ.get("LD_PRELOAD", "")


def main():
    """The command `vervain`: becomes the program."""
    os.execv(program(), ["vervain", *sys.argv[1:]])
