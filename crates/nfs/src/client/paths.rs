//! Files by their paths: what the command line does.

use crate::wire::*;
use crate::xdr::{Encoder, Opaque, from_bytes};

use super::{Client, ClientError, OpenFile, OpenHow};

/// Bytes of a READ or WRITE.
const PIECE: u32 = 1 << 20;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Other,
}

/// What is told of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub handle: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Its length in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
    /// How many names it has.
    pub links: u32,
    /// Its owner's number.
    pub owner: String,
    /// Its group's.
    pub group: String,
    /// When it was last changed, in seconds since 1970.
    pub modified_s: i64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub found: Found,
}

/// What is changed of a file's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    /// Its permission bits.
    pub mode: Option<u32>,
    /// Its owner, as [`Found`] has it. That may take set-id bits from the mode, also from one that is set with it.
    pub owner: Option<&'a str>,
    /// Its group, likewise.
    pub group: Option<&'a str>,
}

/// A file system's room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes that are free.
    pub bytes_free: u64,
    /// Files in all.
    pub files_total: u64,
    /// Files that can still be made.
    pub files_free: u64,
}

/// Attributes that [`Found`] has.
const OF_FOUND: Bitmap4 = Bitmap4::of(&[
    FATTR4_TYPE,
    FATTR4_SIZE,
    FATTR4_FILEHANDLE,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_TIME_MODIFY,
]);

const OF_ROOM: Bitmap4 = Bitmap4::of(&[
    FATTR4_FILES_FREE,
    FATTR4_FILES_TOTAL,
    FATTR4_SPACE_FREE,
    FATTR4_SPACE_TOTAL,
]);

/// Files of a server, by path: names separated by `/`, from the root of all exports. Symbolic links are
/// not followed.
#[derive(Clone)]
pub struct Files {
    client: Client,
}

impl Files {
    /// Files as this client sees them.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client that asks.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// What a path leads to.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn find(&self, path: &str) -> Result<Found, ClientError> {
        let mut operations = to(path);
        operations.push(NfsArgop4::Getattr(Getattr4Args {
            attr_request: OF_FOUND,
        }));
        let reply = self.client.call(&operations).await?;
        match reply.ok()?.results()?.last() {
            Some(Ok(NfsResop4::Getattr(Ok(got)))) => found(&got.obj_attributes),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// The room of the file system that a path is in.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn room(&self, path: &str) -> Result<Room, ClientError> {
        let mut operations = to(path);
        operations.push(NfsArgop4::Getattr(Getattr4Args {
            attr_request: OF_ROOM,
        }));
        let reply = self.client.call(&operations).await?;
        let Some(Ok(NfsResop4::Getattr(Ok(got)))) = reply.ok()?.results()?.last() else {
            return Err(ClientError::Unexpected);
        };
        let mut room = Room::default();
        for attribute in got.obj_attributes.attributes() {
            match attribute.map_err(|_| ClientError::Unexpected)? {
                Attribute::FilesFree(files) => room.files_free = files,
                Attribute::FilesTotal(files) => room.files_total = files,
                Attribute::SpaceFree(bytes) => room.bytes_free = bytes,
                Attribute::SpaceTotal(bytes) => room.bytes_total = bytes,
                _ => {}
            }
        }
        Ok(room)
    }

    /// The entries of a directory, a page at a time, in no order.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list(
        &self,
        directory: &Found,
        mut each: impl FnMut(Vec<Entry>),
    ) -> Result<(), ClientError> {
        let (mut cookie, mut verifier) = (0, [0; 8]);
        loop {
            let operations = [
                put_handle(&directory.handle),
                NfsArgop4::Readdir(Readdir4Args {
                    cookie,
                    cookieverf: verifier,
                    dircount: 32 << 10,
                    maxcount: 64 << 10,
                    attr_request: OF_FOUND,
                }),
            ];
            let reply = self.client.call(&operations).await?;
            let Some(Ok(NfsResop4::Readdir(Ok(page)))) = reply.ok()?.results()?.last() else {
                return Err(ClientError::Unexpected);
            };
            verifier = page.cookieverf;
            let entries = &page.reply.entries.0;
            if let Some(last) = entries.last() {
                cookie = last.cookie;
            } else if !page.reply.eof {
                return Err(ClientError::Unexpected);
            }
            let entry = |entry: &Entry4<'_>| {
                Ok(Entry {
                    name: entry.name.to_vec(),
                    found: found(&entry.attrs)?,
                })
            };
            let entries = entries
                .iter()
                .map(entry)
                .collect::<Result<Vec<_>, ClientError>>()?;
            each(entries);
            if page.reply.eof {
                return Ok(());
            }
        }
    }

    /// Reads a file from its beginning to its end.
    ///
    /// # Errors
    /// [`ClientError`], and those of whoever takes the bytes.
    pub async fn read<E: From<ClientError>>(
        &self,
        path: &str,
        mut take: impl AsyncFnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let opened = self.open(path, None).await?;
        let read = read_all(&opened, &mut take).await;
        // What is open is closed after an error too: the server keeps it otherwise.
        let closed = opened.close().await;
        let len = read?;
        closed?;
        Ok(len)
    }

    /// Writes a file from its beginning: what it held before is gone. It is durable when this ends.
    ///
    /// # Errors
    /// [`ClientError`], and those of whoever gives the bytes: a piece into the buffer, none at the end.
    pub async fn write<E: From<ClientError>>(
        &self,
        path: &str,
        mode: u32,
        mut give: impl AsyncFnMut(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let opened = self.open(path, Some(mode)).await?;
        let written = write_all(&opened, &mut give).await;
        let closed = opened.close().await;
        let len = written?;
        closed?;
        Ok(len)
    }

    /// Changes attributes of what a path leads to.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set(&self, path: &str, changes: &Changes<'_>) -> Result<(), ClientError> {
        let Changes { mode, owner, group } = *changes;
        let set = [
            mode.map(Attribute::Mode),
            owner.map(|owner| Attribute::Owner(Opaque(owner.as_bytes()))),
            group.map(|group| Attribute::OwnerGroup(Opaque(group.as_bytes()))),
        ];
        let set: Vec<Attribute<'_>> = set.into_iter().flatten().collect();
        let attributes = attributes(&set);
        let mut operations = to(path);
        operations.push(NfsArgop4::Setattr(Setattr4Args {
            stateid: Stateid4 {
                seqid: 0,
                other: [0; 12],
            },
            obj_attributes: from_bytes(&attributes)?,
        }));
        self.client.call(&operations).await?.ok().map(drop)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn make_directory(&self, path: &str, mode: u32) -> Result<(), ClientError> {
        let (parent, name) = parent_of(path)?;
        let mut operations = to(parent);
        let attributes = with_mode(mode);
        operations.push(NfsArgop4::Create(Create4Args {
            objtype: Createtype4::Nf4Dir,
            objname: Opaque(name.as_bytes()),
            createattrs: from_bytes(&attributes)?,
        }));
        self.client.call(&operations).await?.ok().map(drop)
    }

    /// Removes a file, or a directory that is empty.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove(&self, path: &str) -> Result<(), ClientError> {
        let (parent, name) = parent_of(path)?;
        let mut operations = to(parent);
        operations.push(NfsArgop4::Remove(Remove4Args {
            target: Opaque(name.as_bytes()),
        }));
        self.client.call(&operations).await?.ok().map(drop)
    }

    /// Gives an object another name, in the same file system. What has that name already is replaced at once.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn rename(&self, from: &str, to_path: &str) -> Result<(), ClientError> {
        let ((from, old), (parent, new)) = (parent_of(from)?, parent_of(to_path)?);
        let mut operations = to(from);
        operations.push(NfsArgop4::Savefh);
        operations.extend(to(parent));
        operations.push(NfsArgop4::Rename(Rename4Args {
            oldname: Opaque(old.as_bytes()),
            newname: Opaque(new.as_bytes()),
        }));
        self.client.call(&operations).await?.ok().map(drop)
    }

    /// Opens a file to read it, or makes one, or empties it, to write it.
    async fn open(&self, path: &str, write: Option<u32>) -> Result<OpenFile, ClientError> {
        let (parent, name) = parent_of(path)?;
        let how = OpenHow {
            owner: path.as_bytes(),
            read: write.is_none(),
            write: write.is_some(),
            create: write,
        };
        OpenFile::open_from(&self.client, to(parent), name, &how).await
    }
}

async fn read_all<E: From<ClientError>>(
    opened: &OpenFile,
    take: &mut impl AsyncFnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut offset = 0;
    loop {
        let (len, is_end) = opened.read_at(offset, PIECE, &mut *take).await?;
        offset += len;
        if is_end {
            return Ok(offset);
        }
        if len == 0 {
            return Err(ClientError::Unexpected.into());
        }
    }
}

async fn write_all<E: From<ClientError>>(
    opened: &OpenFile,
    give: &mut impl AsyncFnMut(&mut Vec<u8>) -> Result<(), E>,
) -> Result<u64, E> {
    let mut offset = 0;
    let mut piece = Vec::new();
    let mut verifier = None;
    loop {
        piece.clear();
        give(&mut piece).await?;
        if piece.is_empty() {
            break;
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let part = &rest[..rest.len().min(PIECE as usize)];
            let written = opened.write_at(offset, part, StableHow4::UNSTABLE4);
            let (count, now) = written.await?;
            if !is_same(&mut verifier, now) {
                return Err(ClientError::Lost.into());
            }
            offset += count as u64;
            rest = &rest[count..];
        }
    }
    // What the server had in memory is gone meanwhile.
    if !is_same(&mut verifier, opened.commit().await?) {
        return Err(ClientError::Lost.into());
    }
    Ok(offset)
}

/// Whether a write verifier is the one of before, or the first.
fn is_same(known: &mut Option<Verifier4>, now: Verifier4) -> bool {
    *known.get_or_insert(now) == now
}

pub(super) fn put_handle(handle: &[u8]) -> NfsArgop4<'_> {
    NfsArgop4::Putfh(Putfh4Args {
        object: Opaque(handle),
    })
}

/// The names of a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Operations that lead to a path.
fn to(path: &str) -> Vec<NfsArgop4<'_>> {
    let mut operations = vec![NfsArgop4::Putrootfh];
    for name in names(path) {
        operations.push(NfsArgop4::Lookup(Lookup4Args {
            objname: Opaque(name.as_bytes()),
        }));
    }
    operations
}

/// A path's directory, and its name there.
fn parent_of(path: &str) -> Result<(&str, &str), ClientError> {
    let trimmed = path.trim_end_matches('/');
    let (parent, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    if name.is_empty() {
        return Err(ClientError::Path(path.to_string()));
    }
    Ok((parent, name))
}

fn with_mode(mode: u32) -> Vec<u8> {
    attributes(&[Attribute::Mode(mode)])
}

pub(super) fn attributes(of: &[Attribute<'_>]) -> Vec<u8> {
    let wanted: Bitmap4 = of.iter().map(Attribute::number).collect();
    let mut out = Encoder::default();
    put_attributes(&mut out, &wanted, |number| {
        of.iter().find(|one| one.number() == number).cloned()
    });
    out.into_bytes()
}

fn found(from: &Fattr4<'_>) -> Result<Found, ClientError> {
    let mut found = Found {
        handle: Vec::new(),
        kind: FileKind::Other,
        size: 0,
        mode: 0,
        links: 0,
        owner: String::new(),
        group: String::new(),
        modified_s: 0,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for attribute in from.attributes() {
        match attribute.map_err(|_| ClientError::Unexpected)? {
            Attribute::Type(kind) => {
                found.kind = match kind {
                    NfsFtype4::NF4REG => FileKind::File,
                    NfsFtype4::NF4DIR => FileKind::Directory,
                    NfsFtype4::NF4LNK => FileKind::Symlink,
                    _ => FileKind::Other,
                }
            }
            Attribute::Size(size) => found.size = size,
            Attribute::Filehandle(handle) => found.handle = handle.to_vec(),
            Attribute::Mode(mode) => found.mode = mode,
            Attribute::Numlinks(links) => found.links = links,
            Attribute::Owner(owner) => found.owner = text(&owner),
            Attribute::OwnerGroup(group) => found.group = text(&group),
            Attribute::TimeModify(time) => found.modified_s = time.seconds,
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_from_the_root() {
        assert_eq!(names("//a/b/").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(parent_of("/a/b/").expect("a name"), ("/a", "b"));
        assert_eq!(parent_of("b").expect("a name"), ("", "b"));
        for none in ["", "/", "//"] {
            assert!(matches!(parent_of(none), Err(ClientError::Path(_))));
        }
    }
}
