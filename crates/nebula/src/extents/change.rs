//! Changes of the table of segments.
//!
//! Each is a task of its own, so that whoever asks may go away: a change that has begun ends.

use std::future::Future;
use std::rc::Rc;

use super::append::landed;
use super::format::write_entry;
use super::segment::{Segment, Written};
use super::walk::recovered_length;
use super::{ExtentPlace, ExtentServer, Inner, NewExtent, Sealed};
use crate::error::ExtentError;
use crate::format::entry::{Entry, SegmentState};
use crate::ids::Epoch;

impl ExtentServer {
    /// Gives an extent a free segment. Two durable writes. A repeat finds what is there.
    ///
    /// # Errors
    /// [`ExtentError::Full`], the device's.
    pub async fn create(&self, new: NewExtent) -> Result<ExtentPlace, ExtentError> {
        let inner = self.inner.clone();
        self.run(async move { create(&inner, new).await }).await
    }

    /// Ends an extent: refuses all epochs below this one from now on, waits for appends under way, makes
    /// what has ended durable, and writes the length down. A repeat returns the same length.
    ///
    /// An extent that nobody has written to since the disk was opened is read from its beginning to find
    /// its length; `known` is how many of its pages are known to have been acknowledged.
    ///
    /// # Errors
    /// [`ExtentError::Fenced`], [`ExtentError::NoExtent`], the device's: its appends stay refused, and it can be
    /// sealed again.
    pub async fn seal(
        &self,
        at: ExtentPlace,
        epoch: Epoch,
        known: u32,
    ) -> Result<Sealed, ExtentError> {
        let this = self.clone();
        self.run(async move { seal(&this, at, epoch, known).await })
            .await
    }

    /// Ends an extent of which it is known elsewhere how long it is. Nobody writes to it any more. A repeat changes
    /// nothing.
    ///
    /// # Errors
    /// [`ExtentError::NoExtent`], the device's.
    pub(crate) async fn seal_as(&self, at: ExtentPlace, known: Sealed) -> Result<(), ExtentError> {
        let inner = self.inner.clone();
        self.run(async move {
            inner.with(at, |segment| {
                segment.is_closing = true;
                Ok(())
            })?;
            landed(&inner, at).await?;
            let _permit = inner.changes.acquire().await;
            let (sealed, entry) =
                inner.with(at, |segment| Ok((sealed_as(segment), segment.entry)))?;
            if sealed.is_some() {
                return Ok(());
            }
            let length = known.pages.min(inner.superblock.segment_pages());
            let entry = Entry {
                state: SegmentState::Sealed,
                length,
                durable: known.durable.min(length),
                ..entry
            };
            inner.write(at.segment, entry).await
        })
        .await
    }

    /// Refuses all epochs below this one from now on, durably, and takes appends of this one.
    ///
    /// # Errors
    /// [`ExtentError::Fenced`], [`ExtentError::NoExtent`], the device's.
    pub async fn fence(&self, at: ExtentPlace, epoch: Epoch) -> Result<(), ExtentError> {
        let inner = self.inner.clone();
        self.run(async move {
            raise(&inner, at, epoch)?;
            let _permit = inner.changes.acquire().await;
            let entry = inner.with(at, |segment| Ok(segment.entry))?;
            inner.write(at.segment, entry).await
        })
        .await
    }

    /// Gives the segment of an extent back. What is read of it at the same time fails.
    ///
    /// # Errors
    /// [`ExtentError::NoExtent`], the device's: whether it is free is then open until the disk is opened
    /// again, and freeing it can be repeated.
    pub async fn free(&self, at: ExtentPlace) -> Result<(), ExtentError> {
        let inner = self.inner.clone();
        self.run(async move {
            inner.with(at, |segment| {
                segment.is_closing = true;
                Ok(())
            })?;
            landed(&inner, at).await?;
            let _permit = inner.changes.acquire().await;
            // Somebody else may have been faster.
            inner.with(at, |_| Ok(()))?;
            inner.write(at.segment, Entry::default()).await
        })
        .await
    }

    async fn run<T: 'static>(
        &self,
        change: impl Future<Output = Result<T, ExtentError>> + 'static,
    ) -> Result<T, ExtentError> {
        match self.inner.core.spawn(change).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ExtentError::Closed {
                device: self.inner.device.clone(),
            }),
        }
    }
}

async fn create(inner: &Rc<Inner>, new: NewExtent) -> Result<ExtentPlace, ExtentError> {
    let _permit = inner.changes.acquire().await;
    let extent = new.extent;
    let segment = {
        let segments = inner.segments.borrow();
        if let Some(found) = segments.iter().position(|segment| segment.holds(extent)) {
            let segment = found as u32;
            return Ok(ExtentPlace { extent, segment });
        }
        let count = segments.len() as u32;
        let places = (0..count).map(|index| (inner.next.get() + index) % count);
        let mut free = places.filter(|place| segments[*place as usize].is_free());
        free.next()
    };
    let Some(segment) = segment else {
        return Err(ExtentError::Full {
            device: inner.device.clone(),
        });
    };
    inner.next.set((segment + 1) % inner.superblock.segments);
    let entry = Entry {
        state: SegmentState::Open,
        extent,
        stream: new.stream,
        number: new.number,
        epoch: new.epoch,
        ..Entry::default()
    };
    inner.write(segment, entry).await?;
    let mut segments = inner.segments.borrow_mut();
    segments[segment as usize].written = Some(Written::default());
    Ok(ExtentPlace { extent, segment })
}

/// Puts an epoch in force here: not yet on the medium.
fn raise(inner: &Inner, at: ExtentPlace, epoch: Epoch) -> Result<(), ExtentError> {
    inner.with(at, |segment| {
        segment.check_epoch(epoch)?;
        segment.entry.epoch = epoch;
        Ok(())
    })
}

async fn seal(
    server: &ExtentServer,
    at: ExtentPlace,
    epoch: Epoch,
    known: u32,
) -> Result<Sealed, ExtentError> {
    let inner = &server.inner;
    raise(inner, at, epoch)?;
    let sealed = inner.with(at, |segment| {
        segment.is_closing = true;
        Ok(sealed_as(segment))
    })?;
    if let Some(sealed) = sealed {
        return Ok(sealed);
    }
    landed(inner, at).await?;
    let written = match inner.with(at, |segment| Ok(segment.written.clone()))? {
        Some(written) if written.durable < written.ended => {
            // What a flush that fails leaves in doubt is written down as such.
            if let Err(error) = server.flush(at, epoch).await {
                tracing::warn!(%error, extent = at.extent.0, "sealing what is not known to be durable");
            }
            inner.with(at, |segment| Ok(segment.written.clone()))?
        }
        Some(written) => Some(written),
        None => {
            let ended = recovered_length(server, at, known).await?;
            // It may be in the device's cache only.
            inner.flush().await?;
            Some(Written {
                issued: ended,
                ended,
                durable: ended,
                ..Written::default()
            })
        }
    };
    let written = written.unwrap_or_default();
    let _permit = inner.changes.acquire().await;
    // Another seal may have been faster.
    let (sealed, entry) = inner.with(at, |segment| Ok((sealed_as(segment), segment.entry)))?;
    if let Some(sealed) = sealed {
        return Ok(sealed);
    }
    let entry = Entry {
        state: SegmentState::Sealed,
        length: written.ended,
        durable: written.durable,
        ..entry
    };
    inner.write(at.segment, entry).await?;
    Ok(Sealed {
        pages: entry.length,
        durable: entry.durable,
    })
}

/// How long a segment's extent is, if it is sealed.
fn sealed_as(segment: &Segment) -> Option<Sealed> {
    let entry = &segment.entry;
    (entry.state == SegmentState::Sealed).then_some(Sealed {
        pages: entry.length,
        durable: entry.durable,
    })
}

impl Inner {
    /// Durably changes a segment's entry: both copies, one after the other. Its sequence is the next.
    async fn write(&self, segment: u32, entry: Entry) -> Result<(), ExtentError> {
        let index = segment as usize;
        let sequence = {
            let this = &mut self.segments.borrow_mut()[index];
            this.is_changing = true;
            // A change that fails may be on the medium: the next one is after it.
            this.entry.sequence += 1;
            this.entry.sequence
        };
        let entry = Entry { sequence, ..entry };
        for copy in 0..2 {
            let written = write_entry(&self.disk, &self.superblock, copy, segment, &entry).await;
            if let Err(error) = written {
                let this = &mut self.segments.borrow_mut()[index];
                // Whatever the medium has of the change, the next one comes after it: a device that fails for a
                // while must not use all segments up.
                this.is_changing = this.entry.state != SegmentState::Free;
                return Err(error.into());
            }
        }
        let this = &mut self.segments.borrow_mut()[index];
        // An epoch may have been raised meanwhile.
        let epoch = entry.epoch.max(this.entry.epoch);
        let is_same = this.entry.extent == entry.extent;
        this.entry = entry;
        this.is_changing = false;
        match entry.state {
            SegmentState::Open if is_same => this.entry.epoch = epoch,
            SegmentState::Sealed => {
                this.entry.epoch = epoch;
                this.written = None;
            }
            SegmentState::Open => this.is_closing = false,
            SegmentState::Free => {
                this.written = None;
                this.is_closing = false;
            }
        }
        Ok(())
    }
}
