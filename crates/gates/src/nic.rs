//! The verbs of the software NIC: posting, and polling what completes.

use std::sync::Arc;

use anyhow::ensure;
use gates::Mark;
use nic_soft::{SoftNic, SoftOptions};
use verbs::typed::{
    Batch, CompletionQueue, ConnectOptions, Context, Destination, MemoryRegion, QpOptions,
    QueuePair, Rc, Ud, Wr,
};
use verbs::wr::GRH_LEN;
use verbs::{Access, PostReason, Qkey, RecvWr, SendFlags, Wc};

use crate::Path;
use crate::tell::mark;

/// Operations in a round; the last one of those that are unsignalled is signalled.
const ROUND: usize = 16;
const LEN: usize = 64;
const REGION_LEN: usize = ROUND * LEN;

/// Two adapters of a run directory.
fn adapters(run_dir: &std::path::Path) -> anyhow::Result<[Arc<SoftNic>; 2]> {
    let options = SoftOptions::new(run_dir);
    Ok([SoftNic::open(&options)?, SoftNic::open(&options)?])
}

fn flags(number: usize) -> SendFlags {
    if number + 1 == ROUND {
        SendFlags::SIGNALED
    } else {
        SendFlags::empty()
    }
}

/// Composes a WRITE in the batch.
#[inline]
fn write(
    batch: &mut Batch<Rc>,
    remote: &MemoryRegion,
    number: usize,
    bytes: &[u8; LEN],
) -> Result<(), PostReason> {
    let mut draft = batch.write(remote.remote(number * LEN), None, LEN)?;
    draft.bytes()[..LEN].copy_from_slice(bytes);
    draft.flags(flags(number)).commit(LEN);
    Ok(())
}

fn ensure_completed(count: usize, completion: &Wc) -> anyhow::Result<()> {
    ensure!(count == 1 && completion.is_ok(), "{completion:?}");
    Ok(())
}

/// What is posted over a connection.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    /// WRITEs of 64 bytes composed in a batch each.
    Write,
    /// The same in one batch.
    WriteList,
    /// WRITEs of 64 bytes from registered memory, each with its completion.
    WriteElement,
    /// READs of 64 bytes, each with its completion.
    Read,
    /// Compare-and-swaps, each with its completion.
    CompareSwap,
}

pub(crate) struct Connected {
    verb: Verb,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    batch: Batch<Rc>,
    local: MemoryRegion,
    remote: MemoryRegion,
    _peer: QueuePair<Rc>,
    _peer_cq: CompletionQueue,
    _run_dir: tempfile::TempDir,
}

impl Connected {
    pub(crate) fn new(verb: Verb) -> anyhow::Result<Self> {
        let run_dir = tempfile::tempdir()?;
        let [client, server] = adapters(run_dir.path())?.map(|nic| Context::new(nic));
        let (pd, peer_pd) = (client.alloc_pd()?, server.alloc_pd()?);
        let (mut cq, peer_cq) = (client.create_cq(64)?, server.create_cq(64)?);
        let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq))?;
        let mut peer: QueuePair<Rc> = peer_pd.create_qp(&QpOptions::on(&peer_cq))?;
        let (here, there) = (qp.endpoint()?, peer.endpoint()?);
        qp.connect(&there, &ConnectOptions::default())?;
        peer.connect(&here, &ConnectOptions::default())?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let remote = peer_pd.allocate(REGION_LEN, access)?;
        // The peer is asked for a region when it is first used.
        qp.post_send(&[Wr::write_inline(b"first", remote.remote(0))])?;
        let mut completion = [Wc::default()];
        let count = loop {
            match cq.poll(&mut completion)? {
                0 => std::thread::yield_now(),
                count => break count,
            }
        };
        ensure_completed(count, &completion[0])?;
        Ok(Connected {
            verb,
            cq,
            batch: qp.batch(ROUND),
            qp,
            local: pd.allocate(REGION_LEN, access)?,
            remote,
            _peer: peer,
            _peer_cq: peer_cq,
            _run_dir: run_dir,
        })
    }
}

impl Path for Connected {
    fn operations(&self) -> usize {
        ROUND
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let bytes = [7; LEN];
        let mut completion = [Wc::default()];
        match self.verb {
            Verb::Write => {
                for number in 0..ROUND {
                    mark(Mark::Client);
                    let written = write(&mut self.batch, &self.remote, number, &bytes);
                    let posted = self.qp.post(&mut self.batch);
                    mark(Mark::Nobody);
                    written?;
                    posted?;
                }
                mark(Mark::Client);
                let count = self.cq.poll(&mut completion)?;
                mark(Mark::Nobody);
                ensure_completed(count, &completion[0])?;
            }
            Verb::WriteList => {
                mark(Mark::Client);
                let written: Result<(), PostReason> = (0..ROUND)
                    .try_for_each(|number| write(&mut self.batch, &self.remote, number, &bytes));
                let posted = self.qp.post(&mut self.batch);
                let count = self.cq.poll(&mut completion)?;
                mark(Mark::Nobody);
                written?;
                posted?;
                ensure_completed(count, &completion[0])?;
            }
            Verb::WriteElement | Verb::Read | Verb::CompareSwap => {
                for number in 0..ROUND {
                    let from = self.remote.remote(number * LEN);
                    let offset = number * LEN;
                    let (whole, word) = (
                        [self.local.sge(offset..offset + LEN)],
                        [self.local.sge(offset..offset + 8)],
                    );
                    let wr = [match self.verb {
                        Verb::WriteElement => Wr::<Rc>::write(&whole, from),
                        Verb::Read => Wr::<Rc>::read(&whole, from),
                        _ => Wr::<Rc>::compare_swap(&word, from, 0, 0),
                    }];
                    mark(Mark::Client);
                    let posted = self.qp.post_send(&wr);
                    let count = self.cq.poll(&mut completion)?;
                    mark(Mark::Nobody);
                    posted?;
                    ensure_completed(count, &completion[0])?;
                }
            }
        }
        Ok(())
    }
}

/// SENDs of 64 bytes as datagrams, into RECVs of the other side.
pub(crate) struct Datagrams {
    /// One a call; otherwise a round is a batch, as of a server that answers all that it has found.
    is_single: bool,
    cq: CompletionQueue,
    qp: QueuePair<Ud>,
    batch: Batch<Ud>,
    to: Destination,
    peer: QueuePair<Ud>,
    peer_cq: CompletionQueue,
    buffers: MemoryRegion,
    _run_dir: tempfile::TempDir,
}

const QKEY: Qkey = Qkey(7);
const BUFFER_LEN: usize = 128;

impl Datagrams {
    pub(crate) fn new(is_single: bool) -> anyhow::Result<Self> {
        let run_dir = tempfile::tempdir()?;
        let [client, server_nic] = adapters(run_dir.path())?;
        let (client, server) = (Context::new(client), Context::new(server_nic.clone()));
        let (pd, peer_pd) = (client.alloc_pd()?, server.alloc_pd()?);
        let (cq, mut peer_cq) = (client.create_cq(64)?, server.create_cq(64)?);
        let mut qp: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq))?;
        let mut peer: QueuePair<Ud> = peer_pd.create_qp(&QpOptions::on(&peer_cq))?;
        qp.activate(QKEY)?;
        peer.activate(QKEY)?;
        let ah = pd.create_ah(server.gid()?)?;
        // One that is lost, for want of a RECV, opens the lane that the others go through.
        qp.post_send(&[Wr::send_inline_to(&ah, peer.num(), QKEY, b"first").unsignaled()])?;
        while server_nic.counters().unreceived == 0 {
            let lost = peer_cq.poll(&mut [Wc::default()])?;
            ensure!(lost == 0, "a datagram without a RECV");
            // It goes out when first contact stands.
            std::thread::yield_now();
        }
        let to = qp.prepare(&ah, peer.num(), QKEY)?;
        Ok(Datagrams {
            is_single,
            batch: qp.batch(ROUND),
            to,
            buffers: peer_pd.allocate(ROUND * BUFFER_LEN, Access::LOCAL_WRITE)?,
            cq,
            qp,
            peer,
            peer_cq,
            _run_dir: run_dir,
        })
    }
}

impl Path for Datagrams {
    fn operations(&self) -> usize {
        ROUND
    }

    fn round(&mut self) -> anyhow::Result<()> {
        match self.is_single {
            true => (0..ROUND).try_for_each(|number| self.exchange::<1>(number))?,
            false => self.exchange::<ROUND>(0)?,
        }
        let mut completion = [Wc::default()];
        mark(Mark::Client);
        let count = self.cq.poll(&mut completion)?;
        mark(Mark::Nobody);
        ensure_completed(count, &completion[0])
    }
}

impl Datagrams {
    /// So many operations: RECVs, SENDs in one batch, and what is received.
    fn exchange<const COUNT: usize>(&mut self, first: usize) -> anyhow::Result<()> {
        let bytes = [7; LEN];
        let mut completions = [Wc::default(); COUNT];
        let sges: [_; COUNT] = std::array::from_fn(|index| {
            let offset = (first + index) * BUFFER_LEN;
            [self.buffers.sge(offset..offset + BUFFER_LEN)]
        });
        let recvs: [_; COUNT] = std::array::from_fn(|index| RecvWr {
            id: (first + index) as u64,
            sges: &sges[index],
        });
        mark(Mark::Server);
        let posted = self.peer.post_recv(&recvs);
        mark(Mark::Nobody);
        posted?;
        mark(Mark::Client);
        for number in first..first + COUNT {
            let mut draft = self.batch.send_to(&self.to, None, LEN)?;
            draft.bytes()[..LEN].copy_from_slice(&bytes);
            draft.flags(flags(number)).commit(LEN);
        }
        let posted = self.qp.post(&mut self.batch);
        mark(Mark::Server);
        let count = self.peer_cq.poll(&mut completions)?;
        mark(Mark::Nobody);
        posted?;
        ensure!(count == COUNT, "{count} of {COUNT}");
        for completion in &completions {
            ensure_completed(1, completion)?;
            ensure!(
                completion.byte_len as usize == GRH_LEN + LEN,
                "{completion:?}"
            );
        }
        Ok(())
    }
}
