//! What a seed stands for: links between tasks, and rounds in which they exchange requests.
//!
//! Everything is drawn before anything runs, a round from the seed and its own number: the first
//! rounds of a program are the same however many follow.

use verbs::attr::Transport;
use verbs::wr::GRH_LEN;

/// Bytes of the region that an end's peer writes, reads and counts in.
pub(super) const TARGET_LEN: usize = 64 << 10;
/// Bytes of an end's other region that requests gather from. Nobody writes them.
pub(super) const OUT_LEN: usize = 640 << 10;
/// Where what was read from the peer arrives.
pub(super) const RESULT: usize = OUT_LEN;
pub(super) const RESULT_LEN: usize = 1 << 20;
/// Where RECVs lead.
pub(super) const RECV: usize = RESULT + RESULT_LEN;
pub(super) const RECV_LEN: usize = 4 << 20;
pub(super) const REGION_LEN: usize = RECV + RECV_LEN;

/// Bytes of a datagram at most.
const PACKET: usize = 4096;
/// Bytes of a RECV of a shared queue, and of what is lent at most, with room for a header.
pub(super) const ROOM: usize = 20 << 10;
const ROOM_WITHOUT_HEADER: usize = ROOM - GRH_LEN;
/// Bytes of the messages of one direction in a round at most.
const BYTES_MAX: usize = 900 << 10;
/// What one node may send another that has RECVs for it and does not look: nothing of it is lost.
const UNREAD_MAX: usize = 64 << 20;
/// Links of a program at most.
const LINKS_MAX: usize = 4;
// So a message of an unreliable link that is lost is a failure.
const _: () = assert!(2 * LINKS_MAX * BYTES_MAX <= UNREAD_MAX);

/// Completion queues of a task, all on one channel.
pub(super) const QUEUES: usize = 2;

/// A whole program.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) links: Vec<LinkPlan>,
    /// How many tasks each node has.
    pub(super) tasks: Vec<usize>,
    /// Depth of the shared receive queue of each node.
    pub(super) srq_depth: usize,
    pub(super) inline_max: usize,
    pub(super) rounds: Vec<Round>,
}

/// Two queue pairs that are connected, or send each other datagrams.
#[derive(Clone, Debug)]
pub(super) struct LinkPlan {
    pub(super) transport: Transport,
    pub(super) ends: [EndPlan; 2],
    /// 7 waits for ever.
    pub(super) rnr_retry: u8,
}

/// One queue pair.
#[derive(Clone, Debug)]
pub(super) struct EndPlan {
    /// Its node, and the task there that owns it.
    pub(super) task: (usize, usize),
    pub(super) send_depth: usize,
    pub(super) recv_depth: usize,
    pub(super) signal_all: bool,
    pub(super) recvs: Recvs,
    /// On which of its task's queues its requests complete, and on which its RECVs do.
    pub(super) queues: (usize, usize),
    /// Its memory is the process's own and not the NIC's.
    pub(super) private: bool,
}

/// Where an end's RECVs come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recvs {
    Own,
    /// The node's shared queue.
    Shared,
    /// The NIC, which lends the messages to the poller.
    Lent,
}

/// One link's end, or one's peer.
pub(super) type EndId = (usize, usize);

/// What happens between two barriers.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) links: Vec<Exchange>,
    pub(super) farewell: Option<Farewell>,
    /// Messages that each node's shared queue has RECVs for in all.
    pub(super) shared: [usize; 3],
    /// Shared queues that are filled before anybody sends.
    pub(super) fills: [bool; 3],
    /// What the tasks do, by node and task.
    pub(super) steps: Vec<Vec<Vec<Step>>>,
}

/// The requests that a link's ends post, and the room of the RECVs that they post.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    pub(super) sends: [Vec<Request>; 2],
    pub(super) rooms: [Vec<usize>; 2],
    /// RECVs are there before anybody sends.
    pub(super) recvs_first: bool,
}

/// How a link ends. Afterwards it is connected anew, unless its node has died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Farewell {
    pub(super) leaver: EndId,
    pub(super) how: Leave,
    /// Its peer looks at nothing until the leaver has left.
    pub(super) unseen: bool,
    /// Its peer's queue pair is destroyed at once when the leaver's node has died, and not before it
    /// has failed.
    pub(super) abandoned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    /// It goes to ERR in the middle of everything.
    Error,
    /// It is destroyed once its requests have completed.
    Destroy,
    /// Its node dies once its requests have completed.
    Die,
    /// It names memory that is not there.
    BadKey,
    /// It sends more than the RECV has room for.
    TooLong,
    /// It sends one message more than there are RECVs, and does not wait for ever.
    Starve,
    /// It goes to RESET in the middle of everything, and what it has posted is gone.
    Reset,
    /// It deregisters what its peer writes to, in the middle of everything.
    Forget,
}

/// What a task does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Send {
        end: EndId,
        count: usize,
    },
    Recv {
        end: EndId,
        count: usize,
    },
    SharedRecv {
        count: usize,
    },
    /// The queue pair stops sending.
    Stop {
        end: EndId,
    },
    /// And goes on.
    Go {
        end: EndId,
    },
    Leave,
    /// Objects are made, used and let go.
    Aside(Aside),
    Poll,
    Pause,
}

/// What a task does beside its links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aside {
    /// A queue pair talks to itself.
    Talk(Transport),
    /// More completes than a queue holds.
    Overrun(Transport),
    /// Many queue pairs send to one, more than a poll need look at.
    Crowd,
    /// Queue pairs share RECVs, one goes, and so do the RECVs, again and again.
    Share(Transport),
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// Pieces of the own region: of `OUT` for what is sent, of `RESULT` for what is fetched.
    pub(super) pieces: Vec<(usize, usize)>,
    pub(super) inline: bool,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    pub(super) solicited: bool,
    pub(super) imm: Option<u32>,
    /// Offset in the peer's target.
    pub(super) at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
    /// Whether what is expected is there.
    CompareSwap {
        hits: bool,
        swap: u64,
    },
    FetchAdd {
        add: u64,
    },
}

impl Request {
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    /// Whether it takes a RECV.
    pub(super) fn consumes(&self) -> bool {
        self.kind == Kind::Send || self.imm.is_some()
    }

    pub(super) fn fetches(&self) -> bool {
        !matches!(self.kind, Kind::Send | Kind::Write)
    }
}

/// What the fixture can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    pub(super) can_die: bool,
    /// A message may be under way long after its sender has left.
    pub(super) delays: bool,
    pub(super) private: bool,
    pub(super) inline_max: usize,
}

impl Plan {
    pub(super) fn draw(seed: u64, rounds: usize, can: Abilities) -> Plan {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tasks = vec![rng.usize(1..=2), rng.usize(1..=2), 1];
        let mut links: Vec<LinkPlan> = (0..rng.usize(1..LINKS_MAX))
            .map(|_| LinkPlan::draw(&mut rng, &tasks, can))
            .collect();
        if can.can_die && rng.u8(0..3) == 0 {
            let mut link = LinkPlan::draw(&mut rng, &tasks, can);
            link.transport = Transport::Rc;
            link.ends[0].task.0 = 2;
            link.ends[0].task.1 = 0;
            link.ends[1].task = (0, rng.usize(0..tasks[0]));
            for end in link
                .ends
                .iter_mut()
                .filter(|end| end.recvs == Recvs::Shared)
            {
                end.recvs = Recvs::Own;
            }
            links.push(link);
        }
        let srq_depth = choose(&mut rng, &[3, 16, 64]);
        let mut plan = Plan {
            links,
            tasks,
            srq_depth,
            inline_max: can.inline_max,
            rounds: Vec::new(),
        };
        for number in 0..rounds {
            let seed = seed.wrapping_mul(1_000_003) ^ number as u64;
            let round = plan.draw_round(&mut fastrand::Rng::with_seed(seed), can);
            plan.rounds.push(round);
        }
        plan
    }

    /// Whether a link was on a node that has died in a round before.
    pub(super) fn is_dead(&self, link: usize, before: usize) -> bool {
        let died = |round: &Round| {
            round
                .farewell
                .is_some_and(|it| it.how == Leave::Die && it.leaver.0 == link)
        };
        self.rounds[..before].iter().any(died)
    }

    fn shared_ends(&self, node: usize) -> impl Iterator<Item = &LinkPlan> {
        let on = move |end: &&EndPlan| end.task.0 == node && end.recvs == Recvs::Shared;
        let links = self.links.iter();
        links.flat_map(move |link| link.ends.iter().filter(on).map(move |_| link))
    }

    /// Whether a node's shared queue has its RECVs before anybody sends: messages of unreliable links
    /// come there as well.
    pub(super) fn is_shared_first(&self, node: usize) -> bool {
        self.shared_ends(node)
            .any(|link| link.transport != Transport::Rc)
    }

    /// How many messages may come to an end in a round.
    fn consuming_max(&self, end: &EndPlan, farewell: bool, recvs_first: bool) -> usize {
        let node = end.task.0;
        match end.recvs {
            // Each may take its share.
            Recvs::Shared if self.is_shared_first(node) => {
                self.srq_depth / self.shared_ends(node).count()
            }
            Recvs::Shared => 64,
            // One more may come with the farewell.
            _ if farewell => end.recv_depth - 1,
            _ if recvs_first => end.recv_depth,
            _ => 64,
        }
    }

    fn draw_round(&self, rng: &mut fastrand::Rng, can: Abilities) -> Round {
        let number = self.rounds.len();
        let alive: Vec<usize> = (0..self.links.len())
            .filter(|link| !self.is_dead(*link, number))
            .collect();
        let farewell = self.draw_farewell(rng, &alive, can);
        let mut links = vec![Exchange::default(); self.links.len()];
        for link in alive {
            let own = farewell.filter(|it| it.leaver.0 == link);
            links[link] = self.draw_exchange(rng, link, own, can);
        }
        let mut shared = [0; 3];
        for (plan, exchange) in self.links.iter().zip(&links) {
            for (end, rooms) in plan.ends.iter().zip(&exchange.rooms) {
                let shares = end.recvs == Recvs::Shared;
                shared[end.task.0] += if shares { rooms.len() } else { 0 };
            }
        }
        let steps = self.draw_steps(rng, &links, farewell, shared);
        Round {
            links,
            farewell,
            shared,
            fills: std::array::from_fn(|_| rng.u8(0..4) == 0),
            steps,
        }
    }

    fn draw_farewell(
        &self,
        rng: &mut fastrand::Rng,
        alive: &[usize],
        can: Abilities,
    ) -> Option<Farewell> {
        let may = |link: &&usize| self.links[**link].transport == Transport::Rc || !can.delays;
        let candidates: Vec<usize> = alive.iter().filter(may).copied().collect();
        if candidates.is_empty() || rng.bool() {
            return None;
        }
        let link = candidates[rng.usize(..candidates.len())];
        let (plan, side) = (&self.links[link], rng.usize(0..2));
        let (own, peer) = (&plan.ends[side], &plan.ends[1 - side]);
        let reliable = plan.transport == Transport::Rc;
        let mortal = plan.ends[0].task.0 == 2;
        let ways = [
            (Leave::Error, 2, true),
            (Leave::BadKey, 1, reliable),
            (Leave::TooLong, 1, reliable && peer.recvs == Recvs::Own),
            (
                Leave::Starve,
                1,
                reliable && peer.recvs == Recvs::Own && plan.rnr_retry < 7,
            ),
            (Leave::Die, 2, mortal),
            // What of a shared queue has completed at a queue pair that goes is not told.
            (Leave::Destroy, 2, !mortal && own.recvs != Recvs::Shared),
            (Leave::Reset, 1, own.recvs == Recvs::Own),
            (Leave::Forget, 1, plan.transport != Transport::Ud),
        ];
        let ways = ways.iter().filter(|(_, _, can)| *can);
        let ways: Vec<Leave> = ways
            .flat_map(|(how, often, _)| std::iter::repeat_n(*how, *often))
            .collect();
        let how = ways[rng.usize(..ways.len())];
        let tasks = [0, 1].map(|side| plan.ends[side].task);
        // A task that looks at nothing cannot be the leaver's, which waits for its requests; and it
        // posts no RECVs to a shared queue that they may wait for.
        let may_look_away = tasks[0] != tasks[1] && (!reliable || peer.recvs != Recvs::Shared);
        Some(Farewell {
            leaver: (link, if how == Leave::Die { 0 } else { side }),
            how,
            unseen: may_look_away && rng.bool(),
            // What of a shared queue has completed at a queue pair that goes is not told.
            abandoned: how == Leave::Die && plan.ends[1].recvs != Recvs::Shared && rng.bool(),
        })
    }

    fn draw_exchange(
        &self,
        rng: &mut fastrand::Rng,
        link: usize,
        farewell: Option<Farewell>,
        can: Abilities,
    ) -> Exchange {
        let plan = &self.links[link];
        let reliable = plan.transport == Transport::Rc;
        let recvs_first = !reliable || plan.rnr_retry < 7 || farewell.is_some();
        let mut exchange = Exchange {
            recvs_first,
            ..Exchange::default()
        };
        for side in 0..2 {
            let (own, peer) = (&plan.ends[side], &plan.ends[1 - side]);
            let mut direction = Direction {
                transport: plan.transport,
                signal_all: own.signal_all,
                send_depth: own.send_depth,
                consuming_max: self.consuming_max(peer, farewell.is_some(), recvs_first),
                bytes_max: match (reliable, farewell) {
                    // What nobody looks at has to fit in between.
                    (true, Some(_)) => 32 << 10,
                    _ => BYTES_MAX,
                },
                len_max: match (plan.transport, peer.recvs) {
                    (Transport::Ud, _) => PACKET,
                    (_, Recvs::Own) => OUT_LEN,
                    _ => ROOM_WITHOUT_HEADER,
                },
                atomics: reliable && !peer.private,
                can,
                fetched: false,
                results: 0,
            };
            exchange.sends[side] = direction.draw(rng);
            let header = match plan.transport {
                Transport::Ud => GRH_LEN,
                _ => 0,
            };
            let rooms = exchange.sends[side].iter().filter(|one| one.consumes());
            let rooms = rooms.map(|one| header + one.len() + rng.usize(0..2) * 40);
            if peer.recvs != Recvs::Lent {
                exchange.rooms[1 - side] = rooms.collect();
            }
        }
        if let Some(farewell) = farewell {
            let side = farewell.leaver.1;
            let last = Request {
                kind: Kind::Send,
                pieces: vec![(0, 100)],
                inline: false,
                signaled: true,
                fence: false,
                solicited: false,
                imm: None,
                at: 0,
            };
            let last = match farewell.how {
                Leave::BadKey => Some(Request {
                    kind: Kind::Write,
                    at: usize::MAX,
                    ..last
                }),
                Leave::TooLong => {
                    exchange.rooms[1 - side].push(99);
                    Some(last)
                }
                Leave::Starve => Some(last),
                _ => None,
            };
            exchange.sends[side].extend(last);
            if farewell.how != Leave::Starve {
                let own = |end: &&EndPlan| end.recvs == Recvs::Own;
                let ends = exchange.rooms.iter_mut().zip(&plan.ends);
                for (rooms, end) in ends.filter(|(_, end)| own(end)) {
                    let spare = end.recv_depth.saturating_sub(rooms.len()).min(3);
                    rooms.extend((0..rng.usize(0..=spare)).map(|_| 64));
                }
            }
        }
        exchange
    }

    /// What each task does, in which order.
    fn draw_steps(
        &self,
        rng: &mut fastrand::Rng,
        links: &[Exchange],
        farewell: Option<Farewell>,
        shared: [usize; 3],
    ) -> Vec<Vec<Vec<Step>>> {
        let mut steps: Vec<Vec<Vec<Step>>> =
            self.tasks.iter().map(|n| vec![Vec::new(); *n]).collect();
        for (link, exchange) in links.iter().enumerate() {
            for side in 0..2 {
                let plan = &self.links[link].ends[side];
                let (end, (node, task)) = ((link, side), plan.task);
                let mut own = Vec::new();
                let mut left = exchange.sends[side].len();
                while left > 0 {
                    let count = rng.usize(1..=left.min(12));
                    own.push(Step::Send { end, count });
                    left -= count;
                }
                let leaves = farewell.is_some_and(|it| it.leaver == end);
                if leaves {
                    let at_once = [Leave::Error, Leave::Reset, Leave::Forget];
                    let at = match farewell.filter(|it| at_once.contains(&it.how)) {
                        Some(_) => rng.usize(0..=own.len()),
                        None => own.len(),
                    };
                    own.insert(at, Step::Leave);
                } else if own.len() > 1 && rng.u8(0..5) == 0 && farewell.is_none() {
                    let at = rng.usize(0..own.len());
                    own.insert(at, Step::Stop { end });
                    let at = rng.usize(at + 1..=own.len());
                    own.insert(at, Step::Go { end });
                }
                merge(rng, &mut steps[node][task], own);
                if plan.recvs == Recvs::Own && !exchange.recvs_first {
                    let mut left = exchange.rooms[side].len();
                    let mut own = Vec::new();
                    while left > 0 {
                        let count = rng.usize(1..=left.min(12));
                        own.push(Step::Recv { end, count });
                        left -= count;
                    }
                    merge(rng, &mut steps[node][task], own);
                }
            }
        }
        for (node, count) in shared.into_iter().enumerate() {
            let mut left = if self.is_shared_first(node) { 0 } else { count };
            while left > 0 {
                let count = rng.usize(1..=left.min(5));
                let steps = &mut steps[node][0];
                let at = rng.usize(0..=steps.len());
                steps.insert(at, Step::SharedRecv { count });
                left -= count;
            }
        }
        for steps in steps.iter_mut().flatten() {
            for _ in 0..rng.usize(0..6) {
                let at = rng.usize(0..=steps.len());
                steps.insert(at, if rng.bool() { Step::Poll } else { Step::Pause });
            }
            if rng.u8(0..4) == 0 {
                let transport = transport(rng);
                let aside = match rng.u8(0..8) {
                    0 => Aside::Crowd,
                    1 | 2 => Aside::Share(transport),
                    3..=5 => Aside::Talk(transport),
                    _ => Aside::Overrun(transport),
                };
                let at = rng.usize(0..=steps.len());
                steps.insert(at, Step::Aside(aside));
            }
        }
        steps
    }
}

impl LinkPlan {
    fn draw(rng: &mut fastrand::Rng, tasks: &[usize], can: Abilities) -> LinkPlan {
        let transport = transport(rng);
        let loopback = rng.u8(0..8) == 0;
        let mut end = |node: usize| EndPlan {
            task: (node, rng.usize(0..tasks[node])),
            send_depth: choose(rng, &[2, 3, 16, 64]),
            recv_depth: choose(rng, &[2, 3, 16, 64]),
            signal_all: rng.u8(0..4) == 0,
            recvs: match rng.u8(0..6) {
                0 | 1 => Recvs::Shared,
                2 => Recvs::Lent,
                _ => Recvs::Own,
            },
            queues: (rng.usize(..QUEUES), rng.usize(..QUEUES)),
            private: can.private && rng.u8(0..3) == 0,
        };
        let ends = [end(0), end(usize::from(!loopback))];
        // With a shared queue others may take the RECV that is there.
        let patient = ends.iter().any(|end| end.recvs == Recvs::Shared) || rng.bool();
        LinkPlan {
            transport,
            ends,
            rnr_retry: if patient { 7 } else { 2 },
        }
    }
}

/// The requests of one direction, while they are drawn.
struct Direction {
    transport: Transport,
    signal_all: bool,
    send_depth: usize,
    consuming_max: usize,
    bytes_max: usize,
    len_max: usize,
    atomics: bool,
    can: Abilities,
    /// Something before was fetched, and nothing has waited for it yet.
    fetched: bool,
    /// Bytes of `RESULT` in use.
    results: usize,
}

impl Direction {
    fn draw(&mut self, rng: &mut fastrand::Rng) -> Vec<Request> {
        let count = match rng.u8(0..5) {
            0 => 0,
            1 => rng.usize(20..=64),
            _ => rng.usize(1..=12),
        };
        let large = rng.u8(0..4) == 0;
        let (mut bytes, mut consuming, mut unsignaled) = (0, 0, 0);
        let mut requests: Vec<Request> = Vec::new();
        while requests.len() < count {
            let mut request = self.request(rng, large);
            bytes += request.len();
            consuming += usize::from(request.consumes());
            if bytes > self.bytes_max || consuming > self.consuming_max {
                break;
            }
            // A queue that nobody is told of does not become free.
            request.signaled |= unsignaled + 1 >= self.send_depth;
            unsignaled = if request.signaled { 0 } else { unsignaled + 1 };
            requests.push(request);
        }
        if let Some(last) = requests.last_mut() {
            last.signaled = true;
        }
        requests
    }

    fn request(&mut self, rng: &mut fastrand::Rng, large: bool) -> Request {
        let kind = match (self.transport, rng.u8(0..10)) {
            (Transport::Ud, _) | (_, 0..4) => Kind::Send,
            (Transport::Rc, 7) => Kind::Read,
            (Transport::Rc, 8) if self.atomics => Kind::FetchAdd { add: rng.u64(..) },
            (Transport::Rc, 9) if self.atomics => Kind::CompareSwap {
                hits: rng.bool(),
                swap: rng.u64(..),
            },
            _ => Kind::Write,
        };
        let imm = rng.bool().then(|| rng.u32(..));
        let imm = imm.filter(|_| matches!(kind, Kind::Send | Kind::Write));
        let fetches = !matches!(kind, Kind::Send | Kind::Write);
        let inline = !fetches && rng.bool();
        let len_max = match (kind, rng.u8(0..20)) {
            _ if inline => self.can.inline_max,
            (Kind::Send, 0) if large => self.len_max,
            (_, 0..10) if large => 4096,
            (_, 0..3) => 16 << 10,
            (_, 3..8) => 2048,
            _ => 64,
        };
        let len_max = len_max.min(self.len_max);
        let len = match kind {
            Kind::CompareSwap { .. } | Kind::FetchAdd { .. } => 8,
            // Often exactly as much as there may be.
            _ if rng.u8(0..3) == 0 => len_max,
            _ => rng.usize(0..=len_max),
        };
        let at = rng.usize(0..=(TARGET_LEN - len.min(TARGET_LEN)) / 8) * 8;
        let pieces = if fetches {
            let start = RESULT + self.results;
            self.results += len.next_multiple_of(8);
            vec![(start, len)]
        } else {
            self.pieces(rng, len, inline)
        };
        // What follows something fetched waits for it, so that the order is defined.
        let fence = (self.fetched && kind != Kind::Read) || rng.u8(0..8) == 0;
        self.fetched = fetches || (self.fetched && !fence);
        Request {
            kind,
            pieces,
            inline,
            signaled: self.signal_all || rng.bool(),
            fence,
            solicited: rng.u8(0..3) == 0,
            imm,
            at,
        }
    }

    /// Up to three pieces of `OUT`.
    fn pieces(&self, rng: &mut fastrand::Rng, len: usize, inline: bool) -> Vec<(usize, usize)> {
        let count = if inline { 1 } else { rng.usize(1..=3) };
        let mut left = len;
        (0..count)
            .map(|index| {
                let last = index + 1 == count;
                let now = if last { left } else { rng.usize(0..=left) };
                left -= now;
                (rng.usize(0..=OUT_LEN - now), now)
            })
            .collect()
    }
}

fn transport(rng: &mut fastrand::Rng) -> Transport {
    match rng.u8(0..6) {
        0 => Transport::Uc,
        1 => Transport::Ud,
        _ => Transport::Rc,
    }
}

fn choose(rng: &mut fastrand::Rng, from: &[usize]) -> usize {
    from[rng.usize(..from.len())]
}

/// Puts steps between others, in their order.
fn merge(rng: &mut fastrand::Rng, into: &mut Vec<Step>, own: Vec<Step>) {
    let mut at = 0;
    for step in own {
        at = rng.usize(at..=into.len());
        into.insert(at, step);
        at += 1;
    }
}
