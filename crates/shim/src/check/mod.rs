//! Checks: misuse of verbs that a card punishes by silence or corruption, found and explained while the program runs.
//!
//! On with `VERVAIN_CHECK`; `docs/check.md` says what is found. An error is something that has been corrupted, or that verbs do
//! not allow for certain; all else is a warning. Without it a call of the program has one more load and branch.
//!
//! A layer around the NIC ([`Checks`]) sees what is posted, polled and changed. Other files of this library tell by the functions
//! here what only they see: destroying, registering, sleeping, memory that goes.
//!
//! | file | what |
//! | --- | --- |
//! | `report` | findings, and how they are told |
//! | `locks` | forks and ends in the middle of something |
//! | `layer` | what passes between the program and the NIC |
//! | `state` | what is known of a context's objects |
//! | `requests` | requests under way, and where posted RECVs lie |
//! | `bytes` | the program's bytes, read safely |
//! | `regions` | memory regions, and whether their memory is there |
//! | `explain` | why a request has failed |
//! | `connect` | both ends of a connection compared |
//! | `board` | what processes tell each other for that |
//! | `deadline` | an end of the process that does not wait for ever |
//! | `objects` | destroying, using what was destroyed, what is left behind |
//! | `sleep` | sleeping while completions wait |

mod board;
mod bytes;
mod connect;
mod deadline;
mod explain;
mod layer;
mod locks;
mod objects;
mod regions;
mod report;
mod requests;
mod sleep;
mod state;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use verbs::decorate::Wrap;
use verbs::nic::{Nic, NicMr};
use verbs::{Access, CqNum, PdNum, PostReason, QpNum, Wc};

use crate::abi;
use crate::process::aside;
use crate::process::caller::Stack;
use crate::process::generation;
use crate::process::settings::{self, CheckSettings};
use layer::Checks;
use regions::Region;
use state::lock;

pub(crate) use locks::{Held, hold};
pub(crate) use objects::{GONE, busy, destroy_cq, destroy_qp, destroy_srq, is_gone};
pub(crate) use sleep::{armed, drained, sleeps};
pub(crate) use state::{State, inherited};

/// What undefined fields of error completions hold, so that their use shows.
pub(crate) const POISON: u32 = 0x7bad_bad5;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether there are checks.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Puts checks around a context's NIC.
///
/// # Errors
/// A sentence: what findings are written to, or where processes tell each other, cannot be had.
pub(crate) fn around(
    nic: Arc<dyn Nic>,
    settings: &CheckSettings,
) -> Result<(Arc<dyn Nic>, Arc<State>), String> {
    static BEGUN: OnceLock<Result<(), String>> = OnceLock::new();
    BEGUN.get_or_init(|| begin(settings)).clone()?;
    let port = nic.port(1).map_err(|error| error.to_string())?;
    let state = State::open(port.gids.iter().map(|entry| entry.gid).collect());
    let checks = Checks {
        state: Arc::clone(&state),
    };
    Ok((Arc::new(Wrap::around(nic, checks)), state))
}

fn begin(settings: &CheckSettings) -> Result<(), String> {
    deadline::begin();
    report::begin(settings).map_err(|error| format!("the file of findings: {error}"))?;
    let run_dir = settings::run_dir();
    board::begin(&run_dir).map_err(|error| format!("{}/checks: {error}", run_dir.display()))?;
    ON.store(true, Ordering::Release);
    Ok(())
}

/// A context is about to be closed.
pub(crate) fn close(state: &State) {
    aside(|| {
        objects::left_behind(state, "a context is closed");
        state.close();
    });
}

/// Destroys an object. With checks its memory stays, in case somebody uses it after that.
///
/// # Safety
/// It was made by `Box::into_raw`, and nobody is allowed to use it any more.
pub(crate) unsafe fn give_back<T>(object: *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        match is_on() {
            true => std::ptr::drop_in_place(object),
            false => drop(Box::from_raw(object)),
        }
    }
}

/// A completion queue holds another number of completions now.
pub(crate) fn resized(state: &State, cq: CqNum, depth: u32) {
    aside(|| {
        if let Some(cq) = lock(&state.cqs).get(&cq.0) {
            cq.depth.store(depth, Ordering::Relaxed);
        }
    });
}

/// A region was registered.
pub(crate) fn registered(state: &State, pd: PdNum, start: usize, mr: &dyn NicMr, access: Access) {
    aside(|| {
        let region = Region {
            generation: generation(),
            context: state.number,
            pd,
            lkey: mr.lkey().0,
            rkey: mr.rkey().0,
            start,
            len: mr.len(),
            iova: mr.addr(),
            access,
            is_on_demand: access.bits() & abi::ACCESS_ON_DEMAND != 0,
            registered: Stack::here(),
            deregistered: None,
            lost: None,
            is_written: false,
        };
        regions::add(region);
        board::publish_region(&region, state.gid(), true);
    });
}

/// A region is about to be deregistered.
pub(crate) fn deregistered(state: &State, lkey: u32) {
    aside(|| {
        let Some(region) = regions::live(state.number, lkey) else {
            return;
        };
        let posted = objects::look_at_posted(state, &region);
        regions::look(&region, posted);
        regions::remove(state.number, lkey, Stack::here());
        board::publish_region(&region, state.gid(), false);
    });
}

/// A program gets completions.
#[inline]
pub(crate) fn taken(state: Option<&State>, completions: &[Wc]) {
    if let (true, Some(state)) = (is_on(), state) {
        layer::taken(state, completions);
    }
}

/// Whether a region may lie at or behind an address.
#[inline]
pub(crate) fn may_lose(start: usize) -> bool {
    is_on() && start != 0 && regions::may_touch(start, usize::MAX)
}

/// A call is about to take memory of the program away.
#[inline]
pub(crate) fn loses(call: &'static str, start: usize, len: usize) {
    if is_on() && regions::may_touch(start, len) {
        regions::lose(call, start, len, |region| {
            state::contexts()
                .iter()
                .any(|state| state.is_posted(region))
        });
    }
}

/// Requests were not accepted: of a list, those from the one at which it stopped; of what `ibv_wr_*` have composed, all. `reason` is
/// why, where the NIC has not seen it.
pub(crate) fn refused(
    state: &State,
    qp: QpNum,
    ids: impl Iterator<Item = u64>,
    reason: Option<PostReason>,
) {
    aside(|| {
        let Some(pair) = state.pair(qp) else {
            return;
        };
        let here = Stack::here();
        let mut sends = lock(&pair.sends);
        ids.for_each(|id| sends.refuse(id, here));
        let under_way = sends.under_way();
        drop(sends);
        if let Some(reason) = reason {
            layer::refuse_send(&pair, reason, under_way, here);
        }
    });
}

/// Has the process summed up when all else that is done at its end has been done: other libraries' destructors, too.
extern "C" fn end() {
    // What is added while the process ends is called after what has added it.
    if is_on() && !deadline::bounded(|| deadline::call_at_end(finish)) {
        deadline::bounded(sum_up);
    }
}

unsafe extern "C" fn finish(_code: c_int, _argument: *mut c_void) {
    deadline::bounded(sum_up);
}

/// Sums up, and has the process exit with a code of its own after errors.
fn sum_up() {
    board::end();
    // A signal's handler that ends the process may have interrupted who has the locks.
    if !locks::are_free() {
        return;
    }
    locks::free_contexts().iter().for_each(|state| {
        objects::left_behind(state, "the process ends");
        // Of many contexts each may take its time.
        deadline::again();
    });
    if let Some(code) = report::sum_up() {
        // SAFETY: what the program has printed must not be lost, and nothing comes after this.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(code);
        }
    }
}

// After the functions that a program has run at its end, but before its libraries' destructors.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
