//! Visiting every key, for backups.
//!
//! Segments are visited in the order of their sequence numbers, and of their records those that
//! the index points at. Records that are moved meanwhile come to segments with greater numbers,
//! which are visited later: so none is missed, and one that was moved or changed may come twice.

use std::ops::ControlFlow;

use crate::error::StoreError;
use crate::format::segment::Kind;
use crate::format::{FormatError, Version};
use crate::index::{Place, SizeCode};
use crate::maintain::is_live;
use crate::read::version;
use crate::scan::{Damage, Outcome, Passed, Scan};
use crate::segments::State;
use crate::session::Session;

/// A key and its value, as they are visited.
#[derive(Clone, Copy, Debug)]
pub struct Visited<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Whatever the user keeps with it.
    pub flags: u32,
    /// The second, since the epoch, from which it is not to be seen; 0 for never.
    pub expiry: u32,
    /// When it was written.
    pub version: Version,
}

/// A current record, as it is come by.
pub(crate) enum Seen<'a> {
    /// One that can be shown.
    Whole(Visited<'a>),
    /// One that cannot, of a key that is known.
    Lost { key: &'a [u8], error: StoreError },
}

impl Session {
    /// Visits every key that has a value all the while, with a value that it has meanwhile; a key
    /// that is changed or moved may be visited again, with a greater or the same version. Keys that
    /// come or go meanwhile are visited or not.
    ///
    /// Damage hides nothing behind it: all other keys are visited before it is told.
    ///
    /// Cost: the log is read once, from one end to the other, but for segments without a current record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Device`], [`StoreError::Damaged`] or [`StoreError::MaybeOld`]: a current record could
    /// not be visited, the first of those.
    pub async fn for_each(
        &self,
        mut visit: impl FnMut(Visited<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut lost = None;
        let visited = self.visit(async |seen| match seen {
            Seen::Whole(visited) => visit(visited),
            Seen::Lost { error, .. } => {
                lost.get_or_insert(error);
                ControlFlow::Continue(())
            }
        });
        visited.await?;
        lost.map_or(Ok(()), Err)
    }

    /// As [`Session::for_each`], for visitors that wait, and want the keys of damaged records too. An
    /// error is of records whose keys are not known.
    pub(crate) async fn visit(
        &self,
        mut visit: impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut missed = None;
        let end = shared.segments.next_seq();
        let mut next = 1;
        // What users write from now on need not be visited, but what is moved does.
        let is_due = |seq: u64, state| match state {
            State::Open(Kind::User) | State::Sealed(Kind::User) => seq < end,
            State::Leaving(kind) => kind != Kind::Index && (seq < end || kind == Kind::Moved),
            State::Open(Kind::Moved) | State::Sealed(Kind::Moved) | State::Retired => true,
            _ => false,
        };
        loop {
            let states = shared.segments.states();
            let numbered = states.into_iter().zip(0_u32..);
            let of_segment = |(state, segment)| (shared.segments.seq(segment), segment, state);
            let due = numbered
                .map(of_segment)
                .filter(|&(seq, _, state)| seq >= next && is_due(seq, state))
                .min_by_key(|&(seq, _, _)| seq);
            let Some((seq, segment, _)) = due else {
                return missed.map_or(Ok(()), Err);
            };
            next = seq + 1;
            if shared.segments.live(segment) == 0 {
                continue;
            }
            let visited = self.visit_segment((segment, seq), &mut missed, &mut visit);
            if visited.await.is_break() {
                return Ok(());
            }
        }
    }

    /// Visits the current records of a segment. `missed` is the first error that hid one.
    async fn visit_segment(
        &self,
        (segment, seq): (u32, u64),
        missed: &mut Option<StoreError>,
        visit: &mut impl AsyncFnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let shared = &self.shared;
        let layout = *shared.layout();
        // Of the records that the index points at, what has been seen.
        let mut accounted = 0;
        let mut scan = Scan::of(shared, &self.disk, segment, seq).tolerant();
        loop {
            let mut batch = match scan.next().await {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => {
                    missed.get_or_insert(error);
                    return ControlFlow::Continue(());
                }
            };
            while let Some(Passed { record, grain }) = batch.next() {
                let grains = record.encoded_len().div_ceil(layout.grain()) as u64;
                let place = Place::new(layout.place(segment, grain), SizeCode::of(grains));
                let is_current = record.meta.tombstone.is_none()
                    && is_live(shared, shared.hash(record.key).index(), place);
                if !is_current {
                    continue;
                }
                accounted += shared.grains(place);
                if shared.is_expired(record.meta.expiry) {
                    continue;
                }
                let version = version(&layout, record.meta, seq, grain);
                let trusted = shared.trust_version(version, place);
                visit(match trusted {
                    Ok(()) => Seen::Whole(Visited {
                        key: record.key,
                        value: record.value,
                        flags: record.meta.flags,
                        expiry: record.meta.expiry,
                        version,
                    }),
                    Err(error) => Seen::Lost {
                        key: record.key,
                        error,
                    },
                })
                .await?;
            }
        }
        let outcome = scan.finish();
        for suspect in &outcome.suspects {
            let grains = suspect.len.div_ceil(layout.grain()) as u64;
            let place = Place::new(layout.place(segment, suspect.grain), SizeCode::of(grains));
            let hash = shared.hash(&suspect.key).index();
            if suspect.meta.tombstone.is_none() && is_live(shared, hash, place) {
                accounted += shared.grains(place);
                let at = layout.place_at(place.grain());
                let source = FormatError::Checksum { what: "a record" };
                visit(Seen::Lost {
                    key: &suspect.key,
                    error: shared.damaged(at, source),
                })
                .await?;
            }
        }
        if let Some(error) = self.judge(&outcome, (segment, seq), accounted) {
            missed.get_or_insert(error);
        }
        ControlFlow::Continue(())
    }

    /// Says so if a damaged record of an unknown key is a current one. So many grains of current ones
    /// were seen.
    fn judge(
        &self,
        outcome: &Outcome,
        (segment, seq): (u32, u64),
        accounted: u64,
    ) -> Option<StoreError> {
        let shared = &self.shared;
        let layout = shared.layout();
        // Where it is not known whose records are lost, the index knows how much of them is current;
        // unless the segment was given up meanwhile.
        let lost = outcome.flaws.iter().find(|flaw| !flaw.torn)?;
        if accounted < shared.segments.live(segment) && shared.segments.seq(segment) == seq {
            let at = layout.block_at(segment, lost.blocks.start);
            let source = match lost.damage {
                Damage::Unreadable => FormatError::Unreadable { what: "a record" },
                _ => FormatError::Checksum { what: "a record" },
            };
            return Some(shared.damaged(at, source));
        }
        None
    }
}
