//! A NIC whose memory is the callers' own.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs::attr::{Access, AhAttr, CqInit, DeviceAttr, PortAttr, QpInit, SrqInit};
use verbs::error::VerbsError;
use verbs::names::{AhNum, Iova, PdNum};
use verbs::nic::{AsyncEvent, Nic, NicChannel, NicCq, NicMr, NicSrq, QpParts};

use super::rig::private_region;

/// Another NIC, but for the memory that it allocates: that is the process's own, registered. So the suite
/// finds out about registered memory what it finds out about the NIC's own otherwise.
#[derive(Debug)]
pub struct CallersMemory(pub Arc<dyn Nic>);

impl Nic for CallersMemory {
    fn device(&self) -> DeviceAttr {
        self.0.device()
    }

    fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        self.0.port(port)
    }

    fn alloc_pd(&self) -> Result<PdNum, VerbsError> {
        self.0.alloc_pd()
    }

    fn dealloc_pd(&self, pd: PdNum) -> Result<(), VerbsError> {
        self.0.dealloc_pd(pd)
    }

    fn allocate(
        &self,
        pd: PdNum,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        private_region(&*self.0, pd, len, None, access)
    }

    unsafe fn register(
        &self,
        pd: PdNum,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<Arc<dyn NicMr>, VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.register(pd, start, len, iova, access) }
    }

    fn create_channel(&self) -> Result<Box<dyn NicChannel>, VerbsError> {
        self.0.create_channel()
    }

    fn create_cq(&self, init: &CqInit) -> Result<Box<dyn NicCq>, VerbsError> {
        self.0.create_cq(init)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Box<dyn NicSrq>, VerbsError> {
        self.0.create_srq(init)
    }

    fn create_qp(&self, init: &QpInit) -> Result<QpParts, VerbsError> {
        self.0.create_qp(init)
    }

    fn create_ah(&self, pd: PdNum, attr: &AhAttr) -> Result<AhNum, VerbsError> {
        self.0.create_ah(pd, attr)
    }

    fn destroy_ah(&self, ah: AhNum) -> Result<(), VerbsError> {
        self.0.destroy_ah(ah)
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.async_fd()
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.0.async_event()
    }

    fn acknowledge(&self, event: AsyncEvent) {
        self.0.acknowledge(event);
    }

    fn progress(&self, now_ns: u64) -> Option<u64> {
        self.0.progress(now_ns)
    }
}
