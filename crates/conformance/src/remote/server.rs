//! The end of the proxy that has the NIC.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::codec::{OwnedRecv, OwnedSend, Wire};
use super::{Call, ChannelInfo, MrInfo, PolledWc, QpInfo, receive, send};
use crate::rig::private_region;
use verbs::nic::{Nic, NicChannel, NicCq, NicMr, NicSrq, QpParts};
use verbs::polled::Polled;

/// Carries out the calls that come from a [`super::RemoteNic`], until its end of the stream is
/// closed. What it made and did not drop is destroyed then.
///
/// # Errors
/// What reading and writing the stream reports, `InvalidData` for messages that are none, and
/// `NotFound` for numbers of objects that are not there.
pub fn serve_nic(
    nic: Arc<dyn Nic>,
    mut reader: impl Read,
    mut writer: impl Write,
) -> io::Result<()> {
    let mut server = Server {
        nic,
        mrs: BTreeMap::new(),
        channels: BTreeMap::new(),
        cqs: BTreeMap::new(),
        srqs: BTreeMap::new(),
        qps: BTreeMap::new(),
        made: 0,
    };
    loop {
        let mut first = [0];
        match reader.read(&mut first) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let call = receive(&mut first.as_slice().chain(&mut reader))?;
        send(&mut writer, &server.answer(call)?)?;
    }
}

struct Server {
    nic: Arc<dyn Nic>,
    mrs: BTreeMap<u64, Arc<dyn NicMr>>,
    channels: BTreeMap<u32, Box<dyn NicChannel>>,
    cqs: BTreeMap<u32, Box<dyn NicCq>>,
    srqs: BTreeMap<u32, Box<dyn NicSrq>>,
    qps: BTreeMap<u32, QpParts>,
    /// Regions made so far, which numbers them.
    made: u64,
}

/// An answer, already in bytes.
struct Answer(Vec<u8>);

impl Answer {
    fn of(value: impl Wire) -> Answer {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        Answer(bytes)
    }
}

impl Wire for Answer {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn take(from: &mut &[u8]) -> super::Taken<Self> {
        Ok(Answer(std::mem::take(from).to_vec()))
    }
}

fn found<T>(object: Option<T>, what: &str) -> io::Result<T> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no such {what}"));
    object.ok_or_else(missing)
}

impl Server {
    fn qp(&mut self, num: u32) -> io::Result<&mut QpParts> {
        found(self.qps.get_mut(&num), "queue pair")
    }

    fn cq(&mut self, num: u32) -> io::Result<&mut Box<dyn NicCq>> {
        found(self.cqs.get_mut(&num), "completion queue")
    }

    fn keep(&mut self, region: Arc<dyn NicMr>) -> MrInfo {
        self.made += 1;
        let info = MrInfo {
            mr: self.made,
            addr: region.addr(),
            len: region.len(),
            lkey: region.lkey(),
            rkey: region.rkey(),
        };
        self.mrs.insert(self.made, region);
        info
    }

    fn answer(&mut self, call: Call) -> io::Result<Answer> {
        let nic = &self.nic;
        Ok(match call {
            Call::Device => Answer::of(nic.device()),
            Call::Port { port } => Answer::of(nic.port(port)),
            Call::AllocPd => Answer::of(nic.alloc_pd()),
            Call::DeallocPd { pd } => Answer::of(nic.dealloc_pd(pd)),
            Call::Allocate { pd, len, access } => {
                let made = nic.allocate(pd, len, access);
                Answer::of(made.map(|region| self.keep(region)))
            }
            Call::Register {
                pd,
                len,
                iova,
                access,
            } => {
                let made = private_region(&**nic, pd, len, iova, access);
                Answer::of(made.map(|region| self.keep(region)))
            }
            Call::CreateChannel => Answer::of(nic.create_channel().map(|channel| {
                let num = channel.num();
                let info = ChannelInfo {
                    channel: num,
                    pid: std::process::id().cast_signed(),
                    fd: channel.fd().as_raw_fd(),
                };
                self.channels.insert(num.0, channel);
                info
            })),
            Call::TakeEvent { channel } => {
                let channel = self.channels.get_mut(&channel.0);
                Answer::of(found(channel, "completion channel")?.event())
            }
            Call::DropChannel { channel } => {
                found(self.channels.remove(&channel.0), "completion channel")?;
                Answer::of(())
            }
            Call::ReadMr { mr, offset, len } => {
                let mut bytes = vec![0; len];
                found(self.mrs.get(&mr), "memory region")?.read(offset, &mut bytes);
                Answer::of(bytes)
            }
            Call::WriteMr { mr, offset, bytes } => {
                found(self.mrs.get(&mr), "memory region")?.write(offset, &bytes);
                Answer::of(())
            }
            Call::DropMr { mr } => {
                found(self.mrs.remove(&mr), "memory region")?;
                Answer::of(())
            }
            Call::CreateCq { init } => Answer::of(nic.create_cq(&init).map(|cq| {
                let num = cq.num();
                self.cqs.insert(num.0, cq);
                num
            })),
            Call::PollCq { cq, count, bytes } => {
                let mut out = Polled::with_bytes(count, bytes);
                let polled = self.cq(cq.0)?.poll(&mut out);
                let one = |(wc, lent): (&_, Option<&[u8]>)| PolledWc {
                    wc: *wc,
                    lent: lent.map(<[u8]>::to_vec),
                };
                Answer::of(polled.map(|_| out.iter().map(one).collect::<Vec<_>>()))
            }
            Call::ArmCq { cq, solicited_only } => Answer::of(self.cq(cq.0)?.arm(solicited_only)),
            Call::DropCq { cq } => {
                found(self.cqs.remove(&cq.0), "completion queue")?;
                Answer::of(())
            }
            Call::CreateSrq { init } => Answer::of(nic.create_srq(&init).map(|srq| {
                let num = srq.num();
                self.srqs.insert(num.0, srq);
                num
            })),
            Call::PostSrq { srq, recvs } => {
                let recvs: Vec<_> = recvs.iter().map(OwnedRecv::borrow).collect();
                let srq = found(self.srqs.get_mut(&srq.0), "shared receive queue")?;
                Answer::of(srq.post_recv(&recvs))
            }
            Call::DropSrq { srq } => {
                found(self.srqs.remove(&srq.0), "shared receive queue")?;
                Answer::of(())
            }
            Call::CreateQp { init } => Answer::of(nic.create_qp(&init).map(|qp| {
                let (num, limits) = (qp.num(), qp.send.limits());
                self.qps.insert(num.0, qp);
                QpInfo { num, limits }
            })),
            Call::ModifyQp { qp, attr } => Answer::of(self.qp(qp.0)?.modify(&attr)),
            Call::AttachMcast { qp, group } => Answer::of(self.qp(qp.0)?.ctl.attach_mcast(group)),
            Call::DetachMcast { qp, group } => Answer::of(self.qp(qp.0)?.ctl.detach_mcast(group)),
            Call::QueryQp { qp } => Answer::of(self.qp(qp.0)?.query()),
            Call::QpCaps { qp } => Answer::of(self.qp(qp.0)?.ctl.caps()),
            Call::PostSend { qp, sends } => {
                let sends: Vec<_> = sends.iter().map(OwnedSend::borrow).collect();
                Answer::of(self.qp(qp.0)?.post_send(&sends))
            }
            Call::PostRecv { qp, recvs } => {
                let recvs: Vec<_> = recvs.iter().map(OwnedRecv::borrow).collect();
                Answer::of(self.qp(qp.0)?.post_recv(&recvs))
            }
            Call::DropQp { qp } => {
                found(self.qps.remove(&qp.0), "queue pair")?;
                Answer::of(())
            }
            Call::CreateAh { pd, attr } => Answer::of(nic.create_ah(pd, &attr)),
            Call::DestroyAh { ah } => Answer::of(nic.destroy_ah(ah)),
            Call::Acknowledge { event } => {
                nic.acknowledge(event);
                Answer::of(())
            }
            Call::AsyncEvent => Answer::of(nic.async_event()),
            Call::Prepare { qp, to } => Answer::of(self.qp(qp.0)?.send.prepare(&to)),
            Call::Progress { now_ns } => Answer::of(nic.progress(now_ns)),
        })
    }
}
