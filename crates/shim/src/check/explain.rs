//! Why a request has failed, as far as both sides know.

use nic_soft::Cause;
use verbs::{Access, Wc, WcStatus};

use super::board;
use super::connect::{describe_peer, describe_recvs};
use super::regions::{self, Region};
use super::report::{self, Finding};
use super::requests::Request;
use super::state::{Pair, State, lock};
use crate::process::caller::Stack;

/// What the NIC says of its own about a failure, in words.
const CAUSES: [(Cause, &str); 30] = [
    (
        Cause::LocalKey,
        "no region of this context has the lkey of an element",
    ),
    (
        Cause::LocalDomain,
        "the region of an element is of another protection domain than the queue pair",
    ),
    (Cause::LocalRange, "an element lies outside of its region"),
    (
        Cause::LocalRight,
        "the region of an element has no IBV_ACCESS_LOCAL_WRITE",
    ),
    (
        Cause::LocalPages,
        "nothing is mapped at an element of a region that is paged on demand, or not for this use",
    ),
    (
        Cause::RecvMemory,
        "the RECV names memory that it may not write: look at lkey, range, and IBV_ACCESS_LOCAL_WRITE",
    ),
    (Cause::RecvRoom, "the message is longer than its RECV"),
    (Cause::NotConnected, "the queue pair is not connected"),
    (
        Cause::NoHandle,
        "the address handle is none of the queue pair's protection domain",
    ),
    (
        Cause::WindowKey,
        "no window of the queue pair's protection domain, or none bound over it, has this key",
    ),
    (
        Cause::WindowState,
        "the window is bound already and its key was not taken away, or it is to be bound to nothing",
    ),
    (
        Cause::WindowRegion,
        "the region allows no windows (IBV_ACCESS_MW_BIND), is not there, or does not grant what the window would",
    ),
    (
        Cause::WindowRange,
        "what the window is to cover lies outside of its region",
    ),
    (
        Cause::RemoteKey,
        "the other side has no region with this rkey, or none that others may reach",
    ),
    (
        Cause::RemoteDomain,
        "the region there is of another protection domain than the queue pair there",
    ),
    (
        Cause::RemoteRange,
        "the range is not inside the region there",
    ),
    (
        Cause::RemoteRight,
        "the region there does not grant this operation",
    ),
    (
        Cause::QueuePairRight,
        "the queue pair there does not grant this operation (qp_access_flags)",
    ),
    (
        Cause::RemoteMemory,
        "the other side does not give its memory",
    ),
    (
        Cause::RemotePages,
        "the pages of the region there are not there any more",
    ),
    (
        Cause::Misaligned,
        "an atomic needs an address that is a multiple of 8",
    ),
    (
        Cause::OutOfAtomics,
        "the memory of an atomic is not aligned where it lies",
    ),
    (
        Cause::PeerRecvRoom,
        "the message is longer than the RECV there",
    ),
    (
        Cause::PeerRecvMemory,
        "the RECV there names memory that it may not write",
    ),
    (
        Cause::Kernel,
        "the kernel does not let this process reach the memory there",
    ),
    (Cause::PeerGone, "the process of the other side has ended"),
    (
        Cause::PeerNotReady,
        "the queue pair there takes no messages from this one",
    ),
    (
        Cause::NoAnswer,
        "the process of the other side does not answer",
    ),
    (
        Cause::ConnectionEnded,
        "the other side has ended the connection in the middle of the message",
    ),
    (Cause::NoRecv, "the other side has no RECV posted"),
];

fn cause(wc: &Wc) -> Option<(Cause, &'static str)> {
    CAUSES
        .iter()
        .find(|(cause, _)| *cause as u32 == wc.vendor_err.0)
        .copied()
}

/// Whether a failure is a RECV's.
pub(super) fn is_recvs(wc: &Wc) -> bool {
    cause(wc).is_some_and(|(cause, _)| matches!(cause, Cause::RecvMemory | Cause::RecvRoom))
}

/// Tells of a request that failed, and was not only flushed.
pub(super) fn tell(state: &State, pair: &Pair, request: &Request, wc: &Wc) {
    let (name, id, status) = (request.name(), request.id, wc.status);
    let what = format!(
        "qp {}: {name} {id} of {} bytes failed: {status}",
        pair.num, request.len
    );
    let mut finding = match wc.status {
        // Peers end, and are late.
        WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr => {
            Finding::warning("failed-request", what)
        }
        _ => Finding::error("failed-request", what),
    };
    if let Some((_, why)) = cause(wc) {
        finding = finding.fact(format!("{}{}.", why[..1].to_uppercase(), &why[1..]));
    }
    let mut places = vec![("posted", request.posted)];
    let (facts, advice) = match wc.status {
        WcStatus::LocProtErr => local(state, pair, request, &mut places),
        WcStatus::RemAccessErr | WcStatus::RemInvReqErr | WcStatus::RemOpErr => {
            remote(pair, request)
        }
        WcStatus::RetryExcErr => retries(pair),
        WcStatus::RnrRetryExcErr => rnr(pair),
        WcStatus::LocLenErr => (
            vec![format!("The RECV has room for {} bytes.", request.len)],
            "post RECVs as long as the longest message; with UD 40 bytes more, for the route header",
        ),
        _ => (
            Vec::new(),
            "look at the queue pair's attributes and at the address handle",
        ),
    };
    finding.facts.extend(facts);
    finding = finding.fact(
        "All fields of this completion but wr_id, status, qp_num and vendor_err are undefined; here they are 0x7badbad5 and the like.".into(),
    );
    for (what, stack) in places {
        finding = finding.at(what, stack);
    }
    report::tell(
        &finding
            .at("completion polled", Stack::here())
            .advice(advice),
    );
}

type Explained = (Vec<String>, &'static str);

/// What is wrong with the elements of a request.
fn local(
    state: &State,
    pair: &Pair,
    request: &Request,
    places: &mut Vec<(&'static str, Stack)>,
) -> Explained {
    let mut facts = Vec::new();
    let writes = !request.sends();
    for (number, sge) in request.elements.iter().enumerate() {
        let range = format!(
            "element {number} ({:#x}, {} bytes, lkey {:#x})",
            sge.addr, sge.len, sge.lkey.0
        );
        let found = regions::find(state.number, |region| region.lkey == sge.lkey.0);
        let Some(region) = found else {
            facts.push(format!("No region ever had the lkey of {range}."));
            facts.extend(nearest(&regions::all(state.number), sge.addr));
            continue;
        };
        if let Some(by) = region.deregistered {
            facts.push(format!(
                "The region of {range} was deregistered: {}.",
                region.describe()
            ));
            places.push(("the region was registered", region.registered));
            places.push(("and deregistered", by));
        } else if !region.holds(sge.addr, sge.len.into()) {
            facts.push(format!("The region of {range} is {}.", region.describe()));
            let end = region.iova.saturating_add(region.len as u64);
            if sge.addr < region.iova {
                facts.push(format!(
                    "It begins {} bytes before the region.",
                    region.iova - sge.addr
                ));
            } else {
                let over = sge.addr.saturating_add(sge.len.into()).saturating_sub(end);
                facts.push(format!("It ends {over} bytes behind the region."));
            }
            places.push(("the region was registered", region.registered));
        } else if writes && !region.access.contains(Access::LOCAL_WRITE) {
            facts.push(format!(
                "A {} writes into {range}, whose region has no IBV_ACCESS_LOCAL_WRITE.",
                request.name()
            ));
            places.push(("the region was registered", region.registered));
        } else if region.pd != pair.pd {
            facts.push(format!(
                "The region of {range} is of another protection domain than the queue pair."
            ));
            places.push(("the region was registered", region.registered));
            places.push(("the queue pair was made", pair.made));
        }
    }
    (
        facts,
        "name memory by the lkey of a region of the same protection domain, inside its range, that is registered until the completion",
    )
}

/// The region that is nearest to an address, in a sentence.
fn nearest(regions: &[Region], addr: u64) -> Option<String> {
    let away = |region: &Region| {
        let end = region.iova.saturating_add(region.len as u64);
        region
            .iova
            .saturating_sub(addr)
            .max(addr.saturating_sub(end))
    };
    let region = regions.iter().min_by_key(|region| away(region))?;
    let distance = match away(region) {
        0 => "holds it".to_string(),
        away => format!("is {away} bytes away"),
    };
    Some(format!(
        "The region that is nearest to its address {distance}: {}.",
        region.describe()
    ))
}

/// What the other side says of the memory that a request is about.
fn remote(pair: &Pair, request: &Request) -> Explained {
    let mut facts = describe_peer(pair);
    let (addr, rkey) = (request.remote.addr, request.remote.rkey.0);
    let is_one_sided = rkey != 0 || addr != 0;
    if let (Some((gid, num)), true) = (pair.peer(), is_one_sided) {
        facts.push(format!(
            "The request names {addr:#x}, {} bytes, rkey {rkey:#x}.",
            request.len
        ));
        let regions = board::regions_of(gid, num);
        let describe = |region: &board::PeerRegion| {
            let end = region.addr.wrapping_add(region.len);
            format!(
                "{:#x}..{end:#x} ({} bytes, rkey {:#x}, {:?})",
                region.addr, region.len, region.rkey, region.access
            )
        };
        if let Some(region) = regions.iter().find(|region| region.rkey == rkey) {
            let is = if region.is_registered {
                "is"
            } else {
                "was deregistered; it was"
            };
            facts.push(format!(
                "The other side's region with this rkey {is} {}.",
                describe(region)
            ));
        } else if !regions.is_empty() {
            facts.push("Nothing is known of a region there with this rkey.".into());
            let holds = |region: &&board::PeerRegion| {
                region.is_registered
                    && (region.addr..region.addr.wrapping_add(region.len)).contains(&addr)
            };
            if let Some(region) = regions.iter().find(holds) {
                facts.push(format!("At this address it has {}.", describe(region)));
            }
        }
    }
    (
        facts,
        "exchange address, length and rkey of a region that is registered there as long as it is used, with the rights that the operation needs",
    )
}

fn retries(pair: &Pair) -> Explained {
    let attr = *lock(&pair.attr);
    let mut facts = describe_peer(pair);
    if let (Some(timeout), Some(retries)) = (attr.timeout, attr.retry_count) {
        let us = 4.096 * f64::from(1u32 << timeout.min(31));
        facts.push(match timeout {
            0 => "With timeout 0 a card waits for ever.".into(),
            _ => format!("With timeout {timeout} ({:.1} ms) and retry_cnt {retries} a card gives up after about {:.1} ms.",
                us / 1000.0, us * (f64::from(retries) + 1.0) / 1000.0),
        });
    }
    (
        facts,
        "see that both sides are connected to each other before either sends, and that neither ends before the other has polled its completions",
    )
}

fn rnr(pair: &Pair) -> Explained {
    let mut facts = describe_peer(pair);
    facts.extend(describe_recvs(pair));
    let retries = lock(&pair.attr).rnr_retry;
    if let Some(retries) = retries {
        facts.push(format!(
            "It was tried again {retries} times (rnr_retry; 7 tries for ever)."
        ));
    }
    (
        facts,
        "post RECVs before the other side is told that it may send, and post each again before it answers",
    )
}
