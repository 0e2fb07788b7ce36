//! Both ends of a connection compared, and what the other end says of its RECVs.

use verbs::{Gid, QpAttr, QpNum, QpState, Transport};

use super::board::{self, Peer};
use super::report::{Finding, Severity, tell};
use super::state::{Pair, canonical, lock};
use crate::process::caller::Stack;

/// A queue pair was changed: others are told, and its peer's attributes are looked at.
pub(super) fn changed(pair: &Pair, attr: &QpAttr) {
    *lock(&pair.attr) = *attr;
    let Some(entry) = &pair.entry else {
        return;
    };
    entry.publish(attr);
    let is_connected = matches!(attr.state, Some(QpState::Rtr | QpState::Rts));
    if pair.transport == Transport::Ud || !is_connected {
        return;
    }
    let Some((gid, num)) = pair.peer() else {
        return;
    };
    if let Some(peer) = board::find(gid, num) {
        compare(pair, attr, &peer);
    }
}

/// Whether a queue pair is there that works. What leads to one that does not is left from an earlier connection.
fn works(gid: Gid, num: QpNum) -> bool {
    board::find(gid, num).is_some_and(|peer| !matches!(peer.state, QpState::Err | QpState::Reset))
}

fn compare(pair: &Pair, attr: &QpAttr, peer: &Peer) {
    let sends = |state: QpState| matches!(state, QpState::Rts | QpState::Sqd);
    if !sends(peer.state) && peer.state != QpState::Rtr {
        return;
    }
    let here = Stack::here();
    let (num, other) = (
        pair.num,
        format!("qp {} of process {}", peer.num, peer.process),
    );
    let is_new = |what: &String| {
        let mut told = lock(&pair.told);
        let is_new = !told.contains(what);
        if is_new {
            told.push(what.clone());
        }
        is_new
    };
    let finding = |severity: Severity, what: String, fact: &str, advice: &'static str| {
        if !is_new(&what) {
            return;
        }
        let finding = Finding::new("peer-mismatch", severity, what).fact(fact.into());
        tell(&finding.at("changed", here).advice(advice));
    };
    if peer.dest_qpn != num || !pair.gids.contains(&peer.dest_gid) {
        let severity = match works(canonical(&pair.gids, peer.dest_gid), peer.dest_qpn) {
            true => Severity::Error,
            false => Severity::Warning,
        };
        finding(
            severity,
            format!(
                "qp {num} leads to {other}, which leads to qp {} of {}",
                peer.dest_qpn, peer.dest_gid
            ),
            "A card drops what comes from a queue pair that it does not lead to.",
            "exchange the numbers and GIDs of the two queue pairs, and connect each to the other",
        );
        return;
    }
    let mtu = attr.path_mtu.unwrap_or_default();
    if mtu != peer.mtu {
        finding(
            Severity::Error,
            format!(
                "qp {num} has an MTU of {} bytes, and {other} one of {}",
                mtu.bytes(),
                peer.mtu.bytes()
            ),
            "A card drops packets that are longer than its own MTU, and takes shorter ones in the middle of a message for an error.",
            "agree on the smaller path_mtu of both sides",
        );
    }
    let (expects, sends_first) = (
        attr.rq_psn.unwrap_or_default().0,
        attr.sq_psn.unwrap_or_default().0,
    );
    // The other side may still be connected as it was before this one was connected anew.
    if sends(peer.state) && expects != peer.sq_psn {
        finding(
            Severity::Warning,
            format!(
                "qp {num} expects the PSN {expects:#x} first, and {other} sends {:#x}",
                peer.sq_psn
            ),
            "A card drops packets that do not follow the last one.",
            "set rq_psn to the sq_psn of the other side",
        );
    }
    if attr.state == Some(QpState::Rts) && sends_first != peer.rq_psn {
        finding(
            Severity::Warning,
            format!(
                "qp {num} sends the PSN {sends_first:#x} first, and {other} expects {:#x}",
                peer.rq_psn
            ),
            "A card drops packets that do not follow the last one.",
            "set rq_psn to the sq_psn of the other side",
        );
    }
    if pair.transport != Transport::Rc {
        return;
    }
    let reads = |starts: u8, answers: u8, who: &str, whom: &str| {
        if starts > answers {
            let what = format!(
                "{who} may start {starts} READs and atomics at once, and {whom} answers {answers}"
            );
            if !is_new(&what) {
                return;
            }
            let finding = Finding::warning("peer-mismatch", what)
                .fact("A card fails the connection when more arrive than it answers.".into())
                .at("changed", here)
                .advice("set max_rd_atomic to no more than the other side's max_dest_rd_atomic");
            tell(&finding);
        }
    };
    let ours = format!("qp {num}");
    if sends(peer.state) {
        reads(
            peer.reads,
            attr.dest_rd_atomic_max.unwrap_or_default(),
            &other,
            &ours,
        );
    }
    if attr.state == Some(QpState::Rts) {
        reads(
            attr.rd_atomic_max.unwrap_or_default(),
            peer.answers,
            &ours,
            &other,
        );
    }
}

/// Tells others of RECVs that were posted.
pub(super) fn recvs_posted(pair: &Pair, count: usize) {
    if let (Some(entry), 1..) = (&pair.entry, count) {
        entry.recvs_posted(count);
    }
}

/// Tells others that a RECV has completed.
pub(super) fn recv_completed(pair: &Pair) {
    if let Some(entry) = &pair.entry {
        entry.recv_completed();
    }
}

/// What the other end of a connection says of itself, in sentences.
pub(super) fn describe_peer(pair: &Pair) -> Vec<String> {
    let Some((gid, num)) = pair.peer() else {
        return Vec::new();
    };
    let Some(peer) = board::find(gid, num) else {
        return vec![format!(
            "No process that runs with checks has qp {num} of {gid}: it was destroyed, has ended, runs without checks, or never was."
        )];
    };
    let mut facts = vec![format!(
        "The other side is qp {num} of process {}, in state {:?}.",
        peer.process, peer.state
    )];
    if peer.dest_qpn != pair.num {
        facts.push(format!(
            "It leads to qp {}, and not to this one.",
            peer.dest_qpn
        ));
    }
    facts
}

/// What the other end says of its RECVs.
pub(super) fn describe_recvs(pair: &Pair) -> Option<String> {
    let (gid, num) = pair.peer()?;
    let peer = board::find(gid, num)?;
    let (posted, completed) = (peer.recvs_posted, peer.recvs_completed);
    let waiting = posted.saturating_sub(completed);
    let since = match posted {
        0 => "it has never posted one of its own".to_string(),
        _ => {
            let age_ms = board::now_ns().saturating_sub(peer.posted_last_ns) / 1_000_000;
            format!("it posted the last one {age_ms} ms ago")
        }
    };
    Some(format!(
        "It has posted {posted} RECVs and polled {completed} completions of RECVs: {waiting} wait; {since}."
    ))
}
