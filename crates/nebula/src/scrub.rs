//! Reads everything that a disk's extents hold, a piece at a time, and says what is damaged.

use std::fmt;

use crate::error::ExtentError;
use crate::extents::{ExtentPlace, ExtentServer, Found, SegmentInfo, Walk};
use crate::format::FormatError;
use crate::format::entry::SegmentState;
use crate::ids::{ExtentId, StreamId};

/// Pages in which the next frame is looked for in one step, behind a damaged one.
const SEEK_PAGES: u32 = 512;

/// A pass over a disk: every frame of every sealed extent, and of open ones as far as they are written.
pub struct Scrub {
    server: ExtentServer,
    segment: u32,
    running: Option<Running>,
}

/// An extent that is being read.
struct Running {
    walk: Walk,
    info: SegmentInfo,
    /// What is damaged behind this page was never promised.
    durable: u32,
    /// Where damage has begun whose end is looked for.
    bad: Option<(u32, FormatError)>,
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubStep {
    /// So many pages were read and are right; zero if none had to be.
    Sound {
        /// Pages of a frame.
        pages: u32,
    },
    /// Something is damaged.
    Bad(ScrubFault),
    /// The pass is over.
    Over,
}

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubFault {
    /// The segment.
    pub segment: u32,
    /// Its extent; nothing if the table does not know it.
    pub extent: ExtentId,
    /// The extent's stream.
    pub stream: StreamId,
    /// The extent's number there.
    pub number: u32,
    /// The first page of the extent that is damaged.
    pub from: u32,
    /// The first page behind.
    pub to: u32,
    /// What is wrong with the first.
    pub source: FormatError,
}

impl Scrub {
    /// A pass from the disk's first segment on.
    #[must_use]
    pub fn new(server: &ExtentServer) -> Self {
        Self {
            server: server.clone(),
            segment: 0,
            running: None,
        }
    }

    /// The next piece: a frame, or 512 pages behind a damaged one. One or two reads of 2 MiB at most; its
    /// caller decides how often.
    ///
    /// # Errors
    /// What the device says, unless it is that it cannot give some pages: that is a fault.
    pub async fn step(&mut self) -> Result<ScrubStep, ExtentError> {
        if self.running.is_none() {
            return self.enter();
        }
        match self.advance().await {
            // It was freed meanwhile.
            Err(ExtentError::NoExtent { .. }) => {
                self.running = None;
                Ok(ScrubStep::Sound { pages: 0 })
            }
            outcome => outcome,
        }
    }

    /// Begins with the next segment.
    fn enter(&mut self) -> Result<ScrubStep, ExtentError> {
        let segment = self.segment;
        let Some(info) = self.server.info(segment) else {
            return Ok(ScrubStep::Over);
        };
        self.segment += 1;
        if let Some(source) = self.server.damage(segment) {
            return Ok(ScrubStep::Bad(fault(&info, 0, 0, source)));
        }
        if info.state != SegmentState::Free
            && let Some(end) = info.pages
        {
            let extent = info.extent;
            let walk = Walk::new(&self.server, ExtentPlace { extent, segment }, 0, end)?;
            let durable = self.server.promised(segment).unwrap_or(end);
            self.running = Some(Running {
                walk,
                info,
                durable,
                bad: None,
            });
        }
        Ok(ScrubStep::Sound { pages: 0 })
    }

    async fn advance(&mut self) -> Result<ScrubStep, ExtentError> {
        let running = self.running.as_mut().expect("an extent is being read");
        if let Some((from, source)) = running.bad {
            let until = running.walk.page().saturating_add(SEEK_PAGES);
            let is_found = running.walk.seek_until(until, |_| true).await?;
            let to = running.walk.page();
            let is_over = to >= running.walk.end();
            if !is_found && !is_over {
                return Ok(ScrubStep::Sound { pages: 0 });
            }
            running.bad = None;
            return Ok(ScrubStep::Bad(fault(&running.info, from, to, source)));
        }
        Ok(match running.walk.step().await? {
            Found::Frame(header) => ScrubStep::Sound {
                pages: header.pages,
            },
            Found::Bad { page, source, .. } if page < running.durable => {
                running.bad = Some((page, source));
                ScrubStep::Sound { pages: 0 }
            }
            Found::Bad { .. } | Found::End => {
                self.running = None;
                ScrubStep::Sound { pages: 0 }
            }
        })
    }
}

fn fault(info: &SegmentInfo, from: u32, to: u32, source: FormatError) -> ScrubFault {
    ScrubFault {
        segment: info.segment,
        extent: info.extent,
        stream: info.stream,
        number: info.number,
        from,
        to,
        source,
    }
}

impl fmt::Debug for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrub")
            .field("segment", &self.segment)
            .finish_non_exhaustive()
    }
}
