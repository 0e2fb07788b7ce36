//! An opened device, protection domains and address handles.

use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{CompletionChannel, CompletionQueue, MemoryRegion};
use crate::attr::{Access, AhAttr, CqInit, DeviceAttr, PortAttr};
use crate::error::VerbsError;
use crate::names::{AhNum, Gid, Iova, PdNum};
use crate::nic::{AsyncEvent, Nic};

/// An opened device, whichever NIC it is.
#[derive(Clone, Debug)]
pub struct Context {
    nic: Arc<dyn Nic>,
}

impl Context {
    /// Wraps a NIC.
    pub fn new(nic: Arc<dyn Nic>) -> Self {
        Context { nic }
    }

    /// The NIC itself.
    pub fn nic(&self) -> &Arc<dyn Nic> {
        &self.nic
    }

    /// The device's name and limits.
    pub fn device(&self) -> DeviceAttr {
        self.nic.device()
    }

    /// A port, counted from 1.
    ///
    /// # Errors
    /// `NoSuch`.
    pub fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        self.nic.port(port)
    }

    /// The first GID of port 1: the address peers know this device by.
    ///
    /// # Errors
    /// `NoSuch` when the port has none.
    pub fn gid(&self) -> Result<Gid, VerbsError> {
        let gids = self.nic.port(1)?.gids;
        gids.first()
            .map(|entry| entry.gid)
            .ok_or(VerbsError::NoSuch {
                what: "GID",
                number: 0,
            })
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// `Exhausted`.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, VerbsError> {
        let num = self.nic.alloc_pd()?;
        Ok(ProtectionDomain {
            inner: Arc::new(PdInner {
                context: self.clone(),
                num,
            }),
        })
    }

    /// Makes a completion queue that is only polled.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`.
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, VerbsError> {
        let cq = self.nic.create_cq(&CqInit::new(depth))?;
        Ok(CompletionQueue::new(cq, self))
    }

    /// Makes a completion queue whose events go to a channel.
    ///
    /// # Errors
    /// `Limit`, `Exhausted`.
    pub fn create_cq_on(
        &self,
        depth: u32,
        channel: &CompletionChannel,
    ) -> Result<CompletionQueue, VerbsError> {
        let init = CqInit::new(depth).on(channel.num());
        Ok(CompletionQueue::new(self.nic.create_cq(&init)?, self))
    }

    /// Makes a completion channel.
    ///
    /// # Errors
    /// `Exhausted`, `Io`.
    pub fn create_channel(&self) -> Result<CompletionChannel, VerbsError> {
        Ok(CompletionChannel::new(self.nic.create_channel()?))
    }

    /// A descriptor that is readable while asynchronous events wait; `None` where there is none.
    pub fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.nic.async_fd()
    }

    /// The next asynchronous event, if there is one. Dropping it acknowledges it.
    pub fn async_event(&self) -> Option<TakenEvent<'_>> {
        let event = self.nic.async_event()?;
        Some(TakenEvent {
            nic: &*self.nic,
            event,
        })
    }
}

/// An asynchronous event. While somebody has it, the number in it is given to nothing else.
#[derive(Debug)]
pub struct TakenEvent<'a> {
    nic: &'a dyn Nic,
    event: AsyncEvent,
}

impl Deref for TakenEvent<'_> {
    type Target = AsyncEvent;

    fn deref(&self) -> &AsyncEvent {
        &self.event
    }
}

impl Drop for TakenEvent<'_> {
    fn drop(&mut self) {
        self.nic.acknowledge(self.event);
    }
}

#[derive(Debug)]
struct PdInner {
    context: Context,
    num: PdNum,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // Everything made from a protection domain keeps it alive, so that the only possible
        // refusal is a device that has already gone; then there is nothing to give back.
        let _ = self.context.nic.dealloc_pd(self.num);
    }
}

/// A protection domain: what was made from the same one may work together. Cloning shares it.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<PdInner>,
}

impl ProtectionDomain {
    /// Its number.
    pub fn num(&self) -> PdNum {
        self.inner.num
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Allocates and registers zeroed memory, in the way that suits the NIC best.
    ///
    /// # Errors
    /// `Invalid`, `Exhausted`, `Io`.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, VerbsError> {
        let mr = self.inner.context.nic.allocate(self.num(), len, access)?;
        Ok(MemoryRegion::new(mr, self.clone()))
    }

    /// Registers memory of the caller.
    ///
    /// # Errors
    /// `Invalid`, `Exhausted`, `Io`.
    ///
    /// # Safety
    /// As [`Nic::register`].
    pub unsafe fn register(
        &self,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, VerbsError> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.register_iova(start, len, Iova::of(start), access) }
    }

    /// Registers memory of the caller, which work requests name by addresses from `iova` on: 0, or an
    /// offset in a file. In pages of 4096 bytes it lies as the memory does.
    ///
    /// # Errors
    /// `Invalid`, `Exhausted`, `Io`.
    ///
    /// # Safety
    /// As [`Nic::register`].
    pub unsafe fn register_iova(
        &self,
        start: NonNull<u8>,
        len: usize,
        iova: Iova,
        access: Access,
    ) -> Result<MemoryRegion, VerbsError> {
        // SAFETY: the caller's promise is the one asked for.
        let mr = unsafe {
            self.inner
                .context
                .nic
                .register(self.num(), start, len, iova, access)?
        };
        Ok(MemoryRegion::new(mr, self.clone()))
    }

    /// Makes an address handle for the port with this GID, or for a multicast group.
    ///
    /// # Errors
    /// `Exhausted`, `Unreachable`.
    pub fn create_ah(&self, gid: Gid) -> Result<AddressHandle, VerbsError> {
        self.create_ah_of(&AhAttr::to(gid))
    }

    /// Makes an address handle of an address vector.
    ///
    /// # Errors
    /// As [`Nic::create_ah`].
    pub fn create_ah_of(&self, attr: &AhAttr) -> Result<AddressHandle, VerbsError> {
        let num = self.inner.context.nic.create_ah(self.num(), attr)?;
        Ok(AddressHandle {
            inner: Arc::new(AhInner {
                num,
                gid: attr.gid,
                pd: self.clone(),
            }),
        })
    }
}

#[derive(Debug)]
struct AhInner {
    num: AhNum,
    gid: Gid,
    pd: ProtectionDomain,
}

impl Drop for AhInner {
    fn drop(&mut self) {
        // The number came from this device, so the only refusal is a device that has gone.
        let _ = self.pd.context().nic.destroy_ah(self.num);
    }
}

/// Where datagrams go. Cloning shares it.
#[derive(Clone, Debug)]
pub struct AddressHandle {
    inner: Arc<AhInner>,
}

impl AddressHandle {
    /// Its number.
    #[inline]
    pub fn num(&self) -> AhNum {
        self.inner.num
    }

    /// The peer's GID.
    pub fn gid(&self) -> Gid {
        self.inner.gid
    }
}
