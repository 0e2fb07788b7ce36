//! Asking both sides, and comparing what they say.

use super::*;

impl Both {
    /// Asks both sides and compares. `objects` is what the request names, in its order.
    pub(super) fn ask(
        &mut self,
        caller: &Caller,
        request: impl Fn(&[Handle]) -> Request,
        objects: &[usize],
    ) -> Result<Answer, Error> {
        let one: Vec<Handle> = objects.iter().map(|at| self.known[*at].0).collect();
        let two: Vec<Handle> = objects.iter().map(|at| self.known[*at].1).collect();
        self.ask_both(caller, request(&one), request(&two))
    }

    pub(super) fn ask_both(
        &mut self,
        caller: &Caller,
        one: Request,
        two: Request,
    ) -> Result<Answer, Error> {
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
    pub(super) fn has_failed<T>(&self, got: &Result<T, Error>) -> bool {
        let is_fault = matches!(got, Err(Error::Io | Error::NoSpace));
        self.kind == Kind::Faulty && is_fault
    }

    /// Both answers, in terms of the objects that are known.
    pub(super) fn compare(
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

    pub(super) fn place(&self, handle: Handle, is_model: bool) -> u64 {
        let found = self.known.iter().position(|(one, two)| match is_model {
            true => *one == handle,
            false => *two == handle,
        });
        found.map_or(u64::MAX, |at| at as u64)
    }

    pub(super) fn attributes(
        &self,
        volume: VolumeId,
        mut of: Attributes,
        is_model: bool,
    ) -> Attributes {
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

    pub(super) fn handle(&self, handle: Handle, is_model: bool) -> Handle {
        let file = FileId(self.place(handle, is_model));
        Handle { file, ..handle }
    }

    pub(super) fn canonical(&self, volume: VolumeId, answer: Answer, is_model: bool) -> Answer {
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
    pub(super) fn list(&mut self, caller: &Caller, at: usize) {
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

    pub(super) fn read(&mut self, caller: &Caller, at: usize) {
        let range = self.range();
        self.read_range(caller, at, range);
    }

    fn read_range(&mut self, caller: &Caller, at: usize, range: Range) {
        let (one, two) = self.known[at];
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

    pub(super) fn write(&mut self, caller: &Caller, at: usize) {
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

    pub(super) fn compare_room(&mut self, volume: VolumeId) {
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

    /// Every object that is known with its contents and what is held of it, and both volumes' room.
    pub(crate) fn compare_all(&mut self) {
        let root = Caller::ROOT;
        for at in 0..self.known.len() {
            let _ = self.ask(&root, |objects| Request::GetAttributes(objects[0]), &[at]);
            let _ = self.ask(&root, |objects| Request::ReadLink(objects[0]), &[at]);
            self.list(&root, at);
            self.compare_contents(at);
            self.compare_holds(at);
        }
        for volume in [1, 2] {
            self.compare_room(VolumeId(volume));
        }
    }

    /// A file's data wherever a program writes, and its extended attributes.
    fn compare_contents(&mut self, at: usize) {
        let reader = Caller {
            holder: Some(STRANGER),
            ..Caller::ROOT
        };
        for offset in [0, (4 << 20) - 4096, 1 << 28] {
            let range = Range {
                offset,
                len: 32_768,
            };
            self.read_range(&reader, at, range);
        }
        for name in NAMES {
            let name = Name::new(name).expect("a name");
            let request = |objects: &[Handle]| Request::GetXattr(objects[0], name.clone());
            let _ = self.ask(&Caller::ROOT, request, &[at]);
        }
    }

    /// Locks, opens and delegations, by what they refuse to somebody else.
    fn compare_holds(&mut self, at: usize) {
        let range = LockRange {
            offset: 0,
            len: None,
        };
        let lock = Lock {
            range,
            kind: LockKind::Write,
        };
        let _ = self.ask(
            &Caller::ROOT,
            |objects| Request::TestLock {
                file: objects[0],
                holder: STRANGER,
                lock,
            },
            &[at],
        );
        for (access, deny) in [(Share::READ, Share::READ), (Share::WRITE, Share::WRITE)] {
            let request = |objects: &[Handle]| Request::Open {
                file: objects[0],
                holder: STRANGER,
                access,
                deny,
                reclaim: false,
            };
            let _ = self.ask(&Caller::ROOT, request, &[at]);
        }
    }
}

/// Who holds nothing of what the programs do.
const STRANGER: Holder = Holder {
    client: 9,
    owner: 9,
};
