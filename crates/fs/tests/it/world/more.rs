//! What a person does beside changing and reading: two things at a time, copies, room, extended attributes.

use nfs::wire::*;
use nfs::xdr::Opaque;

use super::client::{ANONYMOUS, put_handle};
use super::person::{NEAR, Person};
use super::wire::Done;

/// Bytes that clones are made of.
const PAGE: usize = 4096;

fn write<'a>(stateid: &Stateid4, at: usize, data: &'a [u8], stable: StableHow4) -> NfsArgop4<'a> {
    NfsArgop4::Write(Write4Args {
        stateid: stateid.clone(),
        offset: at as u64,
        stable,
        data: Opaque(data),
    })
}

impl Person {
    fn stability(&mut self) -> StableHow4 {
        [StableHow4::UNSTABLE4, StableHow4::FILE_SYNC4][self.rng.usize(..2)]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (len, byte) = (1 + self.rng.usize(..most), self.rng.u8(1..));
        vec![byte; len]
    }

    /// Two requests at a time.
    async fn both(&mut self, one: &[NfsArgop4<'_>], two: &[NfsArgop4<'_>]) -> [Done; 2] {
        let done = self.client.call_both(one, two).await;
        self.note_breaks();
        done
    }

    /// Takes note of what came of a write that was asked for beside something else, and writes the rest.
    fn end_write(&mut self, number: usize, (at, bytes): (usize, &[u8]), done: &Done) {
        let mut count = 0;
        let contents = &mut self.files.get_mut(&number).expect("known").contents;
        match done.last() {
            NfsResop4::Write(Ok(of)) => {
                count = of.count as usize;
                match of.committed {
                    StableHow4::UNSTABLE4 => {
                        contents.write(at, &bytes[..count], Some(of.writeverf));
                    }
                    _ => contents.store(at, &bytes[..count]),
                }
            }
            // Some of it may be there.
            _ if done.status == Nfsstat4::NFS4ERR_IO => contents.write(at, bytes, None),
            _ => {
                self.expect(done, Nfsstat4::NFS4_OK, "a write beside something else");
                let contents = &mut self.files.get_mut(&number).expect("known").contents;
                contents.may_hold(at, bytes);
                self.refused.push(number);
                return;
            }
        }
        if count < bytes.len() {
            self.rest
                .push((number, at + count, bytes[count..].to_vec()));
        }
    }

    async fn write_rest(&mut self) {
        for number in std::mem::take(&mut self.refused) {
            self.take_as_found(number).await;
        }
        for (number, at, bytes) in std::mem::take(&mut self.rest) {
            self.settle(number).await;
            self.put(number, at, &bytes, StableHow4::FILE_SYNC4).await;
        }
    }

    /// Two writes side by side, mostly in one page. What was refused is written again.
    pub(super) async fn write_twice(&mut self) {
        let Some(number) = self.pick() else { return };
        self.settle(number).await;
        let at = match self.rng.u8(..10) {
            0 => (4 << 20) - self.rng.usize(..9000),
            _ => self.rng.usize(..NEAR),
        };
        let (one, two) = (self.bytes(6000), self.bytes(6000));
        let middle = at + one.len();
        let stable = [self.stability(), self.stability()];
        let handle = self.files[&number].handle.clone();
        // By a stateid it might come too late.
        let first = write(&ANONYMOUS, at, &one, stable[0]);
        let second = write(&ANONYMOUS, middle, &two, stable[1]);
        if self.stateid(&handle) != ANONYMOUS {
            return;
        }
        let done = self
            .both(
                &[put_handle(&handle), first],
                &[put_handle(&handle), second],
            )
            .await;
        self.end_write(number, (at, &one), &done[0]);
        self.end_write(number, (middle, &two), &done[1]);
        self.write_rest().await;
    }

    /// A read beside a write finds each byte as it was or as it is.
    pub(super) async fn write_and_read(&mut self) {
        let Some(number) = self.pick() else { return };
        self.settle(number).await;
        let handle = self.files[&number].handle.clone();
        if self.stateid(&handle) != ANONYMOUS {
            return;
        }
        let before = self.files[&number].contents.wanted.clone();
        let (at, bytes, stable) = (self.rng.usize(..NEAR), self.bytes(9000), self.stability());
        let read = NfsArgop4::Read(Read4Args {
            stateid: ANONYMOUS,
            offset: at as u64,
            count: bytes.len() as u32,
        });
        let breaks = self.client.breaks;
        let ask = write(&ANONYMOUS, at, &bytes, stable);
        let done = self
            .both(&[put_handle(&handle), ask], &[put_handle(&handle), read])
            .await;
        if let NfsResop4::Read(Ok(of)) = done[1].last()
            && self.client.breaks == breaks
        {
            for (place, byte) in (at..).zip(of.data.iter()) {
                let old = before.get(place).copied().unwrap_or(0);
                assert!(
                    [old, bytes[place - at]].contains(byte),
                    "byte {place} of file {number} is {byte} while it is written"
                );
            }
        }
        self.end_write(number, (at, &bytes), &done[0]);
        self.write_rest().await;
    }

    /// Two files whose contents are certain, and ranges of them.
    async fn pair(&mut self) -> Option<[usize; 2]> {
        let (from, to) = (self.pick()?, self.pick()?);
        for number in [from, to] {
            // What is copied must not be lost before a repeat.
            self.commit_one(number).await;
        }
        let is_free = |number: &usize| {
            let file = &self.files[number];
            !file.is_suspect && self.stateid(&file.handle) == ANONYMOUS
        };
        let is_sure = from != to && [from, to].iter().all(is_free);
        is_sure.then_some([from, to])
    }

    async fn ask_of_pair(&mut self, [from, to]: [usize; 2], ask: NfsArgop4<'_>) -> Done {
        let handles = [from, to].map(|number| self.files[&number].handle.clone());
        let all = [
            put_handle(&handles[0]),
            NfsArgop4::Savefh,
            put_handle(&handles[1]),
            ask,
        ];
        self.store(&all).await
    }

    pub(super) async fn copy(&mut self) {
        let Some(pair) = self.pair().await else {
            return;
        };
        let [from, to] = pair;
        let source = self.files[&from].contents.wanted.clone();
        if source.is_empty() {
            return;
        }
        let at = self.rng.usize(..source.len());
        let len = 1 + self.rng.usize(..(source.len() - at).min(20_000));
        let offset = self.rng.usize(..NEAR);
        let ask = NfsArgop4::Copy(Copy4Args {
            ca_src_stateid: ANONYMOUS,
            ca_dst_stateid: ANONYMOUS,
            ca_src_offset: at as u64,
            ca_dst_offset: offset as u64,
            ca_count: len as u64,
            ca_consecutive: true,
            ca_synchronous: true,
            ca_source_server: Vec::new(),
        });
        let done = self.ask_of_pair(pair, ask).await;
        let bytes = &source[at..at + len];
        if !self.expect(&done, Nfsstat4::NFS4_OK, "copy") {
            self.adopt(to, offset, bytes).await;
            return;
        }
        let contents = &mut self.files.get_mut(&to).expect("known").contents;
        contents.store(offset, bytes);
    }

    pub(super) async fn clone_pages(&mut self) {
        let Some(pair) = self.pair().await else {
            return;
        };
        let [from, to] = pair;
        let source = self.files[&from].contents.wanted.clone();
        let pages = source.len() / PAGE;
        if pages == 0 {
            return;
        }
        let first = self.rng.usize(..pages);
        let count = 1 + self.rng.usize(..pages - first);
        let offset = PAGE * self.rng.usize(..NEAR / PAGE);
        let ask = NfsArgop4::Clone(Clone4Args {
            cl_src_stateid: ANONYMOUS,
            cl_dst_stateid: ANONYMOUS,
            cl_src_offset: (first * PAGE) as u64,
            cl_dst_offset: offset as u64,
            cl_count: (count * PAGE) as u64,
        });
        let done = self.ask_of_pair(pair, ask).await;
        let bytes = &source[first * PAGE..(first + count) * PAGE];
        let is_done = self.expect(&done, Nfsstat4::NFS4_OK, "clone");
        let found = match is_done {
            true => Vec::new(),
            false => self.fetch(to).await,
        };
        let contents = &mut self.files.get_mut(&to).expect("known").contents;
        if !is_done && found == contents.wanted {
            return;
        }
        contents.store(offset, bytes);
        // One that is refused for want of room may be the repeat of one that was carried out: as a whole.
        assert!(is_done || found == contents.wanted, "a part of a clone");
    }

    pub(super) async fn allocate(&mut self) {
        let Some(number) = self.pick() else { return };
        self.commit_one(number).await;
        let handle = self.files[&number].handle.clone();
        if self.files[&number].is_suspect || self.stateid(&handle) != ANONYMOUS {
            return;
        }
        let (at, len) = (self.rng.usize(..NEAR), 1 + self.rng.usize(..12_000));
        let ask = NfsArgop4::Allocate(Allocate4Args {
            aa_stateid: ANONYMOUS,
            aa_offset: at as u64,
            aa_length: len as u64,
        });
        let done = self.store(&[put_handle(&handle), ask]).await;
        let is_done = self.expect(&done, Nfsstat4::NFS4_OK, "allocate");
        let contents = &mut self.files.get_mut(&number).expect("known").contents;
        let (before, end) = (contents.len(), at + len);
        if before >= end {
            return;
        }
        match is_done {
            true => contents.set_len(end),
            false => self.adopt(number, before, &vec![0; end - before]).await,
        }
    }

    /// Sets, looks at or removes an extended attribute.
    pub(super) async fn label(&mut self) {
        let Some(number) = self.pick() else { return };
        let handle = self.files[&number].handle.clone();
        let name = ["one", "two"][self.rng.usize(..2)];
        let value = self.bytes(300);
        let there = self.files[&number].labels.get(name).cloned();
        let kind = self.rng.u8(..4);
        let ask = match kind {
            0 => NfsArgop4::Removexattr(Removexattr4Args {
                rxa_name: name.into(),
            }),
            1 => NfsArgop4::Getxattr(Getxattr4Args {
                gxa_name: name.into(),
            }),
            _ => NfsArgop4::Setxattr(Setxattr4Args {
                sxa_option: SetxattrOption4::SETXATTR4_EITHER,
                sxa_key: name.into(),
                sxa_value: Opaque(&value),
            }),
        };
        let done = self.store(&[put_handle(&handle), ask]).await;
        let is_missing = kind < 2 && there.is_none();
        let expected = match is_missing {
            true => Nfsstat4::NFS4ERR_NOXATTR,
            false => Nfsstat4::NFS4_OK,
        };
        if !self.expect(&done, expected, &format!("label {kind} {name}")) {
            return;
        }
        let labels = &mut self.files.get_mut(&number).expect("known").labels;
        match kind {
            0 => drop(labels.remove(name)),
            1 => match done.last() {
                NfsResop4::Getxattr(Ok(found)) => assert_eq!(Some(found.to_vec()), there),
                other => panic!("{other:?}"),
            },
            _ => drop(labels.insert(name, value)),
        }
    }
}
