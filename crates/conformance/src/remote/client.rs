//! The end of the proxy that a test holds.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::codec::{OwnedRecv, OwnedSend, Wire};
use super::{Call, ChannelInfo, MrInfo, PolledWc, QpInfo, receive, send};
use verbs::attr::{
    Access, AhAttr, CqInit, DeviceAttr, PortAttr, QpAttr, QpCaps, QpInit, SrqInit, Transport,
};
use verbs::batch::{Dest, RecvBatch, SendBatch, SendLimits};
use verbs::error::{CqError, PostError, VerbsError};
use verbs::names::{AhNum, ChannelNum, CqNum, Gid, Iova, Lkey, PdNum, QpNum, Rkey, SrqNum};
use verbs::nic::{
    AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicSrq, QpCtl, QpParts, RecvHalf, SendHalf,
};
use verbs::polled::Polled;
use verbs::rules;
use verbs::wr::UdDest;

/// A NIC at the other end of a byte stream, where [`super::serve_nic`] runs.
///
/// # Panics
/// All its methods, and those of its objects, panic when the stream breaks: the traits have no
/// error for a NIC that is gone, and a test that loses its other half has failed. Dropping does
/// not panic.
#[derive(Clone, Debug)]
pub struct RemoteNic {
    line: Line,
}

impl RemoteNic {
    /// A proxy over the two directions of a stream.
    pub fn new(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> Self {
        let ends = Ends {
            reader: Box::new(reader),
            writer: Box::new(writer),
        };
        RemoteNic {
            line: Line(Arc::new(Mutex::new(ends))),
        }
    }
}

struct Ends {
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
}

/// The stream, shared by the NIC and its objects.
#[derive(Clone)]
struct Line(Arc<Mutex<Ends>>);

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Line {
    fn try_ask<T: Wire>(&self, call: &Call) -> io::Result<T> {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut ends.writer, call)?;
        receive(&mut ends.reader)
    }

    fn ask<T: Wire>(&self, call: &Call) -> T {
        self.try_ask(call)
            .unwrap_or_else(|error| panic!("the process that holds the NIC is gone: {error}"))
    }

    /// Drops an object at the other end. If that end is gone, so is the object.
    fn discard(&self, call: &Call) {
        let _: io::Result<()> = self.try_ask(call);
    }
}

impl Nic for RemoteNic {
    fn device(&self) -> DeviceAttr {
        self.line.ask(&Call::Device)
    }

    fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        self.line.ask(&Call::Port { port })
    }

    fn alloc_pd(&self) -> Result<PdNum, VerbsError> {
        self.line.ask(&Call::AllocPd)
    }

    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError> {
        self.line.ask(&Call::DeallocPd { pd })
    }

    fn allocate(
        &self,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        let made: Result<MrInfo, _> = self.line.ask(&Call::Allocate { pd, len, access });
        let line = self.line.clone();
        Ok(Arc::new(RemoteMr { line, info: made? }))
    }

    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        rules::check_iova(start, len, iova)?;
        // Its address here is none in the other process.
        let iova = (iova != Iova::of(start)).then_some(iova);
        let call = Call::Register {
            pd,
            len,
            iova,
            access,
        };
        let made: Result<MrInfo, _> = self.line.ask(&call);
        let line = self.line.clone();
        Ok(Arc::new(RemoteMr { line, info: made? }))
    }

    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        let made: Result<ChannelInfo, _> = self.line.ask(&Call::CreateChannel);
        let info = made?;
        let duplicate = || {
            let pid = Pid::from_raw(info.pid).ok_or(Errno::SRCH)?;
            let process = pidfd_open(pid, PidfdFlags::empty())?;
            pidfd_getfd(process, info.fd, PidfdGetfdFlags::empty())
        };
        let fd =
            duplicate().map_err(|e| VerbsError::io("duplicating a channel's descriptor", e))?;
        Ok(Box::new(RemoteChannel {
            line: self.line.clone(),
            num: info.channel,
            fd,
        }))
    }

    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        let made: Result<CqNum, _> = self.line.ask(&Call::CreateCq { init: *init });
        let line = self.line.clone();
        Ok(Box::new(RemoteCq { line, num: made? }))
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        let made: Result<SrqNum, _> = self.line.ask(&Call::CreateSrq { init: *init });
        let line = self.line.clone();
        Ok(Box::new(RemoteSrq { line, num: made? }))
    }

    fn create_qp(&self, init: &QpInit) -> Result<QpParts, VerbsError> {
        let made: Result<QpInfo, _> = self.line.ask(&Call::CreateQp { init: *init });
        let info = made?;
        let qp = Arc::new(RemoteQp {
            line: self.line.clone(),
            num: info.num,
            transport: init.transport,
            limits: info.limits,
        });
        Ok(QpParts::new(
            Arc::new(RemoteCtl(Arc::clone(&qp))),
            Box::new(RemoteSend(Arc::clone(&qp))),
            Box::new(RemoteRecv(qp)),
        ))
    }

    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        self.line.ask(&Call::CreateAh { pd, attr: *attr })
    }

    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.line.ask(&Call::DestroyAh { ah })
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn acknowledge(&self, event: AsyncEvent) {
        self.line.ask::<()>(&Call::Acknowledge { event });
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.line.ask(&Call::AsyncEvent)
    }

    fn progress(&self, now_ns: u64) -> Option<u64> {
        self.line.ask(&Call::Progress { now_ns })
    }
}

#[derive(Debug)]
struct RemoteMr {
    line: Line,
    info: MrInfo,
}

impl RemoteMr {
    fn check(&self, offset: usize, len: usize) {
        let inside = offset <= self.info.len && len <= self.info.len - offset;
        assert!(inside, "outside the region");
    }
}

// SAFETY: it has no memory in this process.
unsafe impl NicMr for RemoteMr {
    fn addr(&self) -> u64 {
        self.info.addr
    }

    fn len(&self) -> usize {
        self.info.len
    }

    fn lkey(&self) -> Lkey {
        self.info.lkey
    }

    fn rkey(&self) -> Rkey {
        self.info.rkey
    }

    fn base(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        let (mr, len) = (self.info.mr, bytes.len());
        let read: Vec<u8> = self.line.ask(&Call::ReadMr { mr, offset, len });
        bytes.copy_from_slice(&read);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        let (mr, bytes) = (self.info.mr, bytes.to_vec());
        let () = self.line.ask(&Call::WriteMr { mr, offset, bytes });
    }
}

impl Drop for RemoteMr {
    fn drop(&mut self) {
        self.line.discard(&Call::DropMr { mr: self.info.mr });
    }
}

#[derive(Debug)]
struct RemoteChannel {
    line: Line,
    num: ChannelNum,
    /// A duplicate, on which this process waits.
    fd: OwnedFd,
}

impl NicChannel for RemoteChannel {
    fn num(&self) -> ChannelNum {
        self.num
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn event(&mut self) -> Result<Option<CqNum>, VerbsError> {
        self.line.ask(&Call::TakeEvent { channel: self.num })
    }
}

impl Drop for RemoteChannel {
    fn drop(&mut self) {
        self.line.discard(&Call::DropChannel { channel: self.num });
    }
}

#[derive(Debug)]
struct RemoteCq {
    line: Line,
    num: CqNum,
}

impl NicCq for RemoteCq {
    fn num(&self) -> CqNum {
        self.num
    }

    fn poll(&mut self, out: &mut Polled) -> Result<usize, CqError> {
        out.clear();
        let (cq, count, bytes) = (self.num, out.room(), out.bytes_max());
        let call = Call::PollCq { cq, count, bytes };
        let polled: Result<Vec<PolledWc>, CqError> = self.line.ask(&call);
        let polled = polled?;
        for PolledWc { wc, lent } in &polled {
            match lent {
                Some(message) => {
                    // The other end polled with the same room.
                    let room = out.lend(message.len()).expect("room for a lent message");
                    room.copy_from_slice(message);
                    out.push_lent(*wc);
                }
                None => out.push(*wc),
            }
        }
        Ok(polled.len())
    }

    fn arm(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        let cq = self.num;
        self.line.ask(&Call::ArmCq { cq, solicited_only })
    }
}

impl Drop for RemoteCq {
    fn drop(&mut self) {
        self.line.discard(&Call::DropCq { cq: self.num });
    }
}

#[derive(Debug)]
struct RemoteSrq {
    line: Line,
    num: SrqNum,
}

impl NicSrq for RemoteSrq {
    fn num(&self) -> SrqNum {
        self.num
    }
}

impl RecvHalf for RemoteSrq {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let (srq, recvs) = (
            self.num,
            batch.iter().map(|wr| OwnedRecv::copy(&wr)).collect(),
        );
        self.line.ask(&Call::PostSrq { srq, recvs })
    }
}

impl Drop for RemoteSrq {
    fn drop(&mut self) {
        self.line.discard(&Call::DropSrq { srq: self.num });
    }
}

/// A queue pair, as all of its parts hold it; dropping the last destroys it.
#[derive(Debug)]
struct RemoteQp {
    line: Line,
    num: QpNum,
    transport: Transport,
    limits: SendLimits,
}

impl Drop for RemoteQp {
    fn drop(&mut self) {
        self.line.discard(&Call::DropQp { qp: self.num });
    }
}

#[derive(Debug)]
struct RemoteCtl(Arc<RemoteQp>);

impl QpCtl for RemoteCtl {
    fn num(&self) -> QpNum {
        self.0.num
    }

    fn transport(&self) -> Transport {
        self.0.transport
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), VerbsError> {
        let (qp, attr) = (self.0.num, *attr);
        self.0.line.ask(&Call::ModifyQp { qp, attr })
    }

    fn attach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        let qp = self.0.num;
        self.0.line.ask(&Call::AttachMcast { qp, group })
    }

    fn detach_mcast(&self, group: Gid) -> Result<(), VerbsError> {
        let qp = self.0.num;
        self.0.line.ask(&Call::DetachMcast { qp, group })
    }

    fn query(&self) -> QpAttr {
        self.0.line.ask(&Call::QueryQp { qp: self.0.num })
    }

    fn caps(&self) -> QpCaps {
        self.0.line.ask(&Call::QpCaps { qp: self.0.num })
    }
}

#[derive(Debug)]
struct RemoteSend(Arc<RemoteQp>);

impl SendHalf for RemoteSend {
    fn limits(&self) -> SendLimits {
        self.0.limits
    }

    fn prepare(&mut self, to: &UdDest) -> Result<Dest, VerbsError> {
        let (qp, to) = (self.0.num, *to);
        self.0.line.ask(&Call::Prepare { qp, to })
    }

    fn post(&mut self, batch: &SendBatch) -> Result<(), PostError> {
        let (qp, sends) = (
            self.0.num,
            batch.iter().map(|wr| OwnedSend::copy(&wr)).collect(),
        );
        self.0.line.ask(&Call::PostSend { qp, sends })
    }
}

#[derive(Debug)]
struct RemoteRecv(Arc<RemoteQp>);

impl RecvHalf for RemoteRecv {
    fn post(&mut self, batch: &RecvBatch) -> Result<(), PostError> {
        let (qp, recvs) = (
            self.0.num,
            batch.iter().map(|wr| OwnedRecv::copy(&wr)).collect(),
        );
        self.0.line.ask(&Call::PostRecv { qp, recvs })
    }
}
