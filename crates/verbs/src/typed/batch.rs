//! Batches whose type carries their transport, and where datagrams go.

use std::marker::PhantomData;
use std::ops::Range;

use super::{AddressHandle, Connected, Rc, TransportType, Ud, Wr};
use crate::batch::{Dest, Draft, SendBatch, SendLimits};
use crate::error::{PostError, PostReason};
use crate::names::{Qkey, QpNum, RemoteAddr};
use crate::wr::{Op, SendFlags, Sge, UdDest};

/// A datagram's destination, looked up once ([`super::SendQueue::prepare`]). It keeps its address
/// handle alive.
#[derive(Clone, Debug)]
pub struct Destination {
    pub(super) dest: Dest,
    pub(super) _ah: AddressHandle,
}

impl Destination {
    /// A destination that a queue pair looks up with each datagram.
    pub fn unprepared(ah: &AddressHandle, qpn: QpNum, qkey: Qkey) -> Self {
        let to = UdDest {
            ah: ah.num(),
            qpn,
            qkey,
        };
        Destination {
            dest: Dest::from(to),
            _ah: ah.clone(),
        }
    }

    /// The destination itself.
    pub fn to(&self) -> UdDest {
        self.dest.to
    }
}

/// A batch of send work requests for queue pairs of transport `T`, owned by whoever posts it and
/// reused: posting empties it.
///
/// Inline requests are composed in place: each method that begins one lends the room for its bytes
/// ([`Draft::bytes`]), and [`Draft::commit`] appends it. Requests are unsignaled unless
/// [`Draft::flags`] says otherwise.
///
/// All methods that begin a request fail with `BatchFull`, or with what the queue pair does not take
/// (`InlineTooLong`, `TooManySges`, `TooLong`).
#[derive(Debug)]
pub struct Batch<T> {
    pub(super) raw: SendBatch,
    transport: PhantomData<fn() -> T>,
}

impl<T: TransportType> Batch<T> {
    pub(super) fn new(limits: SendLimits, capacity: usize, kept_len: usize) -> Self {
        debug_assert_eq!(limits.transport, T::TRANSPORT);
        Batch {
            raw: SendBatch::with_kept(limits, capacity, kept_len),
            transport: PhantomData,
        }
    }

    /// As [`SendBatch::kept`].
    #[inline]
    pub fn kept(&self) -> &[u8] {
        self.raw.kept()
    }

    /// As [`SendBatch::kept_mut`].
    #[inline]
    pub fn kept_mut(&mut self) -> &mut [u8] {
        self.raw.kept_mut()
    }

    /// As [`SendBatch::set_imm`].
    pub fn set_imm(&mut self, index: usize, imm: u32) {
        self.raw.set_imm(index, imm);
    }

    /// Requests in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Requests that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.raw.room()
    }

    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.raw.clear();
    }

    /// Appends a list, copying its bytes.
    ///
    /// # Errors
    /// The first request not appended, and why; those before it are.
    pub fn extend(&mut self, list: &[Wr<'_, T>]) -> Result<(), PostError> {
        self.raw.extend(Wr::raw_slice(list))
    }
}

impl<T: Connected> Batch<T> {
    /// Begins a SEND of up to `len_max` bytes composed in the batch.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline]
    pub fn send(&mut self, imm: Option<u32>, len_max: usize) -> Result<Draft<'_>, PostReason> {
        self.raw.inline(Op::Send { imm }, None, len_max)
    }

    /// Begins a SEND of registered memory.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline]
    pub fn send_from(&mut self, imm: Option<u32>, sges: &[Sge]) -> Result<Draft<'_>, PostReason> {
        self.raw.gather(Op::Send { imm }, None, sges)
    }

    /// Begins a WRITE of up to `len_max` bytes composed in the batch.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline]
    pub fn write(
        &mut self,
        remote: RemoteAddr,
        imm: Option<u32>,
        len_max: usize,
    ) -> Result<Draft<'_>, PostReason> {
        self.raw.inline(Op::Write { remote, imm }, None, len_max)
    }

    /// Appends a WRITE of a range of the [kept](Self::kept) bytes.
    ///
    /// # Errors
    /// See [`Batch`].
    ///
    /// # Panics
    /// When the range is outside those bytes.
    #[inline(always)]
    pub fn push_write_kept(
        &mut self,
        remote: RemoteAddr,
        imm: Option<u32>,
        range: Range<usize>,
        (id, flags): (u64, SendFlags),
    ) -> Result<(), PostReason> {
        let op = Op::Write { remote, imm };
        self.raw.push_kept(op, None, range, (id, flags))
    }

    /// As [`push_write_kept`](Self::push_write_kept), without immediate data, and lends the bytes, which
    /// may be composed anew.
    ///
    /// # Errors
    /// See [`Batch`].
    ///
    /// # Panics
    /// When the range is outside the kept bytes.
    #[inline(always)]
    pub fn push_write_kept_mut(
        &mut self,
        remote: RemoteAddr,
        range: Range<usize>,
        (id, flags): (u64, SendFlags),
    ) -> Result<&mut [u8], PostReason> {
        let op = Op::Write { remote, imm: None };
        self.raw.push_kept_mut(op, None, range, (id, flags))
    }

    /// Begins a WRITE of registered memory.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline]
    pub fn write_from(
        &mut self,
        remote: RemoteAddr,
        imm: Option<u32>,
        sges: &[Sge],
    ) -> Result<Draft<'_>, PostReason> {
        self.raw.gather(Op::Write { remote, imm }, None, sges)
    }
}

impl Batch<Rc> {
    /// Begins a READ into registered memory.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline]
    pub fn read(&mut self, remote: RemoteAddr, sges: &[Sge]) -> Result<Draft<'_>, PostReason> {
        self.raw.gather(Op::Read { remote }, None, sges)
    }
}

impl Batch<Ud> {
    /// Begins a datagram of up to `len_max` bytes composed in the batch.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline]
    pub fn send_to(
        &mut self,
        to: &Destination,
        imm: Option<u32>,
        len_max: usize,
    ) -> Result<Draft<'_>, PostReason> {
        self.raw.inline(Op::Send { imm }, Some(to.dest), len_max)
    }

    /// Appends a datagram of `len` bytes, and lends the room for them, as [`SendBatch::push_inline`] does.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline(always)]
    pub fn push_to(
        &mut self,
        to: &Destination,
        len: usize,
        (id, flags): (u64, SendFlags),
    ) -> Result<&mut [u8], PostReason> {
        let op = Op::Send { imm: None };
        self.raw.push_inline(op, Some(to.dest), len, (id, flags))
    }

    /// Begins a datagram of registered memory.
    ///
    /// # Errors
    /// See [`Batch`].
    #[inline]
    pub fn send_from_to(
        &mut self,
        to: &Destination,
        imm: Option<u32>,
        sges: &[Sge],
    ) -> Result<Draft<'_>, PostReason> {
        self.raw.gather(Op::Send { imm }, Some(to.dest), sges)
    }
}
