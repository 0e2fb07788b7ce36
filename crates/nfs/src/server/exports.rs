//! What is served to whom, and the directories above it.
//!
//! Clients begin at the root of one tree that holds all exports (RFC 8881, section 7): directories that
//! exist for the paths of exports alone, and volumes at their ends. They can be looked through and
//! listed, not changed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use files::{Caller, FileId, Handle, Name, VolumeId};
use thiserror::Error;

use super::handles::Place;

/// Which of a client's users are made nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Squash {
    /// None: a client's root is root here.
    None,
    /// Its root.
    #[default]
    Root,
    /// Everybody.
    All,
}

/// Addresses: those that begin with so many bits of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Text that names no addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no address such as 10.0.0.7, and no network such as 10.0.0.0/8 or fd00::/8")]
pub struct NotNetwork(String);

impl FromStr for Network {
    type Err = NotNetwork;

    fn from_str(text: &str) -> Result<Self, NotNetwork> {
        let not = || NotNetwork(text.to_string());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| not())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| not())?,
            None => most,
        };
        if bits > most {
            return Err(not());
        }
        Ok(Self { address, bits })
    }
}

impl Network {
    /// Whether an address is one of these. An IPv4 address counts also when it came mapped into IPv6.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, true),
            IpAddr::V6(v6) => (u128::from(v6), false),
        };
        let ((ours, v4), (theirs, also_v4)) = (bits(self.address), bits(address.to_canonical()));
        let rest = 128 - u32::from(self.bits);
        v4 == also_v4 && (ours ^ theirs).checked_shr(rest).unwrap_or(0) == 0
    }
}

/// What is served under one path.
#[derive(Clone, Debug)]
pub struct Export {
    /// Where clients find it: `/` or names separated by it.
    pub path: String,
    /// What.
    pub volume: VolumeId,
    /// Whether nobody changes it.
    pub read_only: bool,
    /// Whose users count.
    pub squash: Squash,
    /// User and group of those who do not.
    pub anonymous: (u32, u32),
    /// Who may; empty: everybody who can reach the server.
    pub clients: Vec<Network>,
}

impl Export {
    /// A volume for everybody, under this path; root is nobody.
    #[must_use]
    pub fn new(path: impl Into<String>, volume: VolumeId) -> Self {
        Self {
            path: path.into(),
            volume,
            read_only: false,
            squash: Squash::default(),
            anonymous: (65534, 65534),
            clients: Vec::new(),
        }
    }
}

/// Why exports cannot be served together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// None at all.
    #[error("nothing is exported")]
    None,
    /// A part of a path is no name.
    #[error("{path:?} is no path of an export: {why}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: files::NameError,
    },
    /// One lies at or below another.
    #[error("{0:?} is exported twice, or lies below another export")]
    Taken(String),
    /// Two paths lead to one volume.
    #[error("volume {} is exported twice", .0.0)]
    Twice(VolumeId),
}

/// A directory above the exports.
#[derive(Debug, Default)]
struct Node {
    parent: u32,
    children: BTreeMap<Name, Child>,
}

#[derive(Clone, Copy, Debug)]
enum Child {
    Node(u32),
    Volume(VolumeId),
}

/// An export, and where it hangs.
#[derive(Debug)]
struct Hung {
    export: Export,
    /// The node above; none if the export is the root itself.
    above: Option<u32>,
}

/// All that is served.
#[derive(Debug)]
pub(super) struct Exports {
    nodes: Vec<Node>,
    by_volume: BTreeMap<VolumeId, Hung>,
    root: Place,
}

impl Exports {
    pub(super) fn new(exports: Vec<Export>) -> Result<Self, ExportError> {
        let mut all = Self {
            nodes: vec![Node::default()],
            by_volume: BTreeMap::new(),
            root: Place::Pseudo(0),
        };
        for export in exports {
            all.add(export)?;
        }
        if all.by_volume.is_empty() {
            return Err(ExportError::None);
        }
        Ok(all)
    }

    fn add(&mut self, export: Export) -> Result<(), ExportError> {
        if self.by_volume.contains_key(&export.volume) {
            return Err(ExportError::Twice(export.volume));
        }
        let taken = || ExportError::Taken(export.path.clone());
        let parts = export.path.split('/').filter(|part| !part.is_empty());
        let names = parts.map(Name::new).collect::<Result<Vec<_>, _>>();
        let mut names = names.map_err(|why| ExportError::Path {
            path: export.path.clone(),
            why,
        })?;
        let above = match names.pop() {
            None => {
                if !self.by_volume.is_empty() {
                    return Err(taken());
                }
                self.root = Place::Object(Handle::root(export.volume));
                None
            }
            Some(last) => {
                if self.root != Place::Pseudo(0) {
                    return Err(taken());
                }
                let node = self.directory(&names).ok_or_else(taken)?;
                let children = &mut self.nodes[node as usize].children;
                if children.contains_key(&last) {
                    return Err(taken());
                }
                children.insert(last, Child::Volume(export.volume));
                Some(node)
            }
        };
        self.by_volume.insert(export.volume, Hung { export, above });
        Ok(())
    }

    /// The node at the end of a path, made where it is not there; none below a volume.
    fn directory(&mut self, path: &[Name]) -> Option<u32> {
        let mut at = 0;
        for name in path {
            at = match self.nodes[at as usize].children.get(name) {
                Some(Child::Node(node)) => *node,
                Some(Child::Volume(_)) => return None,
                None => {
                    let made = self.nodes.len() as u32;
                    self.nodes.push(Node {
                        parent: at,
                        children: BTreeMap::new(),
                    });
                    let children = &mut self.nodes[at as usize].children;
                    children.insert(name.clone(), Child::Node(made));
                    made
                }
            };
        }
        Some(at)
    }

    /// Where every path begins.
    pub(super) const fn root(&self) -> Place {
        self.root
    }

    /// Whether there is a directory of this number above the exports.
    pub(super) fn has(&self, node: u32) -> bool {
        (node as usize) < self.nodes.len()
    }

    /// What a name leads to, from a directory above the exports.
    pub(super) fn lookup(&self, node: u32, name: &[u8]) -> Option<Place> {
        let child = self.nodes.get(node as usize)?.children.get(name)?;
        Some(place(*child))
    }

    /// What such a directory is in; none: it is the root.
    pub(super) fn parent(&self, node: u32) -> Option<Place> {
        let parent = self.nodes.get(node as usize)?.parent;
        (node != 0).then_some(Place::Pseudo(parent))
    }

    /// What a volume's root is in; none: it is the root.
    pub(super) fn above(&self, volume: VolumeId) -> Option<Place> {
        let hung = self.by_volume.get(&volume)?;
        hung.above.map(Place::Pseudo)
    }

    /// Entries of such a directory after one, with what they lead to.
    pub(super) fn entries(&self, node: u32, after: usize) -> Vec<(u64, Name, Place)> {
        let Some(node) = self.nodes.get(node as usize) else {
            return Vec::new();
        };
        let numbered = node.children.iter().enumerate().skip(after);
        // Cookies 0, 1 and 2 are the protocol's.
        let entry = |(at, (name, child)): (usize, (&Name, &Child))| {
            (at as u64 + 3, name.clone(), place(*child))
        };
        numbered.map(entry).collect()
    }

    /// How a volume is exported to a client; none: it is not, to this one.
    pub(super) fn of(&self, volume: VolumeId, client: IpAddr) -> Option<&Export> {
        let export = &self.by_volume.get(&volume)?.export;
        let mut clients = export.clients.iter();
        let may = export.clients.is_empty() || clients.any(|network| network.has(client));
        may.then_some(export)
    }

    /// The number that clients know a directory above the exports by, or the place where a volume
    /// hangs.
    pub(super) fn number(&self, place: Place) -> u64 {
        match place {
            Place::Pseudo(node) => u64::from(node) + 1,
            Place::Object(handle) if handle.file == FileId::ROOT => {
                // Beyond all nodes.
                (1 << 32) + u64::from(handle.volume.0)
            }
            Place::Object(handle) => handle.file.0,
        }
    }
}

const fn place(child: Child) -> Place {
    match child {
        Child::Node(node) => Place::Pseudo(node),
        Child::Volume(volume) => Place::Object(Handle::root(volume)),
    }
}

impl Export {
    /// Who a user of a client is here.
    pub(super) fn squash(&self, mut caller: Caller) -> Caller {
        let nobody = match self.squash {
            Squash::None => false,
            Squash::Root => caller.uid == 0,
            Squash::All => true,
        };
        let (uid, gid) = self.anonymous;
        if nobody {
            caller.uid = uid;
            caller.gid = gid;
            caller.groups.clear();
        } else if self.squash == Squash::Root {
            // The group of root opens as much as root itself.
            if caller.gid == 0 {
                caller.gid = gid;
            }
            caller.groups.retain(|group| *group != 0);
        }
        caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exports(paths: &[&str]) -> Result<Exports, ExportError> {
        let numbered = paths.iter().zip(0..);
        let export = |(path, volume): (&&str, u32)| Export::new(*path, VolumeId(volume));
        Exports::new(numbered.map(export).collect())
    }

    #[test]
    fn exports_hang_in_one_tree() {
        let exports = exports(&["/a/one", "/a/two", "b"]).expect("apart");
        assert_eq!(exports.root(), Place::Pseudo(0));
        let Some(Place::Pseudo(a)) = exports.lookup(0, b"a") else {
            panic!("a directory");
        };
        let one = Place::Object(Handle::root(VolumeId(0)));
        assert_eq!(exports.lookup(a, b"one"), Some(one));
        assert_eq!(exports.lookup(a, b"three"), None);
        assert_eq!(exports.above(VolumeId(1)), Some(Place::Pseudo(a)));
        assert_eq!(exports.parent(a), Some(Place::Pseudo(0)));
        assert_eq!(exports.parent(0), None);
        let names = |after| {
            exports
                .entries(0, after)
                .into_iter()
                .map(|(_, name, _)| name.to_vec())
        };
        assert_eq!(names(0).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(names(1).collect::<Vec<_>>(), [b"b"]);
    }

    #[test]
    fn a_volume_can_be_the_root() {
        let exports = exports(&["/"]).expect("one");
        assert_eq!(exports.root(), Place::Object(Handle::root(VolumeId(0))));
        assert_eq!(exports.above(VolumeId(0)), None);
    }

    #[test]
    fn exports_that_hide_each_other_are_refused() {
        let taken = |paths: &[&str], which: &str| {
            let error = exports(paths).expect_err("they meet");
            assert_eq!(error, ExportError::Taken(which.to_string()));
        };
        taken(&["/", "/a"], "/a");
        taken(&["/a", "/"], "/");
        taken(&["/a", "/a"], "/a");
        taken(&["/a", "/a/b"], "/a/b");
        taken(&["/a/b", "/a"], "/a");
        assert!(matches!(exports(&["/a/.."]), Err(ExportError::Path { .. })));
        assert_eq!(exports(&[]).expect_err("nothing"), ExportError::None);
    }

    #[test]
    fn networks_hold_the_addresses_that_begin_like_them() {
        let has = |network: &str, address: &str| {
            let network: Network = network.parse().expect("a network");
            network.has(address.parse().expect("an address"))
        };
        assert!(has("10.0.0.0/8", "10.255.1.2"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(!has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.0.0.7", "10.0.0.7") && !has("10.0.0.7", "10.0.0.6"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        assert!("10.0.0.0/33".parse::<Network>().is_err());
        assert!("host".parse::<Network>().is_err());
    }

    #[test]
    fn squashed_users_have_nothing_of_roots() {
        let mut export = Export::new("/", VolumeId(0));
        let mut root = Caller::ROOT;
        root.groups = vec![0, 5];
        assert_eq!(export.squash(root.clone()), Caller::user(65534, 65534));
        let mut user = Caller::user(7, 0);
        user.groups = vec![0, 5];
        let squashed = export.squash(user.clone());
        assert_eq!(
            (squashed.uid, squashed.gid, squashed.groups),
            (7, 65534, vec![5])
        );
        export.squash = Squash::All;
        assert_eq!(export.squash(user), Caller::user(65534, 65534));
        export.squash = Squash::None;
        assert_eq!(export.squash(root.clone()), root);
    }
}
