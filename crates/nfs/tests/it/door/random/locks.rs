//! Locks of a random program: LOCK, LOCKU.

use nfs::wire::*;
use sim::Env;

use super::super::bench::*;
use super::model::{BYTES, Locks, Owner};
use super::program::{FILES, Program, owner_name};

impl Program {
    pub(super) fn lock_seqid(&mut self, (client, owner): Owner) -> u32 {
        let peer = &mut self.peers[client];
        if peer.id.is_none() {
            return 0;
        }
        let sequences = peer.sequences.entry(owner).or_default();
        sequences.lock += 1;
        sequences.lock
    }

    /// Some bytes.
    pub(super) fn range(&mut self) -> std::ops::Range<usize> {
        let first = self.random.usize(..BYTES);
        first..self.random.usize(first + 1..=BYTES)
    }

    pub(super) async fn lock(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let Some(open) = self.files[file].opens.get(&of).cloned() else {
            return;
        };
        let (range, writes) = (self.range(), self.random.bool());
        self.note(format!("lock {of:?} of {file}: {range:?} {writes}"));
        let needs = if writes { 2 } else { 1 };
        let mut expected = Nfsstat4::NFS4_OK;
        if open.access & needs == 0 {
            expected = Nfsstat4::NFS4ERR_OPENMODE;
        } else {
            // Who asks has a lease again.
            self.peers[of.0].renewed = env.core.now();
            let before = self.files[file].lock_conflicts(of, range.clone(), writes);
            // The door hears of one that is in the way, and asks no more if that one has a lease: so all have
            // or nobody.
            if before.iter().any(|other| !self.is_lapsed(env, *other)) {
                for other in before.iter().copied() {
                    if self.is_lapsed(env, other) {
                        self.renew(env, other).await;
                    }
                }
            }
            self.settle(env, before);
            let after = self.files[file].lock_conflicts(of, range.clone(), writes);
            if !after.is_empty() {
                expected = Nfsstat4::NFS4ERR_DENIED;
            }
        }
        let done = self
            .send_lock(env, (of, file), range.clone(), writes, false)
            .await;
        self.judge(&done, expected);
        if expected == Nfsstat4::NFS4_OK {
            self.locked((of, file), range, Some(writes), &done);
        }
    }

    pub(super) async fn send_lock(
        &mut self,
        env: &Env,
        (of, file): (Owner, usize),
        range: std::ops::Range<usize>,
        writes: bool,
        reclaim: bool,
    ) -> Done {
        let (client, owner) = of;
        let known = self.files[file].locks.get(&of).map(|of| of.stateid.clone());
        let open_stateid = self.files[file].opens[&of].stateid.clone();
        let locker = match known {
            Some(lock_stateid) => Locker4::LockOwner(ExistLockOwner4 {
                lock_stateid,
                lock_seqid: self.lock_seqid(of),
            }),
            None => Locker4::OpenOwner(OpenToLockOwner4 {
                open_seqid: self.open_seqid(of),
                open_stateid,
                lock_seqid: self.lock_seqid(of),
                lock_owner: StateOwner4 {
                    clientid: self.peers[client].id.unwrap_or(0),
                    owner: owner_name(owner).into(),
                },
            }),
        };
        let lock = NfsArgop4::Lock(Lock4Args {
            locktype: match writes {
                true => NfsLockType4::WRITE_LT,
                false => NfsLockType4::READ_LT,
            },
            reclaim,
            offset: range.start as u64,
            length: range.len() as u64,
            locker,
        });
        let locks = [NfsArgop4::Putrootfh, lookup(FILES[file]), lock];
        self.ask(env, client, &locks).await
    }

    pub(super) fn locked(
        &mut self,
        (of, file): (Owner, usize),
        range: std::ops::Range<usize>,
        to: Option<bool>,
        done: &Done,
    ) {
        let stateid = match done.result(self.at(of.0, 2)) {
            NfsResop4::Lock(Lock4Res::Nfs4Ok(of)) => of.lock_stateid,
            NfsResop4::Locku(Ok(stateid)) => stateid,
            other => panic!("{other:?}"),
        };
        let locks = self.files[file].locks.entry(of).or_insert_with(|| Locks {
            bytes: [None; BYTES],
            stateid: stateid.clone(),
        });
        locks.stateid = stateid;
        locks.bytes[range].fill(to);
    }

    pub(super) async fn unlock(&mut self, env: &Env, (of, file): (Owner, usize)) {
        let Some(locks) = self.files[file].locks.get(&of).cloned() else {
            return;
        };
        let range = self.range();
        self.note(format!("unlock {of:?} of {file}: {range:?}"));
        let unlock = NfsArgop4::Locku(Locku4Args {
            locktype: NfsLockType4::WRITE_LT,
            seqid: self.lock_seqid(of),
            lock_stateid: locks.stateid,
            offset: range.start as u64,
            length: range.len() as u64,
        });
        let unlocks = [NfsArgop4::Putrootfh, lookup(FILES[file]), unlock];
        let done = self.ask(env, of.0, &unlocks).await;
        self.judge(&done, Nfsstat4::NFS4_OK);
        self.locked((of, file), range, None, &done);
    }
}
