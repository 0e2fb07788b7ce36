//! An index as a whole file system: data in the model file layer, rows in the model engine.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use files::{
    Answer, Caller, Error, Event, FileSystem, Handle, Pending, Range, ReadDone, Request, Stability,
    Timestamp, VolumeId, WriteDone,
};
use index::{Format, Index, ModelBlocks, OpenError, Options, Quota, Report, Written};
use meta::{Engine, Model, Pace};
use rt::{Config, ManualClock, ManualCore};

/// Turns of the core that a future may take: more, and it will never end.
const TURNS_MAX: usize = 100_000;

/// What a power loss leaves.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) rows: Model,
    pub(crate) blocks: ModelBlocks,
    pub(crate) now: Rc<Cell<Timestamp>>,
    /// Another clock than that.
    pub(crate) clock: Option<Rc<dyn Fn() -> Timestamp>>,
}

impl Disk {
    /// A formatted one, of two volumes.
    pub(crate) fn new(seed: u64, format: impl FnOnce(&mut Format)) -> Self {
        let disk = Self {
            rows: Model::new(seed),
            blocks: ModelBlocks::new(1 << 40),
            now: Rc::new(Cell::new(Timestamp::default())),
            clock: None,
        };
        let mut all = Format::new([7; 16], [9; 32], Timestamp::default());
        all.virtual_nodes = 5;
        all.volumes.push((VolumeId(2), Quota::default()));
        format(&mut all);
        let engine = disk.rows.handle();
        let formatted = Index::format(&*engine, &all);
        run_alone(formatted).expect("the engine is empty");
        disk
    }

    /// What is there if the power fails now: commits under way are lost.
    pub(crate) fn fork(&self, seed: u64) -> Self {
        Self {
            rows: self.rows.fork(seed),
            blocks: self.blocks.fork(),
            now: self.now.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn open(&self) -> Node {
        self.try_open(|_| {}).expect("the index opens")
    }

    pub(crate) fn open_with(&self, set: impl FnOnce(&mut Options)) -> Node {
        self.try_open(set).expect("the index opens")
    }

    pub(crate) fn try_open(&self, set: impl FnOnce(&mut Options)) -> Result<Node, OpenError> {
        let core = core();
        let now = self.now.clone();
        let blocks = Rc::new(self.blocks.clone());
        let own: Rc<dyn Fn() -> Timestamp> = Rc::new(move || now.get());
        let clock = self.clock.clone().unwrap_or(own);
        let mut options = Options::new(core.handle(), self.rows.handle(), blocks, clock);
        set(&mut options);
        let index = run(&core, Index::open(options))?;
        Ok(Node {
            index: index.clone(),
            fs: Rc::new(IndexFs {
                index,
                blocks: self.blocks.clone(),
            }),
            core,
        })
    }
}

/// Opens an index over an engine that takes time, of a clock that each turn moves on.
pub(crate) fn open_slow(disk: &Disk, spy: impl FnOnce(Rc<dyn Engine>) -> Rc<dyn Engine>) -> Slow {
    let clock = Arc::new(ManualClock::new(0));
    let mut config = Config::default();
    config.clock = clock.clone();
    let core = ManualCore::new(config, None);
    let engine = spy(disk.rows.handle_on(&core.handle(), Pace::default()));
    let own = disk.now.clone();
    let own: Rc<dyn Fn() -> Timestamp> = Rc::new(move || own.get());
    let now = disk.clock.clone().unwrap_or(own);
    let blocks = Rc::new(disk.blocks.clone());
    let options = Options::new(core.handle(), engine, blocks, now);
    let opening = core.handle().spawn(Index::open(options));
    while !opening.is_finished() {
        core.turn();
        clock.advance(STEP);
    }
    let index = run(&core, opening).expect("no panic").expect("it opens");
    Slow { index, core, clock }
}

/// How far a turn moves a slow engine's clock.
pub(crate) const STEP: Duration = Duration::from_micros(10);

pub(crate) fn turn(slow: &Slow) {
    slow.core.turn();
    slow.clock.advance(STEP);
}

/// Turns a slow index's core until a future has ended.
pub(crate) fn drive<T>(slow: &Slow, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..TURNS_MAX {
        if let Poll::Ready(done) = future.as_mut().poll(&mut cx) {
            return done;
        }
        turn(slow);
    }
    panic!("a request does not end");
}

/// An index over an engine that takes time.
pub(crate) struct Slow {
    pub(crate) index: Index,
    pub(crate) core: ManualCore,
    pub(crate) clock: Arc<ManualClock>,
}

fn core() -> ManualCore {
    let mut config = Config::default();
    config.clock = Arc::new(ManualClock::new(0));
    ManualCore::new(config, None)
}

/// An open index, and the core of its tasks.
pub(crate) struct Node {
    pub(crate) index: Index,
    pub(crate) fs: Rc<IndexFs>,
    pub(crate) core: ManualCore,
}

impl Node {
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        run(&self.core, future)
    }

    pub(crate) fn call(&self, caller: &Caller, request: Request) -> Result<Answer, Error> {
        self.run(self.fs.call(caller, request))
    }

    pub(crate) fn root(&self, request: Request) -> Result<Answer, Error> {
        self.call(&Caller::ROOT, request)
    }

    /// Does all that is left for the background.
    pub(crate) fn work(&self) {
        while self.run(self.index.step()).expect("nothing fails") {}
    }
}

/// Reads all rows.
pub(crate) fn check(disk: &Disk) -> Report {
    let engine = disk.rows.handle();
    run_alone(index::check(&*engine)).expect("the engine reads")
}

/// Runs a future that needs no core.
pub(crate) fn run_alone<T>(future: impl Future<Output = T>) -> T {
    run(&core(), future)
}

/// Turns a core until a future has ended.
pub(crate) fn run<T>(core: &ManualCore, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..TURNS_MAX {
        if let Poll::Ready(done) = future.as_mut().poll(&mut cx) {
            return done;
        }
        core.turn();
        if let Some(error) = core.take_unjoined() {
            panic!("a task has panicked: {error:?}");
        }
    }
    panic!("a request does not end");
}

/// The index and its data, as doors see them.
pub(crate) struct IndexFs {
    pub(crate) index: Index,
    pub(crate) blocks: ModelBlocks,
}

impl FileSystem for IndexFs {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>> {
        self.index.call(caller, request)
    }

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        out: &'a mut Vec<u8>,
    ) -> Pending<'a, Result<ReadDone, Error>> {
        Box::pin(async move {
            let plan = self.index.begin_read(caller, file, range).await?;
            for piece in &plan.pieces {
                match piece.span {
                    Some(span) => self.blocks.read(span, out)?,
                    None => out.resize(out.len() + piece.len as usize, 0),
                }
            }
            Ok(ReadDone {
                len: plan.len as usize,
                is_end: plan.is_end,
            })
        })
    }

    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        offset: u64,
        data: &'a [u8],
        _stability: Stability,
    ) -> Pending<'a, Result<WriteDone, Error>> {
        Box::pin(async move {
            let len = data.len() as u64;
            let range = Range { offset, len };
            let plan = self.index.begin_write(caller, file, range).await?;
            let mut grown = 0;
            for piece in &plan.pieces {
                let from = (piece.offset - offset) as usize;
                let data = &data[from..from + piece.len as usize];
                let span = piece.span.expect("a write goes to blocks");
                grown += self.blocks.write(span, data, plan.mark_of(piece))?;
            }
            plan.end(Written {
                len,
                grown,
                is_whole: true,
            });
            Ok(WriteDone {
                len: data.len(),
                verifier: self.blocks.verifier(),
            })
        })
    }

    fn event(&self) -> Pending<'_, Event> {
        Box::pin(self.index.event())
    }

    fn secret(&self) -> [u8; 32] {
        self.index.secret()
    }
}
