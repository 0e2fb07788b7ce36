//! What is known of each segment, in memory: its entry, and how far its extent was written.

use std::collections::VecDeque;

use block::{BlockError, Transfer};
use rt::sync::Notify;

use super::SegmentInfo;
use crate::error::ExtentError;
use crate::format::FormatError;
use crate::format::entry::{Entry, SegmentState};
use crate::ids::{Epoch, ExtentId};

/// A segment, and the extent that is in it.
#[derive(Default)]
pub(super) struct Segment {
    /// As it is in the table, but for what a change under way has already put in force.
    pub(super) entry: Entry,
    /// Both copies of the entry are damaged.
    pub(super) damage: Option<FormatError>,
    /// A change of the entry is under way; or one has failed that was to free the segment or to change its extent, so
    /// that the table may have any of both.
    pub(super) is_changing: bool,
    /// How far the extent was written; `None` if that is not known since the disk was opened.
    pub(super) written: Option<Written>,
    /// Appends under way, in the order of their pages.
    pub(super) flights: VecDeque<Flight>,
    /// The number of the first of them.
    pub(super) first_flight: u64,
    /// Told when a flight has ended.
    pub(super) landed: Notify,
    /// Takes no more appends: it is being sealed or freed.
    pub(super) is_closing: bool,
    /// A piece of it is being written before its first use.
    pub(super) is_preparing: bool,
}

/// How far an open extent was written.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// The end of the last append that has begun.
    pub(super) issued: u32,
    /// All appends up to here have ended well.
    pub(super) ended: u32,
    /// Up to here they are on the medium.
    pub(super) durable: u32,
    /// The end of the last append that only a flush makes durable.
    pub(super) volatile: u32,
    /// An append has failed or was given up: what is behind `ended` is lost.
    pub(super) has_failed: bool,
    /// A flush of the disk has failed, this way: what is not durable is in doubt for good.
    pub(super) doubt: Option<BlockError>,
}

/// An append under way.
pub(super) struct Flight {
    pub(super) end: u32,
    pub(super) is_durable: bool,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// Somebody awaits it.
    Flying,
    /// Nobody does; the device may still write.
    Orphan(Transfer),
    /// It has ended.
    Ended { is_well: bool },
}

impl Segment {
    pub(super) fn is_free(&self) -> bool {
        self.entry.state == SegmentState::Free && self.damage.is_none() && !self.is_changing
    }

    pub(super) fn holds(&self, extent: ExtentId) -> bool {
        self.entry.state != SegmentState::Free && self.entry.extent == extent
    }

    /// The extent's pages, as far as they are known.
    pub(super) fn pages(&self) -> Option<u32> {
        match self.entry.state {
            SegmentState::Sealed => Some(self.entry.length),
            SegmentState::Open => self.written.as_ref().map(|written| written.ended),
            SegmentState::Free => None,
        }
    }

    /// How far a reader may go, who is the writer of this epoch or nobody.
    pub(super) fn readable(&self, writer: Option<Epoch>) -> u32 {
        let is_writer = writer == Some(self.entry.epoch);
        match self.entry.state {
            SegmentState::Sealed => self.entry.length,
            SegmentState::Open if is_writer => {
                self.written.as_ref().map_or(0, |written| written.ended)
            }
            SegmentState::Open | SegmentState::Free => 0,
        }
    }

    /// Whether an owner of this epoch may change the extent.
    pub(super) fn check_epoch(&self, epoch: Epoch) -> Result<(), ExtentError> {
        if epoch >= self.entry.epoch {
            return Ok(());
        }
        Err(ExtentError::Fenced {
            extent: self.entry.extent,
            epoch,
            by: self.entry.epoch,
        })
    }

    /// Takes note of how a flight has ended.
    pub(super) fn land(&mut self, flight: u64, is_well: bool) {
        let index = flight
            .checked_sub(self.first_flight)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(flight) = index.and_then(|index| self.flights.get_mut(index)) {
            flight.stage = Stage::Ended { is_well };
        }
        self.advance();
    }

    /// Takes note of how far all appends have ended well.
    pub(super) fn advance(&mut self) {
        let before = self.first_flight;
        while let Some(flight) = self.flights.front()
            && let Stage::Ended { is_well } = flight.stage
        {
            let written = self.written.as_mut().expect("what is appended to is known");
            if is_well && !written.has_failed {
                written.ended = flight.end;
                if !flight.is_durable {
                    written.volatile = flight.end;
                }
                written.settle();
            } else {
                written.has_failed = true;
            }
            self.flights.pop_front();
            self.first_flight += 1;
        }
        if self.first_flight > before {
            self.landed.notify_all();
        }
    }

    pub(super) fn info((segment, this): (u32, &Self)) -> SegmentInfo {
        let Entry {
            state,
            extent,
            stream,
            number,
            epoch,
            ..
        } = this.entry;
        SegmentInfo {
            segment,
            state,
            extent,
            stream,
            number,
            epoch,
            pages: this.pages(),
            is_damaged: this.damage.is_some(),
        }
    }
}

impl Written {
    /// A flush that began when `ended` was this has ended well.
    pub(super) fn flushed(&mut self, ended: u32) {
        if self.doubt.is_none() {
            self.durable = self.durable.max(ended);
            self.settle();
        }
    }

    /// What was written durably behind what is durable is so too.
    fn settle(&mut self) {
        if self.durable >= self.volatile && self.doubt.is_none() {
            self.durable = self.ended;
        }
    }
}
