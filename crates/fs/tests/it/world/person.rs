//! A client that works in a directory of its own, knows what must be there, and looks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use fastrand::Rng;
use nfs::wire::*;
use nfs::xdr::Opaque;
use sim::Env;

use super::client::{
    ANONYMOUS, CURRENT, Client, Held, attributes, close, fattr, handle_of, lock_all, open, opened,
    put_handle,
};
use super::kept::Contents;
use super::met::{Met, count};
use super::wire::Done;

/// Names in each directory, so that they meet.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Bytes of a file at most, but for a few.
pub(super) const NEAR: usize = 40_000;

/// A file that has a name, or is open.
pub(super) struct File {
    pub(super) handle: Vec<u8>,
    pub(super) contents: Contents,
    links: u32,
    /// Extended attributes.
    pub(super) labels: BTreeMap<&'static str, Vec<u8>>,
    /// The connection was lost since the contents were looked at.
    pub(super) is_suspect: bool,
    /// What a restart has lost is not written again yet.
    is_behind: bool,
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory,
}

pub(crate) struct Person {
    pub(super) client: Client,
    met: Rc<Met>,
    pub(super) rng: Rng,
    /// Two directories: both are this client's alone, and in each other.
    places: [Vec<u8>; 2],
    names: [BTreeMap<&'static str, Node>; 2],
    pub(super) files: BTreeMap<usize, File>,
    next: usize,
    breaks: u64,
    /// Whether the disk may be full.
    pub(super) may_be_full: bool,
    /// Writes that were carried out in part: of which file, where, what is left.
    pub(super) rest: Vec<(usize, usize, Vec<u8>)>,
    /// Files of which a write beside something else was refused.
    pub(super) refused: Vec<usize>,
}

fn look(name: &str) -> NfsArgop4<'_> {
    NfsArgop4::Lookup(Lookup4Args {
        objname: name.into(),
    })
}

fn make_directory<'a>(name: &'a str, with: &'a [u8]) -> NfsArgop4<'a> {
    NfsArgop4::Create(Create4Args {
        objtype: Createtype4::Nf4Dir,
        objname: name.into(),
        createattrs: fattr(with),
    })
}

impl Person {
    /// Makes the directories.
    pub(crate) async fn new(
        env: &Env,
        number: usize,
        seed: u64,
        may_be_full: bool,
        met: Rc<Met>,
    ) -> Self {
        let mut client = Client::new(env, format!("client {number}")).await;
        client.ends_with_session = true;
        let (name, mode) = (
            format!("home {number}"),
            attributes(&[Attribute::Mode(0o700)]),
        );
        let make = [
            NfsArgop4::Putrootfh,
            make_directory(&name, &mode),
            NfsArgop4::Getfh,
        ];
        let outer = handle_of(&client.call(&make).await.ok());
        let make = [
            put_handle(&outer),
            make_directory("inner", &mode),
            NfsArgop4::Getfh,
        ];
        let inner = handle_of(&client.call(&make).await.ok());
        let breaks = client.breaks;
        Self {
            client,
            met,
            rng: Rng::with_seed(seed),
            places: [outer, inner],
            names: [
                BTreeMap::from([("inner", Node::Directory)]),
                BTreeMap::new(),
            ],
            files: BTreeMap::new(),
            next: 0,
            breaks,
            may_be_full,
            rest: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// So many steps, and a look at everything; fewer if the server takes its session away.
    pub(crate) async fn live(self, steps: usize, taken: &Cell<usize>) {
        let (is_lost, met) = (Rc::clone(&self.client.is_lost), Rc::clone(&self.met));
        let mut life = pin!(self.live_on(steps, taken));
        poll_fn(|cx| match life.as_mut().poll(cx) {
            Poll::Pending if is_lost.get() => {
                count(&met.lapses, 1);
                Poll::Ready(())
            }
            polled => polled,
        })
        .await;
    }

    async fn live_on(mut self, steps: usize, taken: &Cell<usize>) {
        for _ in 0..steps {
            self.step().await;
            taken.set(taken.get() + 1);
        }
        self.look_at_all().await;
        while !self.client.held.is_empty() {
            self.close(0).await;
        }
        count(&self.met.breaks, self.client.breaks);
        count(&self.met.claims, self.client.claims);
    }

    async fn step(&mut self) {
        match self.rng.u8(..38) {
            0..5 => self.create().await,
            5..12 => self.write().await,
            12..15 => self.commit().await,
            15..18 => self.read().await,
            18..20 => self.rename().await,
            20..22 => self.remove().await,
            22 => self.link().await,
            23 => self.resize().await,
            24 => self.punch().await,
            25..27 => self.hold().await,
            27 => {
                let count = self.client.held.len();
                if count > 0 {
                    let at = self.rng.usize(..count);
                    self.close(at).await;
                }
            }
            28 => self.list().await,
            29..32 => self.write_twice().await,
            32 => self.write_and_read().await,
            33 => self.copy().await,
            34 => self.clone_pages().await,
            35 => self.allocate().await,
            36 => self.label().await,
            _ => self.look_at_all().await,
        }
    }

    async fn call(&mut self, operations: &[NfsArgop4<'_>]) -> Done {
        let done = self.client.call(operations).await;
        self.note_breaks();
        done
    }

    /// Contents may be others than they were since a connection was lost.
    pub(super) fn note_breaks(&mut self) {
        if self.client.breaks != self.breaks {
            self.breaks = self.client.breaks;
            for file in self.files.values_mut() {
                file.is_suspect = true;
            }
        }
    }

    /// The same until the storage does it.
    pub(super) async fn store(&mut self, operations: &[NfsArgop4<'_>]) -> Done {
        loop {
            let done = self.call(operations).await;
            if done.status != Nfsstat4::NFS4ERR_IO {
                return done;
            }
            self.client.pause().await;
        }
    }

    fn place(&mut self) -> (usize, &'static str) {
        (self.rng.usize(..2), NAMES[self.rng.usize(..NAMES.len())])
    }

    /// A file that the person knows.
    pub(super) fn pick(&mut self) -> Option<usize> {
        let all: Vec<usize> = self.files.keys().copied().collect();
        (!all.is_empty()).then(|| all[self.rng.usize(..all.len())])
    }

    /// Whether an operation was done, as expected, or had no room.
    pub(super) fn expect(&self, done: &Done, expected: Nfsstat4, what: &str) -> bool {
        let is_full = self.may_be_full && done.status == Nfsstat4::NFS4ERR_NOSPC;
        count(&self.met.refusals, is_full.into());
        assert!(
            is_full || done.status == expected,
            "{what}: {:?} instead of {expected:?}",
            done.status
        );
        !is_full && expected == Nfsstat4::NFS4_OK
    }

    async fn create(&mut self) {
        let (place, name) = self.place();
        let there = self.names[place].get(name).copied();
        let directory = self.places[place].clone();
        let none = attributes(&[Attribute::Mode(0o600)]);
        let emptied = attributes(&[Attribute::Size(0)]);
        let kind = self.rng.u8(..4);
        let how = match kind {
            0 => Createhow4::Guarded4(fattr(&none)),
            1 => Createhow4::Unchecked4(fattr(&none)),
            2 => Createhow4::Unchecked4(fattr(&emptied)),
            _ => Createhow4::Exclusive41(Creatverfattr {
                cva_verf: self.rng.u64(..).to_be_bytes(),
                cva_attrs: fattr(&none),
            }),
        };
        let make = [
            put_handle(&directory),
            open(
                "maker",
                Openflag4::Open4Create(how),
                OpenClaim4::ClaimNull(name.into()),
            ),
            NfsArgop4::Getfh,
            close(&CURRENT),
        ];
        let done = self.store(&make).await;
        let is_unchecked = matches!(kind, 1 | 2);
        let expected = match there {
            None => Nfsstat4::NFS4_OK,
            Some(Node::File(_)) if is_unchecked => Nfsstat4::NFS4_OK,
            Some(Node::Directory) if is_unchecked => Nfsstat4::NFS4ERR_ISDIR,
            Some(_) => Nfsstat4::NFS4ERR_EXIST,
        };
        if !self.expect(&done, expected, &format!("create {kind} {name}")) {
            return;
        }
        let handle = handle_of(&done);
        match there {
            Some(Node::File(file)) => {
                let file = self.files.get_mut(&file).expect("it has a name");
                assert_eq!(file.handle, handle, "what was there is opened");
                if kind == 2 {
                    file.contents.set_len(0);
                }
            }
            _ => {
                self.next += 1;
                let file = File {
                    handle,
                    contents: Contents::default(),
                    links: 1,
                    labels: BTreeMap::new(),
                    is_suspect: false,
                    is_behind: false,
                };
                self.files.insert(self.next, file);
                self.names[place].insert(name, Node::File(self.next));
            }
        }
    }

    /// The stateid to use for a file's data.
    pub(super) fn stateid(&self, handle: &[u8]) -> Stateid4 {
        let mut held = self.client.held.iter();
        let held = held.find(|held| held.handle == handle);
        held.map_or(ANONYMOUS, |held| {
            held.lock.clone().unwrap_or_else(|| held.stateid.clone())
        })
    }

    /// An operation on a file's data, with what the client has it open by.
    async fn data<'a>(
        &mut self,
        handle: &'a [u8],
        operation: impl Fn(Stateid4) -> NfsArgop4<'a>,
    ) -> Done {
        loop {
            let stateid = self.stateid(handle);
            let ask = [put_handle(handle), operation(stateid)];
            let done = self.store(&ask).await;
            // It was claimed anew meanwhile.
            if done.status != Nfsstat4::NFS4ERR_STALE_STATEID {
                return done;
            }
        }
    }

    async fn write(&mut self) {
        let Some(number) = self.pick() else { return };
        self.settle(number).await;
        let len = match self.rng.u8(..8) {
            0 => 1 + self.rng.usize(..10),
            1..4 => 4096 * (1 + self.rng.usize(..4)),
            _ => 1 + self.rng.usize(..9000),
        };
        let at = match self.rng.u8(..100) {
            0 => (4 << 20) - self.rng.usize(..6000),
            1..50 => 4096 * self.rng.usize(..NEAR / 4096),
            _ => self.rng.usize(..NEAR),
        };
        let byte = self.rng.u8(1..);
        let bytes: Vec<u8> = (0..len).map(|at| byte ^ (at / 512) as u8).collect();
        let stable = [
            StableHow4::UNSTABLE4,
            StableHow4::UNSTABLE4,
            StableHow4::FILE_SYNC4,
            StableHow4::DATA_SYNC4,
        ][self.rng.usize(..4)];
        self.put(number, at, &bytes, stable).await;
    }

    /// Writes all of it, or as much as there is room for.
    pub(super) async fn put(&mut self, number: usize, at: usize, bytes: &[u8], stable: StableHow4) {
        let handle = self.files[&number].handle.clone();
        let mut done = 0;
        while done < bytes.len() {
            let part = &bytes[done..];
            let answer = self
                .data(&handle, |stateid| {
                    NfsArgop4::Write(Write4Args {
                        stateid,
                        offset: (at + done) as u64,
                        stable,
                        data: Opaque(part),
                    })
                })
                .await;
            if !self.expect(&answer, Nfsstat4::NFS4_OK, "write") {
                self.adopt(number, at + done, part).await;
                return;
            }
            let NfsResop4::Write(Ok(of)) = answer.last() else {
                panic!("{answer:?}");
            };
            let count = of.count as usize;
            assert!(count > 0 && count <= part.len(), "{of:?}");
            let contents = &mut self.files.get_mut(&number).expect("known").contents;
            match of.committed {
                StableHow4::UNSTABLE4 => {
                    assert_eq!(stable, StableHow4::UNSTABLE4, "as durable as was asked for");
                    contents.write(at + done, &part[..count], Some(of.writeverf));
                }
                _ => contents.store(at + done, &part[..count]),
            }
            done += count;
        }
    }

    async fn commit(&mut self) {
        let Some(number) = self.pick() else { return };
        self.commit_one(number).await;
    }

    /// Commits until all that was written is durable, as a client does that keeps what it has written.
    pub(super) async fn commit_one(&mut self, number: usize) {
        loop {
            self.settle(number).await;
            let verifier = self.flush(number).await;
            let file = self.files.get_mut(&number).expect("known");
            if file.contents.commit(verifier) {
                return;
            }
            count(&self.met.doubts, 1);
            self.write_again(number).await;
        }
    }

    /// Asks for a commit, and is told the verifier.
    async fn flush(&mut self, number: usize) -> Verifier4 {
        let handle = self.files[&number].handle.clone();
        let commit = NfsArgop4::Commit(Commit4Args {
            offset: 0,
            count: 0,
        });
        let done = self.store(&[put_handle(&handle), commit]).await.ok();
        match done.last() {
            NfsResop4::Commit(Ok(of)) => of.writeverf,
            other => panic!("{other:?}"),
        }
    }

    /// Writes again what may be lost.
    async fn write_again(&mut self, number: usize) {
        let pending = self.files[&number].contents.pending.clone();
        let wanted = self.files[&number].contents.wanted.clone();
        for one in pending {
            let bytes = &wanted[one.at..one.at + one.bytes.len()];
            // Of no use as unstable writes: there would be no end.
            self.put(number, one.at, bytes, StableHow4::FILE_SYNC4)
                .await;
        }
    }

    /// After the connection was lost: looks what the server has, and brings back what it has lost.
    pub(super) async fn settle(&mut self, number: usize) {
        while self.files[&number].is_suspect {
            self.files.get_mut(&number).expect("known").is_suspect = false;
            let found = self.fetch(number).await;
            let file = self.files.get_mut(&number).expect("known");
            if let Err(why) = file.contents.check(&found, true) {
                panic!("file {number} after a restart: {why}");
            }
            file.is_behind = found != file.contents.wanted;
            count(&self.met.losses, file.is_behind.into());
            self.write_again(number).await;
            self.files.get_mut(&number).expect("known").is_behind = false;
        }
    }

    /// Something that would have put bytes into a file was refused for want of room. It may be the repeat of what
    /// was carried out before a restart, or be done in part: requests about data are not counted.
    pub(super) async fn adopt(&mut self, number: usize, at: usize, bytes: &[u8]) {
        let contents = &mut self.files.get_mut(&number).expect("known").contents;
        contents.may_hold(at, bytes);
        self.take_as_found(number).await;
    }

    /// Has what a file holds made durable, and wants nothing else: that may not be written again.
    pub(super) async fn take_as_found(&mut self, number: usize) {
        let mut has_died = self.files[&number].is_behind;
        loop {
            let file = self.files.get_mut(&number).expect("known");
            has_died |= std::mem::take(&mut file.is_suspect);
            let found = self.fetch(number).await;
            self.flush(number).await;
            let file = self.files.get_mut(&number).expect("known");
            if file.is_suspect {
                continue;
            }
            if let Err(why) = file.contents.check(&found, has_died) {
                panic!("file {number} after a refusal (has died: {has_died}): {why}");
            }
            file.contents.take(found);
            file.is_behind = false;
            return;
        }
    }

    /// Reads a whole file.
    pub(super) async fn fetch(&mut self, number: usize) -> Vec<u8> {
        let handle = self.files[&number].handle.clone();
        let mut found = Vec::new();
        loop {
            let answer = self
                .data(&handle, |stateid| {
                    NfsArgop4::Read(Read4Args {
                        stateid,
                        offset: found.len() as u64,
                        count: 1 << 19,
                    })
                })
                .await
                .ok();
            let NfsResop4::Read(Ok(of)) = answer.last() else {
                panic!("{answer:?}");
            };
            found.extend_from_slice(&of.data);
            if of.eof {
                return found;
            }
            assert!(!of.data.is_empty(), "no end, and no bytes");
        }
    }

    async fn read(&mut self) {
        let Some(number) = self.pick() else { return };
        self.look_at(number).await;
    }

    /// A file has to be what it was made.
    async fn look_at(&mut self, number: usize) {
        loop {
            self.settle(number).await;
            let found = self.fetch(number).await;
            let file = &self.files[&number];
            if file.is_suspect {
                continue;
            }
            let wanted = &file.contents.wanted;
            if *wanted != found {
                let at = wanted.iter().zip(&found).position(|(a, b)| a != b);
                panic!(
                    "file {number}: {} bytes instead of {}, other from {at:?} on",
                    found.len(),
                    wanted.len()
                );
            }
            break;
        }
        let handle = self.files[&number].handle.clone();
        let wanted = Bitmap4::of(&[FATTR4_SIZE, FATTR4_NUMLINKS]);
        let ask = [
            put_handle(&handle),
            NfsArgop4::Getattr(Getattr4Args {
                attr_request: wanted,
            }),
        ];
        let done = self.call(&ask).await.ok();
        let NfsResop4::Getattr(Ok(of)) = done.last() else {
            panic!("{done:?}");
        };
        let file = &self.files[&number];
        for attribute in of.obj_attributes.attributes() {
            match attribute.expect("an attribute") {
                Attribute::Size(size) if !file.is_suspect => {
                    assert_eq!(size, file.contents.len() as u64, "size of file {number}");
                }
                Attribute::Numlinks(links) => {
                    assert_eq!(links, file.links, "links of file {number}");
                }
                _ => {}
            }
        }
    }

    async fn resize(&mut self) {
        let Some(number) = self.pick() else { return };
        self.settle(number).await;
        let len = self.rng.usize(..NEAR + 9000);
        let to = attributes(&[Attribute::Size(len as u64)]);
        let handle = self.files[&number].handle.clone();
        let done = self
            .data(&handle, |stateid| {
                NfsArgop4::Setattr(Setattr4Args {
                    stateid,
                    obj_attributes: fattr(&to),
                })
            })
            .await;
        if self.expect(&done, Nfsstat4::NFS4_OK, "resize") {
            let file = self.files.get_mut(&number).expect("known");
            file.contents.set_len(len);
        }
    }

    async fn punch(&mut self) {
        let Some(number) = self.pick() else { return };
        self.settle(number).await;
        let (at, len) = (self.rng.usize(..NEAR), 1 + self.rng.usize(..12_000));
        let handle = self.files[&number].handle.clone();
        let done = self
            .data(&handle, |stateid| {
                NfsArgop4::Deallocate(Deallocate4Args {
                    da_stateid: stateid,
                    da_offset: at as u64,
                    da_length: len as u64,
                })
            })
            .await;
        let is_done = self.expect(&done, Nfsstat4::NFS4_OK, "punch");
        let contents = &mut self.files.get_mut(&number).expect("known").contents;
        let end = (at + len).min(contents.len());
        if at >= end {
            return;
        }
        match is_done {
            true => contents.punch(at, end),
            false => self.adopt(number, at, &vec![0; end - at]).await,
        }
    }

    async fn rename(&mut self) {
        let ((from, name), (to, new)) = (self.place(), self.place());
        let (source, target) = (self.places[from].clone(), self.places[to].clone());
        let ask = [
            put_handle(&source),
            NfsArgop4::Savefh,
            put_handle(&target),
            NfsArgop4::Rename(Rename4Args {
                oldname: name.into(),
                newname: new.into(),
            }),
        ];
        let done = self.store(&ask).await;
        let (moved, over) = (
            self.names[from].get(name).copied(),
            self.names[to].get(new).copied(),
        );
        let expected = if moved.is_some() {
            Nfsstat4::NFS4_OK
        } else {
            Nfsstat4::NFS4ERR_NOENT
        };
        if !self.expect(&done, expected, &format!("rename {from}/{name} {to}/{new}")) {
            return;
        }
        // Two names of one file: nothing happens.
        if moved == over {
            return;
        }
        if let Some(node) = over {
            self.unlinked(node);
        }
        let node = self.names[from].remove(name).expect("just looked");
        self.names[to].insert(new, node);
    }

    async fn remove(&mut self) {
        let (place, name) = self.place();
        let directory = self.places[place].clone();
        let ask = [
            put_handle(&directory),
            NfsArgop4::Remove(Remove4Args {
                target: name.into(),
            }),
        ];
        let done = self.store(&ask).await;
        let there = self.names[place].get(name).copied();
        let expected = if there.is_some() {
            Nfsstat4::NFS4_OK
        } else {
            Nfsstat4::NFS4ERR_NOENT
        };
        if self.expect(&done, expected, &format!("remove {place}/{name}")) {
            let node = self.names[place].remove(name).expect("just looked");
            self.unlinked(node);
        }
    }

    /// One name less.
    fn unlinked(&mut self, node: Node) {
        let Node::File(number) = node else { return };
        let file = self.files.get_mut(&number).expect("it had a name");
        file.links -= 1;
        self.forget_if_gone(number);
    }

    fn forget_if_gone(&mut self, number: usize) {
        let Some(file) = self.files.get(&number) else {
            return;
        };
        let is_held = |held: &Held| held.handle == file.handle;
        if file.links == 0 && !self.client.held.iter().any(is_held) {
            self.files.remove(&number);
        }
    }

    async fn link(&mut self) {
        let (place, name) = self.place();
        let named: Vec<usize> = self
            .files
            .iter()
            .filter(|(_, file)| file.links > 0)
            .map(|(number, _)| *number)
            .collect();
        if named.is_empty() {
            return;
        }
        let number = named[self.rng.usize(..named.len())];
        let (handle, directory) = (
            self.files[&number].handle.clone(),
            self.places[place].clone(),
        );
        let ask = [
            put_handle(&handle),
            NfsArgop4::Savefh,
            put_handle(&directory),
            NfsArgop4::Link(Link4Args {
                newname: name.into(),
            }),
        ];
        let done = self.store(&ask).await;
        let expected = if self.names[place].contains_key(name) {
            Nfsstat4::NFS4ERR_EXIST
        } else {
            Nfsstat4::NFS4_OK
        };
        if self.expect(&done, expected, &format!("link {place}/{name}")) {
            self.names[place].insert(name, Node::File(number));
            self.files.get_mut(&number).expect("known").links += 1;
        }
    }

    /// Opens a file, and locks it in half of the cases: it lives until it is closed.
    async fn hold(&mut self) {
        let (place, name) = self.place();
        let Some(Node::File(number)) = self.names[place].get(name).copied() else {
            return;
        };
        let (directory, handle) = (
            self.places[place].clone(),
            self.files[&number].handle.clone(),
        );
        if self.client.held.iter().any(|held| held.handle == handle) {
            return;
        }
        let owner = format!("owner {}", self.rng.u8(..2));
        let ask = [
            put_handle(&directory),
            open(
                &owner,
                Openflag4::Default(Opentype4::OPEN4_NOCREATE),
                OpenClaim4::ClaimNull(name.into()),
            ),
        ];
        let stateid = opened(&self.call(&ask).await.ok());
        self.client.held.push(Held {
            handle: handle.clone(),
            owner: owner.clone(),
            stateid,
            lock: None,
            is_closing: false,
            is_gone: false,
        });
        while self.rng.bool() {
            let at = self.client.held.len() - 1;
            let stateid = self.client.held[at].stateid.clone();
            let ask = [put_handle(&handle), lock_all(&owner, &stateid, false)];
            let done = self.call(&ask).await;
            if done.status == Nfsstat4::NFS4ERR_STALE_STATEID {
                continue;
            }
            match done.ok().last() {
                NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) => {
                    self.client.held[at].lock = Some(of.lock_stateid);
                }
                other => panic!("{other:?}"),
            }
            break;
        }
    }

    async fn close(&mut self, at: usize) {
        let handle = self.client.held[at].handle.clone();
        self.client.held[at].is_closing = true;
        loop {
            let stateid = self.client.held[at].stateid.clone();
            let ask = [put_handle(&handle), close(&stateid)];
            let done = self.call(&ask).await;
            match done.status {
                // Of before a restart: what the client has claimed since is another one, or the file is
                // gone.
                Nfsstat4::NFS4ERR_STALE_STATEID if self.client.held[at].stateid != stateid => {}
                // It was closed before the restart, and went between the repeat and the claim.
                Nfsstat4::NFS4ERR_STALE_STATEID if self.client.held[at].is_gone => break,
                Nfsstat4::NFS4ERR_STALE => break,
                _ => {
                    done.ok();
                    break;
                }
            }
        }
        self.client.held.remove(at);
        let all: Vec<usize> = self.files.keys().copied().collect();
        for number in all {
            self.forget_if_gone(number);
        }
    }

    /// The directories have to hold the names, and nothing else.
    async fn list(&mut self) {
        for place in 0..2 {
            let directory = self.places[place].clone();
            let ask = [
                put_handle(&directory),
                NfsArgop4::Readdir(Readdir4Args {
                    cookie: 0,
                    cookieverf: [0; 8],
                    dircount: 32 << 10,
                    maxcount: 64 << 10,
                    attr_request: Bitmap4::EMPTY,
                }),
            ];
            let done = self.call(&ask).await.ok();
            let NfsResop4::Readdir(Ok(of)) = done.last() else {
                panic!("{done:?}");
            };
            assert!(of.reply.eof);
            let mut found: Vec<String> = of
                .reply
                .entries
                .0
                .iter()
                .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
                .collect();
            found.sort();
            let names: Vec<&str> = self.names[place].keys().copied().collect();
            assert_eq!(found, names, "names in place {place}");
        }
    }

    async fn look_at_all(&mut self) {
        self.list().await;
        for place in 0..2 {
            for (name, node) in self.names[place].clone() {
                let directory = self.places[place].clone();
                let ask = [put_handle(&directory), look(name), NfsArgop4::Getfh];
                let handle = handle_of(&self.call(&ask).await.ok());
                if let Node::File(number) = node {
                    assert_eq!(handle, self.files[&number].handle, "{place}/{name}");
                }
            }
        }
        let all: Vec<usize> = self.files.keys().copied().collect();
        for number in all {
            self.look_at(number).await;
        }
    }
}
