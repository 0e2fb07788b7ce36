//! Snapshots of volumes, and going back to one.

use std::collections::BTreeSet;

use block::Durable;

use super::{DataUnit, Inner};
use crate::error::FileError;
use crate::format::{Entry, Head};
use crate::ids::{Fid, HEAD, Key, Volume};

impl DataUnit {
    /// Keeps what the volume's blocks of this dataunit are: all changes up to this snapshot epoch. Changes
    /// from now on have to carry a higher one. Costs one durable append; a block costs another one of 4 to 16 KiB
    /// with its first change afterwards.
    ///
    /// # Errors
    /// [`FileError::Epoch`], [`FileError::Full`], the stream's.
    pub async fn snapshot(&self, volume: Volume, epoch: u32) -> Result<(), FileError> {
        if epoch == 0 || epoch >= HEAD - 1 {
            return Err(FileError::Epoch { epoch });
        }
        self.inner.check_room()?;
        self.inner.set_snapshot(volume, epoch, true).await
    }

    /// Forgets a snapshot, and gives back what it alone has kept. It may be begun again after a failure. Goes on when
    /// the dataunit is full.
    ///
    /// # Errors
    /// [`FileError::NoSnapshot`] if there is none and nothing is left of it; the stream's.
    pub async fn drop_snapshot(&self, volume: Volume, epoch: u32) -> Result<(), FileError> {
        let inner = &self.inner;
        let was_there = inner.index.borrow().has_snapshot(volume, epoch);
        if was_there {
            inner.set_snapshot(volume, epoch, false).await?;
        }
        let mut next = Some(Key {
            fid: Fid(0),
            label: 0,
        });
        let mut found_any = was_there;
        while let Some(from) = next {
            let (unneeded, more) = inner.index.borrow().unneeded(volume, from);
            found_any |= !unneeded.is_empty();
            for key in unneeded {
                let lock = inner.locks.queue_all(key.fid);
                lock.turn().await;
                let item = inner.bare(Head::Free { key });
                inner.append(vec![item], Durable::No, vec![lock]).await?;
            }
            next = more;
        }
        if !found_any {
            return Err(FileError::NoSnapshot { volume, epoch });
        }
        inner.flush().await
    }

    /// Has all blocks of a volume be what they were at a snapshot, durably. Later snapshots stay what they are.
    /// `now` is the volume's snapshot epoch, higher than all snapshots'.
    ///
    /// A block at a time is changed as a whole; the volume is not to be used meanwhile. After a failure or a crash it is to be
    /// begun again, which goes on where it stopped.
    ///
    /// # Errors
    /// [`FileError::NoSnapshot`], [`FileError::Full`], the stream's.
    pub async fn rollback(&self, volume: Volume, epoch: u32, now: u32) -> Result<(), FileError> {
        let inner = &self.inner;
        if !inner.index.borrow().has_snapshot(volume, epoch) {
            return Err(FileError::NoSnapshot { volume, epoch });
        }
        for fid in inner.fids_of(volume) {
            inner.check_room()?;
            let lock = inner.locks.queue_all(fid);
            lock.turn().await;
            let mut items: Vec<_> = inner.keep(fid, now).into_iter().collect();
            let head = {
                let index = inner.index.borrow();
                let there = index.block(Key::head(fid));
                match index.at_snapshot(fid, epoch) {
                    Some((_, block)) if there.is_some_and(|head| head.map == block.map) => continue,
                    Some((_, block)) => {
                        let mut owner = block.owner(Key::head(fid));
                        // Snapshots before have what was: kept just now, or earlier, or nothing.
                        owner.born = now;
                        owner.changed = now;
                        Some(Entry {
                            owner,
                            root: block.root,
                            map: block.map.clone(),
                        })
                    }
                    None if there.is_none() => continue,
                    None => None,
                }
            };
            items.push(match head {
                Some(entry) => inner.maps(vec![entry]),
                None => inner.bare(Head::Free {
                    key: Key::head(fid),
                }),
            });
            inner.append(items, Durable::No, vec![lock]).await?;
        }
        inner.flush().await
    }

    /// The snapshots there are.
    #[must_use]
    pub fn snapshots(&self) -> Vec<(Volume, u32)> {
        self.inner.index.borrow().snapshots().collect()
    }
}

impl Inner {
    async fn set_snapshot(
        self: &std::rc::Rc<Self>,
        volume: Volume,
        epoch: u32,
        is_taken: bool,
    ) -> Result<(), FileError> {
        let this = self.clone();
        // Whoever asked may go away, and compaction may not come in between: it would say again what the index does not
        // know yet to be over.
        let task = self.core.spawn(async move {
            let _one = this.moving.acquire().await;
            let item = this.bare(Head::Snapshot {
                volume,
                epoch,
                is_taken,
            });
            this.append(vec![item], Durable::Yes, Vec::new()).await
        });
        task.await.map_err(|_| FileError::Closed)?
    }

    /// The blocks of a volume, with those of which only snapshots are left.
    fn fids_of(&self, volume: Volume) -> BTreeSet<Fid> {
        let index = self.index.borrow();
        let first = Key {
            fid: Fid(0),
            label: 0,
        };
        let all = index.blocks_from(first);
        all.filter(|(_, block)| block.volume == volume)
            .map(|(key, _)| key.fid)
            .collect()
    }
}
