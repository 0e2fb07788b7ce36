//! Connections that go wrong on purpose: calls that are rejected or not answered, disconnections that are lost, connections
//! whose first message comes before they are known to be established, and events that come late.

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use verbs::Wc;
use verbs::decorate::{Chance, ConnectionFaults};

use super::abi::event;
use super::events::Event;
use super::ids::{Id, State};
use super::manager::{self, Manager, free_number};
use super::service::Token;
use crate::process::settings;

/// What can go wrong; each is counted over the process.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Reject,
    Timeout,
    LostDreq,
    LateEstablished,
    Late,
}

static COUNTS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// Connections that are established with their first message.
static LATE: AtomicUsize = AtomicUsize::new(0);

/// An event that comes late.
pub(super) struct Late {
    event: Event,
    channel: RawFd,
    /// It does not wait for another event for longer than this.
    pub(super) deadline: Option<Instant>,
}

struct Plan {
    seed: u64,
    faults: ConnectionFaults,
    wait: Duration,
}

fn plan() -> Option<&'static Plan> {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let read = || {
        // One that makes no sense is told when the device is opened, without which there are no connections.
        let plan = settings::faults().ok().flatten()?;
        Some(Plan {
            seed: plan.seed,
            faults: plan.connections,
            wait: Duration::from_millis(plan.wait_ms.into()),
        })
    };
    PLAN.get_or_init(read).as_ref()
}

/// Whether this one goes wrong.
pub(super) fn strikes(kind: Kind) -> bool {
    let Some(Plan { seed, faults, .. }) = plan() else {
        return false;
    };
    let chance: &Chance = match kind {
        Kind::Reject => &faults.reject,
        Kind::Timeout => &faults.timeout,
        Kind::LostDreq => &faults.lost_dreq,
        Kind::LateEstablished => &faults.late_established,
        Kind::Late => &faults.late,
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
    /// Gives a channel an event, unless it is to come late: then behind the next one, or when its time is out. The events of an
    /// identifier stay in order.
    pub(super) fn deliver(&mut self, channel: RawFd, event: Event) {
        self.release(|late| late.event.id == event.id);
        let may_be_late = matches!(
            event.event,
            event::CONNECT_REQUEST | event::CONNECT_RESPONSE | event::ESTABLISHED
        );
        if may_be_late && strikes(Kind::Late) {
            let number = free_number(&self.late);
            let late = Late {
                event,
                channel,
                deadline: None,
            };
            self.late.insert(number, late);
            return self.set_deadline(Token::Late(number), plan().map(|plan| plan.wait));
        }
        self.push(channel, event);
        self.release(|late| late.channel == channel);
    }

    fn push(&mut self, channel: RawFd, event: Event) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.push(event);
        }
    }

    /// Takes events out that are late still.
    pub(super) fn take_late(&mut self, is_meant: impl Fn(&Event) -> bool) -> Vec<Event> {
        let taken = self.take_late_if(|late| is_meant(&late.event));
        taken.into_iter().map(|late| late.event).collect()
    }

    fn take_late_if(&mut self, is_meant: impl Fn(&Late) -> bool) -> Vec<Late> {
        let meant = self.late.iter().filter(|(_, late)| is_meant(late));
        let numbers: Vec<u32> = meant.map(|(&number, _)| number).collect();
        let take = |number| {
            self.set_deadline(Token::Late(number), None);
            self.late.remove(&number)
        };
        numbers.into_iter().filter_map(take).collect()
    }

    fn release(&mut self, is_meant: impl Fn(&Late) -> bool) {
        for late in self.take_late_if(is_meant) {
            self.push(late.channel, late.event);
        }
    }

    /// An event has waited for long enough.
    pub(super) fn late_due(&mut self, number: u32) {
        if let Some(late) = self.late.remove(&number) {
            self.push(late.channel, late.event);
        }
    }

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
