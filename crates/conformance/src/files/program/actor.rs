//! Taking steps on a file system, and what of the answers has to be the same everywhere.

use std::collections::BTreeMap;

use files::{
    Access, Answer, Attributes, Caller, Error, Event, FileId, Handle, Kind, Mode, Name, Request,
    SeekFor, Stability, Timestamp,
};

use crate::files::Fixture;

use super::step::{Op, Step};

/// Of an object's attributes, what every file system answers alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Known {
    /// Which of the program's objects it is.
    pub object: usize,
    pub kind: Kind,
    pub mode: Mode,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of files and symbolic links: a directory's is a file system's own business.
    pub size: Option<u64>,
    /// `mtime` and `ctime`, where the program sets the clock.
    pub times: Option<[Timestamp; 2]>,
}

/// Of an answer, what every file system answers alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Seen {
    Done,
    Attributes(Known),
    Access(Access),
    Found(Known),
    /// An object, whether it is new, and whether the directory changed.
    Created(Known, bool, bool),
    /// Whether there was a change of each.
    Changed(Vec<bool>),
    Text(Vec<u8>),
    Data(Vec<u8>, bool),
    Number(u64),
    /// Names, and the objects that they lead to.
    Entries(BTreeMap<Name, usize>),
    Names(Vec<Name>),
    /// A place that fits what the file holds.
    Place,
    Refused(Error),
}

/// What can take a program's steps.
pub trait Actor {
    /// Takes one.
    fn take(&mut self, step: &Step) -> Seen;

    /// What is known of each object that there has been; nothing of those that are gone.
    fn known(&mut self) -> Vec<Option<Known>>;

    /// What was told of its own accord since the last time, by the numbers of objects.
    fn told(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it has this step. `on` says what is there, by the first actor.
    fn has(&self, _step: &Step, _on: &[Option<Known>]) -> bool {
        true
    }
}

/// A file system that takes steps.
pub struct OnFixture {
    fixture: Fixture,
    objects: Vec<Handle>,
    changes: BTreeMap<Handle, u64>,
}

impl OnFixture {
    /// Begins with the root, where everybody may make something.
    #[must_use]
    pub fn new(fixture: Fixture) -> Self {
        let objects = vec![fixture.root()];
        fixture.chmod(fixture.root(), 0o777);
        Self {
            fixture,
            objects,
            changes: BTreeMap::new(),
        }
    }

    /// Gives the root to somebody.
    pub fn give_root_to(&self, uid: u32, gid: u32) {
        let set = files::SetAttributes {
            uid: Some(uid),
            gid: Some(gid),
            ..files::SetAttributes::default()
        };
        let request = Request::SetAttributes(self.fixture.root(), set);
        self.fixture.call(&Caller::ROOT, request).expect("by root");
    }

    fn object(&self, pick: usize) -> Handle {
        self.objects[pick % self.objects.len()]
    }

    fn number(&self, file: FileId) -> usize {
        let mut objects = self.objects.iter();
        let place = objects.position(|object| object.file == file);
        place.expect("an object that the program has made")
    }

    fn know(&self, attributes: &Attributes) -> Known {
        let times = [attributes.mtime, attributes.ctime];
        Known {
            object: self.number(attributes.file),
            kind: attributes.kind,
            mode: attributes.mode,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: (attributes.kind != Kind::Directory).then_some(attributes.size),
            times: Some(times),
        }
    }

    fn request(&self, op: &Op) -> Option<Request> {
        Some(match op.clone() {
            Op::SetAttributes(a, set) => Request::SetAttributes(self.object(a), set),
            Op::Access(a, wanted) => Request::Access(self.object(a), wanted),
            Op::Lookup(a, name) => Request::Lookup(self.object(a), name),
            Op::Parent(a) => Request::Parent(self.object(a)),
            Op::ReadLink(a) => Request::ReadLink(self.object(a)),
            Op::Create(a, name, new, attributes) => Request::Create {
                directory: self.object(a),
                name,
                new,
                attributes,
            },
            Op::CreateFile(a, name, how, attributes) => Request::CreateFile {
                directory: self.object(a),
                name,
                how,
                attributes,
            },
            Op::Remove(a, name, directory_only) => Request::Remove {
                directory: self.object(a),
                name,
                directory_only,
            },
            Op::Rename(a, from_name, b, to_name) => Request::Rename {
                from: self.object(a),
                from_name,
                to: self.object(b),
                to_name,
            },
            Op::Link(a, b, name) => Request::Link {
                object: self.object(a),
                directory: self.object(b),
                name,
            },
            Op::Commit(a, range) => Request::Commit(self.object(a), range),
            Op::Allocate(a, range) => Request::Allocate(self.object(a), range),
            Op::Deallocate(a, range) => Request::Deallocate(self.object(a), range),
            Op::Copy(a, range, b, offset) => Request::Copy {
                from: self.object(a),
                range,
                to: self.object(b),
                offset,
            },
            Op::Clone(a, range, b, offset) => Request::Clone {
                from: self.object(a),
                range,
                to: self.object(b),
                offset,
            },
            Op::GetXattr(a, name) => Request::GetXattr(self.object(a), name),
            Op::SetXattr(a, name, value, how) => Request::SetXattr {
                object: self.object(a),
                name,
                value,
                how,
            },
            Op::RemoveXattr(a, name) => Request::RemoveXattr(self.object(a), name),
            holds => return self.hold_request(holds),
        })
    }

    fn hold_request(&self, op: Op) -> Option<Request> {
        let reclaim = false;
        Some(match op {
            Op::Open(a, holder, access, deny) => Request::Open {
                file: self.object(a),
                holder,
                access,
                deny,
                reclaim,
            },
            Op::Downgrade(a, holder, access, deny) => Request::Downgrade {
                file: self.object(a),
                holder,
                access,
                deny,
            },
            Op::Lock(a, holder, lock) => Request::Lock {
                file: self.object(a),
                holder,
                lock,
                reclaim,
            },
            Op::TestLock(a, holder, lock) => Request::TestLock {
                file: self.object(a),
                holder,
                lock,
            },
            Op::Unlock(a, holder, range) => Request::Unlock {
                file: self.object(a),
                holder,
                range,
            },
            Op::Delegate(a, client, kind) => Request::Delegate {
                file: self.object(a),
                client,
                kind,
                reclaim,
            },
            Op::ReturnDelegation(a, client) => Request::ReturnDelegation {
                file: self.object(a),
                client,
            },
            Op::Forget(client) => Request::Forget { client },
            _ => return None,
        })
    }

    fn answer(&mut self, step: &Step) -> Result<Seen, Error> {
        let caller = &step.caller;
        match &step.op {
            Op::List(a, bytes_max) => {
                let listed = list(&self.fixture, caller, self.object(*a), *bytes_max)?;
                let numbered = listed
                    .into_iter()
                    .map(|(name, file)| (name, self.number(file)));
                Ok(Seen::Entries(numbered.collect()))
            }
            Op::ListXattrs(a, bytes_max) => {
                let object = self.object(*a);
                let names = list_xattrs(&self.fixture, caller, object, *bytes_max)?;
                Ok(Seen::Names(names))
            }
            Op::Read(a, range) => {
                let file = self.object(*a);
                let read = self.fixture.read(caller, file, range.offset, range.len);
                let (data, done) = read?;
                Ok(Seen::Data(data, done.is_end))
            }
            Op::Write(a, offset, data) => {
                let (file, fs) = (self.object(*a), self.fixture.fs());
                let write = fs.write(caller, file, *offset, data, Stability::Unstable);
                let done = self.fixture.run(write)?;
                Ok(Seen::Number(done.len as u64))
            }
            Op::Seek(a, offset, what) => self.seek(caller, self.object(*a), *offset, *what),
            op => {
                let request = self.request(op).expect("all others are requests");
                let answer = self.fixture.call(caller, request)?;
                Ok(self.see(answer))
            }
        }
    }

    fn see(&mut self, answer: Answer) -> Seen {
        match answer {
            Answer::Done | Answer::Committed { .. } => Seen::Done,
            Answer::Attributes(attributes) => Seen::Attributes(self.know(&attributes)),
            Answer::Access(access) => Seen::Access(access),
            Answer::Found(handle, attributes) => {
                assert_eq!(handle.file, attributes.file);
                Seen::Found(self.know(&attributes))
            }
            Answer::Created {
                handle,
                attributes,
                directory,
                is_new,
            } => {
                assert_eq!(handle.file, attributes.file);
                if !self.objects.contains(&handle) {
                    self.objects.push(handle);
                }
                let changed = directory.before != directory.after;
                Seen::Created(self.know(&attributes), is_new, changed)
            }
            Answer::Changed(change) => Seen::Changed(vec![change.before < change.after]),
            Answer::Renamed { from, to } => {
                Seen::Changed(vec![from.before < from.after, to.before < to.after])
            }
            Answer::Link(text) => Seen::Text(text),
            Answer::Copied(len) => Seen::Number(len),
            Answer::Value(value) => Seen::Text(value),
            other => panic!("no request of a program is answered {other:?}"),
        }
    }

    /// Seeks. Where data begins is a file system's own business as long as it skips zeroes only, and
    /// a hole as long as zeroes begin there.
    fn seek(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<Seen, Error> {
        let answer = self
            .fixture
            .call(caller, Request::Seek(file, offset, what))?;
        let Answer::Seek(found) = answer else {
            panic!("a seek is answered {answer:?}");
        };
        let size = self.fixture.stat(file).size;
        assert!(found.offset >= offset && found.offset <= size, "{found:?}");
        assert_eq!(found.is_end, found.offset == size, "{found:?} of {size}");
        let (from, to) = match what {
            SeekFor::Data => (offset, found.offset),
            SeekFor::Hole => (found.offset, size.min(found.offset.saturating_add(1))),
        };
        let len = (to - from).min(1 << 20);
        let zeroes = self.fixture.read(&Caller::ROOT, file, from, len);
        // Another's open may deny looking.
        let is_zero = zeroes.map_or(true, |(data, _)| data.iter().all(|byte| *byte == 0));
        assert!(is_zero, "{found:?} skips data from {offset} on");
        Ok(Seen::Place)
    }
}

impl Actor for OnFixture {
    fn take(&mut self, step: &Step) -> Seen {
        self.fixture.clock().advance();
        self.answer(step).unwrap_or_else(Seen::Refused)
    }

    fn known(&mut self) -> Vec<Option<Known>> {
        let mut known = Vec::new();
        for object in self.objects.clone() {
            let request = Request::GetAttributes(object);
            let answer = self
                .fixture
                .run(self.fixture.fs().call(&Caller::ROOT, request));
            known.push(match answer {
                Ok(Answer::Attributes(attributes)) => {
                    let change = attributes.change;
                    let last = self.changes.insert(object, change);
                    assert!(last <= Some(change), "change goes back to {change}");
                    Some(self.know(&attributes))
                }
                Err(Error::Stale) => None,
                other => panic!("attributes of {object:?}: {other:?}"),
            });
        }
        known
    }

    fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(event) = self.fixture.event() {
            told.push(match event {
                Event::Recall { client, file, kind } => {
                    format!("recall {client} {} {kind:?}", self.number(file.file))
                }
                other => format!("{other:?}"),
            });
        }
        told.sort_unstable();
        told
    }
}

/// A directory's entries, in pages.
///
/// # Errors
/// The file system's.
///
/// # Panics
/// If a name comes twice, or a page has no entry although it is not the last.
pub fn list(
    fixture: &Fixture,
    caller: &Caller,
    directory: Handle,
    bytes_max: u32,
) -> Result<BTreeMap<Name, FileId>, Error> {
    let (mut all, mut cookie) = (BTreeMap::new(), 0);
    loop {
        let request = Request::ReadDirectory {
            directory,
            cookie,
            bytes_max,
            attributes: false,
        };
        // Both sides need not have the same pages: no time passes between them.
        let page = fixture.run(fixture.fs().call(caller, request))?;
        let Answer::Entries { entries, is_end } = page else {
            panic!("a listing is answered otherwise");
        };
        assert!(
            is_end || !entries.is_empty(),
            "a page has at least one entry"
        );
        for entry in entries {
            assert!(entry.cookie > 2, "cookies 0 to 2 are protocols'");
            cookie = entry.cookie;
            let old = all.insert(entry.name, entry.file);
            assert_eq!(old, None, "a name is told once");
        }
        if is_end {
            return Ok(all);
        }
    }
}

/// An object's extended attributes' names, in pages, sorted.
///
/// # Errors
/// The file system's.
///
/// # Panics
/// If a page has no name although it is not the last.
pub fn list_xattrs(
    fixture: &Fixture,
    caller: &Caller,
    object: Handle,
    bytes_max: u32,
) -> Result<Vec<Name>, Error> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let request = Request::ListXattrs {
            object,
            cookie: from,
            bytes_max,
        };
        let answer = fixture.run(fixture.fs().call(caller, request))?;
        let Answer::Names {
            names,
            cookie,
            is_end,
        } = answer
        else {
            panic!("a listing is answered {answer:?}");
        };
        assert!(is_end || !names.is_empty(), "a page has at least one name");
        all.extend(names);
        from = cookie;
        if is_end {
            all.sort_unstable();
            return Ok(all);
        }
    }
}
