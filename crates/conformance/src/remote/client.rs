//! The end of the proxy that a test holds.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::codec::{OwnedRecv, OwnedSend, Wire};
use super::{Call, ChannelInfo, MrInfo, receive, send};
use verbs::attr::{
    Access, AhAttr, CqInit, DeviceAttr, PortAttr, QpAttr, QpInit, SrqInit, Transport,
};
use verbs::error::{CqError, PostError, VerbsError};
use verbs::names::{AhNum, ChannelNum, CqNum, Lkey, PdNum, QpNum, Rkey, SrqNum};
use verbs::nic::{AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicQp, NicSrq};
use verbs::wc::Wc;
use verbs::wr::{RecvWr, SendWr};

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
        _: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        let made: Result<MrInfo, _> = self.line.ask(&Call::Register { pd, len, access });
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

    fn create_qp(&self, init: &QpInit) -> Result<Box<dyn NicQp>, VerbsError> {
        let made: Result<QpNum, _> = self.line.ask(&Call::CreateQp { init: *init });
        Ok(Box::new(RemoteQp {
            line: self.line.clone(),
            num: made?,
            transport: init.transport,
        }))
    }

    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        self.line.ask(&Call::CreateAh { pd, attr: *attr })
    }

    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.line.ask(&Call::DestroyAh { ah })
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.line.ask(&Call::AsyncEvent)
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

impl NicMr for RemoteMr {
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

    fn poll(&mut self, out: &mut [Wc]) -> Result<usize, CqError> {
        let (cq, count) = (self.num, out.len());
        let polled: Result<Vec<Wc>, CqError> = self.line.ask(&Call::PollCq { cq, count });
        let polled = polled?;
        out[..polled.len()].copy_from_slice(&polled);
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

    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let (srq, recvs) = (self.num, wrs.iter().map(OwnedRecv::copy).collect());
        self.line.ask(&Call::PostSrq { srq, recvs })
    }
}

impl Drop for RemoteSrq {
    fn drop(&mut self) {
        self.line.discard(&Call::DropSrq { srq: self.num });
    }
}

#[derive(Debug)]
struct RemoteQp {
    line: Line,
    num: QpNum,
    transport: Transport,
}

impl NicQp for RemoteQp {
    fn num(&self) -> QpNum {
        self.num
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn modify(&mut self, attr: &QpAttr) -> Result<(), VerbsError> {
        let (qp, attr) = (self.num, *attr);
        self.line.ask(&Call::ModifyQp { qp, attr })
    }

    fn query(&self) -> QpAttr {
        self.line.ask(&Call::QueryQp { qp: self.num })
    }

    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let (qp, sends) = (self.num, wrs.iter().map(OwnedSend::copy).collect());
        self.line.ask(&Call::PostSend { qp, sends })
    }

    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let (qp, recvs) = (self.num, wrs.iter().map(OwnedRecv::copy).collect());
        self.line.ask(&Call::PostRecv { qp, recvs })
    }
}

impl Drop for RemoteQp {
    fn drop(&mut self) {
        self.line.discard(&Call::DropQp { qp: self.num });
    }
}
