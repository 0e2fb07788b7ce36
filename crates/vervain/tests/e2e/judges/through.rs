//! Takes a program's steps through a server, by our own client: whatever server it is.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use conformance::files::program::{Actor, Known, Op, Seen, Step};
use files::{
    Access, Caller, CreateHow, Device, Error, Kind, Mode, Name, New, SeekFor, SetAttributes,
    SetTime, SetXattr, Timestamp,
};
use nfs::client::{Client, Options};
use nfs::wire::*;
use nfs::xdr::{Encoder, Opaque, from_bytes};
use rt::net::Addr;

/// What is asked of an object.
const WANTED: Bitmap4 = Bitmap4::of(&[
    FATTR4_TYPE,
    FATTR4_SIZE,
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_RAWDEV,
]);

/// Nobody's stateid: what is read and written is judged by the mode.
const ANONYMOUS: Stateid4 = Stateid4 {
    seqid: 0,
    other: [0; 12],
};

/// A server, and the users who ask it.
pub(super) struct Server {
    core: Rc<RefCell<rt::Core>>,
    users: BTreeMap<u32, Client>,
    programs: RefCell<u32>,
}

impl Server {
    /// Connects each of the users.
    pub(super) fn connect(
        core: &Rc<RefCell<rt::Core>>,
        address: SocketAddr,
        users: &[Caller],
    ) -> Self {
        let handle = core.borrow().handle();
        let connect = |user: &Caller| {
            let mut options = Options::new(format!("judge {}", user.uid), fastrand::u64(..));
            options.minor = 2;
            options.user = (user.uid, user.gid);
            options.groups = user.groups.iter().copied().collect();
            let address = Addr::Tcp(address);
            let connecting = Client::connect(&handle, &address, options);
            let client = core.borrow_mut().block_on(connecting);
            (user.uid, client.expect("a session"))
        };
        Self {
            core: Rc::clone(core),
            users: users.iter().map(connect).collect(),
            programs: RefCell::default(),
        }
    }

    /// Asks, again where the server says so, and gives the results.
    fn ask<T>(
        &self,
        user: u32,
        operations: &[NfsArgop4<'_>],
        read: impl FnOnce(&[NfsResop4<'_>]) -> T,
    ) -> Result<T, Nfsstat4> {
        let client = &self.users[&user];
        let mut left = 2000;
        let reply = loop {
            let reply = self.core.borrow_mut().block_on(client.call(operations));
            let reply = reply.expect("an answer");
            match reply.ok() {
                Err(nfs::client::ClientError::Status(
                    Nfsstat4::NFS4ERR_DELAY | Nfsstat4::NFS4ERR_GRACE,
                )) if left > 0 => {
                    left -= 1;
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(nfs::client::ClientError::Status(status)) => return Err(status),
                Err(error) => panic!("{error}"),
                Ok(_) => break reply,
            }
        };
        let results: Result<Vec<_>, _> = reply.results().expect("results").collect();
        Ok(read(&results.expect("results that can be read")))
    }
}

/// An object that the program has made.
struct Object {
    handle: Vec<u8>,
    /// 0 once it is gone: its number may be another's then.
    file: u64,
}

/// A directory of a server, and what a program has made in it.
pub(super) struct Through {
    server: Rc<Server>,
    objects: Vec<Object>,
}

type Res<T> = Result<T, Nfsstat4>;

impl Through {
    /// Begins with a directory where everybody may make something.
    pub(super) fn new(server: &Rc<Server>) -> Self {
        *server.programs.borrow_mut() += 1;
        let name = format!("program{}", server.programs.borrow());
        let mut through = Self {
            server: Rc::clone(server),
            objects: Vec::new(),
        };
        let set = SetAttributes {
            mode: Some(Mode::new(0o777)),
            ..SetAttributes::default()
        };
        let bytes = encoded(&set);
        let operations = [
            NfsArgop4::Putrootfh,
            NfsArgop4::Create(Create4Args {
                objtype: Createtype4::Nf4Dir,
                objname: Opaque(name.as_bytes()),
                createattrs: from_bytes(&bytes).expect("attributes"),
            }),
        ];
        through.find(0, &operations).expect("a directory");
        through
    }

    fn object(&self, pick: usize) -> &Object {
        &self.objects[pick % self.objects.len()]
    }

    fn put(&self, pick: usize) -> NfsArgop4<'_> {
        NfsArgop4::Putfh(Putfh4Args {
            object: Opaque(&self.object(pick).handle),
        })
    }

    /// Does something after which an object is the current one, and finds out which it is.
    fn find(&mut self, user: u32, operations: &[NfsArgop4<'_>]) -> Res<(Known, bool)> {
        let mut all = operations.to_vec();
        all.push(NfsArgop4::Getfh);
        let handle = self
            .server
            .ask(user, &all, |results| match results.last() {
                Some(NfsResop4::Getfh(Ok(got))) => got.object.to_vec(),
                other => panic!("a handle instead of {other:?}"),
            })?;
        let (file, mut known) = self.attributes(&handle)?;
        let place = self.objects.iter().rposition(|object| object.file == file);
        let is_new = place.is_none();
        if is_new {
            self.objects.push(Object { handle, file });
        }
        known.object = place.unwrap_or(self.objects.len() - 1);
        Ok((known, is_new))
    }

    /// An object's number at the server, and what is known of it.
    fn attributes(&self, handle: &[u8]) -> Res<(u64, Known)> {
        let operations = [
            NfsArgop4::Putfh(Putfh4Args {
                object: Opaque(handle),
            }),
            NfsArgop4::Getattr(Getattr4Args {
                attr_request: WANTED,
            }),
        ];
        self.server
            .ask(0, &operations, |results| match results.last() {
                Some(NfsResop4::Getattr(Ok(got))) => known(&got.obj_attributes),
                other => panic!("attributes instead of {other:?}"),
            })
    }

    fn know(&self, number: usize) -> Res<Known> {
        let (_, mut known) = self.attributes(&self.objects[number].handle)?;
        known.object = number;
        Ok(known)
    }

    /// Does something that answers nothing that matters.
    fn done(&self, user: u32, operations: &[NfsArgop4<'_>], seen: Seen) -> Res<Seen> {
        self.server.ask(user, operations, |_| seen)
    }

    fn answer(&mut self, user: u32, op: &Op) -> Res<Seen> {
        match op {
            Op::SetAttributes(a, set) => {
                let bytes = encoded(set);
                let setting = NfsArgop4::Setattr(Setattr4Args {
                    stateid: ANONYMOUS,
                    obj_attributes: from_bytes(&bytes).expect("attributes"),
                });
                self.server.ask(user, &[self.put(*a), setting], |_| ())?;
                Ok(Seen::Attributes(self.know(a % self.objects.len())?))
            }
            Op::Access(a, wanted) => {
                let asking = NfsArgop4::Access(Access4Args {
                    access: u32::from(wanted.bits()),
                });
                let access = |results: &[NfsResop4<'_>]| match results.last() {
                    Some(NfsResop4::Access(Ok(got))) => {
                        Access::from_bits_truncate(got.access as u8)
                    }
                    other => panic!("access instead of {other:?}"),
                };
                let access = self.server.ask(user, &[self.put(*a), asking], access)?;
                Ok(Seen::Access(access))
            }
            Op::Lookup(a, name) => {
                let put = self.object(*a).handle.clone();
                let operations = [put_handle(&put), lookup(name)];
                Ok(Seen::Found(self.find(user, &operations)?.0))
            }
            Op::Parent(a) => {
                let put = self.object(*a).handle.clone();
                let operations = [put_handle(&put), NfsArgop4::Lookupp];
                Ok(Seen::Found(self.find(user, &operations)?.0))
            }
            Op::ReadLink(a) => {
                let text = |results: &[NfsResop4<'_>]| match results.last() {
                    Some(NfsResop4::Readlink(Ok(got))) => got.link.to_vec(),
                    other => panic!("a text instead of {other:?}"),
                };
                let operations = [self.put(*a), NfsArgop4::Readlink];
                Ok(Seen::Text(self.server.ask(user, &operations, text)?))
            }
            Op::List(a, _) => self.list(user, *a),
            Op::Create(a, name, new, set) => self.create(user, *a, name, new, set),
            Op::CreateFile(a, name, how, set) => self.create_file(user, *a, name, *how, set),
            Op::Remove(a, name, _) => {
                let removing = NfsArgop4::Remove(Remove4Args {
                    target: Opaque(name),
                });
                self.done(user, &[self.put(*a), removing], Seen::Changed(vec![true]))
            }
            Op::Rename(a, from, b, to) => {
                let renaming = NfsArgop4::Rename(Rename4Args {
                    oldname: Opaque(from),
                    newname: Opaque(to),
                });
                let operations = [self.put(*a), NfsArgop4::Savefh, self.put(*b), renaming];
                self.done(user, &operations, Seen::Changed(vec![true; 2]))
            }
            Op::Link(a, b, name) => {
                let linking = NfsArgop4::Link(Link4Args {
                    newname: Opaque(name),
                });
                let operations = [self.put(*a), NfsArgop4::Savefh, self.put(*b), linking];
                self.done(user, &operations, Seen::Changed(vec![true]))
            }
            Op::GetXattr(..) | Op::SetXattr(..) | Op::RemoveXattr(..) | Op::ListXattrs(..) => {
                self.xattrs(user, op)
            }
            data => self.data(user, data),
        }
    }

    fn list(&self, user: u32, pick: usize) -> Res<Seen> {
        let mut entries = BTreeMap::new();
        let (mut cookie, mut cookieverf) = (0, [0; 8]);
        loop {
            let listing = NfsArgop4::Readdir(Readdir4Args {
                cookie,
                cookieverf,
                dircount: 400,
                maxcount: 1200,
                attr_request: Bitmap4::of(&[FATTR4_FILEID]),
            });
            let page = |results: &[NfsResop4<'_>]| {
                let Some(NfsResop4::Readdir(Ok(page))) = results.last() else {
                    panic!("no page: {results:?}");
                };
                let entry = |entry: &Entry4<'_>| {
                    let file = entry.attrs.attributes().find_map(|one| match one {
                        Ok(Attribute::Fileid(file)) => Some(file),
                        _ => None,
                    });
                    (entry.cookie, entry.name.to_vec(), file.expect("a number"))
                };
                let entries: Vec<_> = page.reply.entries.0.iter().map(entry).collect();
                (entries, page.reply.eof, page.cookieverf)
            };
            let (page, is_end, verifier) =
                self.server.ask(user, &[self.put(pick), listing], page)?;
            cookieverf = verifier;
            assert!(is_end || !page.is_empty(), "a page has an entry");
            for (at, name, file) in page {
                cookie = at;
                let known = self.objects.iter().rposition(|object| object.file == file);
                let known = known.expect("made by the program");
                let old = entries.insert(Name::new(name).expect("a name"), known);
                assert_eq!(old, None, "a name is told once");
            }
            if is_end {
                return Ok(Seen::Entries(entries));
            }
        }
    }

    fn create(
        &mut self,
        user: u32,
        pick: usize,
        name: &Name,
        new: &New,
        set: &SetAttributes,
    ) -> Res<Seen> {
        let device = |device: &Device| Specdata4 {
            specdata1: device.major,
            specdata2: device.minor,
        };
        let (bytes, put) = (encoded(set), self.object(pick).handle.clone());
        let creating = NfsArgop4::Create(Create4Args {
            objtype: match new {
                New::Directory => Createtype4::Nf4Dir,
                New::Symlink(text) => Createtype4::Nf4Lnk(Opaque(text)),
                New::BlockDevice(of) => Createtype4::Nf4Blk(device(of)),
                New::CharDevice(of) => Createtype4::Nf4Chr(device(of)),
                New::Fifo => Createtype4::Nf4Fifo,
                New::Socket => Createtype4::Nf4Sock,
            },
            objname: Opaque(name),
            createattrs: from_bytes(&bytes).expect("attributes"),
        });
        let (known, _) = self.find(user, &[put_handle(&put), creating])?;
        Ok(Seen::Created(known, true, true))
    }

    fn create_file(
        &mut self,
        user: u32,
        pick: usize,
        name: &Name,
        how: CreateHow,
        set: &SetAttributes,
    ) -> Res<Seen> {
        let (bytes, put) = (encoded(set), self.object(pick).handle.clone());
        let attributes: Fattr4<'_> = from_bytes(&bytes).expect("attributes");
        let opening = NfsArgop4::Open(Open4Args {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 {
                clientid: self.server.users[&user].id(),
                owner: Opaque(b"program"),
            },
            openhow: Openflag4::Open4Create(match how {
                CreateHow::Unchecked => Createhow4::Unchecked4(attributes),
                CreateHow::Guarded => Createhow4::Guarded4(attributes),
                CreateHow::Exclusive(verifier) => Createhow4::Exclusive41(Creatverfattr {
                    cva_verf: verifier,
                    cva_attrs: attributes,
                }),
            }),
            claim: OpenClaim4::ClaimNull(Opaque(name)),
        });
        let operations = [put_handle(&put), opening, NfsArgop4::Getfh];
        let (stateid, handle) = self
            .server
            .ask(user, &operations, |results| match results {
                [.., NfsResop4::Open(Ok(opened)), NfsResop4::Getfh(Ok(got))] => {
                    (opened.stateid.clone(), got.object.to_vec())
                }
                other => panic!("an open file instead of {other:?}"),
            })?;
        let closing = NfsArgop4::Close(Close4Args {
            seqid: 0,
            open_stateid: stateid,
        });
        let (known, is_new) = self.find(user, &[put_handle(&handle), closing])?;
        Ok(Seen::Created(known, is_new, is_new))
    }

    fn data(&self, user: u32, op: &Op) -> Res<Seen> {
        match op {
            Op::Commit(a, range) => {
                let committing = NfsArgop4::Commit(Commit4Args {
                    offset: range.offset,
                    count: range.len as u32,
                });
                self.done(user, &[self.put(*a), committing], Seen::Done)
            }
            Op::Allocate(a, range) => {
                let allocating = NfsArgop4::Allocate(Allocate4Args {
                    aa_stateid: ANONYMOUS,
                    aa_offset: range.offset,
                    aa_length: range.len,
                });
                self.done(user, &[self.put(*a), allocating], Seen::Done)
            }
            Op::Deallocate(a, range) => {
                let deallocating = NfsArgop4::Deallocate(Deallocate4Args {
                    da_stateid: ANONYMOUS,
                    da_offset: range.offset,
                    da_length: range.len,
                });
                self.done(user, &[self.put(*a), deallocating], Seen::Done)
            }
            Op::Seek(a, offset, what) => {
                let seeking = NfsArgop4::Seek(Seek4Args {
                    sa_stateid: ANONYMOUS,
                    sa_offset: *offset,
                    sa_what: match what {
                        SeekFor::Data => DataContent4::NFS4_CONTENT_DATA,
                        SeekFor::Hole => DataContent4::NFS4_CONTENT_HOLE,
                    },
                });
                self.done(user, &[self.put(*a), seeking], Seen::Place)
            }
            Op::Copy(a, range, b, offset) => {
                let copying = NfsArgop4::Copy(Copy4Args {
                    ca_src_stateid: ANONYMOUS,
                    ca_dst_stateid: ANONYMOUS,
                    ca_src_offset: range.offset,
                    ca_dst_offset: *offset,
                    ca_count: range.len,
                    ca_consecutive: true,
                    ca_synchronous: true,
                    ca_source_server: Vec::new(),
                });
                let operations = [self.put(*a), NfsArgop4::Savefh, self.put(*b), copying];
                let count = |results: &[NfsResop4<'_>]| match results.last() {
                    Some(NfsResop4::Copy(Copy4Res::Nfs4Ok(done))) => done.cr_response.wr_count,
                    other => panic!("a count instead of {other:?}"),
                };
                let count = self.server.ask(user, &operations, count)?;
                Ok(Seen::Number(count))
            }
            Op::Read(a, range) => {
                let reading = NfsArgop4::Read(Read4Args {
                    stateid: ANONYMOUS,
                    offset: range.offset,
                    count: range.len as u32,
                });
                let data = |results: &[NfsResop4<'_>]| match results.last() {
                    Some(NfsResop4::Read(Ok(got))) => (got.data.to_vec(), got.eof),
                    other => panic!("data instead of {other:?}"),
                };
                let (data, is_end) = self.server.ask(user, &[self.put(*a), reading], data)?;
                Ok(Seen::Data(data, is_end))
            }
            Op::Write(a, offset, data) => {
                let writing = NfsArgop4::Write(Write4Args {
                    stateid: ANONYMOUS,
                    offset: *offset,
                    stable: StableHow4::UNSTABLE4,
                    data: Opaque(data),
                });
                let count = |results: &[NfsResop4<'_>]| match results.last() {
                    Some(NfsResop4::Write(Ok(done))) => done.count,
                    other => panic!("a count instead of {other:?}"),
                };
                let count = self.server.ask(user, &[self.put(*a), writing], count)?;
                Ok(Seen::Number(u64::from(count)))
            }
            other => panic!("no server is asked {other:?}"),
        }
    }

    fn xattrs(&self, user: u32, op: &Op) -> Res<Seen> {
        match op {
            Op::GetXattr(a, name) => {
                let getting = NfsArgop4::Getxattr(Getxattr4Args {
                    gxa_name: Opaque(name),
                });
                let value = |results: &[NfsResop4<'_>]| match results.last() {
                    Some(NfsResop4::Getxattr(Ok(value))) => value.to_vec(),
                    other => panic!("a value instead of {other:?}"),
                };
                let value = self.server.ask(user, &[self.put(*a), getting], value)?;
                Ok(Seen::Text(value))
            }
            Op::SetXattr(a, name, value, how) => {
                let setting = NfsArgop4::Setxattr(Setxattr4Args {
                    sxa_option: match how {
                        SetXattr::Either => SetxattrOption4::SETXATTR4_EITHER,
                        SetXattr::Create => SetxattrOption4::SETXATTR4_CREATE,
                        SetXattr::Replace => SetxattrOption4::SETXATTR4_REPLACE,
                    },
                    sxa_key: Opaque(name),
                    sxa_value: Opaque(value),
                });
                self.done(user, &[self.put(*a), setting], Seen::Changed(vec![true]))
            }
            Op::RemoveXattr(a, name) => {
                let removing = NfsArgop4::Removexattr(Removexattr4Args {
                    rxa_name: Opaque(name),
                });
                self.done(user, &[self.put(*a), removing], Seen::Changed(vec![true]))
            }
            Op::ListXattrs(a, _) => {
                let listing = NfsArgop4::Listxattrs(Listxattrs4Args {
                    lxa_cookie: 0,
                    lxa_maxcount: 4096,
                });
                let names = |results: &[NfsResop4<'_>]| match results.last() {
                    Some(NfsResop4::Listxattrs(Ok(got))) => {
                        let names = got.lxr_names.iter().map(|name| name.to_vec());
                        names.map(|name| Name::new(name).expect("a name")).collect()
                    }
                    other => panic!("names instead of {other:?}"),
                };
                let operations = [self.put(*a), listing];
                let mut names: Vec<Name> = self.server.ask(user, &operations, names)?;
                names.sort_unstable();
                Ok(Seen::Names(names))
            }
            other => panic!("no server is asked {other:?}"),
        }
    }
}

impl Actor for Through {
    fn take(&mut self, step: &Step) -> Seen {
        let answer = self.answer(step.caller.uid, &step.op);
        answer.unwrap_or_else(|status| Seen::Refused(error(status, &step.op)))
    }

    fn known(&mut self) -> Vec<Option<Known>> {
        let mut all = Vec::new();
        for number in 0..self.objects.len() {
            // A server may keep what has no name a while.
            let known = match self.know(number) {
                Ok(known) => Some(known).filter(|known| known.links > 0),
                Err(Nfsstat4::NFS4ERR_STALE | Nfsstat4::NFS4ERR_FHEXPIRED) => None,
                Err(status) => panic!("attributes of object {number}: {status:?}"),
            };
            if known.is_none() {
                self.objects[number].file = 0;
            }
            all.push(known);
        }
        all
    }

    fn has(&self, step: &Step, on: &[Option<Known>]) -> bool {
        super::beside::is_alike(step, on)
    }
}

fn put_handle(handle: &[u8]) -> NfsArgop4<'_> {
    NfsArgop4::Putfh(Putfh4Args {
        object: Opaque(handle),
    })
}

fn lookup(name: &Name) -> NfsArgop4<'_> {
    NfsArgop4::Lookup(Lookup4Args {
        objname: Opaque(name),
    })
}

fn known(of: &Fattr4<'_>) -> (u64, Known) {
    let mut known = Known {
        object: 0,
        kind: Kind::File,
        mode: Mode::new(0),
        links: 0,
        uid: 0,
        gid: 0,
        size: None,
        times: None,
    };
    let number = |text: &[u8]| {
        let text = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok());
        text.expect("users by number")
    };
    let (mut file, mut device) = (0, Device { major: 0, minor: 0 });
    let mut kind = NfsFtype4::NF4REG;
    for attribute in of.attributes() {
        match attribute.expect("an attribute") {
            Attribute::Type(is) => kind = is,
            Attribute::Size(size) => known.size = Some(size),
            Attribute::Fileid(number) => file = number,
            Attribute::Mode(mode) => known.mode = Mode::new(mode),
            Attribute::Numlinks(links) => known.links = links,
            Attribute::Owner(owner) => known.uid = number(&owner),
            Attribute::OwnerGroup(group) => known.gid = number(&group),
            Attribute::Rawdev(is) => {
                device = Device {
                    major: is.specdata1,
                    minor: is.specdata2,
                }
            }
            _ => {}
        }
    }
    known.kind = match kind {
        NfsFtype4::NF4DIR => Kind::Directory,
        NfsFtype4::NF4LNK => Kind::Symlink,
        NfsFtype4::NF4FIFO => Kind::Fifo,
        NfsFtype4::NF4SOCK => Kind::Socket,
        NfsFtype4::NF4CHR => Kind::CharDevice(device),
        NfsFtype4::NF4BLK => Kind::BlockDevice(device),
        _ => Kind::File,
    };
    if known.kind == Kind::Directory {
        known.size = None;
    }
    (file, known)
}

/// Attributes as a client sets them.
fn encoded(set: &SetAttributes) -> Vec<u8> {
    let stamp = |time: Timestamp| Nfstime4 {
        seconds: time.seconds,
        nseconds: time.nanoseconds,
    };
    let time = |time: SetTime| match time {
        SetTime::Now => Settime4::Default(TimeHow4::SET_TO_SERVER_TIME4),
        SetTime::To(time) => Settime4::SetToClientTime4(stamp(time)),
    };
    let (uid, gid) = (
        set.uid.map(|uid| uid.to_string()),
        set.gid.map(|gid| gid.to_string()),
    );
    let given = [
        set.size.map(Attribute::Size),
        set.mode.map(|mode| Attribute::Mode(mode.bits())),
        uid.as_ref()
            .map(|uid| Attribute::Owner(Opaque(uid.as_bytes()))),
        gid.as_ref()
            .map(|gid| Attribute::OwnerGroup(Opaque(gid.as_bytes()))),
        set.atime.map(|at| Attribute::TimeAccessSet(time(at))),
        set.mtime.map(|at| Attribute::TimeModifySet(time(at))),
        set.birth.map(|at| Attribute::TimeCreate(stamp(at))),
    ];
    let given: Vec<Attribute<'_>> = given.into_iter().flatten().collect();
    let wanted: Bitmap4 = given.iter().map(Attribute::number).collect();
    let mut out = Encoder::default();
    put_attributes(&mut out, &wanted, |number| {
        given.iter().find(|one| one.number() == number).cloned()
    });
    out.into_bytes()
}

/// What a status says in the vocabulary's words.
fn error(status: Nfsstat4, op: &Op) -> Error {
    match status {
        Nfsstat4::NFS4ERR_PERM => Error::NotPermitted,
        Nfsstat4::NFS4ERR_NOENT => Error::NotFound,
        Nfsstat4::NFS4ERR_ACCESS => Error::AccessDenied,
        Nfsstat4::NFS4ERR_EXIST => Error::Exists,
        Nfsstat4::NFS4ERR_XDEV => Error::CrossVolume,
        Nfsstat4::NFS4ERR_NOTDIR => Error::NotDirectory,
        Nfsstat4::NFS4ERR_ISDIR => Error::IsDirectory,
        // Of an OPEN, 4.0 says so of whatever is no file, and Linux does in all versions.
        Nfsstat4::NFS4ERR_SYMLINK if matches!(op, Op::CreateFile(..)) => Error::Invalid,
        Nfsstat4::NFS4ERR_SYMLINK => Error::IsSymlink,
        // 4.1 brought a word of its own for what others still call invalid (RFC 8881, section 15.1.2.9).
        Nfsstat4::NFS4ERR_INVAL | Nfsstat4::NFS4ERR_WRONG_TYPE => Error::Invalid,
        Nfsstat4::NFS4ERR_FBIG => Error::FileTooLarge,
        Nfsstat4::NFS4ERR_NOSPC => Error::NoSpace,
        Nfsstat4::NFS4ERR_MLINK => Error::TooManyLinks,
        Nfsstat4::NFS4ERR_NAMETOOLONG => Error::NameTooLong,
        Nfsstat4::NFS4ERR_NOTEMPTY => Error::NotEmpty,
        Nfsstat4::NFS4ERR_STALE | Nfsstat4::NFS4ERR_FHEXPIRED => Error::Stale,
        Nfsstat4::NFS4ERR_NOXATTR => Error::NoXattr,
        Nfsstat4::NFS4ERR_XATTR2BIG => Error::TooLarge,
        Nfsstat4::NFS4ERR_NXIO => Error::NothingThere,
        Nfsstat4::NFS4ERR_NOTSUPP => Error::NotSupported,
        Nfsstat4::NFS4ERR_IO => Error::Io,
        other => panic!("{other:?} from {op:?}"),
    }
}
