//! Reads all rows, trusts nothing, and says what does not fit.
//!
//! It needs the rows of one moment: an index that is closed, or an engine's copy. Memory: some hundred
//! bytes an object.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use files::{FileId, Handle, Kind, Name, VolumeId};
use meta::{Engine, Key, MetaError, Row};

use crate::blocks::BlockId;
use crate::format::BadRow;
use crate::format::inode::Inode;
use crate::format::keys::{self, RowKind};
use crate::format::rows::{self, Dirent, Node, Super, Usage, Volume, Xattr};
use crate::names::Names;
use crate::recover;

/// What does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Finding {
    /// A row whose key or value cannot be.
    BadRow {
        /// Its key.
        key: Vec<u8>,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no row of the whole index, or none of a virtual node.
    Missing {
        /// Under which key.
        key: Vec<u8>,
    },
    /// A volume without a root directory, or rows of a volume that there is not.
    NoVolume(VolumeId),
    /// A name that leads to no object.
    NameOfNothing {
        /// In which directory.
        directory: Handle,
        /// Which.
        name: Name,
    },
    /// A name in what is no directory.
    NameNowhere {
        /// In what.
        directory: Handle,
        /// Which.
        name: Name,
    },
    /// A name with another kind, under a cookie that is not its, or for the second time.
    BadName {
        /// In which directory.
        directory: Handle,
        /// Which.
        name: Name,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An object has another number of names than its row says.
    Links {
        /// Which.
        object: Handle,
        /// What its row says.
        said: u32,
        /// What there are.
        found: u32,
    },
    /// An object without a name that no orphan row remembers: it would never end.
    Lost(Handle),
    /// An orphan row of an object that has a name, or of none.
    NoOrphan(Handle),
    /// A directory whose parent is another than the one that it is in.
    Parent {
        /// Which.
        directory: Handle,
        /// What its row says.
        said: FileId,
    },
    /// A directory from which no way leads to the root.
    Circle(Handle),
    /// The cells of a volume do not add up to its objects and their bytes.
    Usage {
        /// Which.
        volume: VolumeId,
        /// Objects and bytes by the cells.
        said: (i64, i64),
        /// By the objects' rows.
        found: (i64, i64),
    },
    /// A block that two places of files have.
    BlockTwice {
        /// Which.
        block: u64,
        /// One of them.
        file: Handle,
    },
    /// Rows of a block map, extended attributes, marks or cuts of an object that there is not, or of one
    /// that says it has none.
    RowsOfNothing {
        /// Of which.
        object: Handle,
        /// Which rows.
        what: &'static str,
    },
    /// A number that its virtual node has not handed out yet: it would be used again.
    NotHandedOut(Handle),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tell(&numbers))
    }
}

/// What an object is called if its path is not known.
fn numbers(object: &Handle) -> String {
    format!("volume {} file {:x}", object.volume.0, object.file.0)
}

impl Finding {
    /// Which object it is about, if it is about one.
    #[must_use]
    pub fn object(&self) -> Option<Handle> {
        match self {
            Self::NameOfNothing { directory, .. }
            | Self::NameNowhere { directory, .. }
            | Self::BadName { directory, .. }
            | Self::Parent { directory, .. }
            | Self::Circle(directory) => Some(*directory),
            Self::Links { object, .. }
            | Self::Lost(object)
            | Self::NoOrphan(object)
            | Self::RowsOfNothing { object, .. }
            | Self::NotHandedOut(object) => Some(*object),
            Self::BlockTwice { file, .. } => Some(*file),
            Self::BadRow { .. } | Self::Missing { .. } | Self::NoVolume(_) | Self::Usage { .. } => {
                None
            }
        }
    }

    /// The finding as a sentence, with what objects are called.
    #[must_use]
    pub fn tell(&self, at: &dyn Fn(&Handle) -> String) -> String {
        match self {
            Self::BadRow { key, why } => format!("row {}: {why}", key.escape_ascii()),
            Self::Missing { key } => format!("row {} is missing", key.escape_ascii()),
            Self::NoVolume(volume) => format!("volume {} has no root, or no row", volume.0),
            Self::NameOfNothing { directory, name } => {
                format!("{}: \"{name}\" leads to no object", at(directory))
            }
            Self::NameNowhere { directory, name } => {
                format!("{}: \"{name}\" is in no directory", at(directory))
            }
            Self::BadName {
                directory,
                name,
                why,
            } => format!("{}: \"{name}\": {why}", at(directory)),
            Self::Links {
                object,
                said,
                found,
            } => format!("{}: {said} links by its row, {found} found", at(object)),
            Self::Lost(object) => format!("{}: no name and no orphan row", at(object)),
            Self::NoOrphan(object) => format!("{}: an orphan row of no orphan", at(object)),
            Self::Parent { directory, said } => {
                format!("{}: is not in {:x}, as it says", at(directory), said.0)
            }
            Self::Circle(directory) => format!("{}: no way leads to the root", at(directory)),
            Self::Usage {
                volume,
                said,
                found,
            } => format!(
                "volume {}: {} objects and {} bytes by its cells, {} and {} found",
                volume.0, said.0, said.1, found.0, found.1
            ),
            Self::BlockTwice { block, file } => {
                format!("{}: block {block:x} is somewhere else too", at(file))
            }
            Self::RowsOfNothing { object, what } => {
                format!("{}: {what} of an object that has none", at(object))
            }
            Self::NotHandedOut(object) => {
                format!("{}: its number is not handed out yet", at(object))
            }
        }
    }
}

/// What a check has read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Rows of all kinds.
    pub rows: u64,
    /// Objects.
    pub objects: u64,
    /// Objects without a name that are still kept.
    pub orphans: u64,
    /// Objects that have ended, whose contents are still to be deleted.
    pub garbage: u64,
    /// Objects whose rows lag behind: the next start recovers them.
    pub marked: u64,
    /// Blocks that files have, in order: what else the file layer holds is nobody's.
    pub blocks: Vec<BlockId>,
    /// What does not fit, in order.
    pub findings: Vec<Finding>,
    /// Which file has a block, from which of its bytes on.
    pub owners: HashMap<BlockId, (Handle, u64)>,
    /// Bytes that a file's blocks have by its row, of files whose rows are up to date.
    pub used: HashMap<Handle, u64>,
    /// A name of each object that has one: its directory, and what it is called there.
    names: HashMap<Handle, (FileId, Name)>,
}

impl Report {
    /// The path of an object, `/` for the root; with its volume before it unless that is `usual`. The number of one
    /// that no name leads to.
    #[must_use]
    pub fn path(&self, object: &Handle, usual: VolumeId) -> String {
        let mut names = Vec::new();
        let mut at = *object;
        while at.file != FileId::ROOT {
            match self.names.get(&at) {
                Some((above, name)) if names.len() < self.names.len() => {
                    names.push(name);
                    at = Handle { file: *above, ..at };
                }
                _ => return numbers(object),
            }
        }
        let mut path = match object.volume == usual {
            true => String::new(),
            false => format!("volume {} ", object.volume.0),
        };
        if names.is_empty() {
            path.push('/');
        }
        for name in names.into_iter().rev() {
            path.push('/');
            path.push_str(&name.to_string());
        }
        path
    }
}

/// Reads all rows of an index and compares them with each other.
///
/// # Errors
/// The engine's. Damage is no error but a [`Finding`].
pub async fn check(engine: &dyn Engine) -> Result<Report, MetaError> {
    let mut all = Gathered::default();
    for (key, row) in recover::all(engine, meta::Range::all()).await? {
        all.report.rows += 1;
        if let Err(bad) = all.gather(&key, &row) {
            all.found(Finding::BadRow {
                key: key.to_vec(),
                why: bad.0,
            });
        }
    }
    all.compare();
    all.report.blocks = all.blocks.keys().copied().map(BlockId).collect();
    all.report.blocks.sort_unstable();
    all.report.findings.sort();
    all.report.findings.dedup();
    Ok(all.report)
}

/// What is remembered of an object.
struct Object {
    kind: Kind,
    links: u32,
    parent: FileId,
    used: u64,
    has_blocks: bool,
    has_xattrs: bool,
    names: u32,
    directories: u32,
    in_directory: Option<FileId>,
}

#[derive(Default)]
struct Gathered {
    superblock: Option<Super>,
    nodes: HashSet<u16>,
    serials: HashMap<u16, u64>,
    volumes: HashSet<VolumeId>,
    usage: BTreeMap<VolumeId, (i64, i64)>,
    objects: HashMap<Handle, Object>,
    dirents: Vec<(Handle, u64, Dirent)>,
    blocks: HashMap<u64, (Handle, u64)>,
    maps: HashSet<Handle>,
    xattrs: HashSet<Handle>,
    marks: Vec<Handle>,
    cuts: Vec<Handle>,
    orphans: HashSet<Handle>,
    garbage: HashSet<Handle>,
    report: Report,
}

/// A key that is not of its kind.
const BAD_KEY: BadRow = BadRow("its key is not of its kind");

impl Gathered {
    fn found(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    fn gather(&mut self, key: &Key, row: &Row) -> Result<(), BadRow> {
        let value = &row.value[..];
        let is = |kind: RowKind| key.first() == Some(&(kind as u8));
        if is(RowKind::Super) {
            self.superblock = Some(Super::decode(value)?);
        } else if is(RowKind::Node) {
            Node::decode(value)?;
            self.nodes.insert(node_of(key)?);
        } else if is(RowKind::Serials) {
            self.serials
                .insert(node_of(key)?, rows::decode_number(value)?);
        } else if is(RowKind::Volume) {
            Volume::decode(value)?;
            self.volumes.insert(keys::volume_of(key).ok_or(BAD_KEY)?);
        } else if is(RowKind::Usage) {
            let (volume, ..) = keys::usage_of(key).ok_or(BAD_KEY)?;
            let usage = Usage::decode(value)?;
            let sum = self.usage.entry(volume).or_default();
            sum.0 = sum.0.wrapping_add(usage.files);
            sum.1 = sum.1.wrapping_add(usage.bytes);
        } else if is(RowKind::Inode) {
            let object = keys::inode_of(key).ok_or(BAD_KEY)?;
            self.gather_inode(object, &Inode::decode(object.file, value)?);
        } else if is(RowKind::Once) {
            rows::decode_once(value)?;
        } else if !is(RowKind::Record) {
            self.gather_part(key, value)?;
        }
        Ok(())
    }

    fn gather_inode(&mut self, object: Handle, inode: &Inode) {
        let attributes = &inode.attributes;
        let object_of = Object {
            kind: attributes.kind,
            links: attributes.links,
            parent: inode.parent,
            used: attributes.used,
            has_blocks: inode.has_blocks,
            has_xattrs: inode.has_xattrs,
            names: 0,
            directories: 0,
            in_directory: None,
        };
        self.objects.insert(object, object_of);
    }

    /// Rows that belong to an object.
    fn gather_part(&mut self, key: &Key, value: &[u8]) -> Result<(), BadRow> {
        let is = |kind: RowKind| key.first() == Some(&(kind as u8));
        let part = || keys::part_of(key).ok_or(BAD_KEY);
        let task = || keys::task_of(key).ok_or(BAD_KEY);
        if is(RowKind::Dirent) {
            let (directory, cookie) = part()?;
            let dirent = Dirent::decode(value)?;
            self.dirents.push((directory, cookie, dirent));
        } else if is(RowKind::Map) {
            let (file, row) = part()?;
            let begin = row.saturating_mul(rows::MAP_ROW_BLOCKS as u64);
            let blocks = (begin..).zip(rows::decode_map(value)?);
            for (number, block) in blocks.filter(|(_, id)| *id != 0) {
                let from = number.saturating_mul(crate::BLOCK_LEN);
                if self.blocks.insert(block, (file, from)).is_some() {
                    self.found(Finding::BlockTwice { block, file });
                }
            }
            self.maps.insert(file);
        } else if is(RowKind::Xattr) {
            let (object, cookie) = part()?;
            let xattr = Xattr::decode(value)?;
            let is_its = self
                .superblock
                .is_none_or(|all| is_cookie(&all, &xattr.name, cookie));
            if !is_its {
                return Err(BadRow("a cookie that is not its name's"));
            }
            self.xattrs.insert(object);
        } else if is(RowKind::Mark) {
            rows::decode_number(value)?;
            self.marks.push(task()?);
        } else if is(RowKind::Orphan) {
            rows::decode_nothing(value)?;
            self.orphans.insert(task()?);
        } else if is(RowKind::Cut) {
            rows::decode_nothing(value)?;
            self.cuts.push(task()?);
        } else if is(RowKind::Garbage) {
            rows::decode_nothing(value)?;
            self.garbage.insert(task()?);
        } else {
            return Err(BadRow("a kind that is not known here"));
        }
        Ok(())
    }

    fn compare(&mut self) {
        self.compare_frame();
        self.compare_names();
        self.compare_objects();
        self.compare_ways();
        self.compare_rest();
        self.compare_usage();
        self.report.objects = self.objects.len() as u64;
        self.report.orphans = self.orphans.len() as u64;
        self.report.garbage = self.garbage.len() as u64;
        self.report.marked = self.marks.len() as u64;
        let owners = self.blocks.iter();
        let owners = owners.map(|(block, place)| (BlockId(*block), *place));
        self.report.owners = owners.collect();
        let lag: HashSet<&Handle> = self.marks.iter().chain(&self.cuts).collect();
        let settled = self
            .objects
            .iter()
            .filter(|(handle, object)| object.kind == Kind::File && !lag.contains(handle));
        self.report.used = settled
            .map(|(handle, object)| (*handle, object.used))
            .collect();
    }

    /// The rows that are there once.
    fn compare_frame(&mut self) {
        let Some(all) = self.superblock else {
            let key = keys::superblock();
            return self.found(Finding::Missing { key });
        };
        for node in 0..all.nodes {
            for (is_there, key) in [
                (self.nodes.contains(&node), keys::node(node)),
                (self.serials.contains_key(&node), keys::serials(node)),
            ] {
                if !is_there {
                    self.found(Finding::Missing { key });
                }
            }
        }
        for volume in self.volumes.clone() {
            let root = self.objects.get(&Handle::root(volume));
            if root.is_none_or(|root| root.kind != Kind::Directory) {
                self.found(Finding::NoVolume(volume));
            }
        }
    }

    fn compare_names(&mut self) {
        let mut seen: HashSet<(Handle, Name)> = HashSet::new();
        for (directory, cookie, dirent) in std::mem::take(&mut self.dirents) {
            let name = dirent.name.clone();
            let target = Handle {
                file: dirent.file,
                ..directory
            };
            let above = self.objects.get_mut(&directory);
            match above.filter(|above| above.kind == Kind::Directory) {
                None => self.found(Finding::NameNowhere {
                    directory,
                    name: name.clone(),
                }),
                Some(above) => above.directories += u32::from(dirent.kind == Kind::Directory),
            }
            let mut wrong = None;
            match self.objects.get_mut(&target) {
                None => self.found(Finding::NameOfNothing {
                    directory,
                    name: name.clone(),
                }),
                Some(object) => {
                    object.names += 1;
                    let place = (directory.file, name.clone());
                    self.report.names.entry(target).or_insert(place);
                    object.in_directory = Some(directory.file);
                    if object.kind != dirent.kind {
                        wrong = Some("another kind than its object's");
                    }
                }
            }
            let is_its = self
                .superblock
                .is_none_or(|all| is_cookie(&all, &name, cookie));
            if !is_its {
                wrong = Some("a cookie that is not its");
            }
            if !seen.insert((directory, name.clone())) {
                wrong = Some("twice in its directory");
            }
            if let Some(why) = wrong {
                self.found(Finding::BadName {
                    directory,
                    name,
                    why,
                });
            }
        }
    }

    fn compare_objects(&mut self) {
        let mut findings = Vec::new();
        for (handle, object) in &self.objects {
            let is_root = handle.file == FileId::ROOT;
            let is_directory = object.kind == Kind::Directory;
            let found = match is_directory {
                true => object.directories + 2,
                false => object.names,
            };
            let (object_handle, said) = (*handle, object.links);
            let is_orphan = self.orphans.contains(handle);
            if found != said {
                findings.push(Finding::Links {
                    object: object_handle,
                    said,
                    found,
                });
            }
            if object.names == 0 && !is_root && !is_orphan {
                findings.push(Finding::Lost(*handle));
            }
            if is_directory && object.names > 1 || is_root && object.names > 0 {
                findings.push(Finding::Parent {
                    directory: *handle,
                    said: object.parent,
                });
            }
            let is_in = object.in_directory.unwrap_or(object.parent);
            if is_directory && is_in != object.parent {
                findings.push(Finding::Parent {
                    directory: *handle,
                    said: object.parent,
                });
            }
            if !self.volumes.contains(&handle.volume) {
                findings.push(Finding::NoVolume(handle.volume));
            }
            let next = self.serials.get(&handle.file.virtual_node()).copied();
            if next.is_none_or(|next| handle.file.serial() >= next) {
                findings.push(Finding::NotHandedOut(*handle));
            }
        }
        for orphan in &self.orphans {
            let object = self.objects.get(orphan);
            if object.is_none_or(|object| object.names > 0) {
                findings.push(Finding::NoOrphan(*orphan));
            }
        }
        self.report.findings.extend(findings);
    }

    /// From each directory a way leads to the root.
    fn compare_ways(&mut self) {
        let mut reached: HashSet<Handle> = HashSet::new();
        let mut findings = Vec::new();
        for (handle, object) in &self.objects {
            if object.kind != Kind::Directory {
                continue;
            }
            let mut way = Vec::new();
            let mut at = *handle;
            while at.file != FileId::ROOT && !reached.contains(&at) {
                way.push(at);
                let above = self.objects.get(&at).map(|object| object.parent);
                match above {
                    Some(parent) if way.len() <= self.objects.len() => {
                        at = Handle { file: parent, ..at };
                    }
                    _ => {
                        findings.push(Finding::Circle(*handle));
                        way.clear();
                        break;
                    }
                }
            }
            reached.extend(way);
        }
        self.report.findings.extend(findings);
    }

    /// Rows that belong to objects.
    fn compare_rest(&mut self) {
        let has = |object: &Handle, has: fn(&Object) -> bool| {
            self.garbage.contains(object) || self.objects.get(object).is_some_and(has)
        };
        let mut findings = Vec::new();
        let mut of_nothing = |object: &Handle, what| {
            findings.push(Finding::RowsOfNothing {
                object: *object,
                what,
            });
        };
        for file in self
            .maps
            .iter()
            .filter(|file| !has(file, |object| object.has_blocks))
        {
            of_nothing(file, "a block map");
        }
        for object in &self.xattrs {
            if !has(object, |object| object.has_xattrs) {
                of_nothing(object, "extended attributes");
            }
        }
        for object in self.marks.iter().filter(|object| !has(object, |_| true)) {
            of_nothing(object, "a mark");
        }
        for file in &self.cuts {
            if !has(file, |object| object.kind == Kind::File) {
                of_nothing(file, "a cut");
            }
        }
        for object in &self.garbage {
            if self.objects.contains_key(object) {
                of_nothing(object, "a garbage row");
            }
        }
        self.report.findings.extend(findings);
    }

    fn compare_usage(&mut self) {
        let mut found: BTreeMap<VolumeId, (i64, i64)> = BTreeMap::new();
        for (handle, object) in &self.objects {
            let sum = found.entry(handle.volume).or_default();
            sum.0 += 1;
            sum.1 = sum.1.wrapping_add(object.used as i64);
        }
        let volumes: HashSet<VolumeId> = found.keys().chain(self.usage.keys()).copied().collect();
        for volume in volumes {
            let said = self.usage.get(&volume).copied().unwrap_or_default();
            let found = found.get(&volume).copied().unwrap_or_default();
            if said != found {
                self.found(Finding::Usage {
                    volume,
                    said,
                    found,
                });
            }
        }
    }
}

fn node_of(key: &Key) -> Result<u16, BadRow> {
    let node: [u8; 2] = key[1..].try_into().map_err(|_| BAD_KEY)?;
    Ok(u16::from_be_bytes(node))
}

/// Whether a cookie is of a name's hash.
fn is_cookie(all: &Super, name: &Name, cookie: u64) -> bool {
    let first = Names::new(all.name_key, all.hash_bits).first(name);
    (first..=Names::last(first)).contains(&cookie)
}
