//! What goes wrong, as plain values.

use crate::attr::Transport;
use crate::wc::WcStatus;

/// What goes wrong, and how often. The same plan and the same calls give the same faults.
///
/// Probabilities are in parts per million of the send work requests of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// What a request suffers follows from this, its queue pair's ordinal, and its index there.
    pub seed: u64,
    /// Datagrams that are lost.
    pub ud_drop_ppm: u32,
    /// Datagrams that arrive twice, the second time late.
    pub ud_duplicate_ppm: u32,
    /// Datagrams that arrive late, behind others.
    pub ud_delay_ppm: u32,
    /// UC requests that are lost.
    pub uc_drop_ppm: u32,
    /// UC requests at which the queue pair stalls: they and all behind them come late, in order.
    pub uc_delay_ppm: u32,
    /// RC requests that fail.
    pub rc_error_ppm: u32,
    /// How they fail.
    pub rc_error: WcStatus,
    /// Requests that need a RECV of the peer, and fail as if it never posted one (RC).
    pub rnr_ppm: u32,
    /// WRITEs whose bytes are placed in another order than theirs, the last not at the end (RC, UC).
    pub placement_ppm: u32,
    /// Requests that are refused once, as if the queue was full.
    pub post_enomem_ppm: u32,
    /// Requests that complete after the next message of their queue pair was received.
    pub reply_first_ppm: u32,
    /// Completions come so many at once; with 1 or less, as they are made.
    pub burst: u32,
    /// Control calls that are refused.
    pub refuse_ppm: u32,
    /// How late is late: after this many further requests of the queue pair, or polls of its
    /// completion queues.
    pub delay_calls: u32,
    /// How late is late where nobody makes calls that could be counted: milliseconds.
    pub wait_ms: u32,
    /// The device has little of everything, see [`Small`](super::Small).
    pub is_small: bool,
    /// Registrations that are refused, counted over the NIC.
    pub refuse_mr: Chance,
    /// Transitions to RTR that take their time, counted over the NIC: what peers send meanwhile meets a queue pair that is not ready.
    pub late_rtr: Chance,
    /// Armings that make an event without a completion, counted over each completion queue. For who has the channels.
    pub spurious: Chance,
    /// For a connection manager.
    pub connections: ConnectionFaults,
    /// Faults at known places.
    pub script: Vec<Scripted>,
    /// Control calls that are refused, counted over the NIC from 0.
    pub refuse_nth: Vec<u64>,
}

impl Default for FaultPlan {
    fn default() -> Self {
        FaultPlan {
            seed: 0,
            ud_drop_ppm: 0,
            ud_duplicate_ppm: 0,
            ud_delay_ppm: 0,
            uc_drop_ppm: 0,
            uc_delay_ppm: 0,
            rc_error_ppm: 0,
            rc_error: WcStatus::RetryExcErr,
            rnr_ppm: 0,
            placement_ppm: 0,
            post_enomem_ppm: 0,
            reply_first_ppm: 0,
            burst: 0,
            refuse_ppm: 0,
            delay_calls: 8,
            wait_ms: 200,
            is_small: false,
            refuse_mr: Chance::default(),
            late_rtr: Chance::default(),
            spurious: Chance::default(),
            connections: ConnectionFaults::default(),
            script: Vec::new(),
            refuse_nth: Vec::new(),
        }
    }
}

/// How often something happens that is counted: by chance, and at known places.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chance {
    /// In parts per million.
    pub ppm: u32,
    /// Counted from 0.
    pub nth: Vec<u64>,
}

impl Chance {
    /// Whether it never happens.
    pub fn is_never(&self) -> bool {
        self.ppm == 0 && self.nth.is_empty()
    }

    /// Whether it happens at place `nth` of the sequence `stream`: always the same with the same seed.
    pub fn strikes(&self, seed: u64, stream: u64, nth: u64) -> bool {
        self.nth.contains(&nth) || (self.ppm > 0 && Random::at(seed, stream, nth).ppm() < self.ppm)
    }
}

/// What goes wrong with connections, each counted over the process. For a connection manager.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConnectionFaults {
    /// Calls that are rejected.
    pub reject: Chance,
    /// Calls that nobody answers.
    pub timeout: Chance,
    /// Disconnections that the other side does not hear of.
    pub lost_dreq: Chance,
    /// Requests, replies and established connections that are told late: behind the next event, if there is one in time.
    pub late: Chance,
    /// Accepted calls that count as established only after their first message.
    pub late_established: Chance,
}

/// A fault at a known place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scripted {
    /// On the queue pair of this ordinal, counted from 0 over the NIC; `None` is all of them.
    pub qp: Option<u64>,
    /// On the queue pairs of this transport; `None` is all that can suffer the fault.
    pub transport: Option<Transport>,
    /// at each one's request with this index, counted from 0,
    pub nth: u64,
    /// this happens.
    pub fault: Fault,
}

/// What happens to a request. What its transport cannot suffer does not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It is lost; its sender completes (UC, UD).
    Drop,
    /// It arrives late; UD: behind others, UC: and so do all behind it.
    Delay,
    /// It arrives twice (UD).
    Duplicate,
    /// It fails, and the queue pair is in ERR (RC).
    Error,
    /// It needs a RECV, and fails as if there never was one (RC).
    NotReady,
    /// Its bytes are placed in another order than theirs, the last not at the end, if it is a WRITE (RC, UC).
    Placement,
    /// It is refused once, as if the queue was full.
    NoMemory,
    /// It completes after the next message was received.
    ReplyFirst,
    /// Its queue pair fails, and an event says so: it and what is outstanding are flushed.
    QpFatal,
    /// The device fails: all of its queue pairs do, and control calls are refused from then on.
    DeviceFatal,
    /// The key of the remote memory that it names, or else the next request that names one, is good for nothing any more (RC).
    Revoke,
    /// The process is killed before it is posted.
    Kill,
    /// The NIC stands still for so many calls, or until somebody arms a queue.
    Freeze(u32),
    /// The port goes down: for so many calls, in which requests wait, or for good, and then they fail.
    PortDown(Option<u32>),
}

impl FaultPlan {
    /// Whether requests of a transport are passed on as they are.
    pub(super) fn spares(&self, transport: Transport) -> bool {
        let mut chances = self.chances(transport).into_iter();
        let mut script = self.script.iter();
        chances.all(|(ppm, _)| ppm == 0)
            && !script.any(|entry| entry.transport.is_none_or(|one| one == transport))
    }

    /// Whether the memory of late datagrams is needed.
    pub(super) fn repeats_datagrams(&self) -> bool {
        let is_late = |fault| matches!(fault, Fault::Delay | Fault::Duplicate);
        let of_ud = |entry: &Scripted| entry.transport.is_none_or(|one| one == Transport::Ud);
        let mut script = self.script.iter();
        self.ud_duplicate_ppm | self.ud_delay_ppm > 0
            || script.any(|entry| of_ud(entry) && is_late(entry.fault))
    }

    /// Whether WRITEs are placed in steps.
    pub(super) fn places_in_pieces(&self) -> bool {
        let mut script = self.script.iter();
        self.placement_ppm > 0 || script.any(|entry| entry.fault == Fault::Placement)
    }

    /// Whether completions may have to wait for a message.
    pub(super) fn replies_first(&self) -> bool {
        let mut script = self.script.iter();
        self.reply_first_ppm > 0 || script.any(|entry| entry.fault == Fault::ReplyFirst)
    }

    fn chances(&self, transport: Transport) -> [(u32, Fault); 6] {
        let of = |one: Transport, ppm: u32| if one == transport { ppm } else { 0 };
        let own = match transport {
            Transport::Rc => [
                (self.rc_error_ppm, Fault::Error),
                (self.rnr_ppm, Fault::NotReady),
                (0, Fault::Error),
            ],
            Transport::Uc => [
                (self.uc_drop_ppm, Fault::Drop),
                (self.uc_delay_ppm, Fault::Delay),
                (0, Fault::Drop),
            ],
            Transport::Ud => [
                (self.ud_drop_ppm, Fault::Drop),
                (self.ud_duplicate_ppm, Fault::Duplicate),
                (self.ud_delay_ppm, Fault::Delay),
            ],
        };
        let placement =
            of(Transport::Rc, self.placement_ppm) | of(Transport::Uc, self.placement_ppm);
        let [first, second, third] = own;
        [
            first,
            second,
            third,
            (placement, Fault::Placement),
            (self.post_enomem_ppm, Fault::NoMemory),
            (self.reply_first_ppm, Fault::ReplyFirst),
        ]
    }

    /// What happens to the request with index `nth` of the queue pair with this ordinal.
    pub(super) fn fault(&self, transport: Transport, qp: u64, nth: u64) -> Option<Fault> {
        let here = |entry: &&Scripted| {
            entry.nth == nth
                && entry.qp.is_none_or(|one| one == qp)
                && entry.transport.is_none_or(|one| one == transport)
        };
        if let Some(entry) = self.script.iter().find(here) {
            return Some(entry.fault).filter(|fault| fault.befalls(transport));
        }
        let mut drawn = Random::at(self.seed, qp, nth).ppm();
        for (ppm, fault) in self.chances(transport) {
            if drawn < ppm {
                return Some(fault);
            }
            drawn -= ppm;
        }
        None
    }
}

impl FaultPlan {
    /// Random numbers for what a request suffers, besides the one that says whether it does.
    pub(super) fn draws(&self, qp: u64, nth: u64) -> Random {
        let mut random = Random::at(self.seed, qp, nth);
        random.next();
        random
    }
}

impl Fault {
    fn befalls(self, transport: Transport) -> bool {
        match self {
            Fault::Drop | Fault::Delay => transport != Transport::Rc,
            Fault::Duplicate => transport == Transport::Ud,
            Fault::Error | Fault::NotReady | Fault::Revoke => transport == Transport::Rc,
            Fault::Placement => transport != Transport::Ud,
            _ => true,
        }
    }

    /// Whether it is something that happens when a request is posted, which then is posted as ever.
    pub(super) fn is_incident(self) -> bool {
        matches!(
            self,
            Fault::NoMemory
                | Fault::QpFatal
                | Fault::DeviceFatal
                | Fault::Revoke
                | Fault::Kill
                | Fault::Freeze(_)
                | Fault::PortDown(_)
        )
    }
}

/// Random numbers for chances (SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// The numbers of a place in a sequence, which do not depend on what was drawn before.
    pub(super) fn at(seed: u64, stream: u64, nth: u64) -> Random {
        let (a, b) = (0xd1b5_4a32_d192_ed03_u64, 0xaef1_7502_108e_f2d9_u64);
        let mixed = Random(seed ^ a.wrapping_mul(stream.wrapping_add(1))).next();
        Random(mixed ^ b.wrapping_mul(nth.wrapping_add(1)))
    }

    /// A number below this one, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number below a million.
    pub(super) fn ppm(&mut self) -> u32 {
        (self.next() % 1_000_000) as u32
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_come_out_as_often_as_planned() {
        let plan = FaultPlan {
            ud_drop_ppm: 100_000,
            ud_duplicate_ppm: 200_000,
            ud_delay_ppm: 300_000,
            ..FaultPlan::default()
        };
        let mut counts = [0; 4];
        for nth in 0..10_000 {
            counts[match plan.fault(Transport::Ud, nth / 100, nth) {
                Some(Fault::Drop) => 0,
                Some(Fault::Duplicate) => 1,
                Some(Fault::Delay) => 2,
                None => 3,
                Some(other) => panic!("{other:?} on UD"),
            }] += 1;
        }
        for (count, expected) in counts.into_iter().zip([1000i32, 2000, 3000, 4000]) {
            assert!((count - expected).abs() < 300, "{counts:?}");
        }
        assert!(!plan.spares(Transport::Ud) && plan.spares(Transport::Uc));
    }

    #[test]
    fn a_chance_of_everything_strikes_everywhere() {
        let chance = Chance {
            ppm: 1_000_000,
            nth: Vec::new(),
        };
        for place in [(0, 0), (u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            assert!(chance.strikes(0, place.0, place.1), "{place:?}");
        }
    }

    #[test]
    fn the_script_names_requests_by_index() {
        let entry = Scripted {
            qp: None,
            transport: Some(Transport::Uc),
            nth: 3,
            fault: Fault::Drop,
        };
        let plan = FaultPlan {
            script: vec![entry],
            ..FaultPlan::default()
        };
        let faults: Vec<_> = (0..5)
            .map(|nth| plan.fault(Transport::Uc, 0, nth))
            .collect();
        assert_eq!(faults, [None, None, None, Some(Fault::Drop), None]);
        assert_eq!(plan.fault(Transport::Ud, 0, 3), None);
    }
}
