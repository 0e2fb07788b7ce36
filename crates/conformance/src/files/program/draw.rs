//! From a seed to a program.

use fastrand::Rng;
use files::{
    Access, Caller, CreateHow, Delegation, Device, Holder, Lock, LockKind, LockRange, Mode, Name,
    New, Range, SeekFor, SetAttributes, SetTime, SetXattr, Share, Timestamp,
};

use super::step::{Op, Step};

/// Which steps a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    Whole,
    /// What a local file system has too: no holds, offsets that it can take, one change of attributes
    /// a step.
    Local,
}

/// The users of programs: some share groups.
#[must_use]
pub fn users() -> Vec<Caller> {
    let user = |uid, gid, groups: &[u32]| Caller {
        groups: groups.to_vec(),
        ..Caller::user(uid, gid)
    };
    vec![
        Caller::ROOT,
        user(1001, 1001, &[2000]),
        user(1002, 1002, &[2000, 1001]),
        user(1003, 1003, &[]),
    ]
}

/// Draws a program of so many steps by some users.
#[must_use]
pub fn draw(seed: u64, steps: usize, scope: Scope, users: &[Caller]) -> Vec<Step> {
    let rng = Rng::with_seed(seed);
    let mut draw = Draw { rng, scope };
    (0..steps).map(|_| draw.step(users)).collect()
}

struct Draw {
    rng: Rng,
    scope: Scope,
}

impl Draw {
    fn step(&mut self, users: &[Caller]) -> Step {
        let mut caller = self.one(users).clone();
        if self.scope == Scope::Whole && self.rng.u8(..) < 100 {
            caller.holder = Some(self.holder());
        }
        let op = match self.rng.u8(..) {
            0..100 => self.names(),
            100..140 => self.attributes(),
            140..190 => self.data(),
            190..210 => self.xattrs(),
            _ if self.scope == Scope::Whole => self.holds(),
            _ => self.names(),
        };
        Step { caller, op }
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.usize(..of.len())]
    }

    /// Of any object, rather one of the first.
    fn pick(&mut self) -> usize {
        let few = self.rng.usize(1..64);
        self.rng.usize(..few)
    }

    fn name(&mut self) -> Name {
        let long = [0xfe; 255];
        let names: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"...", &long];
        Name::new(*self.one(&names)).expect("names")
    }

    fn mode(&mut self) -> Mode {
        let usual = [
            0o777, 0o755, 0o700, 0o644, 0o770, 0o1777, 0o2775, 0o4755, 0o2755, 0o000,
        ];
        match self.rng.bool() {
            true => Mode::new(*self.one(&usual)),
            false => Mode::new(self.rng.u32(..0o10000)),
        }
    }

    fn names(&mut self) -> Op {
        let pick = self.pick();
        match self.rng.u8(..20) {
            0..=3 => {
                let how = *self.one(&[
                    CreateHow::Guarded,
                    CreateHow::Unchecked,
                    CreateHow::Exclusive([1; 8]),
                    CreateHow::Exclusive([2; 8]),
                ]);
                let mut set = self.new_attributes();
                set.size = self.rng.bool().then_some(0);
                Op::CreateFile(pick, self.name(), how, set)
            }
            4..=6 => {
                let set = self.new_attributes();
                Op::Create(pick, self.name(), New::Directory, set)
            }
            7 => {
                let device = Device {
                    major: 511,
                    minor: 7,
                };
                let new = self
                    .one(&[
                        New::Symlink(b"a".to_vec()),
                        New::Symlink(vec![b'/'; 300]),
                        New::Symlink(Vec::new()),
                        New::Fifo,
                        New::Socket,
                        New::CharDevice(device),
                        New::BlockDevice(device),
                    ])
                    .clone();
                let set = self.new_attributes();
                Op::Create(pick, self.name(), new, set)
            }
            8..=10 => {
                let only = *self.one(&[None, Some(false), Some(true)]);
                Op::Remove(pick, self.name(), only)
            }
            11..=14 => Op::Rename(pick, self.name(), self.pick(), self.name()),
            15..=16 => Op::Link(pick, self.pick(), self.name()),
            17 => Op::Lookup(pick, self.name()),
            18 => Op::List(pick, self.rng.u32(..600)),
            _ => match self.rng.bool() {
                true => Op::Parent(pick),
                false => Op::ReadLink(pick),
            },
        }
    }

    fn new_attributes(&mut self) -> SetAttributes {
        let mut set = SetAttributes::default();
        if self.scope == Scope::Local || self.rng.bool() {
            set.mode = Some(self.mode());
        }
        if self.scope == Scope::Whole && self.rng.u8(..4) == 0 {
            set = self.set_some(set);
        }
        set
    }

    fn set_some(&mut self, mut set: SetAttributes) -> SetAttributes {
        let ids = [0, 1001, 1002, 1003, 2000];
        match self.rng.u8(..4) {
            0 => set.uid = Some(*self.one(&ids)),
            1 => set.gid = Some(*self.one(&ids)),
            2 => {
                set.uid = Some(*self.one(&ids));
                set.gid = Some(*self.one(&ids));
            }
            _ => {
                set.mtime = Some(self.time());
                set.atime = Some(self.time());
            }
        }
        set
    }

    fn time(&mut self) -> SetTime {
        let time = Timestamp {
            seconds: self.rng.i64(0..1 << 31),
            nanoseconds: 0,
        };
        *self.one(&[SetTime::Now, SetTime::To(time)])
    }

    fn attributes(&mut self) -> Op {
        let pick = self.pick();
        let mut set = SetAttributes::default();
        match self.rng.u8(..8) {
            0 => return Op::Access(pick, Access::from_bits_truncate(self.rng.u8(..64))),
            1..=3 => set.mode = Some(self.mode()),
            4 => set.size = Some(self.offset()),
            5 if self.scope == Scope::Whole => {
                set.mode = Some(self.mode());
                set.size = self.rng.bool().then(|| self.offset());
                set = self.set_some(set);
            }
            _ => set = self.set_some(set),
        }
        if let (Scope::Local, Some(atime)) = (self.scope, set.atime) {
            // Local file systems know either both times now or both given.
            set.mtime = Some(atime);
        }
        Op::SetAttributes(pick, set)
    }

    fn offset(&mut self) -> u64 {
        let far = match self.scope {
            Scope::Whole => i64::MAX as u64 - 1,
            Scope::Local => 1 << 30,
        };
        let near = self.rng.u64(..20_000);
        let page = self.rng.u64(..6) * 4096;
        let around = (page + self.rng.u64(..3)).saturating_sub(1);
        match self.rng.u8(..16) {
            0 => far - self.rng.u64(..3),
            1..=5 => near,
            6..=10 => page,
            _ => around,
        }
    }

    fn range(&mut self) -> Range {
        let len = self.rng.u64(..12_000);
        let len = *self.one(&[0, 1, 4096, 8192, len, len]);
        let offset = self.offset();
        Range { offset, len }
    }

    fn data(&mut self) -> Op {
        let pick = self.pick();
        match self.rng.u8(..16) {
            0..=4 => {
                let len = self.rng.usize(..9000);
                let len = *self.one(&[0, 1, 10, 4096, len]);
                let offset = self.offset();
                let byte = self.rng.u8(1..);
                Op::Write(pick, offset, vec![byte; len])
            }
            5..=7 => Op::Read(pick, self.range()),
            8 => Op::Allocate(pick, self.range()),
            9..=10 => Op::Deallocate(pick, self.range()),
            11 => Op::Seek(pick, self.offset(), SeekFor::Data),
            12 => Op::Seek(pick, self.offset(), SeekFor::Hole),
            13 => Op::Copy(pick, self.range(), self.pick(), self.offset()),
            14 if self.scope == Scope::Whole => {
                Op::Clone(pick, self.range(), self.pick(), self.offset())
            }
            14 => Op::Copy(pick, self.range(), pick, self.offset()),
            _ => Op::Commit(pick, self.range()),
        }
    }

    fn xattrs(&mut self) -> Op {
        let pick = self.pick();
        let at = *self.one(&["x", "y", "z"]);
        let at = Name::new(at).expect("a name");
        match self.rng.u8(..6) {
            0..=2 => {
                let value = vec![self.rng.u8(..); self.rng.usize(..40)];
                let how = *self.one(&[SetXattr::Either, SetXattr::Create, SetXattr::Replace]);
                Op::SetXattr(pick, at, value, how)
            }
            3 => Op::GetXattr(pick, at),
            4 => Op::RemoveXattr(pick, at),
            _ => Op::ListXattrs(pick, self.rng.u32(..12)),
        }
    }

    fn holder(&mut self) -> Holder {
        Holder {
            client: self.rng.u64(1..3),
            owner: self.rng.u64(1..3),
        }
    }

    fn share(&mut self) -> Share {
        Share::from_bits_truncate(self.rng.u8(..4))
    }

    fn lock_range(&mut self) -> LockRange {
        let near = self.rng.u64(..8);
        let offset = *self.one(&[near, near, near, u64::MAX - near]);
        let some = Some(self.rng.u64(..8));
        let len = *self.one(&[some, some, some, None]);
        LockRange { offset, len }
    }

    fn lock(&mut self) -> Lock {
        let kind = *self.one(&[LockKind::Read, LockKind::Write]);
        let range = self.lock_range();
        Lock { range, kind }
    }

    fn holds(&mut self) -> Op {
        let (pick, holder) = (self.pick(), self.holder());
        let kind = *self.one(&[Delegation::Read, Delegation::Write]);
        match self.rng.u8(..20) {
            0..=5 => {
                let deny = match self.rng.u8(..4) {
                    0 => self.share(),
                    _ => Share::empty(),
                };
                Op::Open(pick, holder, self.share(), deny)
            }
            6..=8 => Op::Downgrade(pick, holder, self.share(), Share::empty()),
            9..=12 => Op::Lock(pick, holder, self.lock()),
            13 => Op::TestLock(pick, holder, self.lock()),
            14..=15 => Op::Unlock(pick, holder, self.lock_range()),
            16..=17 => Op::Delegate(pick, holder.client, kind),
            18 => Op::ReturnDelegation(pick, holder.client),
            _ => Op::Forget(holder.client),
        }
    }
}
