//! What a task does beside its links: it makes objects in the middle of everything, uses them, and
//! lets them go.

use std::sync::Arc;
use std::time::Instant;

use super::plan::Aside;
use super::port::Pair;
use super::task::{Task, say};
use crate::rig::{Node, Options};
use verbs::attr::{Access, CqInit, QpState, SrqInit, Transport};
use verbs::error::CqError;
use verbs::names::SrqNum;
use verbs::nic::{NicCq, NicMr, remote_addr};
use verbs::wc::{Wc, WcOpcode};
use verbs::wr::{GRH_LEN, Op, Payload, RecvWr, SendFlags, SendWr, Sge, UdDest};

const MESSAGE: &[u8] = b"to myself";
const REGION_LEN: usize = 256;
/// Senders to one queue. A NIC may look at fewer in a poll.
const CROWD: usize = 70;
/// Those that send at once.
const AT_ONCE: usize = 14;

impl Task<'_> {
    /// Makes objects, uses them, and lets them go.
    pub(super) fn aside(&self, aside: Aside) -> Result<(), String> {
        let Some(node) = &self.node else {
            return Ok(()); // It has died.
        };
        match aside {
            Aside::Talk(transport) => {
                let (mut cq, region) = (queue(node, 2)?, region(node));
                let mut pair = alone(node, &*cq, transport, None)?;
                self.talk(&mut pair, &mut *cq, &*region, transport)
            }
            Aside::Overrun(transport) => {
                let (mut cq, region) = (queue(node, 1)?, region(node));
                let mut pair = alone(node, &*cq, transport, None)?;
                let other = alone(node, &*cq, transport, None)?;
                self.overrun(node, &mut pair, &other, &mut *cq, &*region)
            }
            Aside::Crowd => self.crowd(node),
            Aside::Share(transport) => {
                (0..3).try_for_each(|turn| self.share(node, transport, turn))
            }
        }
    }

    /// Datagrams of many senders come to one queue, each as often as it was sent.
    fn crowd(&self, node: &Node) -> Result<(), String> {
        let (mut cq, region) = (queue(node, 2 * AT_ONCE as u32)?, region(node));
        let mut receiver = alone(node, &*cq, Transport::Ud, None)?;
        let mut senders = (0..CROWD)
            .map(|_| its_own_peer(node, &*cq, Transport::Ud, None))
            .collect::<Result<Vec<_>, _>>()?;
        let sges = [whole(&*region)];
        for round in 0..2 {
            for (chunk, senders) in senders.chunks_mut(AT_ONCE).enumerate() {
                let mut expected = Vec::new();
                for (number, sender) in senders.iter_mut().enumerate() {
                    let id = (1000 * round + 2 * (chunk * AT_ONCE + number)) as u64;
                    let recv = RecvWr { id, sges: &sges };
                    let posted = receiver.pair.post_recv(&[recv]);
                    posted.map_err(say("a RECV aside"))?;
                    sender
                        .post(&[send(id + 1, receiver.to)])
                        .map_err(say("a SEND aside"))?;
                    expected.push(id + 1);
                    expected.push(id);
                }
                let came = self.completions(&mut *cq, expected.len())?;
                let from = |wc: &&Wc| wc.opcode == WcOpcode::Recv;
                let mut from: Vec<_> = came.iter().filter(from).map(|wc| wc.src_qpn).collect();
                let mut nums: Vec<_> = senders.iter().map(Pair::num).collect();
                from.sort_unstable();
                nums.sort_unstable();
                is_all(&came, expected)?;
                if from != nums {
                    return Err(format!("aside came datagrams of {from:?}, not of {nums:?}"));
                }
            }
        }
        Ok(())
    }

    /// Two queue pairs share RECVs, of which one is left when the queue goes: nobody gets it later.
    fn share(&self, node: &Node, transport: Transport, turn: u64) -> Result<(), String> {
        let (mut cq, region) = (queue(node, 8)?, region(node));
        let init = SrqInit::new(node.pd, 8, 1);
        let made = node.nic.create_srq(&init);
        let mut srq = made.map_err(say("a shared queue aside"))?;
        let sges = [whole(&*region)];
        let first = 100 * turn;
        for id in first..first + 4 {
            let posted = srq.post_recv(&[RecvWr { id, sges: &sges }]);
            posted.map_err(say("a shared RECV aside"))?;
        }
        let mut pairs = [(); 2].map(|()| alone(node, &*cq, transport, Some(srq.num())).map(Some));
        for (number, which) in [0, 1, 1].into_iter().enumerate() {
            let pair = pairs[which].as_mut().map_err(|why| why.clone())?;
            let Alone { pair, to, .. } = pair.as_mut().ok_or("it was used after it had gone")?;
            let id = first + 50 + number as u64;
            pair.post(&[send(id, *to)]).map_err(say("a SEND aside"))?;
            let came = self.completions(&mut *cq, 2)?;
            is_all(&came, vec![first + number as u64, id])?;
            if which == 0 {
                pairs[0] = Ok(None);
            }
        }
        // Either goes first.
        if turn.is_multiple_of(2) {
            drop(srq);
        }
        drop(pairs);
        Ok(())
    }

    /// Takes so many completions, all of them successful.
    fn completions(&self, cq: &mut (dyn NicCq + 'static), count: usize) -> Result<Vec<Wc>, String> {
        let mut came = Vec::new();
        self.until("completions aside", || {
            let mut out = [Wc::default(); 4];
            let taken = cq.poll_slice(&mut out).map_err(say("polling aside"))?;
            came.extend_from_slice(&out[..taken]);
            Ok(came.len() >= count)
        })?;
        match came.iter().find(|wc| !wc.is_ok()) {
            None => Ok(came),
            Some(failed) => Err(format!("aside failed {failed:?}")),
        }
    }

    /// A message to itself arrives.
    fn talk(
        &self,
        Alone { pair, to, .. }: &mut Alone<'_>,
        cq: &mut (dyn NicCq + 'static),
        region: &dyn NicMr,
        transport: Transport,
    ) -> Result<(), String> {
        let sges = [whole(region)];
        let recv = RecvWr { id: 1, sges: &sges };
        pair.post_recv(&[recv]).map_err(say("a RECV aside"))?;
        pair.post(&[send(2, *to)]).map_err(say("a SEND aside"))?;
        let mut came = self.completions(cq, 2)?;
        if came.len() > 2 {
            return Err(format!("aside came more than 2: {came:?}"));
        }
        came.sort_by_key(|wc| wc.id);
        let expected = [(1, WcOpcode::Recv), (2, WcOpcode::Send)];
        let are_right = came.iter().zip(expected);
        let header = if transport == Transport::Ud {
            GRH_LEN
        } else {
            0
        };
        let mut bytes = [0; MESSAGE.len()];
        region.read(header, &mut bytes);
        let mut all = are_right.map(|(wc, (id, opcode))| {
            (wc.is_ok(), wc.id, wc.opcode, wc.qpn) == (true, id, opcode, pair.num())
        });
        match all.all(|right| right) && bytes == MESSAGE {
            true => Ok(()),
            false => Err(format!("aside came {came:?} and {bytes:?}")),
        }
    }

    /// More completes than the queue holds, and nobody polls.
    fn overrun(
        &self,
        node: &Node,
        Alone { pair, to, .. }: &mut Alone<'_>,
        Alone { pair: other, .. }: &Alone<'_>,
        cq: &mut (dyn NicCq + 'static),
        region: &dyn NicMr,
    ) -> Result<(), String> {
        let op = match to {
            Some(_) => Op::Send { imm: None },
            None => Op::Write {
                remote: remote_addr(region, 0),
                imm: None,
            },
        };
        let wr = |id| SendWr {
            id,
            op,
            payload: Payload::Inline(MESSAGE),
            flags: SendFlags::SIGNALED,
            to: *to,
        };
        pair.post(&[wr(1), wr(2), wr(3), wr(4)])
            .map_err(say("posting aside"))?;
        let all_failed = || [&*pair, other].map(Pair::state) == [Some(QpState::Err); 2];
        // What is posted completes while somebody looks.
        let mut aside = node.queue(1);
        self.until("the queue pairs of an overrun queue to fail", || {
            aside.poll();
            Ok(all_failed())
        })?;
        match cq.poll_slice(&mut [Wc::default()]) {
            Err(CqError::Overrun) => Ok(()),
            polled => Err(format!("polling an overrun queue: {polled:?}")),
        }
    }

    fn until(
        &self,
        what: &str,
        mut check: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + self.world.patience;
        while !check()? {
            if self.world.gate.is_closed() || Instant::now() > deadline {
                return Err(format!("waited in vain for {what}"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn queue(node: &Node, depth: u32) -> Result<Box<dyn NicCq>, String> {
    let cq = node.nic.create_cq(&CqInit::new(depth));
    cq.map_err(say("a queue aside"))
}

fn region(node: &Node) -> Arc<dyn NicMr> {
    node.region(REGION_LEN, Access::EVERYTHING)
}

fn whole(region: &dyn NicMr) -> Sge {
    Sge {
        addr: region.addr(),
        len: REGION_LEN as u32,
        lkey: region.lkey(),
    }
}

fn send(id: u64, to: Option<UdDest>) -> SendWr<'static> {
    SendWr {
        id,
        op: Op::Send { imm: None },
        payload: Payload::Inline(MESSAGE),
        flags: SendFlags::SIGNALED,
        to,
    }
}

/// Whether these are all that was expected, in any order.
fn is_all(came: &[Wc], mut expected: Vec<u64>) -> Result<(), String> {
    let mut ids: Vec<u64> = came.iter().map(|wc| wc.id).collect();
    ids.sort_unstable();
    expected.sort_unstable();
    match ids == expected {
        true => Ok(()),
        false => Err(format!("aside came {ids:?}, not {expected:?}")),
    }
}

/// A queue pair that is its own peer, and where its datagrams go.
struct Alone<'n> {
    pair: Pair,
    to: Option<UdDest>,
    node: &'n Node,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // A NIC has so many handles, and programs run by the thousand.
        if let Some(to) = self.to {
            let given_back = self.node.nic.destroy_ah(to.ah);
            assert!(
                given_back.is_ok() || std::thread::panicking(),
                "{given_back:?}"
            );
        }
    }
}

fn alone<'n>(
    node: &'n Node,
    cq: &dyn NicCq,
    transport: Transport,
    srq: Option<SrqNum>,
) -> Result<Alone<'n>, String> {
    let pair = its_own_peer(node, cq, transport, srq)?;
    let to = (transport == Transport::Ud).then(|| node.dest(node.gid, pair.num()));
    Ok(Alone { pair, to, node })
}

fn its_own_peer(
    node: &Node,
    cq: &dyn NicCq,
    transport: Transport,
    srq: Option<SrqNum>,
) -> Result<Pair, String> {
    let mut init = node.init(transport, cq.num(), cq.num());
    init.srq = srq;
    let mut pair = Pair::new(node, &init).map_err(say("a pair aside"))?;
    let itself = (node.gid, pair.num());
    let connected = pair.connect(transport, itself, &Options::default());
    connected.map_err(say("a pair aside"))?;
    Ok(pair)
}
