//! Reads of a stream: pages by their addresses, and all frames in order.

use std::rc::Rc;

use block::Buf;

use crate::error::{ExtentError, StreamError};
use crate::extents::{Found, Walk};
use crate::format::frame::FrameHeader;
use crate::format::{FormatError, PAGE};
use crate::ids::{Address, Epoch, StreamId};
use crate::streams::{Located, StreamMap, start_of};

/// What reads a stream. Cloning costs one increment; not `Send`.
///
/// A writer's reads what is acknowledged; everybody else's reads sealed extents only.
#[derive(Clone, Debug)]
pub struct Reader {
    stream: StreamId,
    map: Rc<StreamMap>,
    writer: Option<Epoch>,
}

impl Reader {
    pub(crate) fn new(stream: StreamId, map: Rc<StreamMap>, writer: Option<Epoch>) -> Self {
        Self {
            stream,
            map,
            writer,
        }
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Reads the pages from `at` on whose checksums are `sums`, which the caller has kept. One read of the
    /// device; nothing is looked up but an array's entry, and nothing is allocated but the buffer from its
    /// pool.
    ///
    /// # Errors
    /// [`StreamError::Page`] names the first page whose checksum is another. [`StreamError::NoExtent`] if the
    /// extent was released, [`ExtentError::Beyond`], the device's.
    pub async fn read(&self, at: Address, sums: &[u32]) -> Result<Buf, StreamError> {
        let pages = u32::try_from(sums.len()).unwrap_or(u32::MAX);
        let buf = self.read_unchecked(at, pages).await?;
        for (index, (page, wanted)) in (0..).zip(buf.chunks_exact(PAGE).zip(sums)) {
            let found = block::crc32c::checksum(page);
            if found != *wanted {
                return Err(StreamError::Page {
                    stream: self.stream,
                    at: at.plus(index),
                    found,
                    wanted: *wanted,
                });
            }
        }
        Ok(buf)
    }

    /// Goes through the frames from `from` on, which is where a frame begins, or an extent.
    #[must_use]
    pub fn replay(&self, from: Address) -> Replay {
        Replay {
            reader: self.clone(),
            next: from,
            walk: None,
            takes_heads: false,
        }
    }

    /// The same for whoever needs records' heads and checksums more than their pages: frames that have damaged
    /// pages come too, if what was damaged is not their headers. [`Frame::is_whole`] tells, and
    /// [`FrameRecord::is_whole`] of which records the pages are right.
    #[must_use]
    pub fn replay_heads(&self, from: Address) -> Replay {
        Replay {
            takes_heads: true,
            ..self.replay(from)
        }
    }

    async fn read_unchecked(&self, at: Address, pages: u32) -> Result<Buf, StreamError> {
        let (stream, number) = (self.stream, at.extent);
        let place = |located: &Located| (located.server.clone(), located.place);
        let Some((server, place)) = self.map.with(number, place) else {
            return Err(StreamError::NoExtent { stream, number });
        };
        match server.read(place, self.writer, at.page, pages).await {
            Ok(buf) => Ok(buf),
            // It was released meanwhile.
            Err(ExtentError::NoExtent { .. }) => Err(StreamError::NoExtent { stream, number }),
            Err(error) => Err(error.into()),
        }
    }
}

/// All frames of a stream, in the order in which they were appended.
#[derive(Debug)]
pub struct Replay {
    reader: Reader,
    /// Where it looks next.
    next: Address,
    walk: Option<Running>,
    /// Whether a frame with damaged pages is one.
    takes_heads: bool,
}

/// A walk through one extent.
struct Running {
    walk: Walk,
    /// What is damaged behind this page was never promised.
    durable: u32,
    /// The extent was open when it was entered: it may have grown.
    is_open: bool,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("page", &self.walk.page())
            .finish_non_exhaustive()
    }
}

impl Replay {
    /// The next frame; `None` behind the last one: what is written later comes when it is asked again. All its checksums
    /// are right, unless [heads](Reader::replay_heads) are enough.
    ///
    /// # Errors
    /// [`StreamError::Damaged`] names pages that were acknowledged and are not what was written; the next call
    /// goes on behind them. The device's and the disk's.
    pub async fn next(&mut self) -> Result<Option<Frame<'_>>, StreamError> {
        let (header, is_whole) = loop {
            if self.walk.is_none() && !self.enter()? {
                return Ok(None);
            }
            let running = self.walk.as_mut().expect("it was entered");
            match running.walk.step().await {
                Ok(Found::Frame(header)) => break (header, true),
                // It may have grown since, and been sealed.
                Ok(Found::End) if running.is_open => self.walk = None,
                Ok(Found::End) => self.leave(),
                Ok(Found::Bad { page, .. }) if page >= running.durable => self.leave(),
                Ok(Found::Bad {
                    header: Some(header),
                    ..
                }) if self.takes_heads => {
                    running.walk.pass(&header);
                    break (header, false);
                }
                Ok(Found::Bad { page, source, .. }) => {
                    return Err(self.damaged(page, source).await?);
                }
                // It was released meanwhile.
                Err(ExtentError::NoExtent { .. }) => self.leave(),
                Err(error) => return Err(error.into()),
            }
        };
        self.next.page = header.place.page + header.pages;
        let running = self.walk.as_ref().expect("a frame was found in it");
        Ok(Some(Frame {
            header,
            bytes: running.walk.frame(&header),
            is_whole,
        }))
    }

    /// Where the next frame is looked for: where a replay can go on later.
    #[must_use]
    pub fn at(&self) -> Address {
        self.next
    }

    /// Begins with the next extent that can be read. False if there is none.
    fn enter(&mut self) -> Result<bool, StreamError> {
        while let Some((number, located)) = self.reader.map.next(self.next.extent) {
            if number != self.next.extent {
                self.next = start_of(number);
            }
            let Located {
                server,
                place,
                sealed,
            } = located;
            let is_open = sealed.is_none();
            let (end, durable) = match sealed {
                Some(sealed) => (sealed.pages, sealed.durable),
                None if self.reader.writer.is_some() => {
                    let end = server.length(place)?.unwrap_or(0);
                    (end, end)
                }
                // Nobody but the writer knows where it ends.
                None => return Ok(false),
            };
            if self.next.page >= end {
                if is_open && !self.has_gone_on(number) {
                    return Ok(false);
                }
                self.next = start_of(number + 1);
                continue;
            }
            let walk = Walk::new(&server, place, self.next.page, end)?;
            self.walk = Some(Running {
                walk,
                durable,
                is_open,
            });
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether the writer has written to an extent behind this one: then nothing more comes to this one, which may be
    /// sealed only later.
    fn has_gone_on(&self, number: u32) -> bool {
        let mut from = number.checked_add(1);
        while let Some((number, located)) = from.and_then(|from| self.reader.map.next(from)) {
            if let Ok(Some(1..)) = located.server.length(located.place) {
                return true;
            }
            from = number.checked_add(1);
        }
        false
    }

    /// Goes on with the next extent.
    fn leave(&mut self) {
        self.walk = None;
        self.next = start_of(self.next.extent.saturating_add(1));
    }

    /// Finds where damage ends, and goes on there.
    async fn damaged(
        &mut self,
        page: u32,
        source: FormatError,
    ) -> Result<StreamError, StreamError> {
        let number = self.next.extent;
        let running = self.walk.as_mut().expect("damage was found in it");
        let is_more = running.walk.seek(|_| true).await?;
        let to = if is_more {
            running.walk.page()
        } else {
            running.walk.end()
        };
        let address = |page| start_of(number).plus(page);
        let is_open = running.is_open;
        match (is_more, is_open) {
            (true, _) => self.next.page = to,
            (false, true) => {
                self.walk = None;
                self.next.page = to;
            }
            (false, false) => self.leave(),
        }
        Ok(StreamError::Damaged {
            stream: self.reader.stream,
            from: address(page),
            to: address(to),
            source,
        })
    }
}

/// A frame: what was written with one write.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    header: FrameHeader,
    bytes: &'a [u8],
    is_whole: bool,
}

impl<'a> Frame<'a> {
    /// Where it begins.
    #[must_use]
    pub fn at(&self) -> Address {
        start_of(self.header.place.number).plus(self.header.place.page)
    }

    /// Where the next one begins, if it is in the same extent.
    #[must_use]
    pub fn end(&self) -> Address {
        self.at().plus(self.header.pages)
    }

    /// The epoch of its writer.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.header.epoch
    }

    /// Whether all its pages are what was written.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Its records, in the order in which they were appended.
    pub fn records(&self) -> impl Iterator<Item = FrameRecord<'a>> + 'a {
        let (at, bytes) = (self.at(), self.bytes);
        self.header.records(bytes).flatten().map(move |record| {
            let from = record.page as usize * PAGE;
            FrameRecord {
                at: at.plus(record.page),
                head: record.head,
                payload: &bytes[from..from + record.pages as usize * PAGE],
                sums: record.sums,
            }
        })
    }
}

impl std::fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// A record of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameRecord<'a> {
    /// The address of its first page, as the append returned it.
    pub at: Address,
    /// The caller's own bytes.
    pub head: &'a [u8],
    /// Its pages.
    pub payload: &'a [u8],
    /// Four bytes a page.
    sums: &'a [u8],
}

impl<'a> FrameRecord<'a> {
    /// Pages of the payload.
    #[must_use]
    pub fn pages(&self) -> u32 {
        (self.payload.len() / PAGE) as u32
    }

    /// The checksum that each page was written with.
    pub fn sums(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        let sums = self.sums.as_chunks::<4>().0.iter();
        sums.map(|sum| u32::from_le_bytes(*sum))
    }

    /// Whether all its pages are what was written. Reads them.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged().next().is_none()
    }

    /// Its pages that are not what was written. Reads them.
    pub fn damaged(&self) -> impl Iterator<Item = Address> + use<'a> {
        let (at, sums) = (self.at, self.sums.as_chunks::<4>().0);
        let pages = self.payload.chunks_exact(PAGE).zip(sums).zip(0..);
        pages.filter_map(move |((page, sum), number)| {
            let is_right = block::crc32c::checksum(page) == u32::from_le_bytes(*sum);
            (!is_right).then(|| at.plus(number))
        })
    }
}
