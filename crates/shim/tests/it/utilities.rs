//! Debian's ibverbs-utils.

use crate::pair::{Host, has};

#[test]
fn the_device_is_listed_and_described() {
    if !has("ibv_devinfo") {
        return;
    }
    let host = Host::new();
    let list = host.say("ibv_devices", &[]);
    assert!(list.contains("vervain0"), "{list}");
    assert!(list.contains("0000ffff7f000001"), "{list}");
    let all = host.say("ibv_devinfo", &["-v"]);
    for part in [
        "hca_id:\tvervain0",
        "state:\t\t\tPORT_ACTIVE (4)",
        "link_layer:\t\tEthernet",
        "GID[  0]:\t\t::ffff:127.0.0.1, RoCE v2",
        "atomic_cap:\t\t\tATOMIC_GLOB",
        "max_pkeys:\t\t\t1",
    ] {
        assert!(all.contains(part), "{part:?} is missing in {all}");
    }
}

/// Runs a pingpong whose both sides check every byte.
#[track_caller]
fn pingpong(program: &str, arguments: &[&str]) {
    if !has(program) {
        return;
    }
    let said = Host::new().pair(program, &[&["-g", "0", "-n", "300"], arguments].concat());
    for side in said {
        assert!(side.contains("300 iters in"), "{side}");
        assert!(!side.contains("invalid data"), "{side}");
    }
}

#[test]
fn pingpongs_of_every_transport_bring_the_right_bytes() {
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"] {
        pingpong(program, &["-c"]);
        pingpong(program, &["-c", "-e"]);
        pingpong(program, &["-c", "-s", "1"]);
    }
    pingpong("ibv_rc_pingpong", &["-c", "-s", "1000000"]);
    pingpong("ibv_rc_pingpong", &["-c", "-N"]);
    pingpong("ibv_rc_pingpong", &["-c", "-N", "-e"]);
}

#[test]
fn a_shared_receive_queue_feeds_many_queue_pairs() {
    pingpong("ibv_srq_pingpong", &["-c"]);
    pingpong("ibv_srq_pingpong", &["-c", "-e", "-q", "12"]);
}
