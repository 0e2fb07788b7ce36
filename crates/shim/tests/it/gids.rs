//! The addresses of the device, and which of them programs meet by.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use crate::pair::{Host, has, text};

/// The addresses that the kernel knows of this host.
fn host_addresses() -> BTreeSet<IpAddr> {
    let said = Command::new("ip").args(["-o", "addr"]).output();
    let said = said.expect("iproute2").stdout;
    let addresses = String::from_utf8_lossy(&said).into_owned();
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with("inet"))?;
        // An interface with a single peer has no prefix behind its own address.
        let address = words.next()?.split('/').next()?;
        address.parse().ok()
    };
    addresses.lines().filter_map(of).collect()
}

/// The device's, as `ibv_devinfo` says them.
fn gids(said: &str) -> Vec<IpAddr> {
    let lines = said.lines().filter(|line| line.contains("GID["));
    let gids = lines.filter_map(|line| line.rsplit('\t').next()?.split(',').next());
    let parsed = gids.map(|gid| gid.parse::<Ipv6Addr>().expect("a GID").to_canonical());
    parsed.collect()
}

#[test]
fn the_device_has_all_of_the_hosts_addresses_or_the_one_that_was_asked_for() {
    if !has("ibv_devinfo") || !has("ip") {
        return;
    }
    let host = Host::new();
    let found = gids(&host.say("ibv_devinfo", &["-v"]));
    assert_eq!(found.first(), Some(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let expected = host_addresses();
    assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), expected);
    let mut chosen = host.command("ibv_devinfo", &["-v"]);
    let said = chosen.env("VERVAIN_GID", "10.9.8.7").output();
    let said = text(&said.expect("it runs"));
    assert_eq!(gids(&said), [IpAddr::from([10, 9, 8, 7])], "{said}");
}

#[test]
fn programs_meet_by_any_of_their_addresses() {
    if !has("ibv_rc_pingpong") || !has("ibv_devinfo") {
        return;
    }
    // Addresses come and go on a host where others work too.
    let count = || gids(&Host::new().say("ibv_devinfo", &["-v"])).len();
    let mut at = 0;
    while at < count() {
        let index = at.to_string();
        for program in ["ibv_rc_pingpong", "ibv_ud_pingpong"] {
            let arguments = ["-g", &index, "-n", "300", "-c"];
            let sides = Host::new().pair_with(program, &arguments, &[]);
            for side in sides.iter().map(text) {
                let is_gone = || at >= count();
                assert!(side.contains("300 iters in") || is_gone(), "{side}");
            }
        }
        at += 1;
    }
    assert!(at > 0, "there is an address");
    let beyond = u16::MAX.to_string();
    let said = Host::new()
        .command("ibv_rc_pingpong", &["-g", &beyond])
        .output();
    let said = said.expect("it runs");
    assert!(!said.status.success(), "there is no such address");
    assert!(text(&said).contains("sgid"), "{}", text(&said));
}
