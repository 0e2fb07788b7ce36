//! A server of streams on simulated devices, on a core that the test turns: time passes when a device is
//! polled in vain.

use std::future::Future;
use std::rc::Rc;

use block::Disk;
use block::sim::{Image, SimConfig, SimDevice};
use meta::{Engine, Model};
use nebula::extents::{ExtentServer, FormatOptions};
use nebula::streams::StreamServer;
use nebula::{Appended, PAGE, Reader, StreamError, Writer};
use rt::{Config, ManualCore, PollerGuard};

/// Pages of a segment.
pub(crate) const SEGMENT_PAGES: u32 = 16;
pub(crate) const SEGMENT: u64 = SEGMENT_PAGES as u64 * PAGE as u64;
/// What superblocks and tables take, at most.
pub(crate) const TABLES: u64 = 96 << 10;

pub(crate) fn config(seed: u64, segments: u64) -> SimConfig {
    SimConfig::new(seed, TABLES + segments * SEGMENT)
}

/// A device that was formatted with short segments.
pub(crate) fn formatted(seed: u64, segments: u64) -> SimDevice {
    formatted_of(config(seed, segments), SEGMENT)
}

/// A device that was formatted with segments of so many bytes.
pub(crate) fn formatted_of(config: SimConfig, segment_bytes: u64) -> SimDevice {
    let seed = config.seed;
    let device = SimDevice::new(config);
    let disk = Disk::open(&device, 8).expect("a queue");
    let mut options = FormatOptions::new(seed + 100, 77);
    options.segment_bytes = segment_bytes;
    let formatted = disk.block_on(ExtentServer::format(&device, &disk, &options));
    formatted.expect("a blank device");
    device
}

/// A machine with disks and an engine. It can be started again with what a crash has left.
pub(crate) struct Rig {
    pub(crate) core: ManualCore,
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) model: Model,
    _pollers: Vec<PollerGuard>,
}

impl Rig {
    pub(crate) fn new(seed: u64, segments: u64) -> Self {
        Self::on(vec![formatted(seed, segments)], Model::new(seed))
    }

    pub(crate) fn on(devices: Vec<SimDevice>, model: Model) -> Self {
        let core = ManualCore::new(Config::default(), None);
        let open = |device: &SimDevice| Disk::open(device, 32).expect("a queue");
        let disks: Vec<Disk> = devices.iter().map(open).collect();
        let poll = |disk: &Disk| core.handle().register_poller(disk.poller());
        let pollers = disks.iter().map(poll).collect();
        Self {
            devices,
            engine: model.handle(),
            model,
            disks,
            _pollers: pollers,
            core,
        }
    }

    /// The machine after a crash that has left this on its first device.
    pub(crate) fn after(&self, image: Image, model: Model) -> Self {
        let segments = (image.len() - TABLES) / SEGMENT;
        let device = SimDevice::with_image(config(9, segments), image);
        Self::on(vec![device], model)
    }

    /// The same machine, started anew: nothing but the power of its processes was lost.
    pub(crate) fn restarted(&self) -> Self {
        self.after(self.devices[0].image(), self.model.fork(1))
    }

    pub(crate) fn device(&self) -> &SimDevice {
        &self.devices[0]
    }

    /// Turns the core until the future has ended.
    pub(crate) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let mut task = self.core.handle().spawn(future);
        let mut idle = 0;
        loop {
            let did = self.core.turn();
            if let Some(outcome) = task.try_take() {
                return outcome.expect("the task does not panic");
            }
            idle = if did > 0 { 0 } else { idle + 1 };
            assert!(idle < 10_000, "a task waits for ever");
        }
    }

    /// Turns the core until nothing happens any more.
    pub(crate) fn settle(&self) {
        let mut idle = 0;
        while idle < 20 {
            idle = if self.core.turn() > 0 { 0 } else { idle + 1 };
        }
    }

    pub(crate) fn server(&self) -> StreamServer {
        self.try_server().expect("a server")
    }

    pub(crate) fn try_server(&self) -> Result<StreamServer, StreamError> {
        let handle = self.core.handle();
        let (engine, devices, disks) = (
            self.engine.clone(),
            self.devices.clone(),
            self.disks.clone(),
        );
        self.run(async move {
            let mut servers = Vec::new();
            for (device, disk) in devices.iter().zip(&disks) {
                servers.push(ExtentServer::open(&handle, device, disk).await?);
            }
            StreamServer::open(&handle, engine, servers).await
        })
    }
}

/// A record that says what it is: its number, in its head and all over its pages.
pub(crate) fn record(writer: &Writer, number: u32, pages: u32) -> nebula::Record {
    let mut record = writer.record(&number.to_le_bytes(), pages);
    for (page, bytes) in (0..).zip(record.payload_mut().chunks_exact_mut(PAGE)) {
        bytes.copy_from_slice(&page_of(number, page));
    }
    record
}

pub(crate) fn page_of(number: u32, page: u32) -> Vec<u8> {
    let word = (u64::from(number) << 32 | u64::from(page)).to_le_bytes();
    word.repeat(PAGE / 8)
}

pub(crate) fn sums_of(number: u32, pages: u32) -> Vec<u32> {
    let sum = |page| block::crc32c::checksum(&page_of(number, page));
    (0..pages).map(sum).collect()
}

/// What a replay finds of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) number: u32,
    pub(crate) pages: u32,
    pub(crate) at: nebula::Address,
}

impl Seen {
    pub(crate) fn new(number: u32, pages: u32, appended: &Appended) -> Self {
        let at = appended.at;
        Self { number, pages, at }
    }
}

/// All records of a stream, in order, and what the replay says of damage.
pub(crate) async fn replayed(reader: &Reader) -> (Vec<Seen>, Vec<StreamError>) {
    let (mut seen, mut errors) = (Vec::new(), Vec::new());
    let mut replay = reader.replay(nebula::Address::default());
    loop {
        match replay.next().await {
            Ok(None) => return (seen, errors),
            Ok(Some(frame)) => seen.extend(frame.records().map(|record| {
                let number = u32::from_le_bytes(record.head.try_into().expect("a number"));
                let pages = record.pages();
                for (page, bytes) in (0..).zip(record.payload.chunks_exact(PAGE)) {
                    assert!(bytes == page_of(number, page), "page {page} of {number}");
                }
                let at = record.at;
                Seen { number, pages, at }
            })),
            Err(error @ StreamError::Damaged { .. }) => errors.push(error),
            Err(error) => panic!("a replay: {error}"),
        }
    }
}
