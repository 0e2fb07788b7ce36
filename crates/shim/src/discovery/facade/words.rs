//! libibverbs' functions that need no device: words and numbers for its constants.
//!
//! A program that is linked with libibverbs has these from there too, and finds the same.

use std::ffi::{CStr, c_char, c_int, c_void};

/// `enum ibv_rate`: number, multiple of 2.5 Gb/s (-1 for none), Mb/s.
const RATES: &[(c_int, c_int, c_int)] = &[
    (2, 1, 2500),
    (5, 2, 5000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

const STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const EVENTS: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

/// From 1 on.
const NODES: &[&CStr] = &[
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORTS: &[&CStr] = &[
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

fn word(words: &'static [&'static CStr], at: c_int) -> *const c_char {
    let found = usize::try_from(at).ok().and_then(|at| words.get(at));
    found.map_or(c"unknown", |word| *word).as_ptr()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    word(STATUSES, status)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    word(EVENTS, event)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    word(NODES, kind.saturating_sub(1))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    word(PORTS, state)
}

fn rate(is_it: impl Fn(&(c_int, c_int, c_int)) -> bool) -> Option<(c_int, c_int, c_int)> {
    RATES.iter().copied().find(is_it)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_rate_to_mult(number: c_int) -> c_int {
    rate(|one| one.0 == number).map_or(-1, |one| one.1)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    // 0 is the greatest that there is.
    rate(|one| one.1 == mult && mult > 0).map_or(0, |one| one.0)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_rate_to_mbps(number: c_int) -> c_int {
    rate(|one| one.0 == number).map_or(-1, |one| one.2)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    rate(|one| one.2 == mbps).map_or(0, |one| one.0)
}

// Memory is never pinned, so nothing has to be kept from a child.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_dontfork_range(_start: *mut c_void, _len: usize) -> c_int {
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_dofork_range(_start: *mut c_void, _len: usize) -> c_int {
    0
}
