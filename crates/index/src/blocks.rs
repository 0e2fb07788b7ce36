//! What the index asks of who keeps the data.

use files::{Error, Handle, Pending, SeekFor};

/// A block: up to [`BLOCK_LEN`] bytes of one file, sparse. The number is used once, ever; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

/// Bytes of a file that a block holds: 4 MiB.
pub const BLOCK_LEN: u64 = 4 << 20;

/// What each record of data carries, so that a file's size can be told from its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Of which file.
    pub file: Handle,
    /// Where the file ends after it, at least; 0 says nothing.
    pub end: u64,
    /// Records of an older epoch do not extend the file: it was cut since.
    pub truncate_epoch: u32,
    /// The volume's, for snapshots.
    pub snapshot_epoch: u32,
}

/// Bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which block.
    pub block: BlockId,
    /// The first byte, in the block.
    pub from: u32,
    /// How many; `from + len` is at most [`BLOCK_LEN`].
    pub len: u32,
}

/// What records say of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The largest end of the records of the given truncate epoch; 0 for none.
    pub end: u64,
    /// Bytes that the blocks occupy.
    pub used: u64,
}

/// A device's room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
}

/// Who keeps the data of files in blocks, as the index sees it.
///
/// Whatever is asked here is durable when it is answered. The index repeats what a crash may have
/// interrupted, so that everything must be fine a second time.
pub trait Blocks {
    /// Numbers of new blocks, which occupy nothing. What is not used before a crash is never used.
    fn allocate(&self, count: usize) -> Pending<'_, Result<Vec<BlockId>, Error>>;

    /// Drops blocks of one file, some of which may be dropped already. The mark says in which snapshot epoch.
    fn free(&self, blocks: Vec<BlockId>, mark: Mark) -> Pending<'_, Result<(), Error>>;

    /// Bytes of room that writing all of these would take besides what the block occupies.
    fn missing(&self, span: Span) -> Pending<'_, Result<u64, Error>>;

    /// Makes holes of these bytes. A block that was never written is one already.
    fn punch(&self, span: Span, mark: Mark) -> Pending<'_, Result<(), Error>>;

    /// Keeps room for these bytes: zeroes where holes are, the rest stays.
    fn reserve(&self, span: Span, mark: Mark) -> Pending<'_, Result<(), Error>>;

    /// Puts bytes of one block in the place of as many of another. Holes stay holes, or become zeroes.
    fn copy(&self, from: Span, to: Span, mark: Mark) -> Pending<'_, Result<(), Error>>;

    /// Has new blocks be what others are, in pairs (source, new): they share pages until one is written, so that no data
    /// is moved. Nothing was stored in the new ones. After an error some may be what they are to be.
    fn share(&self, pairs: Vec<(BlockId, BlockId)>, mark: Mark) -> Pending<'_, Result<(), Error>>;

    /// The first byte of a block, from one on, that is stored, or is not. `None`: none up to its end.
    fn seek(
        &self,
        block: BlockId,
        from: u32,
        what: SeekFor,
    ) -> Pending<'_, Result<Option<u32>, Error>>;

    /// Bytes that a block occupies.
    fn used(&self, block: BlockId) -> Pending<'_, Result<u64, Error>>;

    /// Makes all unstable writes that have ended durable, whichever blocks they are of: that costs the same.
    /// Answers the write verifier; another one says that writes from before may have been lost.
    fn commit(&self) -> Pending<'_, Result<[u8; 8], Error>>;

    /// Makes all that has ended durable, also what an earlier call has failed to make so.
    ///
    /// [`Error::Delay`]: power may still take something that an earlier call has failed to make durable. It is
    /// moved to where it is safe; ask again later.
    fn make_durable(&self) -> Pending<'_, Result<(), Error>>;

    /// What the records of a file's blocks say, after a crash.
    fn recover(
        &self,
        file: Handle,
        truncate_epoch: u32,
        blocks: Vec<BlockId>,
    ) -> Pending<'_, Result<Recovered, Error>>;

    /// The file's size stands in its row, durably, or the file has ended: what records say of its end is not
    /// asked for any more.
    fn forget(&self, file: Handle);

    /// The devices' room.
    fn room(&self) -> Room;
}
