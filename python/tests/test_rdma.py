"""The package's own tests: its fixture, used on programs that nobody here wrote. They run with the wheel installed."""

import os
import signal
import subprocess

import pytest

import vervain
from vervain.rdma import Failed, free_port, until_listening

started = []


def pingpong(server, client, *flags):
    """ibv_rc_pingpong's server on one host; its client on another runs to its end and is returned."""
    port = free_port()
    program = ["ibv_rc_pingpong", "-c", "-g", "0", "-p", str(port), *flags]
    serving = server.popen(program)
    until_listening(port, serving)
    done = client.run([*program, "127.0.0.1"])
    said, _ = serving.communicate(timeout=120)
    assert serving.returncode == 0, said
    return done


def test_programs_reach_each_other(rdma):
    assert "1000 iters" in pingpong(rdma, rdma).stdout


def test_two_hosts_have_two_addresses(rdma):
    other = rdma.host("10.0.0.2")
    said = other.run(["ibv_devinfo", "-v"]).stdout
    assert "::ffff:10.0.0.2, RoCE v2" in said
    assert "::ffff:127.0.0.1, RoCE v2" in rdma.run(["ibv_devinfo", "-v"]).stdout
    done = pingpong(rdma, other)
    assert "GID ::ffff:10.0.0.2" in done.stdout and "GID ::ffff:127.0.0.1" in done.stdout


def test_faults_are_one_hosts(rdma):
    rdma.faults = "rc-error@7"
    port = free_port()
    program = ["ibv_rc_pingpong", "-g", "0", "-p", str(port)]
    server = rdma.host("10.0.0.1").popen(program)
    until_listening(port, server)
    with pytest.raises(Failed, match=r"(?s)exit status 1.*transport retry counter exceeded"):
        rdma.run([*program, "127.0.0.1"])
    started.append(server)


def test_what_a_test_started_is_over_with_it():
    # The server above waits for a client that has failed.
    (server,) = started
    assert server.returncode == -signal.SIGKILL


def test_a_plan_of_faults_that_makes_no_sense_is_told(rdma):
    rdma.faults = "rc-eror@7"
    with pytest.raises(Failed, match="rc-eror: no such fault"):
        rdma.run(["ibv_devices"])
    with pytest.raises(Failed, match="rc-eror: no such fault"):
        rdma.env


def test_a_trace_has_every_request(rdma):
    with pytest.raises(RuntimeError, match="traced = True"):
        rdma.trace()
    rdma.traced = True
    pingpong(rdma, rdma, "-n", "50", "-r", "10")
    lines = rdma.trace()
    count = lambda event: sum(line["event"] == event for line in lines)
    # Both sides' SENDs, and a completion for each and for each RECV.
    assert (count("post_send"), count("completion")) == (100, 200)
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)


def test_each_test_has_a_run_directory_of_its_own(rdma):
    with vervain.Rdma() as other:
        assert other.run_dir != rdma.run_dir
        port = free_port()
        program = ["ibv_rc_pingpong", "-g", "0", "-n", "10", "-p", str(port)]
        until_listening(port, other.popen(program))
        # They exchange addresses over TCP, and find nobody there.
        assert rdma.host("10.0.0.2").run([*program, "127.0.0.1"], check=False).returncode != 0
    assert not other.run_dir.exists()


def test_an_environment_is_for_whatever_else_starts_programs(rdma):
    listed = subprocess.run(["ibv_devices"], env=rdma.env, capture_output=True, text=True, check=True)
    assert "vervain0" in listed.stdout
    assert rdma.env["VERVAIN_RUN_DIR"] == str(rdma.run_dir)
    assert "VERVAIN_CHECK" not in rdma.env
    rdma.options = ["--check"]
    assert rdma.env["VERVAIN_CHECK"] == "-"
    assert rdma.run(["sh", "-c", "echo $VERVAIN_CHECK"]).stdout == "-\n"


def test_a_program_that_fails_fails_the_test_with_its_words(rdma):
    with pytest.raises(Failed, match=r"(?s)exit status 3.*out of luck"):
        rdma.run(["sh", "-c", "echo out of luck >&2; exit 3"])
    assert rdma.run(["sh", "-c", "exit 3"], check=False).returncode == 3
    with pytest.raises(Failed, match="no-such-program"):
        rdma.run(["no-such-program"])


@pytest.mark.rdma
def test_verbs_in_this_process_find_the_device():
    from pyverbs.cq import CQ
    from pyverbs.device import Context, get_device_list
    from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE
    from pyverbs.mr import MR
    from pyverbs.pd import PD

    assert [device.name for device in get_device_list()] == [b"vervain0"]
    with Context(name="vervain0") as context, PD(context) as pd, CQ(context, 8), MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE) as mr:
        mr.write("in memory", 9)
        assert mr.read(9, 0) == b"in memory"


@pytest.mark.rdma
def test_programs_that_this_process_starts_itself_are_on_the_software_nic():
    assert "vervain0" in subprocess.run(["ibv_devices"], capture_output=True, text=True, check=True).stdout
    assert os.environ["VERVAIN_RUN_DIR"]
