//! All that can be seen of a file system by its names.

use std::collections::BTreeMap;

use files::{Answer, Caller, FileSystem, Handle, Kind, Range, Request, VolumeId};

/// Bytes that are looked at, at a file's beginning and at its end.
const LOOKED_AT: u64 = 24 << 10;

/// An object, without times and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    kind: Kind,
    mode: u32,
    owners: (u32, u32),
    links: u32,
    size: u64,
    data: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// By path.
pub(crate) type Tree = BTreeMap<String, Seen>;

/// Everything below both roots. What is asked is answered by `ask`, what is read by `read`.
pub(crate) async fn tree(fs: &dyn FileSystem) -> Tree {
    let mut tree = Tree::new();
    for volume in [1, 2] {
        let root = Handle::root(VolumeId(volume));
        let mut left = vec![(volume.to_string(), root)];
        while let Some((path, object)) = left.pop() {
            let seen = look(fs, object).await;
            if seen.kind == Kind::Directory {
                for (name, child) in entries(fs, object).await {
                    left.push((format!("{path}/{name}"), child));
                }
            }
            tree.insert(path, seen);
        }
    }
    tree
}

async fn entries(fs: &dyn FileSystem, directory: Handle) -> Vec<(String, Handle)> {
    let request = Request::ReadDirectory {
        directory,
        cookie: 0,
        bytes_max: u32::MAX,
        attributes: true,
    };
    let answer = fs.call(&Caller::ROOT, request).await;
    let Ok(Answer::Entries { entries, .. }) = answer else {
        panic!("{answer:?} to a listing");
    };
    let child = |entry: files::DirEntry| {
        let file = entry.file;
        (entry.name.to_string(), Handle { file, ..directory })
    };
    entries.into_iter().map(child).collect()
}

async fn look(fs: &dyn FileSystem, object: Handle) -> Seen {
    let root = Caller::ROOT;
    let answer = fs.call(&root, Request::GetAttributes(object)).await;
    let Ok(Answer::Attributes(attributes)) = answer else {
        panic!("{answer:?} for attributes of {object:?}");
    };
    let mut data = Vec::new();
    if attributes.kind == Kind::File {
        let ends = [0, attributes.size.saturating_sub(LOOKED_AT)];
        for offset in ends {
            let range = Range {
                offset,
                len: LOOKED_AT,
            };
            let read = fs.read(&root, object, range, &mut data).await;
            read.unwrap_or_else(|error| panic!("{error} from {object:?}"));
        }
    }
    let mut xattrs = BTreeMap::new();
    let request = Request::ListXattrs {
        object,
        cookie: 0,
        bytes_max: u32::MAX,
    };
    if let Ok(Answer::Names { names, .. }) = fs.call(&root, request).await {
        for name in names {
            let value = fs
                .call(&root, Request::GetXattr(object, name.clone()))
                .await;
            if let Ok(Answer::Value(value)) = value {
                xattrs.insert(name.to_vec(), value);
            }
        }
    }
    Seen {
        kind: attributes.kind,
        mode: attributes.mode.bits(),
        owners: (attributes.uid, attributes.gid),
        links: attributes.links,
        size: attributes.size,
        data,
        xattrs,
    }
}
