//! Random programs, on the index and on the model of a file system side by side.

use std::cell::Cell;
use std::rc::Rc;

use files::model::{ModelFs, Quota as ModelQuota};
use files::{
    Access, Answer, Attributes, Caller, CreateHow, Delegation, Device, Error, FileId, FileSystem,
    Handle, Holder, Lock, LockKind, LockRange, Mode, Name, New, Once, Range, Request, SeekFor,
    SetAttributes, SetTime, SetXattr, Share, Stability, Timestamp, VolumeId,
};
use index::Quota;

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

    fn caller(&mut self) -> Caller {
        if self.kind == Kind::Crash {
            return Caller::ROOT;
        }
        let mut caller = match self.rng.u8(0..5) {
            0 | 1 => Caller::ROOT,
            2 => Caller::user(10, 20),
            3 => Caller::user(11, 21),
            _ => Caller {
                groups: vec![20, 0],
                ..Caller::user(12, 22)
            },
        };
        if self.rng.u8(0..3) == 0 {
            caller.holder = Some(self.holder());
        }
        caller
    }

    fn holder(&mut self) -> Holder {
        Holder {
            client: self.rng.u64(1..3),
            owner: self.rng.u64(1..3),
        }
    }

    fn name(&mut self) -> Name {
        let names = ["a", "b", "c", "d", "e", "f"];
        Name::new(*self.rng.choice(&names).expect("some")).expect("a name")
    }

    fn object(&mut self) -> usize {
        match self.rng.u8(0..10) {
            0..4 => self.rng.usize(0..2),
            _ => self.rng.usize(0..self.known.len()),
        }
    }

    fn set(&mut self) -> SetAttributes {
        let rng = &mut self.rng;
        let mut set = SetAttributes::default();
        let modes = [0o777, 0o700, 0o070, 0o1777, 0o2775, 0o6755, 0o644, 0];
        if rng.u8(0..3) == 0 {
            set.mode = rng.choice(modes).map(Mode::new);
        }
        if rng.u8(0..6) == 0 {
            set.uid = rng.choice([0, 10, 11]);
        }
        if rng.u8(0..6) == 0 {
            set.gid = rng.choice([0, 20, 21]);
        }
        let times = [
            SetTime::Now,
            SetTime::To(Timestamp {
                seconds: -5,
                nanoseconds: 7,
            }),
        ];
        if rng.u8(0..6) == 0 {
            set.mtime = rng.choice(times);
        }
        if rng.u8(0..6) == 0 {
            set.atime = rng.choice(times);
        }
        set
    }

    fn size(&mut self) -> u64 {
        let small = self.rng.u64(0..20_000);
        *self
            .rng
            .choice(&[
                0,
                1,
                4095,
                4096,
                small,
                small,
                (4 << 20) - 3 + small % 7,
                1 << 28,
            ])
            .expect("some")
    }

    fn range(&mut self) -> Range {
        let offset = self.size();
        let len = self.rng.u64(0..9000);
        Range { offset, len }
    }

    /// Asks both sides and compares. `objects` is what the request names, in its order.
    fn ask(
        &mut self,
        caller: &Caller,
        request: impl Fn(&[Handle]) -> Request,
        objects: &[usize],
    ) -> Result<Answer, Error> {
        let one: Vec<Handle> = objects.iter().map(|at| self.known[*at].0).collect();
        let two: Vec<Handle> = objects.iter().map(|at| self.known[*at].1).collect();
        self.ask_both(caller, request(&one), request(&two))
    }

    fn ask_both(&mut self, caller: &Caller, one: Request, two: Request) -> Result<Answer, Error> {
        let got = self.node().call(caller, two.clone());
        if self.has_failed(&got) {
            self.trace.push(format!("{caller:?} {one:?} has failed"));
            return got;
        }
        let expected = run_alone(self.model.call(caller, one.clone()));
        self.trace
            .push(format!("{caller:?} {one:?} ({two:?}) -> {expected:?}"));
        self.compare(&one, &expected, &got);
        if let (Some(once), Ok(_)) = (caller.once, &expected) {
            self.kept = Some((once, caller.clone(), one, two));
        }
        expected
    }

    /// Whether a fault has struck.
    fn has_failed<T>(&self, got: &Result<T, Error>) -> bool {
        let is_fault = matches!(got, Err(Error::Io | Error::NoSpace));
        self.kind == Kind::Faulty && is_fault
    }

    /// Both answers, in terms of the objects that are known.
    fn compare(
        &mut self,
        request: &Request,
        expected: &Result<Answer, Error>,
        got: &Result<Answer, Error>,
    ) {
        if let (Ok(Answer::Created { handle: one, .. }), Ok(Answer::Created { handle: two, .. })) =
            (expected, got)
            && !self.known.contains(&(*one, *two))
        {
            self.known.push((*one, *two));
        }
        let volume = match request {
            Request::GetAttributes(object) | Request::SetAttributes(object, _) => object.volume,
            _ => VolumeId(0),
        };
        let mut one = expected
            .clone()
            .map(|answer| self.canonical(volume, answer, true));
        let mut two = got
            .clone()
            .map(|answer| self.canonical(volume, answer, false));
        for answer in [&mut one, &mut two] {
            if let Ok(Answer::Attributes(of) | Answer::Created { attributes: of, .. }) = answer
                && !matches!(request, Request::GetAttributes(_))
            {
                // An answer that is kept is written before a file's end is cut off.
                of.used = 0;
            }
        }
        if one != two {
            self.fail(&format!("{request:?}\nexpected {one:?}\n     got {two:?}"));
        }
    }

    fn place(&self, handle: Handle, is_model: bool) -> u64 {
        let found = self.known.iter().position(|(one, two)| match is_model {
            true => *one == handle,
            false => *two == handle,
        });
        found.map_or(u64::MAX, |at| at as u64)
    }

    fn attributes(&self, volume: VolumeId, mut of: Attributes, is_model: bool) -> Attributes {
        let file = of.file;
        of.file = FileId(self.place(Handle { volume, file }, is_model));
        // The cache is small, and the time of a read is kept no longer than there.
        of.atime = Timestamp::default();
        if self.restarted {
            // A recovery says so for what may have changed: later times, higher change numbers.
            (of.mtime, of.ctime, of.change) = Default::default();
        }
        if self.kind == Kind::Faulty {
            // A cut whose second half has failed is finished later.
            of.used = 0;
        }
        of
    }

    fn handle(&self, handle: Handle, is_model: bool) -> Handle {
        let file = FileId(self.place(handle, is_model));
        Handle { file, ..handle }
    }

    fn canonical(&self, volume: VolumeId, answer: Answer, is_model: bool) -> Answer {
        let change = |mut change: files::ChangeInfo| {
            if self.restarted {
                let is_new = change.before != change.after;
                (change.before, change.after) = (0, u64::from(is_new));
            }
            change
        };
        match answer {
            Answer::Attributes(of) => Answer::Attributes(self.attributes(volume, of, is_model)),
            Answer::Found(handle, of) => Answer::Found(
                self.handle(handle, is_model),
                self.attributes(handle.volume, of, is_model),
            ),
            Answer::Created {
                handle,
                attributes,
                directory,
                is_new,
            } => Answer::Created {
                handle: self.handle(handle, is_model),
                attributes: self.attributes(handle.volume, attributes, is_model),
                directory: change(directory),
                is_new,
            },
            Answer::Changed(info) => Answer::Changed(change(info)),
            Answer::Renamed { from, to } => Answer::Renamed {
                from: change(from),
                to: change(to),
            },
            Answer::Names {
                mut names, is_end, ..
            } => {
                names.sort();
                Answer::Names {
                    names,
                    cookie: 0,
                    is_end,
                }
            }
            Answer::Stat(mut stat) => {
                stat.bytes_free = stat.bytes_free.min(1 << 30);
                stat.bytes_total = stat.bytes_total.min(1 << 30);
                Answer::Stat(stat)
            }
            Answer::Committed { .. } => Answer::Done,
            other => other,
        }
    }

    /// All entries of a directory, on each side in pages.
    fn list(&mut self, caller: &Caller, at: usize) {
        let (one, two) = self.known[at];
        let bytes_max = self.rng.u32(0..120);
        let mut all = Vec::new();
        for (is_model, directory) in [(true, one), (false, two)] {
            let mut entries = Vec::new();
            let mut cookie = 0;
            let result = loop {
                let request = Request::ReadDirectory {
                    directory,
                    cookie,
                    bytes_max,
                    attributes: true,
                };
                let page = match is_model {
                    true => run_alone(self.model.call(caller, request)),
                    false => self.node().call(caller, request),
                };
                if !is_model && self.has_failed(&page) {
                    return;
                }
                match page {
                    Err(error) => break Err(error),
                    Ok(Answer::Entries {
                        entries: page,
                        is_end,
                    }) => {
                        for entry in page {
                            assert!(entry.cookie > 2 && entry.cookie != cookie);
                            cookie = entry.cookie;
                            let volume = directory.volume;
                            let file = entry.file;
                            let place = self.place(Handle { volume, file }, is_model);
                            let of = entry.attributes;
                            let of = of.map(|of| self.attributes(volume, of, is_model));
                            entries.push((entry.name, place, entry.kind, of));
                        }
                        if is_end {
                            break Ok(entries);
                        }
                    }
                    Ok(other) => panic!("{other:?} to a listing"),
                }
            };
            all.push(result.map(|mut entries| {
                entries.sort_by(|(one, ..), (two, ..)| one.cmp(two));
                entries
            }));
        }
        if all[0] != all[1] {
            self.fail(&format!(
                "a listing\nexpected {:?}\n     got {:?}",
                all[0], all[1]
            ));
        }
    }

    fn write(&mut self, caller: &Caller, at: usize) {
        let (one, two) = self.known[at];
        let (offset, len) = (self.size(), self.rng.usize(0..9000));
        let byte = self.rng.u8(..);
        let data = vec![byte; len];
        let stable = Stability::FileSync;
        let fs = self.node().fs.clone();
        let got = self
            .node()
            .run(fs.write(caller, two, offset, &data, stable));
        if self.has_failed(&got) {
            return;
        }
        let expected = run_alone(self.model.write(caller, one, offset, &data, stable));
        self.trace.push(format!(
            "{caller:?} write {one:?} {offset}+{len} -> {expected:?}"
        ));
        if expected.map(|done| done.len) != got.map(|done| done.len) {
            self.fail(&format!("a write: got {got:?}"));
        }
    }

    fn read(&mut self, caller: &Caller, at: usize) {
        let (one, two) = self.known[at];
        let range = self.range();
        let fs = self.node().fs.clone();
        let (mut bytes, mut other) = (Vec::new(), Vec::new());
        let got = self.node().run(fs.read(caller, two, range, &mut other));
        if self.has_failed(&got) {
            return;
        }
        let expected = run_alone(self.model.read(caller, one, range, &mut bytes));
        self.trace
            .push(format!("{caller:?} read {one:?} {range:?} -> {expected:?}"));
        if expected != got || bytes != other {
            self.fail(&format!(
                "a read: got {got:?}, bytes equal: {}",
                bytes == other
            ));
        }
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
            (Kind::Faulty, 73..79 | 99) => 30,
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
                let clones = self.rng.bool();
                if clones {
                    (range.offset, offset) = (range.offset & !4095, offset & !4095);
                    range.len = *self.rng.choice(&[0, 4096, 8192]).expect("some");
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

    fn compare_room(&mut self, volume: VolumeId) {
        let expected = run_alone(self.model.call(&Caller::ROOT, Request::Stat(volume)));
        let got = self.node().root(Request::Stat(volume));
        let (Ok(Answer::Stat(one)), Ok(Answer::Stat(two))) = (expected, got) else {
            self.fail("no room of a volume");
        };
        let is_same = (one.files_total, one.files_free) == (two.files_total, two.files_free);
        let has_bound = one.bytes_total < 1 << 60;
        let bytes = (one.bytes_total, one.bytes_free) == (two.bytes_total, two.bytes_free);
        if !is_same || has_bound && !bytes {
            self.fail(&format!(
                "the room of a volume\nexpected {one:?}\n     got {two:?}"
            ));
        }
    }

    /// Every object that is known, and both volumes' room.
    pub(crate) fn compare_all(&mut self) {
        for at in 0..self.known.len() {
            let root = Caller::ROOT;
            let _ = self.ask(&root, |objects| Request::GetAttributes(objects[0]), &[at]);
            let _ = self.ask(&root, |objects| Request::ReadLink(objects[0]), &[at]);
            self.list(&root, at);
        }
        for volume in [1, 2] {
            self.compare_room(VolumeId(volume));
        }
    }

    fn work(&self) {
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

    /// A change that one transaction makes, of objects that are there.
    pub(crate) fn change(&mut self) -> (Caller, Request) {
        let (at, other) = (self.object(), self.object());
        let (name, to_name) = (self.name(), self.name());
        let (one, two) = (self.known[at].1, self.known[other].1);
        let request = match self.rng.u8(0..6) {
            0 => Request::Remove {
                directory: one,
                name,
                directory_only: None,
            },
            1 => Request::Link {
                object: one,
                directory: two,
                name,
            },
            2 => Request::SetAttributes(
                one,
                SetAttributes {
                    size: Some(self.size()),
                    ..SetAttributes::default()
                },
            ),
            3 => Request::Create {
                directory: one,
                name,
                new: New::Directory,
                attributes: SetAttributes::default(),
            },
            _ => Request::Rename {
                from: one,
                from_name: name,
                to: two,
                to_name,
            },
        };
        (Caller::ROOT, request)
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
