//! Random programs, on the index and on the model of a file system side by side.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | both sides, steps, restarts |
//! | `draw` | what is asked for |
//! | `compare` | what both say |

mod compare;
mod draw;

use std::cell::Cell;
use std::rc::Rc;

use files::model::{ModelFs, Quota as ModelQuota};
use files::{
    Access, Answer, Attributes, Caller, CreateHow, Delegation, Device, Error, FileId, FileSystem,
    Handle, Holder, Lock, LockKind, LockRange, Mode, Name, New, Once, Range, Request, SeekFor,
    SetAttributes, SetTime, SetXattr, Share, Stability, Timestamp, VolumeId,
};
use index::{Blocks as _, Quota};

use draw::NAMES;

use crate::harness::{Disk, Node, run_alone};
use crate::spy::{Spied, Spy};

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everything, and everything is compared.
    Exact,
    /// The superuser's changes; restarts come from outside.
    Crash,
    /// Something may fail: then nothing has happened.
    Faulty,
}

/// One object, as each side names it.
type Pair = (Handle, Handle);

/// Both sides.
pub(crate) struct Both {
    disk: Disk,
    pub(crate) node: Option<Node>,
    model: ModelFs,
    now: Rc<Cell<Timestamp>>,
    known: Vec<Pair>,
    pub(crate) rng: fastrand::Rng,
    sequence: u32,
    kept: Option<(Once, Caller, Request, Request)>,
    /// Whether a restart came: times and change numbers are then the recovery's.
    restarted: bool,
    kind: Kind,
    /// Whether the last step was one transaction.
    is_atomic: bool,
    spied: Rc<Spied>,
    trace: Vec<String>,
}

impl Both {
    pub(crate) fn new(seed: u64) -> Self {
        Self::of_kind(seed, Kind::Exact)
    }

    pub(crate) fn of_kind(seed: u64, kind: Kind) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let quota = (rng.u64(4..40), rng.u64(3..60) * 4096);
        let has_quota = rng.bool();
        let disk = Disk::new(seed, |format| {
            // Few bits: most names' hashes collide.
            format.hash_bits = rng.u8(1..=3);
            if has_quota {
                format.volumes[1].1 = Quota {
                    bytes: Some(quota.1),
                    files: Some(quota.0),
                };
            }
        });
        let now = disk.now.clone();
        let clock = now.clone();
        let model = ModelFs::with_clock(move || clock.get());
        let second = match has_quota {
            true => ModelQuota {
                bytes_max: quota.1,
                files_max: quota.0,
            },
            false => ModelQuota::UNLIMITED,
        };
        model.add_volume(VolumeId(2), second);
        let roots = [1, 2].map(|volume| Handle::root(VolumeId(volume)));
        let (engine, spied) = Spy::around(disk.rows.handle());
        let node = disk.open_with(|options| {
            options.cache_bytes = 3000;
            options.engine = engine;
        });
        let mut both = Self {
            node: Some(node),
            kind,
            is_atomic: true,
            spied,
            disk,
            model,
            now,
            known: roots.map(|root| (root, root)).to_vec(),
            rng,
            sequence: 0,
            kept: None,
            // Refused changes may leave a directory's times and number as if they had been made.
            restarted: kind == Kind::Faulty,
            trace: Vec::new(),
        };
        for root in roots {
            let everybody = SetAttributes {
                mode: Some(Mode::new(0o777)),
                ..SetAttributes::default()
            };
            let _ = both.ask(
                &Caller::ROOT,
                |_| Request::SetAttributes(root, everybody),
                &[],
            );
        }
        both
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("it is up")
    }

    pub(crate) fn fail(&self, why: &str) -> ! {
        let from = self.trace.len().saturating_sub(8);
        panic!("{why}\n{}", self.trace[from..].join("\n"));
    }

    /// The original answer, to a request that was carried out before.
    fn repeat(&mut self) {
        let Some((_, caller, one, two)) = self.kept.clone() else {
            return;
        };
        let got = self.node().call(&caller, two);
        if self.has_failed(&got) {
            return;
        }
        let expected = run_alone(self.model.call(&caller, one.clone()));
        self.trace.push(format!("again {one:?} -> {expected:?}"));
        self.compare(&one, &expected, &got);
    }

    /// The process ends and comes back: what is in memory is gone.
    fn restart(&mut self, is_grace: bool) {
        self.node = None;
        self.model.restart();
        self.model.set_grace(is_grace);
        self.restarted = true;
        self.disk.rows.lose_power();
        self.trace.push(format!("restart, grace: {is_grace}"));
        self.node = Some(self.disk.open_with(|options| {
            options.cache_bytes = 3000;
            options.grace = is_grace;
        }));
    }

    /// One random step.
    pub(crate) fn step(&mut self) {
        let mut now = self.now.get();
        now.seconds += 1;
        self.now.set(now);
        let mut caller = self.caller();
        let at = self.object();
        let other = self.object();
        let name = self.name();
        let to_name = self.name();
        let set = self.set();
        if self.rng.u8(0..4) == 0 {
            self.sequence += 1;
            caller.once = Some(Once {
                session: [1; 16],
                slot: self.rng.u32(0..2),
                sequence: self.sequence,
                operation: 0,
            });
        }
        let holder = self.holder();
        let reclaim = self.rng.u8(0..8) == 0;
        let which = match (self.kind, self.rng.u8(0..100)) {
            (Kind::Exact, which) => which,
            (Kind::Crash, 85..) => 30,
            // What is not one transaction may be done in part, and a restart takes the spy away.
            (Kind::Faulty, 73..76 | 99) => 30,
            (_, which) => which,
        };
        self.is_atomic = !matches!(which, 73..79);
        match which {
            0..14 => {
                let how = match self.rng.u8(0..4) {
                    0 => CreateHow::Guarded,
                    1 => CreateHow::Exclusive([self.rng.u8(0..2); 8]),
                    _ => CreateHow::Unchecked,
                };
                let size = match self.rng.u8(0..3) {
                    0 => Some(0),
                    1 => Some(self.size()),
                    _ => None,
                };
                let attributes = SetAttributes { size, ..set };
                let request = |objects: &[Handle]| Request::CreateFile {
                    directory: objects[0],
                    name: name.clone(),
                    how,
                    attributes,
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            14..22 => {
                let new = match self.rng.u8(0..8) {
                    0 => New::Symlink(b"somewhere".to_vec()),
                    1 => New::Symlink(Vec::new()),
                    2 => New::BlockDevice(Device { major: 1, minor: 2 }),
                    3 => New::Fifo,
                    _ => New::Directory,
                };
                let request = |objects: &[Handle]| Request::Create {
                    directory: objects[0],
                    name: name.clone(),
                    new: new.clone(),
                    attributes: set,
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            22..30 => {
                let directory_only = *self
                    .rng
                    .choice(&[None, Some(true), Some(false)])
                    .expect("some");
                let request = |objects: &[Handle]| Request::Remove {
                    directory: objects[0],
                    name: name.clone(),
                    directory_only,
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            30..42 => {
                let request = |objects: &[Handle]| Request::Rename {
                    from: objects[0],
                    from_name: name.clone(),
                    to: objects[1],
                    to_name: to_name.clone(),
                };
                let _ = self.ask(&caller, request, &[at, other]);
            }
            42..46 => {
                let request = |objects: &[Handle]| Request::Link {
                    object: objects[0],
                    directory: objects[1],
                    name: name.clone(),
                };
                let _ = self.ask(&caller, request, &[at, other]);
            }
            46..52 => {
                let size = (self.rng.u8(0..3) == 0).then(|| self.size());
                let attributes = SetAttributes { size, ..set };
                let request = |objects: &[Handle]| Request::SetAttributes(objects[0], attributes);
                let _ = self.ask(&caller, request, &[at]);
            }
            52..56 => {
                let request = |objects: &[Handle]| Request::Lookup(objects[0], name.clone());
                let _ = self.ask(&caller, request, &[at]);
            }
            56..58 => {
                let _ = self.ask(&caller, |objects| Request::Parent(objects[0]), &[at]);
                let all = Access::all();
                let _ = self.ask(&caller, |objects| Request::Access(objects[0], all), &[at]);
            }
            58..61 => self.list(&caller, at),
            61..69 => self.write(&caller, at),
            69..73 => self.read(&caller, at),
            73..76 => {
                let range = self.range();
                let allocates = self.rng.bool();
                let request = |objects: &[Handle]| match allocates {
                    true => Request::Allocate(objects[0], range),
                    false => Request::Deallocate(objects[0], range),
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            76..79 => {
                let mut range = self.range();
                let mut offset = self.size();
                // Of the two only a clone is one transaction.
                let clones = self.kind == Kind::Faulty || self.rng.bool();
                self.is_atomic = clones;
                if clones {
                    (range.offset, offset) = (range.offset & !4095, offset & !4095);
                    let lens = [0, 4096, 8192, 4 << 20];
                    range.len = *self.rng.choice(&lens).expect("some");
                }
                let request = |objects: &[Handle]| match clones {
                    true => Request::Clone {
                        from: objects[0],
                        range,
                        to: objects[1],
                        offset,
                    },
                    false => Request::Copy {
                        from: objects[0],
                        range,
                        to: objects[1],
                        offset,
                    },
                };
                let _ = self.ask(&caller, request, &[at, other]);
            }
            79..81 => {
                let (offset, what) = (self.size(), [SeekFor::Data, SeekFor::Hole]);
                let what = self.rng.choice(what).expect("some");
                let request = |objects: &[Handle]| Request::Seek(objects[0], offset, what);
                let _ = self.ask(&caller, request, &[at]);
            }
            81..85 => {
                let how = [SetXattr::Either, SetXattr::Create, SetXattr::Replace];
                let how = self.rng.choice(how).expect("some");
                let kind = self.rng.u8(0..4);
                let request = |objects: &[Handle]| match kind {
                    0 => Request::GetXattr(objects[0], name.clone()),
                    1 => Request::RemoveXattr(objects[0], name.clone()),
                    2 => Request::ListXattrs {
                        object: objects[0],
                        cookie: 0,
                        bytes_max: 1000,
                    },
                    _ => Request::SetXattr {
                        object: objects[0],
                        name: name.clone(),
                        value: vec![kind; 9],
                        how,
                    },
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            85..89 => {
                let access = Share::from_bits_truncate(self.rng.u8(0..4));
                let deny = match self.rng.u8(0..4) {
                    0 => Share::from_bits_truncate(self.rng.u8(0..4)),
                    _ => Share::empty(),
                };
                let opens = self.rng.bool();
                let request = |objects: &[Handle]| match opens {
                    true => Request::Open {
                        file: objects[0],
                        holder,
                        access,
                        deny,
                        reclaim,
                    },
                    false => Request::Downgrade {
                        file: objects[0],
                        holder,
                        access: if deny.is_empty() {
                            Share::empty()
                        } else {
                            access
                        },
                        deny,
                    },
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            89..92 => {
                let len = (self.rng.u8(0..4) != 0).then(|| self.rng.u64(0..9));
                let range = LockRange {
                    offset: self.rng.u64(0..9),
                    len,
                };
                let kinds = [LockKind::Read, LockKind::Write];
                let kind = self.rng.choice(kinds).expect("some");
                let lock = Lock { range, kind };
                let what = self.rng.u8(0..3);
                let request = |objects: &[Handle]| match what {
                    0 => Request::Unlock {
                        file: objects[0],
                        holder,
                        range,
                    },
                    1 => Request::TestLock {
                        file: objects[0],
                        holder,
                        lock,
                    },
                    _ => Request::Lock {
                        file: objects[0],
                        holder,
                        lock,
                        reclaim,
                    },
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            92..94 => {
                let kinds = [Delegation::Read, Delegation::Write];
                let kind = self.rng.choice(kinds).expect("some");
                let gives = self.rng.bool();
                let client = holder.client;
                let request = |objects: &[Handle]| match gives {
                    true => Request::Delegate {
                        file: objects[0],
                        client,
                        kind,
                        reclaim,
                    },
                    false => Request::ReturnDelegation {
                        file: objects[0],
                        client,
                    },
                };
                let _ = self.ask(&caller, request, &[at]);
            }
            94 => {
                let client = holder.client;
                let _ = self.ask(&caller, |_| Request::Forget { client }, &[]);
            }
            95 => {
                let _ = self.ask(&caller, |_| Request::EndGrace, &[]);
            }
            96 => self.repeat(),
            97 => {
                let volume = VolumeId(self.rng.u32(1..3));
                self.compare_room(volume);
            }
            98 => self.work(),
            _ => {
                let kind = self.rng.u8(0..4);
                if kind < 2 {
                    self.restart(kind == 0);
                }
            }
        }
    }

    pub(crate) fn work(&self) {
        let is_faulty = self.kind == Kind::Faulty;
        loop {
            match self.node().run(self.node().index.step()) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => assert!(is_faulty, "{error} in the background"),
            }
        }
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(crate) fn model(&self) -> &ModelFs {
        &self.model
    }

    pub(crate) fn spied(&self) -> Rc<Spied> {
        self.spied.clone()
    }

    pub(crate) fn is_atomic(&self) -> bool {
        self.is_atomic
    }

    pub(crate) fn take_node(&mut self) -> Node {
        self.node.take().expect("it is up")
    }

    /// Whether the fault that was planted has not struck. It is taken away.
    pub(crate) fn is_untouched(&self) -> bool {
        let is_waiting =
            self.spied.conflict_at.take().is_some() || self.spied.read_fails_at.take().is_some();
        let is_to_come = self.disk.rows.faults_to_come() > 0;
        if is_to_come {
            while self.disk.rows.faults_to_come() > 0 {
                // It strikes here, where nobody minds.
                let mut nothing = meta::Transaction::new();
                nothing.delete([1]).expect("it is short");
                let _ = run_alone(self.disk.rows.handle().commit(nothing));
            }
        }
        is_waiting || is_to_come
    }

    /// Change numbers, as they are seen now.
    pub(crate) fn changes(&self) -> Vec<(Handle, u64)> {
        let of = |(_, object): &Pair| {
            let answer = self.node().root(Request::GetAttributes(*object)).ok()?;
            let Answer::Attributes(of) = answer else {
                return None;
            };
            Some((*object, of.change))
        };
        self.known.iter().filter_map(of).collect()
    }

    /// Closes it, and reads all rows.
    pub(crate) fn end(mut self) {
        self.work();
        let node = self.node.take().expect("it is up");
        let seen = crate::harness::check(&self.disk);
        assert!(seen.findings.is_empty(), "{seen:?}");
        node.run(node.index.settle_all()).expect("nothing fails");
        let seen = crate::harness::check(&self.disk);
        assert!(seen.findings.is_empty() && seen.marked == 0, "{seen:?}");
        let stored = self.disk.blocks.room();
        let counted: u64 = node.index.volumes().iter().map(|volume| volume.bytes).sum();
        assert_eq!(counted, stored.total - stored.free, "what files occupy");
    }
}

fn programs(first: u64, count: u64, steps: usize) {
    let mut failures = Vec::new();
    for seed in first..first + count {
        let run = std::panic::catch_unwind(|| {
            let mut both = Both::new(seed);
            for _ in 0..steps {
                both.step();
            }
            both.compare_all();
            both.end();
        });
        if let Err(why) = run {
            let why = why
                .downcast::<String>()
                .map_or_else(|_| String::new(), |why| *why);
            failures.push(format!("seed {seed}: {why}"));
        }
    }
    let shown = failures.iter().take(4).cloned().collect::<Vec<_>>();
    assert!(
        failures.is_empty(),
        "{} of {count} fail\n{}",
        failures.len(),
        shown.join("\n\n")
    );
}

#[test]
fn random_programs_are_answered_as_by_the_model() {
    programs(0, 150, 300);
}
