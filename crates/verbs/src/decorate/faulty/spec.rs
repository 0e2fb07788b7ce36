//! Plans as text, for command lines, the environment and files.
//!
//! ```text
//! rc-error=0.1%,rc-status=rnr-retry-exc,ud-drop=2%,uc-drop@17,refuse@3,seed=7
//! ```
//! Settings stand behind each other, with commas or ends of lines between them; `#` begins a comment, up to the end of its line.
//! `qp2: rc-error@5` is about the third queue pair alone.

use std::fmt::Write as _;
use std::str::FromStr;

use super::plan::{Chance, Fault, FaultPlan, Scripted};
use crate::attr::Transport;
use crate::wc::WcStatus;

/// What happens to requests: its name, the transport, the fault, and where its share stands if it has one.
type Known = (&'static str, Option<Transport>, Fault, Option<Share>);

/// Where a share stands in a plan.
type Share = fn(&mut FaultPlan) -> &mut u32;

const FAULTS: [Known; 16] = [
    (
        "rc-error",
        Some(Transport::Rc),
        Fault::Error,
        Some(|plan| &mut plan.rc_error_ppm),
    ),
    (
        "rnr",
        Some(Transport::Rc),
        Fault::NotReady,
        Some(|plan| &mut plan.rnr_ppm),
    ),
    (
        "uc-drop",
        Some(Transport::Uc),
        Fault::Drop,
        Some(|plan| &mut plan.uc_drop_ppm),
    ),
    (
        "uc-delay",
        Some(Transport::Uc),
        Fault::Delay,
        Some(|plan| &mut plan.uc_delay_ppm),
    ),
    (
        "ud-drop",
        Some(Transport::Ud),
        Fault::Drop,
        Some(|plan| &mut plan.ud_drop_ppm),
    ),
    (
        "ud-duplicate",
        Some(Transport::Ud),
        Fault::Duplicate,
        Some(|plan| &mut plan.ud_duplicate_ppm),
    ),
    (
        "ud-delay",
        Some(Transport::Ud),
        Fault::Delay,
        Some(|plan| &mut plan.ud_delay_ppm),
    ),
    (
        "placement",
        None,
        Fault::Placement,
        Some(|plan| &mut plan.placement_ppm),
    ),
    (
        "post-enomem",
        None,
        Fault::NoMemory,
        Some(|plan| &mut plan.post_enomem_ppm),
    ),
    (
        "reply-first",
        None,
        Fault::ReplyFirst,
        Some(|plan| &mut plan.reply_first_ppm),
    ),
    ("qp-fatal", None, Fault::QpFatal, None),
    ("device-fatal", None, Fault::DeviceFatal, None),
    ("revoke", Some(Transport::Rc), Fault::Revoke, None),
    ("kill", None, Fault::Kill, None),
    ("freeze", None, Fault::Freeze(FREEZE_CALLS), None),
    ("port-down", None, Fault::PortDown(None), None),
];

/// Calls for which a NIC stands still where nobody says how many.
const FREEZE_CALLS: u32 = 1000;

/// Where what is counted stands in a plan.
type Counted = fn(&mut FaultPlan) -> &mut Chance;

/// What is counted over the NIC or the process.
const CALLS: [(&str, Counted); 8] = [
    ("refuse-mr", |plan| &mut plan.refuse_mr),
    ("late-rtr", |plan| &mut plan.late_rtr),
    ("spurious", |plan| &mut plan.spurious),
    ("cm-reject", |plan| &mut plan.connections.reject),
    ("cm-timeout", |plan| &mut plan.connections.timeout),
    ("cm-lost-dreq", |plan| &mut plan.connections.lost_dreq),
    ("cm-late", |plan| &mut plan.connections.late),
    ("cm-late-established", |plan| {
        &mut plan.connections.late_established
    }),
];

/// How an RC request fails: libibverbs' names without `IBV_WC_` and `_ERR`.
const STATUSES: [(&str, WcStatus); 10] = [
    ("loc-len", WcStatus::LocLenErr),
    ("loc-qp-op", WcStatus::LocQpOpErr),
    ("loc-prot", WcStatus::LocProtErr),
    ("bad-resp", WcStatus::BadRespErr),
    ("rem-inv-req", WcStatus::RemInvReqErr),
    ("rem-access", WcStatus::RemAccessErr),
    ("rem-op", WcStatus::RemOpErr),
    ("retry-exc", WcStatus::RetryExcErr),
    ("rnr-retry-exc", WcStatus::RnrRetryExcErr),
    ("fatal", WcStatus::FatalErr),
];

const PPM: f64 = 1e6;

/// A share of requests, in parts per million.
fn share(text: &str) -> Option<u32> {
    let ppm = match text.strip_suffix("ppm") {
        Some(ppm) => ppm.parse().ok()?,
        None => text.strip_suffix('%')?.parse::<f64>().ok()? / 100.0 * PPM,
    };
    let rounded = (0.0..=PPM).contains(&ppm).then(|| ppm.round() as u32);
    // Less than one of a million would be none.
    rounded.filter(|rounded| *rounded > 0 || ppm == 0.0)
}

fn names<T>(table: &[(&str, T)]) -> String {
    let mut list = String::new();
    for (name, _) in table {
        let comma = if list.is_empty() { "" } else { ", " };
        // Into a string nothing fails to be written.
        let _ = write!(list, "{comma}{name}");
    }
    list
}

/// What there is, as a sentence that goes on says it.
fn known() -> String {
    let (mut both, mut places) = (String::new(), String::new());
    for (name, .., share) in FAULTS {
        let list = if share.is_some() {
            &mut both
        } else {
            &mut places
        };
        // Into a string nothing fails to be written.
        let _ = write!(list, "{name}, ");
    }
    format!(
        "{both}refuse, {} (each with =SHARE, such as 1% or 20ppm, or @N: request N of each queue pair, or call N, from 0; \
         qp2: before it is the third queue pair alone), {places}which take @N only (freeze@N:CALLS and port-down@N:CALLS end \
         after so many calls), burst=COUNT, small, rc-status, delay, wait, seed",
        names(&CALLS)
    )
}

impl FaultPlan {
    /// Takes one setting.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = |what: &str| {
            let number = value.parse();
            number.map_err(|_| format!("{name}={value}: {what} is a number"))
        };
        match name {
            "seed" => self.seed = number("a seed")?,
            "delay" => {
                let calls = number("how many calls late a message comes")?;
                self.delay_calls =
                    u32::try_from(calls).map_err(|_| format!("delay={value}: too late"))?;
            }
            "wait" => {
                let ms = number("how many milliseconds late an event comes")?;
                self.wait_ms = u32::try_from(ms).map_err(|_| format!("wait={value}: too late"))?;
            }
            "burst" => {
                let count = number("how many completions come at once")?;
                self.burst =
                    u32::try_from(count).map_err(|_| format!("burst={value}: too many"))?;
            }
            "rc-status" => {
                let found = STATUSES.iter().find(|(known, _)| *known == value);
                let (_, status) = found
                    .ok_or_else(|| format!("{name}={value}: not one of {}", names(&STATUSES)))?;
                self.rc_error = *status;
            }
            _ => {
                let place = self.share_of(name)?;
                let ppm = share(value);
                *place = ppm.ok_or_else(|| {
                    format!("{name}={value}: a share is 0% to 100%, or so many ppm")
                })?;
            }
        }
        Ok(())
    }

    /// Where the share of a fault stands.
    fn share_of(&mut self, name: &str) -> Result<&mut u32, String> {
        if name == "refuse" {
            return Ok(&mut self.refuse_ppm);
        }
        if let Some((_, chance)) = CALLS.iter().find(|(known, _)| *known == name) {
            return Ok(&mut chance(self).ppm);
        }
        match FAULTS.iter().find(|(known, ..)| *known == name) {
            Some((.., Some(share))) => Ok(share(self)),
            Some(_) => Err(format!("{name}: it has a place, {name}@N, and no share")),
            None => Err(format!("{name}: no such fault; there are {}", known())),
        }
    }

    /// Takes one fault at a known place, of one queue pair or of all.
    fn add(&mut self, qp: Option<u64>, name: &str, place: &str) -> Result<(), String> {
        let wrong = || format!("{name}@{place}: a place is a number, from 0");
        let (nth, calls) = match place.split_once(':') {
            Some((nth, calls)) => (nth, Some(calls.trim().parse().map_err(|_| wrong())?)),
            None => (place, None),
        };
        let nth = nth.trim().parse().map_err(|_| wrong())?;
        let counted = match name {
            "refuse" => Some(&mut self.refuse_nth),
            _ => {
                let mut found = CALLS.iter().filter(|(known, _)| *known == name);
                found.next().map(|(_, chance)| &mut chance(self).nth)
            }
        };
        if let Some(counted) = counted {
            if qp.is_some() || calls.is_some() {
                return Err(format!(
                    "{name}@{place}: it is counted over all queue pairs, and takes one number"
                ));
            }
            counted.push(nth);
            return Ok(());
        }
        let found = FAULTS.iter().find(|(known, ..)| *known == name);
        let &(_, transport, fault, _) =
            found.ok_or_else(|| format!("{name}: no such fault; there are {}", known()))?;
        let fault = match (fault, calls) {
            (fault, None) => fault,
            (Fault::Freeze(_), Some(calls)) => Fault::Freeze(calls),
            (Fault::PortDown(_), Some(calls)) => Fault::PortDown(Some(calls)),
            _ => {
                return Err(format!(
                    "{name}@{place}: it does not last, so that it takes one number"
                ));
            }
        };
        self.script.push(Scripted {
            qp,
            transport,
            nth,
            fault,
        });
        Ok(())
    }

    fn take(&mut self, item: &str) -> Result<(), String> {
        let (qp, rest) = match item
            .strip_prefix("qp")
            .and_then(|rest| rest.split_once(':'))
        {
            // Others begin so too: qp-fatal@3.
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number = number.parse();
                let wrong = || format!("{item}: a queue pair has a number, as qp0");
                (Some(number.map_err(|_| wrong())?), rest.trim())
            }
            _ => (None, item),
        };
        if rest == "small" && qp.is_none() {
            self.is_small = true;
            Ok(())
        } else if let Some((name, place)) = rest.split_once('@') {
            self.add(qp, name.trim(), place)
        } else if let Some((name, value)) = rest.split_once('=') {
            if qp.is_some() {
                return Err(format!(
                    "{item}: one queue pair's faults have places, as {name}@5"
                ));
            }
            self.set(name.trim(), value.trim())
        } else {
            Err(format!("{item}: how often? There are {}", known()))
        }
    }
}

/// What is not said is as in the default. Errors are sentences.
impl FromStr for FaultPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = FaultPlan::default();
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or(""));
        for item in lines.flat_map(|line| line.split(',')).map(str::trim) {
            if !item.is_empty() {
                plan.take(item)?;
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_plan() {
        let plan: FaultPlan = "rc-error=0.1%, rc-status=rnr-retry-exc,ud-drop=20ppm,uc-drop@17,\
                               refuse@3,refuse=100%,seed=7,delay=2,wait=70"
            .parse()
            .expect("a plan");
        let expected = FaultPlan {
            seed: 7,
            rc_error_ppm: 1000,
            rc_error: WcStatus::RnrRetryExcErr,
            ud_drop_ppm: 20,
            refuse_ppm: 1_000_000,
            delay_calls: 2,
            wait_ms: 70,
            script: vec![Scripted {
                qp: None,
                transport: Some(Transport::Uc),
                nth: 17,
                fault: Fault::Drop,
            }],
            refuse_nth: vec![3],
            ..FaultPlan::default()
        };
        assert_eq!(plan, expected);
        assert_eq!("".parse(), Ok(FaultPlan::default()));
    }

    #[test]
    fn every_fault_has_a_share_and_a_place() {
        for (name, transport, fault, share) in FAULTS {
            let mut plan: FaultPlan = format!("{name}@5").parse().expect(name);
            let place = Scripted {
                qp: None,
                transport,
                nth: 5,
                fault,
            };
            assert_eq!(plan.script, [place]);
            if share.is_some() {
                plan = format!("{name}=1ppm").parse().expect(name);
                assert_eq!(plan.share_of(name), Ok(&mut 1), "{name}");
            }
        }
        for (name, chance) in CALLS {
            let mut plan: FaultPlan = format!("{name}=1ppm,{name}@5").parse().expect(name);
            let expected = Chance {
                ppm: 1,
                nth: vec![5],
            };
            assert_eq!(chance(&mut plan), &expected, "{name}");
        }
    }

    #[test]
    fn a_file_has_comments_and_queue_pairs() {
        let plan: FaultPlan = "# at first nothing\n\nqp2: rc-error@5 # the third\nfreeze@3:7, port-down@4:9\nsmall\nqp-fatal@1"
            .parse()
            .expect("a plan");
        let script: Vec<_> = plan
            .script
            .iter()
            .map(|entry| (entry.qp, entry.nth, entry.fault))
            .collect();
        let expected = [
            (Some(2), 5, Fault::Error),
            (None, 3, Fault::Freeze(7)),
            (None, 4, Fault::PortDown(Some(9))),
            (None, 1, Fault::QpFatal),
        ];
        assert_eq!((script, plan.is_small), (expected.to_vec(), true));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (text, why) in [
            ("rc-eror=1%", "rc-eror: no such fault; there are rc-error, "),
            ("rc-eror@1", "no such fault"),
            ("rc-eror=1", "no such fault"),
            ("rc-error=1", "a share is"),
            ("ud-drop=101%", "a share is"),
            ("ud-drop=-1%", "a share is"),
            ("ud-drop=0.00001%", "a share is"),
            ("ud-drop=nan%", "a share is"),
            ("rc-error@x", "a place is a number"),
            ("rc-status=oops", "not one of loc-len, "),
            ("rc-error", "how often?"),
            ("seed=", "a seed is a number"),
            ("delay=99999999999", "too late"),
            ("kill=1%", "kill: it has a place, kill@N, and no share"),
            (
                "qp1: rc-error=1%",
                "one queue pair's faults have places, as rc-error@5",
            ),
            ("qp1: refuse@1", "it is counted over all queue pairs"),
            ("kill@1:2", "it does not last"),
            ("freeze@1:x", "a place is a number"),
            ("qp: kill@1", "a queue pair has a number"),
        ] {
            let error = text.parse::<FaultPlan>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
