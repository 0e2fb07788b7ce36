//! Rows that the owner has read, within a budget of bytes.
//!
//! Only the owner of an object keeps its rows, and changes them when it commits; so they are never stale.
//! Objects with changes that no row has yet are not here but in [`crate::live`]: those must not be evicted.

use std::hash::Hash;
use std::rc::Rc;

use files::{FileId, Handle, Kind, Name};
use quick_cache::unsync::Cache as QuickCache;
use quick_cache::{DefaultHashBuilder, Equivalent, Weighter};

use crate::format::inode::Inode;
use crate::format::rows::MAP_ROW_BLOCKS;

/// Bytes that an entry costs besides its own: the cache's tables and the allocator's.
const OVERHEAD_BYTES: u64 = 64;

/// A row of an object, as it was read or committed.
#[derive(Clone, Debug)]
pub(crate) struct CachedInode {
    pub(crate) inode: Rc<Inode>,
    pub(crate) version: u64,
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) file: FileId,
    pub(crate) kind: Kind,
    pub(crate) cookie: u64,
    pub(crate) version: u64,
}

/// A row of a block map.
#[derive(Clone, Debug)]
pub(crate) struct MapRow {
    pub(crate) ids: Rc<[u64; MAP_ROW_BLOCKS]>,
    /// 0 if there is no row.
    pub(crate) version: u64,
}

#[derive(Clone)]
struct MapBytes;

impl Weighter<(Handle, u64), MapRow> for MapBytes {
    fn weight(&self, _key: &(Handle, u64), _value: &MapRow) -> u64 {
        let own = size_of::<(Handle, u64)>() + size_of::<MapRow>() + 8 * MAP_ROW_BLOCKS;
        own as u64 + OVERHEAD_BYTES
    }
}

#[derive(Hash)]
struct NameKey<'a>(Handle, &'a Name);

impl Equivalent<(Handle, Name)> for NameKey<'_> {
    fn equivalent(&self, key: &(Handle, Name)) -> bool {
        self.0 == key.0 && *self.1 == key.1
    }
}

#[derive(Clone)]
struct InodeBytes;

impl Weighter<Handle, CachedInode> for InodeBytes {
    fn weight(&self, _key: &Handle, value: &CachedInode) -> u64 {
        let own = size_of::<Handle>() + size_of::<CachedInode>() + size_of::<Inode>();
        own as u64 + value.inode.text.len() as u64 + OVERHEAD_BYTES
    }
}

#[derive(Clone)]
struct NameBytes;

impl Weighter<(Handle, Name), Option<Entry>> for NameBytes {
    fn weight(&self, key: &(Handle, Name), _value: &Option<Entry>) -> u64 {
        let own = size_of::<(Handle, Name)>() + size_of::<Option<Entry>>();
        own as u64 + key.1.len() as u64 + OVERHEAD_BYTES
    }
}

/// Objects, names and block maps; what is used least makes room (S3-FIFO, quick_cache's).
pub(crate) struct Cache {
    inodes: QuickCache<Handle, CachedInode, InodeBytes>,
    names: QuickCache<(Handle, Name), Option<Entry>, NameBytes>,
    maps: QuickCache<(Handle, u64), MapRow, MapBytes>,
}

impl Cache {
    /// Of so many bytes: a third each.
    pub(crate) fn new(bytes: u64) -> Self {
        let third = bytes / 3;
        let items = usize::try_from(third / 300).unwrap_or(usize::MAX).max(16);
        let hasher = DefaultHashBuilder::default;
        Self {
            inodes: QuickCache::with(items, third, InodeBytes, hasher(), Default::default()),
            names: QuickCache::with(items, third, NameBytes, hasher(), Default::default()),
            maps: QuickCache::with(items, third, MapBytes, hasher(), Default::default()),
        }
    }

    pub(crate) fn inode(&self, object: Handle) -> Option<CachedInode> {
        self.inodes.get(&object).cloned()
    }

    pub(crate) fn keep_inode(&mut self, object: Handle, inode: Rc<Inode>, version: u64) {
        self.inodes.insert(object, CachedInode { inode, version });
    }

    pub(crate) fn forget_inode(&mut self, object: Handle) {
        self.inodes.remove(&object);
    }

    /// What a name leads to: `Some(None)` if it is known that there is no such name.
    pub(crate) fn name(&self, directory: Handle, name: &Name) -> Option<Option<Entry>> {
        self.names.get(&NameKey(directory, name)).copied()
    }

    pub(crate) fn keep_name(&mut self, directory: Handle, name: &Name, entry: Option<Entry>) {
        self.names.insert((directory, name.clone()), entry);
    }

    pub(crate) fn forget_name(&mut self, directory: Handle, name: &Name) {
        self.names.remove(&NameKey(directory, name));
    }

    pub(crate) fn map(&self, file: Handle, row: u64) -> Option<MapRow> {
        self.maps.get(&(file, row)).cloned()
    }

    pub(crate) fn keep_map(&mut self, file: Handle, row: u64, map: MapRow) {
        self.maps.insert((file, row), map);
    }

    pub(crate) fn forget_map(&mut self, file: Handle, row: u64) {
        self.maps.remove(&(file, row));
    }

    /// Forgets all that a virtual node has.
    pub(crate) fn forget_node(&mut self, node: u16) {
        let is_other = |object: &Handle| object.file.virtual_node() != node;
        self.inodes.retain(|object, _| is_other(object));
        self.names.retain(|(directory, _), _| is_other(directory));
        self.maps.retain(|(file, _), _| is_other(file));
    }

    /// Bytes of all entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.inodes.weight() + self.names.weight() + self.maps.weight()
    }
}
