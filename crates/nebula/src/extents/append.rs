//! Appends under way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use block::{BlockError, Buf, Durable, Transfer};

use super::segment::{Flight, Segment, Stage};
use super::{ExtentPlace, ExtentServer, Inner};
use crate::error::ExtentError;
use crate::format::PAGE;
use crate::format::entry::SegmentState;
use crate::ids::Epoch;

/// An append that may be carried out.
enum Verdict {
    Go {
        flight: u64,
    },
    /// It was written before, if the bytes are the same.
    Repeat,
}

impl ExtentServer {
    /// Writes a frame at `page`, which has to be where the extent ends, with one write of the device. It
    /// begins when it is asked for. A frame that is there already is not written again.
    ///
    /// Several may be under way; whoever needs an order awaits the first one first. One that has failed,
    /// or whose future was dropped, ends the extent where it began: seal it. What a frame looks like is the
    /// writer's; of one that is none nothing is found when the extent is opened again.
    ///
    /// # Errors
    /// [`ExtentError::Fenced`] unless the epoch is the extent's, [`ExtentError::Gap`], [`ExtentError::Conflict`],
    /// [`ExtentError::NoRoom`], [`ExtentError::Sealed`], [`ExtentError::Failed`], [`ExtentError::NoExtent`], the device's.
    pub fn append(
        &self,
        at: ExtentPlace,
        epoch: Epoch,
        page: u32,
        frame: Buf,
        durable: Durable,
    ) -> Appending {
        let inner = &self.inner;
        debug_assert!(frame.len().is_multiple_of(PAGE) && !frame.is_empty());
        let pages = u32::try_from(frame.len() / PAGE).unwrap_or(u32::MAX);
        let place = inner.superblock.page_at(at.segment, page);
        let step = match inner.admit(at, epoch, page, pages, durable) {
            Err(error) => Step::Refused(Some((error, frame))),
            Ok(Verdict::Go { flight }) => Step::Write {
                transfer: Some(inner.disk.write(frame, place, durable)),
                flight,
            },
            Ok(Verdict::Repeat) => {
                let len = frame.len();
                Step::Compare {
                    transfer: inner.disk.read(inner.disk.buffer(len), place),
                    frame: Some(frame),
                }
            }
        };
        Appending {
            inner: inner.clone(),
            at,
            page,
            step,
        }
    }

    /// Makes durable what has ended of an extent so far. Returns how many of its pages are on the medium.
    ///
    /// # Errors
    /// The device's: what has ended and was not durable is then in doubt for good, in this extent and in all
    /// others of the disk, and each flush of one of them tells it again.
    pub async fn flush(&self, at: ExtentPlace, epoch: Epoch) -> Result<u32, ExtentError> {
        let inner = &self.inner;
        let ended = inner.with(at, |segment| {
            segment.check_epoch(epoch)?;
            Ok(segment.pages().unwrap_or(0))
        })?;
        inner.flush().await?;
        inner.with(at, |segment| {
            let Some(written) = &mut segment.written else {
                return Ok(ended);
            };
            written.flushed(ended);
            match &written.doubt {
                Some(error) if written.durable < ended => Err(error.clone().into()),
                _ => Ok(written.durable),
            }
        })
    }
}

impl Inner {
    fn admit(
        &self,
        at: ExtentPlace,
        epoch: Epoch,
        page: u32,
        pages: u32,
        durable: Durable,
    ) -> Result<Verdict, ExtentError> {
        let capacity = self.superblock.segment_pages();
        let extent = at.extent;
        self.with(at, |segment| {
            segment.check_epoch(epoch)?;
            let end = page.checked_add(pages).filter(|end| *end <= capacity);
            let Some(end) = end else {
                return Err(ExtentError::NoRoom { extent, pages });
            };
            let ended = segment.pages().unwrap_or(0);
            if end <= ended {
                return Ok(Verdict::Repeat);
            }
            if segment.entry.state == SegmentState::Sealed || segment.is_closing {
                return Err(ExtentError::Sealed { extent });
            }
            // Whoever has a higher epoch than the extent fences it first, durably.
            if epoch != segment.entry.epoch {
                let by = segment.entry.epoch;
                return Err(ExtentError::Fenced { extent, epoch, by });
            }
            let Some(written) = &mut segment.written else {
                return Err(ExtentError::Failed { extent });
            };
            if written.has_failed {
                return Err(ExtentError::Failed { extent });
            }
            if page != written.issued {
                let end = written.issued;
                return Err(ExtentError::Gap { extent, page, end });
            }
            written.issued = end;
            let flight = segment.first_flight + segment.flights.len() as u64;
            segment.flights.push_back(Flight {
                end,
                is_durable: durable == Durable::Yes,
                stage: Stage::Flying,
            });
            Ok(Verdict::Go { flight })
        })
    }

    /// Flushes the disk, one flush after the other: the device may tell one of them of a loss that the other one then
    /// knows nothing of.
    pub(super) async fn flush(&self) -> Result<(), BlockError> {
        let _one = self.flushes.acquire().await;
        let flushed = self.disk.flush().await;
        if let Err(error) = &flushed {
            self.doubt_all(error);
        }
        flushed
    }

    /// A flush has failed: the kernel tells an error of the device once, whoever's pages it was about. Some may have come
    /// to the device, and nobody has looked yet.
    fn doubt_all(&self, error: &BlockError) {
        for segment in self.segments.borrow_mut().iter_mut() {
            let flies = segment.flights.iter().any(|flight| !flight.is_durable);
            if let Some(written) = &mut segment.written
                && (flies || written.durable < written.ended)
            {
                written.doubt.get_or_insert_with(|| error.clone());
            }
        }
    }

    /// Takes note of how an append has ended. The extent may have gone meanwhile.
    fn land(&self, at: ExtentPlace, flight: u64, is_well: bool) {
        let mut segments = self.segments.borrow_mut();
        if let Some(segment) = segments.get_mut(at.segment as usize) {
            segment.land(flight, is_well);
        }
    }
}

/// An append of a frame under way. Ends with its memory, whatever happened.
#[must_use = "an append whose future is dropped may not happen, and ends its extent"]
pub struct Appending {
    inner: Rc<Inner>,
    at: ExtentPlace,
    page: u32,
    step: Step,
}

enum Step {
    Refused(Option<(ExtentError, Buf)>),
    Write {
        /// Until it has ended.
        transfer: Option<Transfer>,
        flight: u64,
    },
    /// What is there is compared.
    Compare {
        transfer: Transfer,
        frame: Option<Buf>,
    },
}

impl Future for Appending {
    type Output = (Result<(), ExtentError>, Buf);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let extent = this.at.extent;
        match &mut this.step {
            Step::Refused(refused) => {
                let (error, frame) = refused.take().expect("it is not polled after its end");
                Poll::Ready((Err(error), frame))
            }
            Step::Write { transfer, flight } => {
                let write = transfer.as_mut().expect("it is not polled after its end");
                let Poll::Ready((result, frame)) = Pin::new(write).poll(cx) else {
                    return Poll::Pending;
                };
                *transfer = None;
                this.inner.land(this.at, *flight, result.is_ok());
                Poll::Ready((result.map_err(Into::into), frame))
            }
            Step::Compare { transfer, frame } => {
                let Poll::Ready((result, found)) = Pin::new(transfer).poll(cx) else {
                    return Poll::Pending;
                };
                let frame = frame.take().expect("it is not polled after its end");
                let page = this.page;
                let outcome = match result {
                    Err(error) => Err(error.into()),
                    Ok(()) if found[..] == frame[..] => Ok(()),
                    Ok(()) => Err(ExtentError::Conflict { extent, page }),
                };
                Poll::Ready((outcome, frame))
            }
        }
    }
}

impl fmt::Debug for Appending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appending")
            .field("at", &self.at)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        let Step::Write { transfer, flight } = &mut self.step else {
            return;
        };
        // The device may go on writing: whoever seals or frees the extent waits for it.
        if let Some(transfer) = transfer.take() {
            let mut segments = self.inner.segments.borrow_mut();
            if let Some(segment) = segments.get_mut(self.at.segment as usize) {
                segment.orphan(*flight, transfer);
            }
        }
    }
}

impl Segment {
    fn orphan(&mut self, flight: u64, transfer: Transfer) {
        let index = flight
            .checked_sub(self.first_flight)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(flight) = index.and_then(|index| self.flights.get_mut(index)) {
            flight.stage = Stage::Orphan(transfer);
            self.landed.notify_all();
        }
    }

    /// Looks after appends that nobody awaits. Whether none is under way any more.
    pub(super) fn poll_orphans(&mut self, cx: &mut Context<'_>) -> bool {
        for index in 0..self.flights.len() {
            let stage = &mut self.flights[index].stage;
            if let Stage::Orphan(transfer) = stage
                && Pin::new(transfer).poll(cx).is_ready()
            {
                // Nobody was told of it: it counts as failed.
                *stage = Stage::Ended { is_well: false };
            }
        }
        self.advance();
        self.flights.is_empty() && !self.is_preparing
    }
}

/// Waits until nothing is written to an extent any more, also not by those whom nobody awaits.
pub(super) async fn landed(inner: &Inner, at: ExtentPlace) -> Result<(), ExtentError> {
    loop {
        let landed = inner.with(at, |segment| Ok(segment.landed.clone()))?;
        let mut landed = std::pin::pin!(landed.notified());
        let is_over = std::future::poll_fn(|cx| {
            let is_told = landed.as_mut().poll(cx).is_ready();
            match inner.with(at, |segment| Ok(segment.poll_orphans(cx))) {
                Ok(false) if !is_told => Poll::Pending,
                outcome => Poll::Ready(outcome),
            }
        });
        if is_over.await? {
            return Ok(());
        }
    }
}
