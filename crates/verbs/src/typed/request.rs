//! Work requests whose type carries their transport: what a transport cannot do cannot be written
//! down (HERD, Table 1).

use std::marker::PhantomData;

use super::AddressHandle;
use crate::attr::Transport;
use crate::names::{Qkey, QpNum, RemoteAddr};
use crate::wr::{Op, Payload, SendFlags, SendWr, Sge, UdDest};

mod sealed {
    pub trait Sealed {}
}

/// A transport as a type: [`Rc`], [`Uc`] or [`Ud`].
pub trait TransportType: sealed::Sealed + Send + Sync + 'static {
    /// The same as a value.
    const TRANSPORT: Transport;
}

/// A transport with one peer: [`Rc`] or [`Uc`].
pub trait Connected: TransportType {}

macro_rules! transport {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl TransportType for $name {
            const TRANSPORT: Transport = Transport::$name;
        }
    };
}
transport!(
    /// Reliable connection.
    Rc
);
transport!(
    /// Unreliable connection.
    Uc
);
transport!(
    /// Unreliable datagram.
    Ud
);
impl Connected for Rc {}
impl Connected for Uc {}

/// A send work request for a queue pair of transport `T`, signaled unless said otherwise.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Wr<'a, T> {
    raw: SendWr<'a>,
    transport: PhantomData<fn() -> T>,
}

impl<'a, T: TransportType> Wr<'a, T> {
    fn new(op: Op, payload: Payload<'a>, to: Option<UdDest>) -> Self {
        let raw = SendWr {
            id: 0,
            op,
            payload,
            flags: SendFlags::SIGNALED,
            to,
        };
        Wr {
            raw,
            transport: PhantomData,
        }
    }

    /// Sets the number that comes back in the completion.
    #[must_use]
    #[inline]
    pub fn id(mut self, id: u64) -> Self {
        self.raw.id = id;
        self
    }

    /// Asks for no completion unless there is an error.
    #[must_use]
    #[inline]
    pub fn unsignaled(mut self) -> Self {
        self.raw.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Asks for a completion only every so often: when `signaled` says so.
    #[must_use]
    #[inline]
    pub fn signaled_if(mut self, signaled: bool) -> Self {
        self.raw.flags.set(SendFlags::SIGNALED, signaled);
        self
    }

    /// Raises a solicited event at the receiver.
    #[must_use]
    #[inline]
    pub fn solicited(mut self) -> Self {
        self.raw.flags.insert(SendFlags::SOLICITED);
        self
    }

    /// The untyped request.
    pub fn raw(&self) -> &SendWr<'a> {
        &self.raw
    }

    /// The untyped requests of a batch.
    #[inline]
    pub fn raw_slice<'s>(batch: &'s [Wr<'a, T>]) -> &'s [SendWr<'a>] {
        // SAFETY: `Wr` is a transparent wrapper of `SendWr`, so a slice of the one has the layout
        // of a slice of the other.
        unsafe { std::slice::from_raw_parts(batch.as_ptr().cast(), batch.len()) }
    }
}

impl<'a, T: Connected> Wr<'a, T> {
    /// SEND of registered memory.
    #[inline]
    pub fn send(sges: &'a [Sge]) -> Self {
        Wr::new(Op::Send { imm: None }, Payload::Gather(sges), None)
    }

    /// SEND of bytes carried in the request.
    #[inline]
    pub fn send_inline(bytes: &'a [u8]) -> Self {
        Wr::new(Op::Send { imm: None }, Payload::Inline(bytes), None)
    }

    /// WRITE of registered memory.
    #[inline]
    pub fn write(sges: &'a [Sge], remote: RemoteAddr) -> Self {
        Wr::new(Op::Write { remote, imm: None }, Payload::Gather(sges), None)
    }

    /// WRITE of bytes carried in the request.
    #[inline]
    pub fn write_inline(bytes: &'a [u8], remote: RemoteAddr) -> Self {
        Wr::new(
            Op::Write { remote, imm: None },
            Payload::Inline(bytes),
            None,
        )
    }

    /// Adds immediate data to a SEND or WRITE; other requests are left as they are.
    #[must_use]
    #[inline]
    pub fn imm(mut self, value: u32) -> Self {
        if let Op::Send { imm } | Op::Write { imm, .. } = &mut self.raw.op {
            *imm = Some(value);
        }
        self
    }
}

impl<'a> Wr<'a, Rc> {
    /// READ into registered memory.
    #[inline]
    pub fn read(sges: &'a [Sge], remote: RemoteAddr) -> Self {
        Wr::new(Op::Read { remote }, Payload::Gather(sges), None)
    }

    /// Compare-and-swap; the value before goes to `result`, 8 bytes.
    #[inline]
    pub fn compare_swap(result: &'a [Sge; 1], remote: RemoteAddr, expect: u64, swap: u64) -> Self {
        Wr::new(
            Op::CompareSwap {
                remote,
                expect,
                swap,
            },
            Payload::Gather(result),
            None,
        )
    }

    /// Fetch-and-add; the value before goes to `result`, 8 bytes.
    #[inline]
    pub fn fetch_add(result: &'a [Sge; 1], remote: RemoteAddr, add: u64) -> Self {
        Wr::new(Op::FetchAdd { remote, add }, Payload::Gather(result), None)
    }

    /// Starts only when all READs and atomics before it have completed.
    #[must_use]
    #[inline]
    pub fn fenced(mut self) -> Self {
        self.raw.flags.insert(SendFlags::FENCE);
        self
    }
}

impl<'a> Wr<'a, Ud> {
    /// Datagram of registered memory.
    #[inline]
    pub fn send_to(ah: &AddressHandle, qpn: QpNum, qkey: Qkey, sges: &'a [Sge]) -> Self {
        let to = Some(UdDest {
            ah: ah.num(),
            qpn,
            qkey,
        });
        Wr::new(Op::Send { imm: None }, Payload::Gather(sges), to)
    }

    /// Datagram of bytes carried in the request.
    #[inline]
    pub fn send_inline_to(ah: &AddressHandle, qpn: QpNum, qkey: Qkey, bytes: &'a [u8]) -> Self {
        let to = Some(UdDest {
            ah: ah.num(),
            qpn,
            qkey,
        });
        Wr::new(Op::Send { imm: None }, Payload::Inline(bytes), to)
    }

    /// Adds immediate data.
    #[must_use]
    #[inline]
    pub fn with_imm(mut self, value: u32) -> Self {
        self.raw.op = Op::Send { imm: Some(value) };
        self
    }
}
