//! Requests that are under way: posted, and their completions not polled yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbs::{RemoteAddr, Sge, WcOpcode};

use super::regions::{self, Region};
use super::report::{Finding, tell};
use crate::process::caller::Stack;

/// A work request that was posted.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    /// `Recv` for RECVs.
    pub(super) opcode: WcOpcode,
    /// Makes a completion when it is carried out.
    pub(super) is_signaled: bool,
    /// The memory that it names; none for what carries its bytes.
    pub(super) elements: Box<[Sge]>,
    /// Where that is in this process: regions may call their bytes by other addresses.
    pub(super) places: Box<[Sge]>,
    pub(super) len: u64,
    pub(super) remote: RemoteAddr,
    /// Of the bytes that it sends.
    pub(super) hash: Option<u64>,
    pub(super) posted: Stack,
    /// For [`Posted`].
    number: u64,
}

impl Request {
    pub(super) fn name(&self) -> &'static str {
        match self.opcode {
            WcOpcode::Send => "SEND",
            WcOpcode::Write => "WRITE",
            WcOpcode::Read => "READ",
            WcOpcode::CompareSwap => "compare-and-swap",
            WcOpcode::FetchAdd => "fetch-and-add",
            WcOpcode::BindWindow => "BIND_MW",
            WcOpcode::LocalInvalidate => "LOCAL_INV",
            WcOpcode::Recv | WcOpcode::RecvWriteImm => "RECV",
        }
    }

    /// Whether its bytes come from this process's memory.
    pub(super) fn sends(&self) -> bool {
        matches!(self.opcode, WcOpcode::Send | WcOpcode::Write)
    }

    pub(super) fn names(&self, lkey: u32) -> bool {
        self.elements.iter().any(|sge| sge.lkey.0 == lkey)
    }

    /// Tells where it names a region whose memory has gone, as it is posted.
    pub(super) fn look_lost(&self, region: &Region) {
        let Some((call, by)) = region.lost else {
            return;
        };
        let (name, id) = (self.name(), self.id);
        let what = format!(
            "{name} {id} names a region whose memory has gone: {}",
            region.describe()
        );
        let finding = Finding::error("lost-memory", what)
            .at("posted", self.posted)
            .at("registered", region.registered)
            .at(call, by)
            .advice("call ibv_dereg_mr before the memory goes, and register the new memory");
        tell(&finding);
    }
}

/// Gives requests their numbers.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// What a request is made of.
pub(super) fn request(id: u64, opcode: WcOpcode, elements: &[Sge], posted: Stack) -> Request {
    let len = elements.iter().map(|sge| u64::from(sge.len)).sum();
    Request {
        id,
        opcode,
        is_signaled: true,
        elements: elements.into(),
        places: elements.into(),
        len,
        remote: RemoteAddr::default(),
        hash: None,
        posted,
        number: NUMBERS.fetch_add(1, Ordering::Relaxed),
    }
}

/// Where the posted RECVs of a context lie, to see what lies there too.
#[derive(Debug, Default)]
pub(super) struct Posted(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    /// By address and the request's number: the end, and where it was posted.
    recvs: BTreeMap<(u64, u64), (u64, Stack)>,
    /// Bytes of the longest.
    longest: u64,
}

impl Places {
    /// A posted RECV in whose room a range lies.
    fn overlap(&self, sge: &Sge) -> Option<(u64, u64, Stack)> {
        let end = sge.addr.saturating_add(sge.len.into());
        let from = sge.addr.saturating_sub(self.longest);
        let mut around = self.recvs.range((from, 0)..(end, 0));
        let found = around.find(|(_, (to, _))| *to > sge.addr && sge.len > 0);
        found.map(|((start, _), (to, posted))| (*start, *to, *posted))
    }
}

impl Posted {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a RECV, and tells when its room is another's too.
    pub(super) fn add(&self, context: u32, request: &Request) {
        let mut overlap = None;
        let mut places = self.places();
        for sge in &request.places {
            overlap = overlap.or_else(|| places.overlap(sge));
            let end = sge.addr.saturating_add(sge.len.into());
            places.longest = places.longest.max(sge.len.into());
            places
                .recvs
                .insert((sge.addr, request.number), (end, request.posted));
        }
        drop(places);
        for sge in &request.elements {
            regions::note_written(context, sge.lkey.0);
        }
        if let Some((start, end, posted)) = overlap {
            let what = format!(
                "RECV {} has room that another posted RECV has: {start:#x}..{end:#x}",
                request.id
            );
            let finding = Finding::warning("overlapping-recvs", what)
                .fact("Two messages that arrive overwrite each other.".into())
                .at("posted", request.posted)
                .at("the other was posted", posted)
                .advice("give each posted RECV memory of its own");
            tell(&finding);
        }
    }

    pub(super) fn remove(&self, request: &Request) {
        let mut places = self.places();
        for sge in &request.places {
            places.recvs.remove(&(sge.addr, request.number));
        }
    }

    /// Tells when a request sends from, or reads into, the room of a posted RECV.
    pub(super) fn look(&self, request: &Request) {
        let places = self.places();
        let found = request.places.iter().find_map(|sge| places.overlap(sge));
        drop(places);
        let Some((start, end, posted)) = found else {
            return;
        };
        let (name, id) = (request.name(), request.id);
        let what = format!("{name} {id} uses the room of a posted RECV: {start:#x}..{end:#x}");
        let finding = Finding::warning("send-from-recv", what)
            .fact("A message that arrives meanwhile overwrites it.".into())
            .at("posted", request.posted)
            .at("the RECV was posted", posted)
            .advice("use other memory, or post the RECV after this request has completed");
        tell(&finding);
    }
}

/// Takes the requests out that a completion tells of; the last one is its own.
///
/// Requests complete in order, and a completion tells of all unsignaled ones before it. An error may be any request's, and
/// after it each has a completion of its own.
pub(super) fn take(
    posted: &mut VecDeque<Request>,
    id: u64,
    is_ok: bool,
    is_flushed: bool,
) -> Vec<Request> {
    let found = match (is_ok, is_flushed) {
        (true, _) => posted
            .iter()
            .position(|one| one.is_signaled && one.id == id),
        (false, true) => posted.iter().take(1).position(|one| one.id == id),
        (false, false) => posted.iter().position(|one| one.id == id),
    };
    found.map_or_else(Vec::new, |last| posted.drain(..=last).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(ids: &[(u64, bool)]) -> VecDeque<Request> {
        let request = |&(id, is_signaled): &(u64, bool)| Request {
            is_signaled,
            ..request(id, WcOpcode::Send, &[], Stack::default())
        };
        ids.iter().map(request).collect()
    }

    fn taken(posted: &mut VecDeque<Request>, id: u64, is_ok: bool, is_flushed: bool) -> Vec<u64> {
        let taken = take(posted, id, is_ok, is_flushed);
        taken.iter().map(|one| one.id).collect()
    }

    #[test]
    fn a_completion_tells_of_those_before_it() {
        let mut queue = posted(&[(7, false), (7, true), (8, false), (9, true)]);
        assert_eq!(taken(&mut queue, 7, true, false), [7, 7]);
        assert_eq!(taken(&mut queue, 5, true, false), [0; 0]);
        assert_eq!(taken(&mut queue, 9, true, false), [8, 9]);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_error_may_be_an_unsignaled_ones_and_the_rest_is_flushed_one_by_one() {
        let mut queue = posted(&[(1, false), (2, false), (3, false), (4, true)]);
        assert_eq!(taken(&mut queue, 2, false, false), [1, 2]);
        assert_eq!(taken(&mut queue, 4, false, true), [0; 0], "not before 3");
        assert_eq!(taken(&mut queue, 3, false, true), [3]);
        assert_eq!(taken(&mut queue, 4, false, true), [4]);
    }
}
