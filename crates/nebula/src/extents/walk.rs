//! The frames of an extent, one after the other, and where they are damaged.

use block::{BlockError, Buf};

use super::{ExtentPlace, ExtentServer};
use crate::error::ExtentError;
use crate::format::frame::{FRAME_PAGES_MAX, FrameHeader, HEADER_PAGES_MAX, Place};
use crate::format::{FormatError, PAGE};

/// Pages that are read at once.
const WINDOW: u32 = 512;
const _: () = assert!(WINDOW >= FRAME_PAGES_MAX);

/// What stands where a walk looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A sound frame: its header, its pages, all checksums.
    Frame(FrameHeader),
    /// Something else.
    Bad {
        /// The first page.
        page: u32,
        /// What is wrong with it.
        source: FormatError,
        /// The frame's header, if that is sound, and some of its other pages are not.
        header: Option<FrameHeader>,
    },
    /// The end of what was to be looked at.
    End,
}

/// A walk through the frames of an extent.
pub(crate) struct Walk {
    server: ExtentServer,
    at: ExtentPlace,
    place: Place,
    /// Where it looks next.
    page: u32,
    /// Where it ends.
    end: u32,
    window: Option<Buf>,
    /// The first page of the window, and how many there are.
    window_at: u32,
    window_pages: u32,
    /// Pages of the window that the device did not give.
    unreadable: Vec<u32>,
    /// What the device said of one.
    device_error: Option<BlockError>,
}

impl Walk {
    /// From `page` up to `end` of an extent.
    pub(crate) fn new(
        server: &ExtentServer,
        at: ExtentPlace,
        page: u32,
        end: u32,
    ) -> Result<Self, ExtentError> {
        let inner = &server.inner;
        let place = inner.with(at, |segment| {
            Ok(Place {
                extent: at.extent,
                stream: segment.entry.stream,
                number: segment.entry.number,
                page,
            })
        })?;
        Ok(Self {
            server: server.clone(),
            at,
            place,
            page,
            end: end.min(inner.superblock.segment_pages()),
            window: None,
            window_at: 0,
            window_pages: 0,
            unreadable: Vec::new(),
            device_error: None,
        })
    }

    /// What stands at the next place. Goes on behind a sound frame; stays where something else is, until
    /// [`Walk::seek`] finds the next frame.
    ///
    /// # Errors
    /// What the device says, unless it is that it cannot give some pages.
    pub(crate) async fn step(&mut self) -> Result<Found, ExtentError> {
        let page = self.page;
        if page >= self.end {
            return Ok(Found::End);
        }
        self.load(page, FRAME_PAGES_MAX).await?;
        let bad = |source, header| Found::Bad {
            page,
            source,
            header,
        };
        let header = match self.header(page) {
            Ok(header) => header,
            Err(source) => return Ok(bad(source, None)),
        };
        if let Err(source) = self.check_pages(&header) {
            return Ok(bad(source, Some(header)));
        }
        self.pass(&header);
        Ok(Found::Frame(header))
    }

    /// Goes behind a frame at this place.
    pub(crate) fn pass(&mut self, header: &FrameHeader) {
        self.page += header.pages;
    }

    /// Goes to the next place behind this one where a sound header stands that `is_next` accepts; stays here if
    /// there is none.
    pub(crate) async fn seek(
        &mut self,
        is_next: impl FnMut(&FrameHeader) -> bool,
    ) -> Result<bool, ExtentError> {
        let page = self.page;
        let is_found = self.seek_until(self.end, is_next).await?;
        if !is_found {
            self.page = page;
        }
        Ok(is_found)
    }

    /// The same for places before `until`; goes there if there is none.
    pub(crate) async fn seek_until(
        &mut self,
        until: u32,
        mut is_next: impl FnMut(&FrameHeader) -> bool,
    ) -> Result<bool, ExtentError> {
        let until = until.min(self.end);
        for page in self.page + 1..until {
            self.load(page, HEADER_PAGES_MAX).await?;
            if let Ok(header) = self.header(page)
                && is_next(&header)
            {
                self.page = page;
                return Ok(true);
            }
        }
        self.page = until.max(self.page);
        Ok(false)
    }

    /// The bytes of the frame that the last step has found. Pages that the device did not give are anything.
    pub(crate) fn frame(&self, header: &FrameHeader) -> &[u8] {
        self.given(header.place.page, header.pages)
            .expect("the window holds the last frame")
    }

    /// Where the walk looks next.
    pub(crate) fn page(&self) -> u32 {
        self.page
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// What the device said of a page that it did not give, since this was asked.
    fn take_device_error(&mut self) -> Option<BlockError> {
        self.device_error.take()
    }

    /// The header at a page of the window, checked by itself.
    fn header(&self, page: u32) -> Result<FrameHeader, FormatError> {
        let what = "a frame";
        let first = self
            .bytes(page, 1)
            .ok_or(FormatError::Unreadable { what })?;
        let header = FrameHeader::peek(first, Place { page, ..self.place })?;
        if header.pages > self.end - page {
            let field = "the length";
            return Err(FormatError::Field { what, field });
        }
        let all = self.bytes(page, header.header_pages);
        header.check(
            self.server.seed(),
            all.ok_or(FormatError::Unreadable { what })?,
        )?;
        Ok(header)
    }

    fn check_pages(&self, header: &FrameHeader) -> Result<(), FormatError> {
        let what = "a page of a frame";
        let page = header.place.page;
        let all = self.bytes(page, header.header_pages);
        let all = all.ok_or(FormatError::Unreadable { what })?;
        for record in header.records(all) {
            let record = record?;
            for (index, sum) in (0..).zip(record.sums()) {
                let bytes = self.bytes(page + record.page + index, 1);
                let bytes = bytes.ok_or(FormatError::Unreadable { what })?;
                if block::crc32c::checksum(bytes) != sum {
                    return Err(FormatError::Checksum { what });
                }
            }
        }
        Ok(())
    }

    /// Pages of the window, if the device has given all of them.
    fn bytes(&self, page: u32, pages: u32) -> Option<&[u8]> {
        let end = page.checked_add(pages)?;
        let is_missing = |missing: &u32| (page..end).contains(missing);
        if self.unreadable.iter().any(is_missing) {
            return None;
        }
        self.given(page, pages)
    }

    /// Pages of the window, whatever the device has given.
    fn given(&self, page: u32, pages: u32) -> Option<&[u8]> {
        let window = self.window.as_ref()?;
        let from = page.checked_sub(self.window_at)?;
        if from.checked_add(pages)? > self.window_pages {
            return None;
        }
        window.get(from as usize * PAGE..(from + pages) as usize * PAGE)
    }

    /// Has the window hold these pages, as far as they are before the end.
    async fn load(&mut self, page: u32, pages: u32) -> Result<(), ExtentError> {
        let end = page.saturating_add(pages).min(self.end);
        if page >= self.window_at && end <= self.window_at + self.window_pages {
            return Ok(());
        }
        let inner = self.server.inner.clone();
        let pages = WINDOW.min(self.end - page);
        let len = pages as usize * PAGE;
        let buf = self.window.take();
        let buf = buf.filter(|buf| buf.capacity() >= len);
        let mut buf = buf.unwrap_or_else(|| inner.disk.buffer(len));
        buf.set_len(len);
        self.unreadable.clear();
        let (result, buf) = inner
            .disk
            .read(buf, inner.superblock.page_at(self.at.segment, page))
            .await;
        let mut buf = buf;
        match result {
            Ok(()) => {}
            Err(error @ BlockError::Io { .. }) => {
                self.device_error = Some(error);
                for index in 0..pages {
                    let at = inner.superblock.page_at(self.at.segment, page + index);
                    let (result, piece) = inner.disk.read(inner.disk.buffer(PAGE), at).await;
                    match result {
                        Ok(()) => buf[index as usize * PAGE..][..PAGE].copy_from_slice(&piece),
                        Err(BlockError::Io { .. }) => self.unreadable.push(page + index),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
        // Its segment may hold another extent by now.
        inner.with(self.at, |_| Ok(()))?;
        (self.window, self.window_at, self.window_pages) = (Some(buf), page, pages);
        Ok(())
    }
}

/// Whether an extent was ever written to: a header of its own stands somewhere in it.
pub(crate) async fn is_written(
    server: &ExtentServer,
    at: ExtentPlace,
) -> Result<bool, ExtentError> {
    let mut walk = Walk::new(server, at, 0, u32::MAX)?;
    match walk.step().await? {
        Found::Frame(_) => Ok(true),
        Found::Bad { header, .. } => Ok(header.is_some() || walk.seek(|_| true).await?),
        Found::End => Ok(false),
    }
}

/// How long an extent is that was open when its writer went away.
///
/// A frame counts if its header, its place and all its pages are right: what was acknowledged was written
/// as a whole, and what was not may go. The first that is not ends the extent, unless a later frame says
/// that this place was on the medium when it was composed: then what is here is no torn tail but damage,
/// which stays in the extent, and is named by whoever reads it. A page that the device does not give is
/// neither: whether it was acknowledged cannot be known, and it may come back.
pub(crate) async fn recovered_length(
    server: &ExtentServer,
    at: ExtentPlace,
    known: u32,
) -> Result<u32, ExtentError> {
    let mut walk = Walk::new(server, at, 0, u32::MAX)?;
    let mut length = 0;
    loop {
        match walk.step().await? {
            Found::Frame(header) => length = header.place.page + header.pages,
            Found::End => break,
            Found::Bad { page, source, .. } => {
                let is_unreadable = matches!(source, FormatError::Unreadable { .. });
                let is_proof = |next: &FrameHeader| next.durable > page || next.place.page < known;
                if walk.seek(is_proof).await? {
                    tracing::error!(
                        extent = at.extent.0, page, %source, "frames that were acknowledged are damaged"
                    );
                    continue;
                }
                if known > page {
                    break;
                }
                match walk.take_device_error() {
                    Some(error) if is_unreadable => return Err(error.into()),
                    _ => {}
                }
                let is_of_others = FormatError::Misplaced { what: "a frame" } == source;
                if !is_of_others && !matches!(source, FormatError::Foreign { .. }) {
                    // Nothing says that it was on the medium: a write that was cut short, or damage of the last.
                    tracing::warn!(
                        extent = at.extent.0, page, %source,
                        "the extent ends before a frame that is not whole; whether it was acknowledged cannot be known"
                    );
                }
                break;
            }
        }
    }
    Ok(length.max(known))
}
