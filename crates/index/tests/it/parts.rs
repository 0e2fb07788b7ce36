//! Changes of data of which a part fails, or whose end is told wrongly: what is there then is counted, and
//! no contents are seen twice by one change number.

use conformance::files::{create_file, created};
use files::{
    Answer, Attributes, Caller, CreateHow, Error, FileSystem, Handle, Range, Request,
    SetAttributes, Stability, VolumeId,
};
use index::{BLOCK_LEN, Blocks as _, Failure};
use meta::Fault;

use crate::harness::{Disk, Node, check};

static ROOT: Caller = Caller::ROOT;

/// Bytes of a file: a few pages at each end of two blocks.
const NEAR: u64 = 5 * 4096;

struct Program {
    disk: Disk,
    node: Node,
    files: Vec<Handle>,
    rng: fastrand::Rng,
    trace: Vec<String>,
    /// Copies and clones that were done, and clones that have failed.
    counts: [u32; 3],
}

impl Program {
    fn new(seed: u64) -> Self {
        let disk = Disk::new(seed, |format| format.virtual_nodes = 1);
        let node = disk.open();
        let root = Handle::root(VolumeId(1));
        let files = ["a", "b"].map(|name| {
            let request = create_file(root, name, CreateHow::Guarded, 0o600);
            created(node.root(request)).0
        });
        Self {
            disk,
            node,
            files: files.to_vec(),
            rng: fastrand::Rng::with_seed(seed),
            trace: Vec::new(),
            counts: [0; 3],
        }
    }

    fn attributes(&self, file: Handle) -> Attributes {
        match self.node.root(Request::GetAttributes(file)) {
            Ok(Answer::Attributes(attributes)) => attributes,
            other => panic!("{other:?}"),
        }
    }

    /// What is in a file where it is changed.
    fn contents(&self, file: Handle) -> (u64, Vec<u8>) {
        let mut out = Vec::new();
        for offset in [0, BLOCK_LEN - NEAR] {
            let len = 2 * NEAR + 20_000;
            let range = Range { offset, len };
            let read = self.node.fs.read(&ROOT, file, range, &mut out);
            self.node.run(read).expect("nothing fails");
        }
        (self.attributes(file).size, out)
    }

    /// Somewhere at the beginning, or around the border of two blocks.
    fn place(&mut self) -> u64 {
        let at = self.rng.u64(..NEAR);
        match self.rng.u8(..4) {
            0 => BLOCK_LEN - NEAR / 2 + at,
            _ => at,
        }
    }

    fn range(&mut self) -> Range {
        let (one, two) = (self.place(), self.place());
        Range {
            offset: one.min(two),
            len: one.abs_diff(two) + 1,
        }
    }

    /// Has something fail, mostly.
    fn plant(&mut self) {
        let after = self.rng.u64(..9);
        match self.rng.u8(..8) {
            0..3 => self.disk.blocks.fail(after, Failure::Done),
            3..5 => self.disk.blocks.fail(after, Failure::Undone),
            5 => self.disk.rows.fail(self.rng.u64(..4), Fault::NoSpace),
            6 => self.disk.rows.fail(self.rng.u64(..4), Fault::UnknownDone),
            _ => {}
        }
    }

    fn heal(&self) {
        self.disk.blocks.heal();
        let mut nothing = meta::Transaction::new();
        nothing.delete([1]).expect("it is short");
        while self.disk.rows.faults_to_come() > 0 {
            let _ = self
                .node
                .run(self.disk.rows.handle().commit(nothing.clone()));
        }
    }

    /// Returns a clone from the other file that has failed.
    fn change(&mut self, file: Handle) -> Option<Request> {
        let (range, size) = (self.range(), self.place());
        let request = match self.rng.u8(..11) {
            8..11 => self.draw_copy(file),
            0..2 => {
                let data = vec![self.rng.u8(1..); (range.len as usize).min(20_000)];
                let write =
                    self.node
                        .fs
                        .write(&ROOT, file, range.offset, &data, Stability::FileSync);
                let done = self.node.run(write);
                self.trace
                    .push(format!("write {} {}: {done:?}", range.offset, data.len()));
                return None;
            }
            2..4 => Request::Deallocate(file, range),
            4 => Request::Allocate(file, range),
            5 => {
                let size = Some(size);
                let set = SetAttributes {
                    size,
                    ..SetAttributes::default()
                };
                Request::SetAttributes(file, set)
            }
            6 => {
                let settled = self.node.run(self.node.index.settle_all());
                self.trace.push(format!("settle: {settled:?}"));
                return None;
            }
            _ => {
                let _ = self.node.run(self.node.index.step());
                return None;
            }
        };
        let what = format!("{request:?}");
        let done = self.node.root(request.clone());
        self.trace.push(format!("{what}: {done:?}"));
        match request {
            Request::Copy { .. } => self.counts[0] += u32::from(done.is_ok()),
            Request::Clone { .. } if done.is_ok() => self.counts[1] += 1,
            Request::Clone { from, to, .. } if from != to => {
                self.counts[2] += u32::from(done != Err(Error::Invalid));
                return Some(request);
            }
            _ => {}
        }
        None
    }

    /// A part of a file over a part of this one: another file, mostly.
    fn draw_copy(&mut self, to: Handle) -> Request {
        let from = self.files[self.rng.usize(..2)];
        let (range, offset) = (self.range(), self.place());
        if self.rng.bool() {
            return Request::Copy {
                from,
                range,
                to,
                offset,
            };
        }
        let page = |at: u64| at / 4096 * 4096;
        Request::Clone {
            from,
            range: Range {
                offset: page(range.offset),
                len: page(range.len),
            },
            to,
            offset: page(offset),
        }
    }

    fn step(&mut self) {
        let file = self.files[self.rng.usize(..2)];
        let before = (self.attributes(file).change, self.contents(file));
        let other = self.files[usize::from(file == self.files[0])];
        let source = self.contents(other);
        self.plant();
        let failed = self.change(file);
        self.heal();
        assert!(self.contents(other) == source, "what nobody has changed");
        let after = (self.attributes(file).change, self.contents(file));
        if let Some(clone) = failed.filter(|_| after.1 != before.1) {
            // Nobody knew that it was carried out: as a whole, so that it changes nothing once more.
            assert_eq!(self.node.root(clone), Ok(Answer::Done));
            assert!(self.contents(file) == after.1, "a part of a clone");
        }
        assert!(after.0 >= before.0);
        assert!(
            after.0 > before.0 || after.1 == before.1,
            "other contents, and the same change number"
        );
    }

    /// Nothing fails any more: everything is counted.
    fn end(&self) {
        self.node
            .run(self.node.index.settle_all())
            .expect("nothing fails");
        self.node.work();
        let room = self.disk.blocks.room();
        let counted: u64 = self.node.index.volumes().iter().map(|of| of.bytes).sum();
        assert_eq!(counted, room.total - room.free, "what files occupy");
        let seen = check(&self.disk);
        assert!(seen.findings.is_empty(), "{seen:?}");
    }
}

#[test]
fn what_fails_in_part_is_counted_and_changes_the_number() {
    let mut counts = [0; 3];
    for seed in 0..100 {
        let mut program = Program::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..25 {
                program.step();
            }
            program.end();
        }));
        if let Err(panic) = run {
            eprintln!("seed {seed}:\n{}", program.trace.join("\n"));
            std::panic::resume_unwind(panic);
        }
        for (all, of) in counts.iter_mut().zip(program.counts) {
            *all += of;
        }
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}
