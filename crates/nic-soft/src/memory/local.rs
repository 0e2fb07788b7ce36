//! The local side of a request: where its bytes are, checked.

use std::ops::Range;

use verbs::{Access, Op, Payload, SendWr, Sge, mem};

use crate::contact::adapter::Adapter;
use crate::memory::{mr, pages};
use crate::shared::cause::Cause;

/// A piece of local memory, checked.
pub(crate) type Piece = (*mut u8, usize);

/// Where some bytes of an element are, of which all has been checked, and they are there.
#[inline]
pub(crate) fn part(
    adapter: &Adapter,
    pd: u32,
    sge: &Sge,
    bytes: Range<usize>,
    needed: Access,
) -> Result<*mut u8, Cause> {
    match mr::local(adapter, pd, sge, needed) {
        Some(place) => Ok(place.wrapping_add(bytes.start)),
        None => {
            mr::on_demand(adapter, pd, sge, needed)?;
            let part = Sge {
                addr: sge.addr.wrapping_add(bytes.start as u64),
                len: bytes.len() as u32,
                ..*sge
            };
            mr::local_on_demand(adapter, pd, &part, needed)
        }
    }
}

/// The local side of a request as checked pieces.
#[derive(Clone, Copy)]
pub(crate) enum Local<'a> {
    One(Piece),
    Parts(&'a [&'a [u8]]),
    Sges(&'a Adapter, &'a [Sge]),
    /// Elements some of whose pages come and go, and are asked for where they are used ([`Local::fetch`]).
    OnDemand(OnDemand<'a>),
}

/// Elements some of whose pages come and go.
#[derive(Clone, Copy)]
pub(crate) struct OnDemand<'a> {
    adapter: &'a Adapter,
    sges: &'a [Sge],
    /// The pages are written to.
    writes: bool,
}

impl<'a> Local<'a> {
    /// Checks a payload's elements.
    #[inline]
    pub(crate) fn check(adapter: &'a Adapter, pd: u32, wr: &SendWr<'a>) -> Result<Self, Cause> {
        let needed = match wr.op {
            Op::Send { .. } | Op::SendInvalidate { .. } | Op::Write { .. } => Access::empty(),
            _ => Access::LOCAL_WRITE,
        };
        match wr.payload {
            Payload::Inline(bytes) => Ok(Local::One((bytes.as_ptr().cast_mut(), bytes.len()))),
            Payload::InlineParts(parts) => Ok(Local::Parts(parts)),
            Payload::Gather([]) => Ok(Local::Parts(&[])),
            Payload::Gather(sges @ [sge]) => {
                if sge.len == 0 {
                    return Ok(Local::Parts(&[]));
                }
                match mr::local(adapter, pd, sge, needed) {
                    Some(at) => Ok(Local::One((at, sge.len as usize))),
                    None => Local::on_demand(adapter, pd, sges, needed),
                }
            }
            Payload::Gather(sges) => {
                let is_there = |sge: &Sge| mr::local(adapter, pd, sge, needed).is_some();
                match sges.iter().filter(|sge| sge.len > 0).all(is_there) {
                    true => Ok(Local::Sges(adapter, sges)),
                    false => Local::on_demand(adapter, pd, sges, needed),
                }
            }
        }
    }

    /// Checks elements of which some have no memory that is always there.
    #[cold]
    fn on_demand(
        adapter: &'a Adapter,
        pd: u32,
        sges: &'a [Sge],
        needed: Access,
    ) -> Result<Self, Cause> {
        for sge in sges.iter().filter(|sge| sge.len > 0) {
            if mr::local(adapter, pd, sge, needed).is_none() {
                mr::on_demand(adapter, pd, sge, needed)?;
            }
        }
        Ok(Local::OnDemand(OnDemand {
            adapter,
            sges,
            writes: needed.contains(Access::LOCAL_WRITE),
        }))
    }

    /// Has the pages of a range be there that is used next. A request that waits uses none, so it asks for none, however often it is
    /// tried again.
    ///
    /// Cost: nothing, but for memory whose pages come and go: there, a system call for each element.
    #[inline]
    pub(crate) fn fetch(&self, range: Range<usize>) -> Result<(), Cause> {
        match self {
            Local::OnDemand(elements) => elements.fetch(range),
            Local::One(_) | Local::Parts(_) | Local::Sges(..) => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> + Clone + use<'a> {
        let (one, parts, sges): (Option<Piece>, &'a [&'a [u8]], _) = match *self {
            Local::One(piece) => (Some(piece), &[], None),
            Local::Parts(parts) => (None, parts, None),
            Local::Sges(adapter, sges) | Local::OnDemand(OnDemand { adapter, sges, .. }) => {
                (None, &[], Some((adapter, sges)))
            }
        };
        let sges = sges.into_iter().flat_map(|(adapter, sges)| {
            let used = sges.iter().filter(|sge| sge.len > 0);
            used.map(|sge| (mr::checked(adapter, sge), sge.len as usize))
        });
        one.into_iter()
            .chain(
                parts
                    .iter()
                    .map(|part| (part.as_ptr().cast_mut(), part.len())),
            )
            .chain(sges)
    }

    /// Copies the bytes `from..from + len` to one place.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and the range lies inside the payload.
    #[inline]
    pub(crate) unsafe fn gather(&self, mut from: usize, mut to: *mut u8, mut len: usize) {
        for (start, piece_len) in self.pieces() {
            if from >= piece_len {
                from -= piece_len;
                continue;
            }
            let now = len.min(piece_len - from);
            // SAFETY: inside a checked piece, and inside the caller's room.
            unsafe { mem::put(to, start.add(from), now) };
            to = to.wrapping_add(now);
            len -= now;
            from = 0;
            if len == 0 {
                return;
            }
        }
        debug_assert!(len == 0, "the range lies inside the payload");
    }
}

impl OnDemand<'_> {
    #[cold]
    fn fetch(&self, range: Range<usize>) -> Result<(), Cause> {
        let mut end = 0;
        for sge in self.sges {
            let first = end;
            end += sge.len as usize;
            let (from, to) = (range.start.max(first), range.end.min(end));
            if from >= to || !mr::is_on_demand(self.adapter, sge) {
                continue;
            }
            let start = mr::checked(self.adapter, sge).addr() + (from - first);
            if !pages::fetch(start, to - from, self.writes) {
                return Err(Cause::LocalPages);
            }
        }
        Ok(())
    }
}
