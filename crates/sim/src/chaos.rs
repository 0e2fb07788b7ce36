//! What goes wrong by chance.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use rt::Instant;

use crate::chance::stream;
use crate::timeline::Timeline;
use crate::world::{World, WorldError};

/// How often nodes and links fail, and for how long. `None` is never.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// The nodes that it concerns.
    pub nodes: Range<usize>,
    /// Those that they are cut off from.
    pub peers: Range<usize>,
    /// Mean time from one death of a node to the next one; it is started again.
    pub kill: Option<Duration>,
    /// Mean time from one stall to the next one: half of them are a node's, the others one of its cores'.
    pub stall: Option<Duration>,
    /// Mean time from one cut to the next one: of the link to a peer, and one time in four of the links
    /// to all of them.
    pub cut: Option<Duration>,
    /// Each of these lasts so long at most.
    pub longest: Duration,
}

/// How often something went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// Nodes that died.
    pub kills: u64,
    /// Nodes that stood still, with all their cores.
    pub stalls: u64,
    /// Cores that stood still alone.
    pub core_stalls: u64,
    /// Links that were cut alone.
    pub cuts: u64,
    /// Nodes that were cut off from all their peers.
    pub isolations: u64,
}

/// Chance, for each trouble its own: that nodes stand still does not change when they die.
#[derive(Debug)]
pub(crate) struct Chances {
    kill: Rng,
    stall: Rng,
    cut: Rng,
}

impl Chances {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            kill: stream(seed, "kill"),
            stall: stream(seed, "stall"),
            cut: stream(seed, "cut"),
        }
    }
}

fn up_to(random: &mut Rng, longest: Duration) -> Duration {
    Duration::from_nanos(random.u64(0..=longest.as_nanos() as u64))
}

/// What happens next, to the nodes of which [`Chaos`].
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Kill(usize),
    Restart(usize),
    Stall(usize),
    Cut(usize),
    Mend(usize, usize),
}

impl World {
    /// Runs the world for so long while things go wrong. At the end everything is whole again: what was cut
    /// here is mended, nodes that died here are started, all that stand still go on.
    ///
    /// # Errors
    /// If a node's program panics, or the world does not get that far.
    pub fn run_under(&mut self, chaos: &Chaos, duration: Duration) -> Result<Troubles, WorldError> {
        let troubles = self.run_under_until(std::slice::from_ref(chaos), duration, |_| false)?;
        Ok(troubles[0])
    }

    /// The same with troubles of several kinds of nodes, and until something holds. Returns the troubles
    /// of each kind.
    ///
    /// # Errors
    /// If a node's program panics, or the world does not get that far.
    pub fn run_under_until(
        &mut self,
        chaos: &[Chaos],
        within: Duration,
        mut holds: impl FnMut(&World) -> bool,
    ) -> Result<Vec<Troubles>, WorldError> {
        let mut troubles = vec![Troubles::default(); chaos.len()];
        let until = self.now() + within;
        let mut due = Timeline::default();
        for of in 0..chaos.len() {
            for trouble in [Trouble::Kill(of), Trouble::Stall(of), Trouble::Cut(of)] {
                self.plan(&mut due, chaos, trouble);
            }
        }
        loop {
            let at = due.next().map_or(until, |at| at.min(until));
            if self.run_until(at - self.now(), &mut holds)? || at == until {
                break;
            }
            while let Some((_, trouble)) = due.take_by(at) {
                self.happen(chaos, trouble, &mut due, &mut troubles)?;
            }
        }
        while let Some((_, trouble)) = due.take_by(Instant::from_ns(u64::MAX)) {
            match trouble {
                Trouble::Restart(node) => self.restart(node),
                Trouble::Mend(a, b) => self.mend(a, b),
                Trouble::Kill(_) | Trouble::Stall(_) | Trouble::Cut(_) => {}
            }
        }
        (0..self.nodes()).for_each(|node| self.resume(node));
        Ok(troubles)
    }

    /// Plans the next trouble of a kind.
    fn plan(&mut self, due: &mut Timeline<Trouble>, chaos: &[Chaos], trouble: Trouble) {
        let (random, mean) = match trouble {
            Trouble::Kill(of) => (&mut self.chances.kill, chaos[of].kill),
            Trouble::Stall(of) => (&mut self.chances.stall, chaos[of].stall),
            Trouble::Cut(of) => (&mut self.chances.cut, chaos[of].cut),
            Trouble::Restart(_) | Trouble::Mend(..) => return,
        };
        if let Some(mean) = mean {
            let wait = up_to(random, 2 * mean);
            due.add(self.now() + wait, trouble);
        }
    }

    fn happen(
        &mut self,
        chaos: &[Chaos],
        trouble: Trouble,
        due: &mut Timeline<Trouble>,
        troubles: &mut [Troubles],
    ) -> Result<(), WorldError> {
        let now = self.now();
        match trouble {
            Trouble::Kill(of) => {
                let random = &mut self.chances.kill;
                let node = random.usize(chaos[of].nodes.clone());
                let length = up_to(random, chaos[of].longest);
                if self.is_on(node) {
                    self.kill(node)?;
                    troubles[of].kills += 1;
                    due.add(now + length, Trouble::Restart(node));
                }
            }
            Trouble::Restart(node) => self.restart(node),
            Trouble::Stall(of) => {
                let (chaos, troubles) = (&chaos[of], &mut troubles[of]);
                let random = &mut self.chances.stall;
                let node = random.usize(chaos.nodes.clone());
                let length = up_to(random, chaos.longest);
                let only = random.bool().then(|| random.usize(..));
                if self.is_on(node) {
                    match only {
                        Some(core) => self.stall_core(node, core % self.cores(node), length),
                        None => self.stall(node, length),
                    }
                    troubles.stalls += u64::from(only.is_none());
                    troubles.core_stalls += u64::from(only.is_some());
                }
            }
            Trouble::Cut(of) => {
                let (chaos, troubles) = (&chaos[of], &mut troubles[of]);
                let random = &mut self.chances.cut;
                let node = random.usize(chaos.nodes.clone());
                let length = up_to(random, chaos.longest);
                // A node always reaches itself.
                let mut peers: Vec<usize> = chaos.peers.clone().filter(|it| *it != node).collect();
                let (all, only) = (random.u8(..4) == 0, random.usize(..));
                if all && !peers.is_empty() {
                    troubles.isolations += 1;
                } else if !peers.is_empty() {
                    troubles.cuts += 1;
                    peers = vec![peers[only % peers.len()]];
                }
                for peer in peers {
                    self.cut(node, peer);
                    due.add(now + length, Trouble::Mend(node, peer));
                }
            }
            Trouble::Mend(a, b) => self.mend(a, b),
        }
        self.plan(due, chaos, trouble);
        Ok(())
    }
}
