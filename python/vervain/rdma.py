"""Verbs programs on the software NIC, started from Python."""

import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import vervain

# Nothing that tests start takes longer, on a busy machine.
PATIENCE_S = 120


class Failed(subprocess.CalledProcessError):
    """A program that ended with another exit code than 0. Its text has what the program said."""

    def __str__(self):
        said = [text.decode(errors="replace") if isinstance(text, bytes) else text for text in (self.stdout, self.stderr)]
        return "\n".join([super().__str__(), *(text for text in said if text)])


class Rdma:
    """A host with the device `vervain0`, in a run directory of its own: only programs of one run directory reach each other.

    `Rdma()` may be used in a `with`, at whose end everything that it started is killed.

    gid     the device's IP address (127.0.0.1, and the host's others)
    faults  what goes wrong in programs that are started from now on, as `vervain run --faults` takes it: "rc-error@7"
    seed    has faults with shares happen again
    traced  whether programs that are started from now on leave lines for `trace()`. It costs microseconds a request.
    options more flags of `vervain run`, such as ["--check"]
    """

    def __init__(self, run_dir=None, *, gid=None, faults=None, seed=None, traced=False, options=()):
        self._own_dir = None if run_dir else tempfile.TemporaryDirectory(prefix="vervain-")
        self.run_dir = Path(run_dir or self._own_dir.name)
        self._gid, self.faults, self.seed, self.traced = gid, faults, seed, traced
        self.options = list(options)
        self._hosts, self._started = [], []

    def host(self, gid):
        """Another host that programs of this one reach: the same run directory, another address, faults of its own."""
        other = Rdma(self.run_dir, gid=gid, traced=self.traced, options=self.options)
        self._hosts.append(other)
        return other

    @property
    def _trace_file(self):
        return self.run_dir / "trace.jsonl"

    def _flags(self):
        flags = ["--run-dir", str(self.run_dir), *self.options]
        for flag, value in [("--gid", self._gid), ("--faults", self.faults), ("--seed", self.seed)]:
            if value is not None:
                flags += [flag, str(value)]
        if self.traced:
            flags += ["--trace", str(self._trace_file)]
        return flags

    def _bare_env(self):
        """This process's environment without what another run says."""
        of_a_run = ["VERVAIN_RUN_DIR", "VERVAIN_GID", "VERVAIN_FAULTS", "VERVAIN_TRACE"]
        return {name: value for name, value in os.environ.items() if name not in of_a_run}

    @property
    def env(self):
        """An environment for `subprocess`, with which a program and what it starts is on the software NIC."""
        bare = self._bare_env()
        asked = [vervain.program(), "env", "--json", *self._flags()]
        said = subprocess.run(asked, env=bare, capture_output=True, text=True)
        if said.returncode != 0:
            raise Failed(said.returncode, asked, said.stdout, said.stderr)
        return {**bare, **json.loads(said.stdout)}

    def _command(self, args):
        # `run` says in a sentence why a program cannot be run so, where the environment alone would give it no device.
        return [vervain.program(), "run", *self._flags(), "--", *map(os.fspath, args)]

    def run(self, args, *, check=True, timeout=PATIENCE_S, **options):
        """Runs a program to its end, as `subprocess.run`: what it says is captured, as text.

        Raises `Failed`, with what the program said, if its exit code is not 0; with check=False it is returned. Raises
        subprocess.TimeoutExpired if it takes longer.
        """
        options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "env": self._bare_env(), **options}
        done = subprocess.run(self._command(args), timeout=timeout, **options)
        if check and done.returncode != 0:
            raise Failed(done.returncode, list(args), done.stdout, done.stderr)
        return done

    def popen(self, args, **options):
        """Starts a program, as `subprocess.Popen`: by default its output and errors are one pipe, as text. It is killed at the test's end."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        options = {**pipes, "text": True, "env": self._bare_env(), **options}
        started = subprocess.Popen(self._command(args), **options)
        self._started.append(started)
        return started

    def trace(self):
        """What programs have traced so far, in the order that it happened: a dictionary for each request, completion and change of a queue pair."""
        if not self._trace_file.exists():
            if not self.traced:
                raise RuntimeError("nothing was traced: set `traced = True` before programs are started")
            return []
        with open(self._trace_file) as file:
            lines = [line for line in file if line.endswith("\n")]
        return sorted(map(json.loads, lines), key=lambda line: line["seconds"])

    def close(self):
        """Kills what it started, and removes its run directory."""
        for host in self._hosts:
            host.close()
        for started in self._started:
            started.kill()
            started.wait()
            if started.stdout:
                started.stdout.close()
        self._started.clear()
        if self._own_dir:
            self._own_dir.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def free_port():
    """A TCP port that nobody listens on now, for programs that exchange their addresses over TCP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def until_listening(port, server=None, timeout=PATIENCE_S):
    """Waits until somebody listens on a TCP port of this machine, without connecting to it. Raises if the server ends instead."""
    deadline = time.monotonic() + timeout
    while not _is_listening(port):
        if server is not None and server.poll() is not None:
            raise Failed(server.returncode, server.args, server.communicate()[0], None)
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens on port {port} after {timeout} s")
        time.sleep(0.002)


def _is_listening(port):
    listen = "0A"
    for table in ["/proc/net/tcp", "/proc/net/tcp6"]:
        try:
            with open(table) as file:
                lines = [line.split() for line in file][1:]
        except FileNotFoundError:
            continue
        if any(line[1].endswith(f":{port:04X}") and line[3] == listen for line in lines):
            return True
    return False
