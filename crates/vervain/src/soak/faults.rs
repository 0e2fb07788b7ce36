//! Which faults there are, and in which order they come.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bench::units::name_of;
use clap::ValueEnum;

/// A fault.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fault {
    KillClient,
    KillServer,
    StopClient,
    StopServer,
    Leave,
    Loss,
    Garbage,
    HalfOpen,
    Slow,
    Flood,
    Huge,
    Pressure,
    Idle,
    Flush,
    FlushLater,
    ClockAhead,
    ClockBack,
}

impl Fault {
    pub(crate) fn name(self) -> String {
        name_of(&self)
    }

    /// Whether it happens to the server as a whole, and so only to one's own: its process, all its
    /// items, its clock.
    fn is_to_server(self) -> bool {
        matches!(
            self,
            Fault::KillServer
                | Fault::StopServer
                | Fault::Flush
                | Fault::FlushLater
                | Fault::ClockAhead
                | Fault::ClockBack
        )
    }
}

/// The faults of a run, one after the other.
pub(super) struct Rounds {
    faults: Faults,
    /// How many were drawn.
    drawn: u64,
    /// What is left of them, the next one last.
    left: Vec<Fault>,
    /// How many of those that are left were in vain, one after the other.
    in_vain: usize,
}

impl Rounds {
    pub(super) fn new(faults: Faults) -> Self {
        Rounds {
            faults,
            drawn: 0,
            left: Vec::new(),
            in_vain: 0,
        }
    }

    /// The next one. When all that are left were in vain, another round comes before them.
    pub(super) fn next(&mut self, random: &mut fastrand::Rng) -> Option<Fault> {
        if self.in_vain == self.left.len() {
            let mut round = self.faults.round(self.drawn, random);
            round.retain(|fault| !self.left.contains(fault));
            self.left.append(&mut round);
            (self.drawn, self.in_vain) = (self.drawn + 1, 0);
        }
        self.left.pop()
    }

    /// It could be caused, or something was in its way: then it comes again, after the others.
    pub(super) fn tried(&mut self, fault: Fault, done: bool) {
        if !done {
            self.left.insert(0, fault);
        }
        self.in_vain = if done { 0 } else { self.in_vain + 1 };
    }
}

/// The faults of a run: `all`, `none`, or some by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }

    /// Whether each of them is among those that have happened.
    pub(super) fn all_happened(&self, counts: &BTreeMap<Fault, u64>) -> bool {
        self.0.iter().all(|fault| counts.contains_key(fault))
    }

    /// Those that can happen to a server that is not one's own.
    pub(super) fn of_foreign_server(self) -> Self {
        let foreign = |fault: &Fault| !fault.is_to_server();
        Faults(self.0.into_iter().filter(foreign).collect())
    }

    /// All that happen at a moment, in rounds: each once a round, in random order, the server's death
    /// once in three.
    pub(super) fn round(&self, number: u64, random: &mut fastrand::Rng) -> Vec<Fault> {
        let mut round: Vec<Fault> = self.0.clone();
        round.retain(|fault| match fault {
            // That one is a property of processes.
            Fault::Loss => false,
            Fault::KillServer => number.is_multiple_of(3),
            _ => true,
        });
        random.shuffle(&mut round);
        round
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Fault::value_variants();
        let find = |name: &str| {
            <Fault as ValueEnum>::from_str(name, false).map_err(|_| {
                let names: Vec<String> = all.iter().map(name_of).collect();
                let names = names.join(", ");
                format!("`{name}` is no fault; there are {names}, and all and none")
            })
        };
        let mut faults = match text {
            "all" => all.to_vec(),
            "none" | "" => Vec::new(),
            _ => text
                .split(',')
                .map(|name| find(name.trim()))
                .collect::<Result<_, _>>()?,
        };
        faults.sort_unstable();
        faults.dedup();
        Ok(Faults(faults))
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Fault::value_variants() {
            return f.write_str("all");
        }
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<String> = self.0.iter().map(name_of).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_shown() {
        for text in ["all", "none", "kill-client", "kill-server,loss,idle"] {
            let faults: Faults = text.parse().expect("faults");
            assert_eq!(faults.to_string(), text);
        }
        let faults: Faults = "idle, loss,idle".parse().expect("faults");
        assert_eq!(faults.to_string(), "loss,idle");
        let error = "kill-all".parse::<Faults>().expect_err("no fault");
        assert!(error.contains("`kill-all`") && error.contains("stop-server"));
        let foreign = "all".parse::<Faults>().expect("all").of_foreign_server();
        assert_eq!(
            foreign.to_string(),
            "kill-client,stop-client,leave,loss,garbage,half-open,slow,flood,huge,pressure,idle"
        );
    }

    #[test]
    fn faults_that_cannot_be_caused_stop_no_others() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut rounds = Rounds::new("all".parse().expect("all"));
        let mut caused = BTreeMap::<Fault, u64>::new();
        let mut refused = 0;
        for _ in 0..200 {
            let fault = rounds.next(&mut random).expect("a fault");
            let done = !matches!(fault, Fault::FlushLater | Fault::ClockBack);
            rounds.tried(fault, done);
            if done {
                *caused.entry(fault).or_default() += 1;
            } else {
                refused += 1;
            }
        }
        // 13 a round, and the server's death once in three.
        assert!(caused[&Fault::KillServer] >= 3, "{caused:?}");
        assert!((13..=14).contains(&caused.len()), "{caused:?}");
        assert!(refused < 100 && caused.values().all(|count| *count >= 3));
        let mut none = Rounds::new("none".parse().expect("none"));
        assert_eq!(none.next(&mut random), None);
    }

    #[test]
    fn a_seed_gives_the_same_faults_again() {
        let faults: Faults = "all".parse().expect("all");
        let rounds = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..6)
                .map(|number| faults.round(number, &mut random))
                .collect::<Vec<_>>()
        };
        assert_eq!(rounds(1), rounds(1));
        assert_ne!(rounds(1), rounds(2));
        let deaths = |round: &Vec<Fault>| round.contains(&Fault::KillServer);
        assert_eq!(rounds(1).iter().filter(|round| deaths(round)).count(), 2);
    }
}
