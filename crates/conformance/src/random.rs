//! Random sequences of operations, compared with a small model: two arrays of bytes.

use super::Fixture;
use super::rig::{CONNECTED, End, Options, Pair};
use verbs::attr::{Mtu, Transport};
use verbs::wc::WcStatus;
use verbs::wr::{GRH_LEN, Op, Payload, SendFlags, Sge};

/// Bytes of each side's region.
const LEN: usize = 8192;

/// Each side's RECVs land in the upper half, each in a slot of its own; the lower half is for
/// everything else.
const HALF: usize = LEN / 2;
const SLOT: usize = 512;

/// Random operations on RC and UC, in batches, signaled or not, inline or gathered, leave both
/// memories as the model says, and complete as the model says.
pub fn random_connected_operations_match_the_model(fixture: &Fixture) {
    for transport in CONNECTED {
        for seed in 0..12 {
            Run::new(fixture, transport, seed).batches(20);
        }
    }
}

/// The same for datagrams.
pub fn random_datagrams_match_the_model(fixture: &Fixture) {
    for seed in 0..12 {
        Run::new(fixture, Transport::Ud, seed).batches(20);
    }
}

struct Run {
    rng: fastrand::Rng,
    transport: Transport,
    seed: u64,
    pair: Pair,
    a: Vec<u8>,
    b: Vec<u8>,
}

/// A piece of a region.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: usize,
    len: usize,
}

fn piece_of(end: &End, piece: Piece) -> Sge {
    end.sge(piece.offset, piece.len)
}

impl Run {
    fn new(fixture: &Fixture, transport: Transport, seed: u64) -> Run {
        let options = Options {
            region_len: LEN,
            mtu: Mtu::B256,
            ..Options::default()
        };
        let pair = Pair::with(fixture, transport, &options);
        Run {
            rng: fastrand::Rng::with_seed(seed),
            transport,
            seed,
            a: pair.a.fill(0, LEN, 2 * seed),
            b: pair.b.fill(0, LEN, 2 * seed + 1),
            pair,
        }
    }

    fn batches(&mut self, count: usize) {
        for batch in 0..count {
            self.batch();
            let at = format!("{:?}, seed {}, batch {batch}", self.transport, self.seed);
            assert!(self.pair.a.bytes(0, LEN) == self.a, "A's memory: {at}");
            if self.transport == Transport::Ud {
                // The header is the NIC's, so the model takes it over.
                for slot in (HALF..LEN).step_by(SLOT) {
                    let header = self.pair.b.bytes(slot, GRH_LEN);
                    self.b[slot..slot + GRH_LEN].copy_from_slice(&header);
                }
            }
            assert!(self.pair.b.bytes(0, LEN) == self.b, "B's memory: {at}");
        }
        self.pair.stays_quiet("everything expected has come");
    }

    /// Up to three pieces of A's lower half, `len_max` bytes together at most, not overlapping.
    fn pieces(&mut self, len_max: usize) -> Vec<Piece> {
        let count = self.rng.usize(1..=3);
        (0..count)
            .map(|index| Piece {
                offset: index * 1024 + self.rng.usize(0..500),
                len: self.rng.usize(0..=len_max / count),
            })
            .collect()
    }

    fn gathered(&self, pieces: &[Piece]) -> Vec<u8> {
        let bytes = |piece: &Piece| &self.a[piece.offset..][..piece.len];
        pieces.iter().flat_map(bytes).copied().collect()
    }

    fn scatter(&mut self, pieces: &[Piece], mut bytes: &[u8]) {
        for piece in pieces {
            let (now, later) = bytes.split_at(piece.len);
            self.a[piece.offset..][..piece.len].copy_from_slice(now);
            bytes = later;
        }
    }

    /// Posts a batch, one post or many, and carries it out on the model.
    fn batch(&mut self) {
        let count = self.rng.usize(1..=8);
        let header = if self.transport == Transport::Ud {
            GRH_LEN
        } else {
            0
        };
        let mut sent = Vec::new();
        let mut received: Vec<(u64, u32, Option<u32>)> = Vec::new();
        let mut fetched = false;
        for id in 0..count as u64 {
            let last = id as usize == count - 1;
            let signaled = last || self.rng.bool();
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, signaled);
            // What follows a READ or an atomic waits for it, so that the order is defined.
            flags.set(SendFlags::FENCE, fetched);
            if signaled {
                sent.push(id);
            }
            let imm = self.rng.bool().then(|| self.rng.u32(..));
            let slot = HALF + (received.len() * SLOT);
            let target = self.rng.usize(0..HALF - 1024);
            let remote = self.pair.b.remote(target);
            // The last one consumes a RECV, by which its arrival is known on every transport.
            let kind = match self.transport {
                _ if last => 0,
                Transport::Ud => 0,
                Transport::Uc => self.rng.u8(0..3),
                Transport::Rc => self.rng.u8(0..6),
            };
            let inline = kind < 3 && self.rng.bool();
            let pieces = self.pieces(if inline { 60 } else { 470 });
            let bytes = self.gathered(&pieces);
            let op = match kind {
                0 => {
                    self.pair.b.post_recv(id, slot, SLOT);
                    received.push((id, (header + bytes.len()) as u32, imm));
                    self.b[slot + header..][..bytes.len()].copy_from_slice(&bytes);
                    Op::Send { imm }
                }
                1 | 2 => {
                    let imm = imm.filter(|_| kind == 2);
                    self.b[target..][..bytes.len()].copy_from_slice(&bytes);
                    if imm.is_some() {
                        self.pair.b.post_recv(id, slot, SLOT);
                        received.push((id, bytes.len() as u32, imm));
                    }
                    Op::Write { remote, imm }
                }
                3 => {
                    fetched = true;
                    let there = self.b[target..][..bytes.len()].to_vec();
                    self.scatter(&pieces, &there);
                    Op::Read { remote }
                }
                _ => {
                    fetched = true;
                    self.atomic(kind == 4, id, flags);
                    continue;
                }
            };
            let sges: Vec<Sge> = pieces.iter().map(|p| piece_of(&self.pair.a, *p)).collect();
            let payload = match inline {
                true => Payload::Inline(&bytes),
                false => Payload::Gather(&sges),
            };
            let mut wr = self.pair.a.wr(id, op, payload);
            wr.flags = flags;
            self.pair.a.post_all(&[wr]);
        }
        for id in sent {
            let what = format!("request {id}, seed {}", self.seed);
            let wc = self.pair.sent(&what);
            assert_eq!((wc.id, wc.status), (id, WcStatus::Success), "{what}");
        }
        for (id, len, imm) in received {
            let what = format!("RECV {id}, seed {}", self.seed);
            let wc = self.pair.received(&what);
            assert_eq!((wc.id, wc.status), (id, WcStatus::Success), "{what}");
            assert_eq!((wc.byte_len, wc.immediate()), (len, imm), "{what}");
        }
    }

    /// An atomic on an aligned word of B's lower half, whose result goes to A's.
    fn atomic(&mut self, swapping: bool, id: u64, flags: SendFlags) {
        let (word, result) = (8 * self.rng.usize(0..400), self.rng.usize(0..3000));
        let there = self.b[word..][..8].try_into().expect("8 bytes");
        let old = u64::from_le_bytes(there);
        let remote = self.pair.b.remote(word);
        let (expect, value) = (old ^ u64::from(self.rng.bool()), self.rng.u64(..));
        let (op, new) = if swapping {
            let op = Op::CompareSwap {
                remote,
                expect,
                swap: value,
            };
            (op, if expect == old { value } else { old })
        } else {
            let op = Op::FetchAdd { remote, add: value };
            (op, old.wrapping_add(value))
        };
        self.b[word..][..8].copy_from_slice(&new.to_le_bytes());
        self.a[result..][..8].copy_from_slice(&there);
        let sges = [self.pair.a.sge(result, 8)];
        let mut wr = self.pair.a.wr(id, op, Payload::Gather(&sges));
        wr.flags = flags;
        self.pair.a.post_all(&[wr]);
    }
}
