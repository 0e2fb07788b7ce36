//! The victim's side of the storm: honest traffic goes on and is what it should be, whatever the
//! hostile process does, and nothing of it stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nic_soft::{SoftNic, SoftOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::typed::{
    CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion,
    ProtectionDomain, QpOptions, QueuePair, Rc, Uc, Ud, Wr,
};
use verbs::{Access, Psn, QpAttr, QpNum, QpState, RecvWr, RemoteAddr, Rkey, Wc};

use crate::speaker::{descriptors, home, mappings, qpn};
use crate::storm::{Hostile, INSTANCE, KEYS, QPS, REGION_LEN};
use crate::victim::{Honest, QKEY, until};

const HONEST: u64 = 1 << 32;
const HOSTILE: u64 = 2 << 32;
const DATAGRAM: u64 = 3 << 32;

struct Victim {
    nic: Arc<SoftNic>,
    pd: ProtectionDomain,
    /// All queue pairs receive on one queue.
    cq: CompletionQueue,
    sends: CompletionQueue,
    channel: CompletionChannel,
    memory: MemoryRegion,
    rc: [QueuePair<Rc>; 2],
    ud: QueuePair<Ud>,
    honest: Vec<Honest>,
    received: [u64; 2],
    written: [u64; 2],
    datagrams: u64,
    foul: u64,
    random: fastrand::Rng,
}

/// The queue pairs that lead to the hostile process.
struct Front {
    rc: QueuePair<Rc>,
    uc: QueuePair<Uc>,
    failures: u64,
}

fn endpoint(index: u32) -> Endpoint {
    Endpoint {
        gid: home(),
        qpn: QpNum(qpn(INSTANCE, index)),
        psn: Psn(0),
    }
}

fn text(peer: usize, number: u64) -> String {
    format!("honest {peer} message {number}")
}

impl Victim {
    fn new(run_dir: &std::path::Path, seed: u64) -> Self {
        let mut options = SoftOptions::new(run_dir);
        options.contact_timeout = Duration::from_secs(60);
        let nic = SoftNic::open(&options).expect("an adapter");
        let context = Context::new(nic.clone());
        let pd = context.alloc_pd().expect("a domain");
        let channel = context.create_channel().expect("a channel");
        let cq = context.create_cq_on(1024, &channel).expect("a queue");
        let sends = context.create_cq(4096).expect("a queue");
        let mut on = QpOptions::on(&cq);
        on.send_cq = sends.handle();
        let memory = pd.allocate(1 << 16, Access::EVERYTHING).expect("memory");
        let mut rc = [0, 1].map(|_| pd.create_qp(&on).expect("a queue pair"));
        let mut ud: QueuePair<Ud> = pd.create_qp(&on).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let mut honest: Vec<_> = (0..2).map(|_| Honest::start(run_dir)).collect();
        for (qp, peer) in rc.iter_mut().zip(&mut honest) {
            peer.connect(qp, &ConnectOptions::default());
        }
        let mut victim = Victim {
            nic,
            pd,
            cq,
            sends,
            channel,
            memory,
            rc,
            ud,
            honest,
            received: [0; 2],
            written: [0; 2],
            datagrams: 0,
            foul: 0,
            random: fastrand::Rng::with_seed(seed),
        };
        for peer in 0..2 {
            for slot in 0..8 {
                victim.post_recv(peer, slot);
            }
        }
        for slot in 0..64 {
            victim.post_datagram_recv(slot);
        }
        victim
    }

    fn post_recv(&mut self, peer: usize, slot: u64) {
        let at = (peer as u64 * 8 + slot) as usize * 256;
        let sges = [self.memory.sge(at..at + 256)];
        let id = HONEST | (peer as u64) << 8 | slot;
        let posted = self.rc[peer].post_recv(&[RecvWr { id, sges: &sges }]);
        posted.expect("an honest peer's queue pair is well");
    }

    fn post_datagram_recv(&mut self, slot: u64) {
        let at = 8192 + slot as usize * 256;
        let sges = [self.memory.sge(at..at + 256)];
        let id = DATAGRAM | slot;
        self.ud
            .post_recv(&[RecvWr { id, sges: &sges }])
            .expect("posted");
    }

    fn front(&mut self) -> Front {
        let mut on = QpOptions::on(&self.cq);
        on.send_cq = self.sends.handle();
        Front {
            rc: self.pd.create_qp(&on).expect("a queue pair"),
            uc: self.pd.create_qp(&on).expect("a queue pair"),
            failures: 0,
        }
    }

    /// What it holds: lanes, peers, connections, descriptors, mappings.
    fn held(&mut self) -> [usize; 6] {
        // What was remembered of those that have gone is dropped with the next datagram.
        self.datagram_to(500);
        let usage = self.nic.usage();
        [
            usage.lanes,
            usage.peers,
            usage.connections,
            descriptors(),
            mappings("vervain"),
            mappings("hostile"),
        ]
    }

    /// Takes what there is, and checks what honest peers have sent.
    fn poll(&mut self) {
        let mut out = [Wc::default(); 32];
        let n = self.cq.poll(&mut out).expect("no overrun");
        for wc in &out[..n] {
            match wc.id >> 32 << 32 {
                HONEST => {
                    let (peer, slot) = ((wc.id >> 8 & 1) as usize, wc.id & 0xff);
                    assert!(wc.is_ok(), "an honest peer's message: {wc:?}");
                    let expected = text(peer, self.received[peer]);
                    let mut bytes = vec![0; wc.byte_len as usize];
                    let at = (peer * 8 + slot as usize) * 256;
                    self.memory.read(at, &mut bytes);
                    assert_eq!(String::from_utf8_lossy(&bytes), expected);
                    self.received[peer] += 1;
                    self.post_recv(peer, slot);
                }
                DATAGRAM => {
                    let slot = wc.id & 0xff;
                    let from = wc.src_qpn.0 >> 14;
                    let known = self.honest.iter().position(|one| one.instance() == from);
                    if let (Some(peer), true) = (known, wc.is_ok()) {
                        let mut bytes = vec![0; wc.byte_len as usize - 40];
                        let at = 8192 + slot as usize * 256 + 40;
                        self.memory.read(at, &mut bytes);
                        assert_eq!(String::from_utf8_lossy(&bytes), text(peer, 0));
                        self.datagrams += 1;
                    } else {
                        // One that is too long for its RECV completes it with an error.
                        assert!(from == INSTANCE || !wc.is_ok(), "{wc:?}");
                        self.foul += 1;
                    }
                    self.post_datagram_recv(slot);
                }
                _ => self.foul += 1,
            }
        }
        while self.sends.poll(&mut out).expect("no overrun") > 0 {}
    }

    /// Each honest peer sends a message and a datagram, is written to and read from.
    fn honest_round(&mut self, round: u64) {
        for peer in 0..2 {
            // Sleep until it comes, half of the time.
            let sleeps = self.random.bool();
            if sleeps {
                self.cq.arm(false).expect("it has a channel");
                self.poll();
            }
            let number = self.received[peer];
            self.honest[peer]
                .qp
                .post_send(&[Wr::send_inline(text(peer, number).as_bytes())])
                .expect("posted");
            if sleeps {
                let channel = &self.channel;
                until("the channel to be rung", || {
                    let mut fds = [PollFd::new(channel, PollFlags::IN)];
                    let limit = Timespec {
                        tv_sec: 1,
                        tv_nsec: 0,
                    };
                    let ready = poll(&mut fds, Some(&limit)).expect("polled");
                    (ready == 1).then_some(())
                });
                // Rings of the hostile one wake as well; no event need follow.
                self.channel.event().expect("an event or none");
            }
            until("an honest message", || {
                self.poll();
                (self.received[peer] > number).then_some(())
            });
            let wc = self.honest[peer].completion("an honest SEND");
            assert!(wc.is_ok(), "{wc:?}");

            let bytes = round.to_le_bytes();
            let remote = self.honest[peer].memory.remote(512);
            let written = self.rc[peer].post_send(&[Wr::write_inline(&bytes, remote)]);
            written.expect("posted");
            let there = &self.honest[peer].memory;
            let read = || {
                let mut read = [0; 8];
                there.read(512, &mut read);
                read
            };
            // Before the first one, the peer is asked for its memory.
            let first = self.written[peer] == 0;
            if first {
                until("a first WRITE", || (read() == bytes).then_some(()));
            }
            assert_eq!(read(), bytes, "a WRITE to an honest peer");
            self.written[peer] += 1;
            if round.is_multiple_of(4) {
                self.datagram(peer);
            }
        }
    }

    /// A datagram may be lost: the hostile one uses RECVs up. One comes through in the end.
    fn datagram(&mut self, peer: usize) {
        let (gid, num) = (home(), self.ud.num());
        let ah = self.honest[peer].pd.create_ah(gid).expect("an address");
        let before = self.datagrams;
        until("an honest datagram", || {
            let text = text(peer, 0);
            let wr = Wr::send_inline_to(&ah, num, QKEY, text.as_bytes());
            self.honest[peer].ud.post_send(&[wr]).expect("posted");
            let sent = self.honest[peer].completion("a datagram sent");
            assert!(sent.is_ok(), "{sent:?}");
            for _ in 0..20 {
                self.poll();
            }
            (self.datagrams > before).then_some(())
        });
    }

    /// Works with the hostile process as if it were honest.
    fn hostile_round(&mut self, front: &mut Front) {
        let connected = |state| !matches!(state, QpState::Reset | QpState::Init | QpState::Err);
        let reset = QpAttr::to(QpState::Reset);
        if !connected(front.rc.state()) {
            front.failures += 1;
            front.rc.modify(&reset).expect("any state leads to RESET");
            // Refused while the other one lies about its descriptors.
            let _ = front
                .rc
                .connect(&endpoint(QPS[0].0), &ConnectOptions::default());
        }
        if !connected(front.uc.state()) {
            front.failures += 1;
            front.uc.modify(&reset).expect("any state leads to RESET");
            let _ = front
                .uc
                .connect(&endpoint(QPS[1].0), &ConnectOptions::default());
        }
        let at = 40_000;
        let sges = [self.memory.sge(at..at + 1000)];
        let recv = [RecvWr {
            id: HOSTILE,
            sges: &sges,
        }];
        let offsets = [0, 1, 8, 4096, REGION_LEN - 8, REGION_LEN, 1 << 30, 1 << 40];
        let remote = RemoteAddr {
            addr: 0x10_0000 + offsets[self.random.usize(..offsets.len())],
            rkey: Rkey(KEYS[self.random.usize(..KEYS.len())]),
        };
        let result = [self.memory.sge(60_000..60_008)];
        let sges = [self.memory.sge(50_000..50_000 + self.random.usize(8..9000))];
        // Any of these may be refused: the queue is full, or the queue pair has failed.
        let _ = front.rc.post_recv(&recv);
        let _ = front.uc.post_recv(&recv);
        let _ = match self.random.u32(..6) {
            0 => front.rc.post_send(&[Wr::send(&sges)]),
            1 => front.rc.post_send(&[Wr::write(&sges, remote)]),
            2 => front.rc.post_send(&[Wr::write(&sges, remote).imm(7)]),
            3 => front.rc.post_send(&[Wr::read(&sges, remote)]),
            4 => front.rc.post_send(&[Wr::fetch_add(&result, remote, 1)]),
            _ => front.rc.post_send(&[Wr::write_inline(b"short", remote)]),
        };
        let _ = match self.random.u32(..4) {
            0 => front.uc.post_send(&[Wr::send(&sges)]),
            1 => front.uc.post_send(&[Wr::write(&sges, remote)]),
            2 => front.uc.post_send(&[Wr::write(&sges, remote).imm(7)]),
            _ => front.uc.post_send(&[Wr::write_inline(b"short", remote)]),
        };
        self.datagram_to(INSTANCE);
        self.poll();
    }

    fn datagram_to(&mut self, instance: u32) {
        let ah = self.pd.create_ah(home()).expect("an address");
        let wr = Wr::send_inline_to(&ah, QpNum(qpn(instance, QPS[2].0)), QKEY, b"to you");
        let sent = self.ud.post_send(&[wr]);
        sent.expect("datagrams are sent, wherever they go");
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().expect("a number"),
        Err(_) => otherwise,
    }
}

/// The first round.
const FIRST: u64 = 4;

#[test]
fn a_storm_harms_nobody_but_itself() {
    let _alone = crate::victim::alone();
    let inputs = from_environment("VERVAIN_HOSTILE_INPUTS", 10_000);
    let seed = from_environment("VERVAIN_HOSTILE_SEED", 1);
    println!("seed {seed}");
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut victim = Victim::new(run_dir.path(), seed);
    // What it writes first is not what is there.
    victim.honest_round(FIRST);
    let (mut tried, mut rounds, mut failures, mut kills) = (0, FIRST + 1, 0, 0);
    let before = victim.held();
    for episode in 0.. {
        if tried >= inputs {
            break;
        }
        let mut front = victim.front();
        let victims = [front.rc.num().0, front.uc.num().0, victim.ud.num().0];
        let mut hostile = Hostile::start(run_dir.path(), seed + episode, victims);
        let share = (inputs / 6).max(1);
        // Some are killed in the midst of it.
        let until_then = match episode % 2 {
            0 => share,
            _ => victim.random.u64(1..share),
        };
        let mut done = 0;
        while done < until_then {
            done = hostile.spur(8);
            victim.honest_round(rounds);
            rounds += 1;
            for _ in 0..8 {
                victim.hostile_round(&mut front);
            }
        }
        if until_then < share {
            hostile.process.0.kill().expect("killed");
            kills += 1;
        }
        tried += done;
        failures += front.failures;
        drop((hostile, front));
        victim.honest_round(rounds);
        rounds += 1;
        let mut now = victim.held();
        let started = Instant::now();
        while now != before && started.elapsed() < Duration::from_secs(120) {
            victim.poll();
            now = victim.held();
        }
        assert_eq!(now, before, "what the hostile process had is given back");
    }
    let Victim {
        received,
        datagrams,
        foul,
        nic,
        ..
    } = &victim;
    println!(
        "{tried} inputs, {kills} kills, {rounds} honest rounds, {received:?} messages and \
         {datagrams} datagrams of honest peers, {foul} foul completions, {failures} of our queue \
         pairs failed, {} connections refused",
        nic.counters().refused
    );
    assert!(failures > 0 && *foul > 0, "the storm came to nothing");
}
