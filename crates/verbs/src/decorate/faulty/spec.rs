//! Plans as a line of text, for command lines and the environment.
//!
//! ```text
//! rc-error=0.1%,rc-status=rnr-retry-exc,ud-drop=2%,uc-drop@17,refuse@3,seed=7
//! ```

use std::fmt::Write as _;
use std::str::FromStr;

use super::plan::{Fault, FaultPlan, Scripted};
use crate::attr::Transport;
use crate::wc::WcStatus;

/// What happens to requests: its name, the transport, the fault.
const FAULTS: [(&str, Transport, Fault); 6] = [
    ("rc-error", Transport::Rc, Fault::Error),
    ("uc-drop", Transport::Uc, Fault::Drop),
    ("uc-delay", Transport::Uc, Fault::Delay),
    ("ud-drop", Transport::Ud, Fault::Drop),
    ("ud-duplicate", Transport::Ud, Fault::Duplicate),
    ("ud-delay", Transport::Ud, Fault::Delay),
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

/// What may stand before `=` or `@`.
fn known() -> String {
    let faults = FAULTS.map(|(name, ..)| (name, ()));
    format!(
        "{}, refuse (each with =SHARE, such as 1% or 20ppm, or @N: the Nth request of each queue pair, or call, from 0), rc-status, delay, seed",
        names(&faults)
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
        Ok(match name {
            "rc-error" => &mut self.rc_error_ppm,
            "uc-drop" => &mut self.uc_drop_ppm,
            "uc-delay" => &mut self.uc_delay_ppm,
            "ud-drop" => &mut self.ud_drop_ppm,
            "ud-duplicate" => &mut self.ud_duplicate_ppm,
            "ud-delay" => &mut self.ud_delay_ppm,
            "refuse" => &mut self.refuse_ppm,
            _ => return Err(format!("{name}: no such fault; there are {}", known())),
        })
    }

    /// Takes one fault at a known place.
    fn add(&mut self, name: &str, nth: &str) -> Result<(), String> {
        let nth = nth
            .parse()
            .map_err(|_| format!("{name}@{nth}: a place is a number, from 0"))?;
        if name == "refuse" {
            self.refuse_nth.push(nth);
            return Ok(());
        }
        let found = FAULTS.iter().find(|(known, ..)| *known == name);
        let &(_, transport, fault) =
            found.ok_or_else(|| format!("{name}: no such fault; there are {}", known()))?;
        self.script.push(Scripted {
            transport,
            nth,
            fault,
        });
        Ok(())
    }
}

/// Settings behind each other, with commas between them; what is not said is as in the default. Errors are sentences.
impl FromStr for FaultPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = FaultPlan::default();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            if let Some((name, nth)) = item.split_once('@') {
                plan.add(name, nth)?;
            } else if let Some((name, value)) = item.split_once('=') {
                plan.set(name, value)?;
            } else {
                return Err(format!("{item}: how often? There are {}", known()));
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
                               refuse@3,refuse=100%,seed=7,delay=2"
            .parse()
            .expect("a plan");
        let expected = FaultPlan {
            seed: 7,
            rc_error_ppm: 1000,
            rc_error: WcStatus::RnrRetryExcErr,
            ud_drop_ppm: 20,
            refuse_ppm: 1_000_000,
            delay_calls: 2,
            script: vec![Scripted {
                transport: Transport::Uc,
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
        for (name, transport, fault) in FAULTS {
            let mut plan: FaultPlan = format!("{name}=1ppm,{name}@5").parse().expect(name);
            assert_eq!(plan.share_of(name), Ok(&mut 1), "{name}");
            let place = Scripted {
                transport,
                nth: 5,
                fault,
            };
            assert_eq!(plan.script, [place]);
        }
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
        ] {
            let error = text.parse::<FaultPlan>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
