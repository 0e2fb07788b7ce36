//! What goes wrong, as plain values.

use crate::attr::Transport;
use crate::wc::WcStatus;

/// What goes wrong, and how often. The same plan and the same calls give the same faults.
///
/// Probabilities are in parts per million of the send work requests of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// Seeds each queue pair's random numbers, together with its number.
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
    /// Control calls that are refused.
    pub refuse_ppm: u32,
    /// How late is late: after this many further requests of the queue pair, or polls of its
    /// completion queues.
    pub delay_calls: u32,
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
            refuse_ppm: 0,
            delay_calls: 8,
            script: Vec::new(),
            refuse_nth: Vec::new(),
        }
    }
}

/// A fault at a known place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scripted {
    /// On the queue pairs of this transport,
    pub transport: Transport,
    /// at each one's request with this index, counted from 0,
    pub nth: u64,
    /// this happens.
    pub fault: Fault,
}

/// What happens to a request. What its transport cannot suffer does not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is lost; its sender completes (UC, UD).
    Drop,
    /// It arrives late; UD: behind others, UC: and so do all behind it.
    Delay,
    /// It arrives twice (UD).
    Duplicate,
    /// It fails, and the queue pair is in ERR (RC).
    Error,
}

impl FaultPlan {
    /// Whether requests of a transport are passed on as they are.
    pub(super) fn spares(&self, transport: Transport) -> bool {
        let ppm = match transport {
            Transport::Rc => self.rc_error_ppm,
            Transport::Uc => self.uc_drop_ppm | self.uc_delay_ppm,
            Transport::Ud => self.ud_drop_ppm | self.ud_duplicate_ppm | self.ud_delay_ppm,
        };
        ppm == 0 && !self.script.iter().any(|entry| entry.transport == transport)
    }

    /// What happens to the request with index `nth`.
    pub(super) fn fault(&self, transport: Transport, nth: u64, rng: &mut Random) -> Option<Fault> {
        let here = |entry: &&Scripted| entry.transport == transport && entry.nth == nth;
        if let Some(entry) = self.script.iter().find(here) {
            return Some(entry.fault).filter(|fault| fault.befalls(transport));
        }
        let chances: &[(u32, Fault)] = match transport {
            Transport::Rc => &[(self.rc_error_ppm, Fault::Error)],
            Transport::Uc => &[
                (self.uc_drop_ppm, Fault::Drop),
                (self.uc_delay_ppm, Fault::Delay),
            ],
            Transport::Ud => &[
                (self.ud_drop_ppm, Fault::Drop),
                (self.ud_duplicate_ppm, Fault::Duplicate),
                (self.ud_delay_ppm, Fault::Delay),
            ],
        };
        let mut drawn = rng.ppm();
        for (ppm, fault) in chances {
            if drawn < *ppm {
                return Some(*fault);
            }
            drawn -= ppm;
        }
        None
    }
}

impl Fault {
    fn befalls(self, transport: Transport) -> bool {
        match self {
            Fault::Drop | Fault::Delay => transport != Transport::Rc,
            Fault::Duplicate => transport == Transport::Ud,
            Fault::Error => transport == Transport::Rc,
        }
    }
}

/// Random numbers for chances (SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below a million.
    pub(super) fn ppm(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % 1_000_000) as u32
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
        let mut rng = Random(1);
        let mut counts = [0; 4];
        for nth in 0..10_000 {
            counts[match plan.fault(Transport::Ud, nth, &mut rng) {
                Some(Fault::Drop) => 0,
                Some(Fault::Duplicate) => 1,
                Some(Fault::Delay) => 2,
                Some(Fault::Error) => panic!("no such fault on UD"),
                None => 3,
            }] += 1;
        }
        for (count, expected) in counts.into_iter().zip([1000i32, 2000, 3000, 4000]) {
            assert!((count - expected).abs() < 300, "{counts:?}");
        }
        assert!(!plan.spares(Transport::Ud) && plan.spares(Transport::Uc));
    }

    #[test]
    fn the_script_names_requests_by_index() {
        let entry = Scripted {
            transport: Transport::Uc,
            nth: 3,
            fault: Fault::Drop,
        };
        let plan = FaultPlan {
            script: vec![entry],
            ..FaultPlan::default()
        };
        let mut rng = Random(1);
        let faults: Vec<_> = (0..5)
            .map(|nth| plan.fault(Transport::Uc, nth, &mut rng))
            .collect();
        assert_eq!(faults, [None, None, None, Some(Fault::Drop), None]);
        assert_eq!(plan.fault(Transport::Ud, 3, &mut rng), None);
    }
}
