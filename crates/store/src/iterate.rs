//! Visiting every key, for backups.
//!
//! Segments are visited in the order of their sequence numbers, and of their records those that
//! the index points at. Records that are moved meanwhile come to segments with greater numbers,
//! which are visited later: so none is missed, and one that was moved or changed may come twice.

use std::ops::ControlFlow;

use crate::error::StoreError;
use crate::format::Version;
use crate::format::segment::Kind;
use crate::index::{Place, SizeCode};
use crate::maintain::is_live;
use crate::read::version;
use crate::scan::{Outcome, Passed, Scan};
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

impl Session {
    /// Visits every key that has a value all the while, with a value that it has meanwhile; a key
    /// that is changed or moved may be visited again, with a greater or the same version. Keys that
    /// come or go meanwhile are visited or not.
    ///
    /// Cost: the log is read once, from one end to the other, but for segments without a current record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Device`] or [`StoreError::Damaged`]: a current record could not be visited.
    pub async fn for_each(
        &self,
        mut visit: impl FnMut(Visited<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.visit(async |visited| visit(visited)).await
    }

    /// As [`Session::for_each`], for visitors that wait.
    pub(crate) async fn visit(
        &self,
        mut visit: impl AsyncFnMut(Visited<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        let layout = *shared.layout();
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
                return Ok(());
            };
            next = seq + 1;
            let live = shared.segments.live(segment);
            if live == 0 {
                continue;
            }
            let mut scan = Scan::of(shared, &self.disk, segment, seq);
            while let Some(mut batch) = scan.next().await? {
                while let Some(Passed { record, grain }) = batch.next() {
                    let grains = record.encoded_len().div_ceil(layout.grain()) as u64;
                    let place = Place::new(layout.place(segment, grain), SizeCode::of(grains));
                    let is_shown = record.meta.tombstone.is_none()
                        && !shared.is_expired(record.meta.expiry)
                        && is_live(shared, shared.hash(record.key).index(), place);
                    if !is_shown {
                        continue;
                    }
                    let version = version(&layout, record.meta, seq, grain);
                    shared.trust_version(version, place)?;
                    let flow = visit(Visited {
                        key: record.key,
                        value: record.value,
                        flags: record.meta.flags,
                        expiry: record.meta.expiry,
                        version,
                    })
                    .await;
                    if flow.is_break() {
                        return Ok(());
                    }
                }
            }
            self.check_suspects(&scan.finish(), segment, live)?;
        }
    }

    /// Says so if a damaged record is a current one.
    fn check_suspects(&self, outcome: &Outcome, segment: u32, live: u64) -> Result<(), StoreError> {
        let shared = &self.shared;
        let layout = shared.layout();
        for suspect in outcome.suspects.iter().filter(|_| live > 0) {
            let grains = suspect.len.div_ceil(layout.grain()) as u64;
            let place = layout.place(segment, suspect.grain);
            let hash = shared.hash(&suspect.key).index();
            if is_live(shared, hash, Place::new(place, SizeCode::of(grains))) {
                let source = crate::format::FormatError::Checksum { what: "a record" };
                return Err(shared.damaged(layout.place_at(place), source));
            }
        }
        Ok(())
    }
}
