//! Connections that go wrong on purpose: calls that are rejected or not answered, disconnections that are lost, and connections
//! whose first message comes before they are known to be established.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use verbs::Wc;
use verbs::decorate::{Chance, ConnectionFaults};

use super::ids::{Id, State};
use super::manager::{self, Manager};
use crate::settings;

/// What can go wrong; each is counted over the process.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Reject,
    Timeout,
    LostDreq,
    LateEstablished,
}

static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Connections that are established with their first message.
static LATE: AtomicUsize = AtomicUsize::new(0);

fn plan() -> Option<&'static (u64, ConnectionFaults)> {
    static PLAN: OnceLock<Option<(u64, ConnectionFaults)>> = OnceLock::new();
    let read = || {
        // One that makes no sense is told when the device is opened, without which there are no connections.
        let plan = settings::faults().ok().flatten()?;
        Some((plan.seed, plan.connections))
    };
    PLAN.get_or_init(read).as_ref()
}

/// Whether this one goes wrong.
pub(super) fn strikes(kind: Kind) -> bool {
    let Some((seed, faults)) = plan() else {
        return false;
    };
    let chance: &Chance = match kind {
        Kind::Reject => &faults.reject,
        Kind::Timeout => &faults.timeout,
        Kind::LostDreq => &faults.lost_dreq,
        Kind::LateEstablished => &faults.late_established,
    };
    let nth = COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
    // Other sequences than queue pairs have.
    chance.strikes(*seed, 2 << 40 | kind as u64, nth)
}

/// A connection is to be known as established only with its first message.
pub(super) fn postpone(id: &mut Id) {
    id.is_late = true;
    LATE.fetch_add(1, Ordering::Relaxed);
}

/// It is known now, or will never be; false where it was not late.
pub(super) fn is_known(id: &mut Id) -> bool {
    let was_late = std::mem::take(&mut id.is_late);
    if was_late {
        LATE.fetch_sub(1, Ordering::Relaxed);
    }
    was_late
}

/// A program polls these completions: connections whose messages are among them are established.
pub(crate) fn polled(wcs: &[Wc]) {
    if LATE.load(Ordering::Relaxed) > 0 {
        manager::lock().heard_of(wcs);
    }
}

impl Manager {
    #[cold]
    fn heard_of(&mut self, wcs: &[Wc]) {
        let numbers: Vec<u32> = self
            .ids
            .iter()
            .filter_map(|(&number, id)| {
                let is_here = |wc: &&Wc| wc.qpn.0 == id.ours.qp_num;
                let is_due =
                    id.is_late && id.state == State::ReplySent && wcs.iter().any(|wc| is_here(&wc));
                is_due.then_some(number)
            })
            .collect();
        for number in numbers {
            self.established(number);
        }
    }
}
