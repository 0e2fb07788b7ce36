//! What a request is: its bytes, its operation, and what that does to the model of the peer's memory.

use super::ledger::{Message, Slot};
use super::plan::{Kind, Request, TARGET_LEN};
use verbs::names::RemoteAddr;
use verbs::nic::NicMr;
use verbs::wc::WcOpcode;
use verbs::wr::{Op, Sge};

pub(super) fn gathered(request: &Request, out: &[u8]) -> Vec<u8> {
    if request.fetches() {
        return Vec::new();
    }
    let pieces = request.pieces.iter();
    pieces
        .flat_map(|(offset, len)| &out[*offset..offset + len])
        .copied()
        .collect()
}

pub(super) fn message(request: &Request, out: &[u8]) -> Message {
    let sends = request.kind == Kind::Send;
    Message {
        opcode: match sends {
            true => WcOpcode::Recv,
            false => WcOpcode::RecvWriteImm,
        },
        imm: request.imm,
        len: request.len(),
        bytes: sends.then(|| gathered(request, out)),
        solicited: request.solicited,
    }
}

/// A RECV's elements.
pub(super) fn sges_of(region: &dyn NicMr, slot: Slot, pieces: usize) -> Vec<Sge> {
    let each = slot.len / pieces;
    (0..pieces)
        .map(|piece| Sge {
            addr: region.addr() + (slot.offset + piece * each) as u64,
            len: match piece + 1 == pieces {
                true => (slot.len - piece * each) as u32,
                false => each as u32,
            },
            lkey: region.lkey(),
        })
        .collect()
}

/// The operation of a request, what it does to the peer's target, and what it brings, and where.
pub(super) fn carry_out(
    request: &Request,
    peer: RemoteAddr,
    bytes: &[u8],
    target: &mut [u8],
) -> (Op, Option<(usize, Vec<u8>)>) {
    let imm = request.imm;
    let place = |at: usize| RemoteAddr {
        addr: peer.addr + at as u64,
        ..peer
    };
    if request.at == usize::MAX {
        let remote = place(TARGET_LEN);
        return (Op::Write { remote, imm }, None);
    }
    let (at, len) = (request.at, request.len());
    let remote = place(at);
    let result = request.fetches().then(|| {
        let (offset, len) = request.pieces[0];
        (offset, target[at..at + len].to_vec())
    });
    let mut word = [0; 8];
    word[..len.min(8)].copy_from_slice(&target[at..at + len.min(8)]);
    let old = u64::from_le_bytes(word);
    let op = match request.kind {
        Kind::Send => Op::Send { imm },
        Kind::Write => {
            target[at..at + len].copy_from_slice(bytes);
            Op::Write { remote, imm }
        }
        Kind::Read => Op::Read { remote },
        Kind::CompareSwap { hits, swap } => {
            let expect = if hits { old } else { !old };
            if hits {
                target[at..at + 8].copy_from_slice(&swap.to_le_bytes());
            }
            Op::CompareSwap {
                remote,
                expect,
                swap,
            }
        }
        Kind::FetchAdd { add } => {
            let new = old.wrapping_add(add).to_le_bytes();
            target[at..at + 8].copy_from_slice(&new);
            Op::FetchAdd { remote, add }
        }
    };
    (op, result)
}
