//! From steps to counts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, bail};
use nix::libc::user_regs_struct as Registers;

use super::caches::{Caches, Side};
use super::cases::{Case, Metric};
use super::places::{Kind, Line, Places};
use super::tracee::Tracee;
use gates::Mark;

/// Where something happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) address: u64,
    /// What the line belongs to, when it is about lines.
    pub(crate) kind: Option<Kind>,
}

/// What one side did in all rounds that count.
#[derive(Default)]
struct Tally {
    /// Lines touched in this round.
    touched: HashSet<Line>,
    /// How often what happened where. Shared lines are among the lines.
    spots: HashMap<(Metric, Spot), u64>,
}

/// The counts of one side of a case.
pub struct Counted {
    /// The side's name.
    pub side: &'static str,
    /// The counts, an operation.
    pub counts: BTreeMap<Metric, f64>,
    /// Where they come from, an operation.
    pub(crate) spots: Vec<(Metric, Spot, f64)>,
}

/// Watches so many rounds of a case before, and then those that count. What it gives back are the counts of each side, and where the driver's code is.
///
/// # Errors
/// When the driver fails, or the system forbids ptrace.
pub fn watch(
    driver: &Path,
    case: &Case,
    rounds_before: u64,
    rounds: u64,
) -> anyhow::Result<(Vec<Counted>, CodePlace)> {
    let mut tracee = Tracee::start(driver, case.name, rounds_before + rounds)?;
    let operations = (tracee.operations * rounds) as f64;
    let code = CodePlace::of(tracee.id(), driver)?;
    let mut watch = Watch {
        places: Places::of(tracee.id())?,
        caches: Caches::default(),
        tallies: [Tally::default(), Tally::default()],
        side: None,
        counts: false,
        rounds_before,
        caller: 0,
    };
    watch.counts = watch.rounds_before == 0;
    watch
        .run(&mut tracee)
        .with_context(|| format!("the case {}", case.name))?;
    tracee.finish()?;
    let mut tallies = watch.tallies;
    watch.caches.finish(|side, spot| {
        // Those of the rounds before do not count.
        if let Some(spot) = spot {
            tallies[side as usize].note(Metric::Transfers, spot);
        }
    });
    let [client, server] = tallies;
    let sides = [("client", client), ("server", server)];
    let counted = sides.into_iter().filter_map(|(side, tally)| {
        let expected = case.sides.contains(&side);
        expected.then(|| tally.per_operation(side, operations))
    });
    Ok((counted.collect(), code))
}

/// Where the driver's code was loaded.
pub struct CodePlace {
    base: u64,
    end: u64,
}

impl CodePlace {
    fn of(pid: u32, driver: &Path) -> anyhow::Result<CodePlace> {
        let driver = driver.canonicalize()?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let name = driver.to_string_lossy();
        let mut ranges = text
            .lines()
            .filter(|line| line.ends_with(&*name))
            .filter_map(|line| line.split_ascii_whitespace().next()?.split_once('-'));
        let hex = |text: &str| u64::from_str_radix(text, 16);
        let (base, mut end) = ranges.next().context("the driver's code is not mapped")?;
        for (_, next) in ranges {
            end = next;
        }
        Ok(CodePlace {
            base: hex(base)?,
            end: hex(end)?,
        })
    }

    /// The address in the file of one in the process; `None` for those of libraries.
    pub(crate) fn in_file(&self, address: u64) -> Option<u64> {
        (self.base..self.end)
            .contains(&address)
            .then(|| address - self.base)
    }
}

struct Watch {
    places: Places,
    caches: Caches<Option<Spot>>,
    tallies: [Tally; 2],
    side: Option<Side>,
    /// Whether the rounds before are over.
    counts: bool,
    rounds_before: u64,
    /// Whoever called the allocator or the latest function of ours.
    caller: u64,
}

impl Watch {
    fn run(&mut self, tracee: &mut Tracee) -> anyhow::Result<()> {
        // Inside one of the two functions that only tell: where they return to.
        let mut telling_until = None;
        let mut latest = 0;
        loop {
            let registers = tracee.registers()?;
            let address = registers.rip;
            if telling_until == Some(address) {
                telling_until = None;
            }
            if telling_until.is_none() {
                if address == tracee.mark {
                    let number = registers.rdi as u32;
                    let mark = Mark::from_number(number)
                        .with_context(|| format!("there is no mark {number}"))?;
                    if mark == Mark::End {
                        return Ok(());
                    }
                    self.turn_to(mark);
                    telling_until = Some(tracee.word(registers.rsp)?);
                } else if address == tracee.allocated {
                    telling_until = Some(tracee.word(registers.rsp)?);
                    self.note_allocation(self.caller);
                } else if let Some(side) = self.side {
                    self.account(side, tracee, &registers, latest)?;
                }
            }
            latest = address;
            tracee.step()?;
        }
    }

    fn turn_to(&mut self, mark: Mark) {
        match mark {
            Mark::Client => self.side = Some(Side::Client),
            Mark::Server => self.side = Some(Side::Server),
            Mark::Nobody | Mark::End => self.side = None,
            Mark::Round => {
                self.side = None;
                for tally in &mut self.tallies {
                    tally.touched.clear();
                }
                self.rounds_before = self.rounds_before.saturating_sub(1);
                self.counts = self.rounds_before == 0;
            }
        }
    }

    fn note_allocation(&mut self, address: u64) {
        if let (true, Some(side)) = (self.counts, self.side) {
            self.tallies[side as usize].note(Metric::Allocations, Spot::at(address));
        }
    }

    fn account(
        &mut self,
        side: Side,
        tracee: &mut Tracee,
        registers: &Registers,
        latest: u64,
    ) -> anyhow::Result<()> {
        let address = registers.rip;
        let pid = tracee.id();
        let decoded = tracee.instruction(address)?;
        let tally = &mut self.tallies[side as usize];
        let again = decoded.repeats && latest == address;
        if self.counts && !again {
            for (metric, happens) in [
                (Metric::Instructions, true),
                (Metric::Locked, decoded.locks),
                (Metric::Syscalls, decoded.is_syscall),
            ] {
                if happens {
                    tally.note(metric, Spot::at(address));
                }
            }
        }
        self.caller = address;
        for access in decoded.accesses(registers) {
            if self.places.kind(access.address).is_none() {
                // Mapped meanwhile.
                self.places = Places::of(pid)?;
            }
            let Some(kind) = self.places.kind(access.address) else {
                bail!("an access to nowhere: {:#x}", access.address);
            };
            if *kind == Kind::Stack {
                continue;
            }
            let is_shared = matches!(kind, Kind::Shared(_));
            let spot = Spot {
                address,
                kind: Some(kind.clone()),
            };
            for line in self.places.lines(access.address, access.len) {
                let tally = &mut self.tallies[side as usize];
                if tally.touched.insert(line) && self.counts {
                    tally.note(Metric::Lines, spot.clone());
                }
                if !is_shared {
                    continue;
                }
                let spot = self.counts.then(|| spot.clone());
                if let Some(Some(spot)) = self.caches.access(side, line, access.writes, spot) {
                    tally.note(Metric::Transfers, spot);
                }
            }
        }
        Ok(())
    }
}

impl Spot {
    fn at(address: u64) -> Self {
        let kind = None;
        Spot { address, kind }
    }
}

impl Tally {
    fn note(&mut self, metric: Metric, spot: Spot) {
        *self.spots.entry((metric, spot)).or_default() += 1;
    }

    fn per_operation(self, side: &'static str, operations: f64) -> Counted {
        let counts = Metric::all().iter().map(|&metric| {
            let belongs = |((of, spot), _): &(&(Metric, Spot), &u64)| match metric {
                Metric::SharedLines => {
                    *of == Metric::Lines && matches!(spot.kind, Some(Kind::Shared(_)))
                }
                _ => *of == metric,
            };
            let own = self.spots.iter().filter(belongs);
            let count: u64 = own.map(|(_, count)| count).sum();
            (metric, count as f64 / operations)
        });
        let counts = counts.collect();
        let spots = self.spots.into_iter();
        let spots = spots.map(|((metric, spot), count)| (metric, spot, count as f64 / operations));
        Counted {
            side,
            counts,
            spots: spots.collect(),
        }
    }
}
