//! What lies between the reference NICs: nothing, or a network in virtual time.
//!
//! Time passes only when [`Network::advance`] says so, or by a step at each look at a completion
//! queue or a region if [`NetworkOptions::ns_per_look`] does. One seed decides everything.
//!
//! | transport | what the network may do |
//! | --- | --- |
//! | RC | delay: in order, each message once |
//! | UC | also lose a message, or its end: the first bytes of a WRITE land, the others do not |
//! | UD | lose, double, reorder and delay |
//!
//! Between two nodes that are [cut](Network::cut) off from each other nothing lands: what is unreliable is
//! lost, a WRITE from where it had got to; what is reliable is tried again after its time-out, as often
//! as its queue pair says.
//!
//! A WRITE lands in steps: a cache line each, and the last aligned word on its own. Whoever looks in
//! between sees the first lines of the new bytes and the last ones of the old.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arrive::{Body, Message};
use super::world::{Place, World};
use verbs::attr::{Mtu, PortAttr, Transport};
use verbs::error::VerbsError;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// How a network is made.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// The most that the NICs inline, in bytes.
    pub inline_max: u32,
    /// Bytes of a packet, and so of a datagram.
    pub mtu: Mtu,
    /// Time that passes at each look at a completion queue or a region: for users who know of no
    /// network, like the suite. 0 where time is driven by [`Network::advance`].
    pub ns_per_look: u64,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        NetworkOptions {
            seed: 0,
            inline_max: super::nic::INLINE_MAX,
            mtu: Mtu::B4096,
            ns_per_look: 0,
        }
    }
}

/// What the network does to messages. The default is nothing: all of them arrive at once.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A NIC looks at what was posted up to so much later, and reads the payload then.
    pub post_ns_max: u64,
    /// A message is under way for at least so long.
    pub delay_ns_min: u64,
    /// And at most so long, if it is not slow.
    pub delay_ns_max: u64,
    /// So many of a thousand messages are slow.
    pub slow_permille: u16,
    /// A slow one takes up to so much longer.
    pub slow_ns_max: u64,
    /// Lines of a WRITE land up to so long apart.
    pub line_ns_max: u64,
    /// So many of a thousand messages over UC and UD are lost.
    pub lose_permille: u16,
    /// So many of a thousand WRITEs over UC lose their end.
    pub cut_permille: u16,
    /// No datagram arrives; WRITEs do.
    pub lose_datagrams: bool,
    /// So many of a thousand datagrams arrive twice.
    pub double_permille: u16,
    /// Datagrams may overtake one another.
    pub reorder: bool,
    /// A promise that the network breaks, to see that somebody notices.
    pub broken: Option<Broken>,
}

/// A promise that no network may break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A WRITE over UC arrives twice, the second time later.
    Doubled,
    /// WRITEs over UC overtake one another.
    Reordered,
    /// The last line of a WRITE lands first.
    LastLineFirst,
    /// Some bytes of a datagram change.
    Changed,
}

/// What the network has done, in messages. One that is to arrive twice counts as lost or cut with its
/// first copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkStats {
    /// Sent over UC and UD.
    pub sent: u64,
    /// Lost.
    pub lost: u64,
    /// WRITEs whose beginning alone has landed.
    pub cut: u64,
    /// Datagrams that arrive twice.
    pub doubled: u64,
    /// Slow ones.
    pub slow: u64,
}

/// A handle on the network between some [`ModelNic`](super::ModelNic)s; clones are the same one.
#[derive(Clone)]
pub struct Network {
    world: Arc<Mutex<World>>,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Network({:?})", self.stats())
    }
}

impl Network {
    pub(super) fn new(world: Arc<Mutex<World>>) -> Network {
        Network { world }
    }

    /// Lets time pass until `now_ns`, and everything happen that was due by then.
    pub fn advance(&self, now_ns: u64) {
        self.lock().advance(now_ns);
    }

    /// When something happens next, if anything does.
    pub fn next_ns(&self) -> Option<u64> {
        self.lock().air.as_ref()?.next_ns()
    }

    /// From now on messages suffer this.
    pub fn set_faults(&self, faults: Faults) {
        if let Some(air) = &mut self.lock().air {
            air.faults = faults;
        }
    }

    /// A node's NIC stands still until then, or until it is paused anew: it takes what arrives, and comes
    /// to no further request. One that it was about to come to still goes, and over RC so does what has
    /// to be tried again.
    pub fn pause(&self, node: usize, until_ns: u64) {
        if let Some(air) = &mut self.lock().air {
            air.paused_until_ns.insert(node, until_ns);
        }
    }

    /// Nothing passes between two nodes until [`Network::mend`], once for each cut.
    pub fn cut(&self, a: usize, b: usize) {
        if let Some(air) = &mut self.lock().air {
            *air.cuts.entry(pair(a, b)).or_default() += 1;
        }
    }

    /// Mends what [`Network::cut`] has cut.
    ///
    /// # Panics
    /// If the nodes are not cut off from each other.
    pub fn mend(&self, a: usize, b: usize) {
        if let Some(air) = &mut self.lock().air {
            let cuts = air.cuts.get_mut(&pair(a, b)).expect("they were cut off");
            *cuts -= 1;
            if *cuts == 0 {
                air.cuts.remove(&pair(a, b));
            }
        }
    }

    /// Whether something passes between two nodes.
    pub fn reaches(&self, a: usize, b: usize) -> bool {
        self.lock().reaches(a, b)
    }

    /// What the network has done.
    pub fn stats(&self) -> NetworkStats {
        self.lock()
            .air
            .as_ref()
            .map_or_else(NetworkStats::default, |air| air.stats)
    }

    /// From now on a line is kept of whatever happens to messages.
    pub fn trace(&self) {
        if let Some(air) = &mut self.lock().air {
            air.trace = Some(Vec::new());
        }
    }

    /// Takes the lines kept so far: when it happened, and what.
    pub fn take_trace(&self) -> Vec<(u64, String)> {
        let mut world = self.lock();
        let lines = world.air.as_mut().and_then(|air| air.trace.as_mut());
        lines.map(std::mem::take).unwrap_or_default()
    }

    /// How many objects there are on a node: what its users have not given back.
    pub fn objects(&self, node: usize) -> usize {
        self.lock().nodes[node].objects()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

/// Something that is due.
#[derive(Debug)]
enum Event {
    /// A NIC comes to the next request of a queue pair.
    Turn(Place),
    /// The next step of a message lands.
    Land(Flying),
}

/// A message on its way.
#[derive(Debug)]
struct Flying {
    message: Message,
    /// Where its steps end, the next one last.
    steps: Vec<usize>,
    gap_ns: u64,
    /// The message arrives twice, and this is the second time.
    is_copy: bool,
}

/// The network's state.
#[derive(Debug)]
pub(super) struct Air {
    pub(super) options: NetworkOptions,
    faults: Faults,
    random: fastrand::Rng,
    now_ns: u64,
    /// By when they are due, then in the order in which they were made.
    events: BTreeMap<(u64, u64), Event>,
    event_next: u64,
    /// When the last message of a queue pair will have landed: the next one comes behind it.
    busy_until_ns: BTreeMap<Place, u64>,
    /// NICs that stand still, by their nodes.
    paused_until_ns: BTreeMap<usize, u64>,
    /// How often pairs of nodes are cut off from each other, the smaller first.
    cuts: BTreeMap<(usize, usize), usize>,
    stats: NetworkStats,
    trace: Option<Vec<(u64, String)>>,
}

impl Air {
    pub(super) fn new(options: NetworkOptions) -> Air {
        Air {
            random: fastrand::Rng::with_seed(options.seed),
            options,
            faults: Faults::default(),
            now_ns: 0,
            events: BTreeMap::new(),
            event_next: 0,
            busy_until_ns: BTreeMap::new(),
            paused_until_ns: BTreeMap::new(),
            cuts: BTreeMap::new(),
            stats: NetworkStats::default(),
            trace: None,
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn next_ns(&self) -> Option<u64> {
        self.events
            .first_key_value()
            .map(|((due_ns, _), _)| *due_ns)
    }

    fn at(&mut self, due_ns: u64, event: Event) {
        self.events
            .insert((due_ns.max(self.now_ns), self.event_next), event);
        self.event_next += 1;
    }

    fn happens(&mut self, permille: u16) -> bool {
        permille > 0 && self.random.u16(..1000) < permille
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.trace {
            lines.push((self.now_ns, what()));
        }
    }

    fn delay_ns(&mut self) -> u64 {
        let (min, max) = (self.faults.delay_ns_min, self.faults.delay_ns_max);
        let mut delay_ns = self.random.u64(min..=max.max(min));
        if self.happens(self.faults.slow_permille) {
            self.stats.slow += 1;
            delay_ns += self.random.u64(0..=self.faults.slow_ns_max);
        }
        delay_ns
    }

    /// When the NIC comes to the next request of a queue pair; `None` for at once. A reliable
    /// request is carried out as a whole when it has got to its peer.
    pub(super) fn turn_at(&mut self, place: Place, transport: Transport) -> Option<u64> {
        let mut wait_ns = self.random.u64(0..=self.faults.post_ns_max);
        if transport == Transport::Rc {
            wait_ns += self.delay_ns();
        }
        if let Some(until_ns) = self.paused_until_ns.get(&place.0) {
            wait_ns = wait_ns.max(until_ns.saturating_sub(self.now_ns));
        }
        if wait_ns == 0 {
            return None;
        }
        let due_ns = self.now_ns + wait_ns;
        self.at(due_ns, Event::Turn(place));
        Some(due_ns)
    }

    /// A turn for a request that found its peer not ready, or had no answer in this time.
    pub(super) fn turn_again_at(&mut self, place: Place, wait_ns: u64) -> u64 {
        let due_ns = self.now_ns + wait_ns + self.delay_ns();
        self.at(due_ns, Event::Turn(place));
        due_ns
    }

    /// Sends a message over UC or UD.
    pub(super) fn send(&mut self, mut message: Message) {
        self.stats.sent += 1;
        let place = message.place;
        let is_datagram = matches!(message.body, Body::Datagram { .. });
        let is_write = matches!(message.body, Body::Write { .. });
        let is_kept_out = is_datagram && self.faults.lose_datagrams;
        if is_kept_out || self.happens(self.faults.lose_permille) {
            self.stats.lost += 1;
            self.note(|| format!("{message} is lost"));
            return;
        }
        let broken = self.faults.broken;
        let mut steps = steps(&message);
        if is_write && steps.len() > 1 && self.happens(self.faults.cut_permille) {
            let kept = self.random.usize(1..steps.len());
            steps.truncate(kept);
            message.is_cut = true;
        }
        if broken == Some(Broken::Changed)
            && is_datagram
            && message.bytes.len() > 24
            && self.happens(20)
        {
            let at = self.random.usize(24..message.bytes.len());
            message.bytes[at] ^= 0x40;
        }
        let gap_ns = self.random.u64(0..=self.faults.line_ns_max);
        if gap_ns == 0 {
            // All at once: the next message of the queue pair, due at the same time, comes behind it.
            steps.drain(..steps.len() - 1);
        }
        let mut starts_ns = self.now_ns + self.delay_ns();
        let in_order = if is_datagram {
            !self.faults.reorder
        } else {
            broken != Some(Broken::Reordered)
        };
        if in_order {
            let before_ns = self.busy_until_ns.get(&place).copied().unwrap_or(0);
            starts_ns = starts_ns.max(before_ns);
            self.busy_until_ns
                .insert(place, starts_ns + gap_ns * steps.len() as u64);
        }
        self.note(|| {
            let cut = if message.is_cut { ", its end lost" } else { "" };
            format!("{message} arrives at {starts_ns}{cut}")
        });
        let doubled = is_datagram && self.happens(self.faults.double_permille)
            || is_write && broken == Some(Broken::Doubled) && self.happens(100);
        if doubled {
            self.stats.doubled += 1;
            let again_ns = starts_ns + self.delay_ns() * if is_write { 4 } else { 1 };
            self.note(|| format!("{message} arrives again at {again_ns}"));
            let flying = Flying {
                message: message.clone(),
                steps: steps.iter().rev().copied().collect(),
                gap_ns,
                is_copy: true,
            };
            self.at(again_ns, Event::Land(flying));
        }
        steps.reverse();
        let flying = Flying {
            message,
            steps,
            gap_ns,
            is_copy: false,
        };
        self.at(starts_ns, Event::Land(flying));
    }
}

/// Where the steps of a message end: those of a WRITE at each cache line, and before its last
/// aligned word.
fn steps(message: &Message) -> Vec<usize> {
    let len = message.bytes.len();
    let Body::Write { remote, .. } = message.body else {
        return vec![len];
    };
    let end = remote.addr.wrapping_add(len as u64);
    let tail = (1 << end.trailing_zeros().min(3)).min(len);
    let mut steps = Vec::new();
    let mut at = (LINE - remote.addr % LINE) as usize;
    while at < len {
        steps.push(at);
        at += LINE as usize;
    }
    let tail_at = len - tail;
    if tail_at > steps.last().copied().unwrap_or(0) {
        steps.push(tail_at);
    }
    steps.push(len);
    steps
}

impl World {
    /// Whether something passes between two nodes.
    pub(super) fn reaches(&self, a: usize, b: usize) -> bool {
        let air = self.air.as_ref();
        a == b || air.is_none_or(|air| !air.cuts.contains_key(&pair(a, b)))
    }

    /// Bytes of a packet.
    pub(super) fn mtu(&self) -> Mtu {
        self.air.as_ref().map_or(Mtu::B4096, |air| air.options.mtu)
    }

    /// A node's port: there is one.
    pub(super) fn port(&self, node: usize, port: u8) -> Result<PortAttr, VerbsError> {
        if port != 1 {
            let (what, number) = ("port", u64::from(port));
            return Err(VerbsError::NoSuch { what, number });
        }
        Ok(PortAttr::active(self.nodes[node].gid, self.mtu()))
    }

    /// Lets a step of time pass, where looking does.
    pub(super) fn look(&mut self) {
        if let Some(air) = &self.air
            && air.options.ns_per_look > 0
        {
            self.advance(air.now_ns + air.options.ns_per_look);
        }
    }

    fn advance(&mut self, now_ns: u64) {
        loop {
            let Some(air) = &mut self.air else { return };
            let Some(entry) = air
                .events
                .first_entry()
                .filter(|entry| entry.key().0 <= now_ns)
            else {
                air.now_ns = air.now_ns.max(now_ns);
                return;
            };
            let ((due_ns, _), event) = entry.remove_entry();
            air.now_ns = due_ns;
            match event {
                Event::Turn(place) => {
                    self.pump_one(place);
                }
                Event::Land(flying) => self.land_step(flying),
            }
        }
    }

    fn land_step(&mut self, mut flying: Flying) {
        let message = &flying.message;
        let Some(until) = flying.steps.pop() else {
            return;
        };
        let reaches = self.reaches(message.place.0, message.to.0);
        let Some(air) = &mut self.air else { return };
        if !reaches {
            air.stats.lost += u64::from(message.landed == 0 && !flying.is_copy);
            air.stats.cut += u64::from(message.landed > 0 && !flying.is_copy);
            air.note(|| format!("{message} is lost at a cut link"));
            return;
        }
        let last_first = air.faults.broken == Some(Broken::LastLineFirst);
        if last_first
            && let Body::Write { .. } = message.body
            && message.landed == 0
            && !message.is_cut
        {
            let len = message.bytes.len();
            let tail = len.min(16);
            self.place_bytes(&flying.message, len - tail..len);
        }
        if !self.land(&mut flying.message, until) {
            let Some(air) = &mut self.air else { return };
            air.note(|| format!("{} is not taken", flying.message));
            return;
        }
        let Some(air) = &mut self.air else { return };
        if flying.steps.is_empty() {
            air.stats.cut += u64::from(flying.message.is_cut && !flying.is_copy);
        } else {
            let due_ns = air.now_ns + flying.gap_ns;
            air.at(due_ns, Event::Land(flying));
        }
    }
}
