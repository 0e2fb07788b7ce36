//! A dataunit on a simulated device, on a core that the test turns: time passes when the device is polled in
//! vain.

use std::future::Future;
use std::rc::Rc;

use block::Disk;
use block::sim::{Image, SimConfig, SimDevice};
use filelayer::{DataUnit, Examined, FileError, Mark, Options, PAGE, UnitId, UnitStreams};
use meta::{Engine, Model};
use nebula::Epoch;
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;
use rt::{Config, ManualCore, PollerGuard};

/// What superblocks and tables take, at most.
const TABLES: u64 = 96 << 10;

/// How large a machine's disk is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) segment_pages: u64,
    pub(crate) segments: u64,
}

impl Size {
    fn segment(self) -> u64 {
        self.segment_pages * PAGE as u64
    }

    fn config(self, seed: u64) -> SimConfig {
        let mut config = SimConfig::new(seed, TABLES + self.segments * self.segment());
        // A page is written as a whole or not at all.
        config.geometry.block = PAGE as u32;
        config.sector = PAGE as u32;
        config
    }
}

/// A machine with a disk and an engine. It can be started again with what a crash has left.
pub(crate) struct Rig {
    pub(crate) size: Size,
    pub(crate) core: ManualCore,
    pub(crate) device: SimDevice,
    pub(crate) disk: Disk,
    pub(crate) model: Model,
    engine: Rc<dyn Engine>,
    _poller: PollerGuard,
}

impl Rig {
    /// A machine with an empty disk.
    pub(crate) fn new(seed: u64, size: Size) -> Self {
        let device = SimDevice::new(size.config(seed));
        let disk = Disk::open(&device, 8).expect("a queue");
        let mut options = FormatOptions::new(seed + 100, 77);
        options.segment_bytes = size.segment();
        let formatted = disk.block_on(ExtentServer::format(&device, &disk, &options));
        formatted.expect("a blank device");
        Self::on(size, device, Model::new(seed))
    }

    fn on(size: Size, device: SimDevice, model: Model) -> Self {
        let core = ManualCore::new(Config::default(), None);
        let disk = Disk::open(&device, 32).expect("a queue");
        Self {
            size,
            _poller: core.handle().register_poller(disk.poller()),
            engine: model.handle(),
            core,
            device,
            disk,
            model,
        }
    }

    /// The machine after a crash that has left this on its disk.
    pub(crate) fn after(&self, image: Image, model: Model) -> Self {
        let device = SimDevice::with_image(self.size.config(9), image);
        Self::on(self.size, device, model)
    }

    /// The machine after the loss of power, now.
    pub(crate) fn crashed(&self, seed: u64) -> Self {
        let image = self.device.snapshot().crash(seed);
        self.after(image, self.model.fork(seed))
    }

    /// One turn of the core. Says how much it did.
    pub(crate) fn turn(&self) -> usize {
        self.core.turn()
    }

    /// So many turns of the core.
    pub(crate) fn turns(&self, count: u64) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Turns the core until the future has ended.
    pub(crate) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.run_with(future, || ())
    }

    /// The same; `each` is called after each turn that did something.
    pub(crate) fn run_with<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
        mut each: impl FnMut(),
    ) -> T {
        let mut task = self.core.handle().spawn(future);
        let mut idle = 0;
        loop {
            let did = self.turn();
            if let Some(outcome) = task.try_take() {
                return outcome.expect("the task does not panic");
            }
            if did > 0 {
                each();
            }
            idle = if did > 0 { 0 } else { idle + 1 };
            assert!(idle < 10_000, "a task waits for ever");
        }
    }

    /// Turns the core until nothing happens any more.
    pub(crate) fn settle(&self) {
        let mut idle = 0;
        while idle < 20 {
            idle = if self.turn() > 0 { 0 } else { idle + 1 };
        }
    }

    pub(crate) fn server(&self) -> StreamServer {
        let handle = self.core.handle();
        let (engine, device, disk) = (self.engine.clone(), self.device.clone(), self.disk.clone());
        self.run(async move {
            let extents = ExtentServer::open(&handle, &device, &disk)
                .await
                .expect("a disk");
            StreamServer::open(&handle, engine, vec![extents])
                .await
                .expect("a server")
        })
    }

    /// Where a copy of a segment's entry in the table is (`docs/design/nebula.md`).
    pub(crate) fn entry_at(&self, copy: u64, segment: u32) -> u64 {
        let slot = PAGE as u64;
        let mut begin = [0; 8];
        self.device.image().read(40, &mut begin);
        let table = (u64::from_le_bytes(begin) - (64 << 10)) / 2;
        (64 << 10) + copy * table + u64::from(segment) * slot
    }

    /// The only dataunit, as a check sees it.
    pub(crate) fn examined(&self) -> Examined {
        let handle = self.core.handle();
        let (engine, device, disk) = (self.engine.clone(), self.device.clone(), self.disk.clone());
        self.run(async move {
            let opened = ExtentServer::examine(&handle, &device, &disk).await;
            let (extents, _) = opened.expect("a disk");
            let server = StreamServer::examine(&handle, engine, vec![extents]);
            let all = server.list().await.expect("rows");
            let [data, index, ..] = all[..] else {
                panic!("two streams: {all:?}");
            };
            let of = UnitStreams { data, index };
            let examined = DataUnit::examine(&server, of, &mut |_| ()).await;
            examined.expect("it can be looked at")
        })
    }

    /// Opens the only dataunit, in the next epoch; makes it if there is none.
    pub(crate) fn unit(&self, options: Options) -> DataUnit {
        self.try_unit(options).expect("a dataunit")
    }

    pub(crate) fn try_unit(&self, options: Options) -> Result<DataUnit, FileError> {
        let (server, handle) = (self.server(), self.core.handle());
        self.run(async move { opened(&handle, &server, options).await })
    }

    /// Segments that no extent has.
    pub(crate) fn free_segments(&self) -> u64 {
        free_segments(&self.model, self.size)
    }
}

/// Segments that no extent has by the rows.
pub(crate) fn free_segments(model: &Model, size: Size) -> u64 {
    let rows = model.rows();
    let extents = rows.iter().filter(|(key, _)| key.starts_with(b"nebula/x"));
    size.segments - extents.count() as u64
}

/// Opens the only dataunit, in the next epoch; makes it if there is none.
pub(crate) async fn opened(
    core: &rt::Handle,
    server: &StreamServer,
    options: Options,
) -> Result<DataUnit, FileError> {
    let all = server.list().await?;
    let streams = match all[..] {
        [data, index, ..] => UnitStreams { data, index },
        [data] => UnitStreams {
            data,
            index: server.create().await?,
        },
        [] => DataUnit::create(server).await?,
    };
    let epochs = [
        server.epoch(streams.data).await?,
        server.epoch(streams.index).await?,
    ];
    let epoch = Epoch(1 + epochs.iter().map(|epoch| epoch.0).max().unwrap_or(0));
    DataUnit::open(core, server, unit(), streams, epoch, options).await
}

pub(crate) fn unit() -> UnitId {
    UnitId::new(5).expect("24 bits")
}

/// Options for short segments: what is at their ends counts.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.cache_bytes = 64 << 10;
    options.garbage_max = 500;
    options
}

/// The mark of a change of the volume 7 in a snapshot epoch.
pub(crate) fn mark(snapshot_epoch: u32) -> Mark {
    Mark {
        handle: [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1],
        end: 0,
        truncate_epoch: 0,
        snapshot_epoch,
    }
}
