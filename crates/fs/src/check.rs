//! Reads everything of a file system that nobody has open, trusts nothing, and says what is wrong.
//!
//! ```text
//! rows    journal and database, page by page
//! names   every row of the index, compared with the others
//! pages   every frame of the disk, with its checksums
//! blocks  the index of the data made anew, compared with its checkpoint and with what files have
//! ```
//!
//! What the journal holds is brought to the database, as the next start would do. Nothing else is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::rc::Rc;

use block::Disk;
use filelayer::{DataUnit, Examined, Fid, FileError, Flaw, PAGE};
use files::Handle;
use index::{BlockId, Report};
use meta::{Embedded, Engine, OpenError};
use nebula::extents::ExtentServer;
use nebula::streams::StreamServer;
use nebula::{Address, ExtentError, FormatError, Scrub, ScrubFault, ScrubStep, StreamError};

use crate::directory::{DATA, ROWS, check_directory, failed, open_device};
use crate::local::{DEPTH, INDEX, STREAMS, UNITS, scope};
use crate::unit::{self, UnitRow};
use crate::{Local, LocalError, Parts};

/// What a fault is a fault of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The metadata engine's journal and database.
    Rows,
    /// Names, attributes, block maps, quotas.
    Names,
    /// What is stored of files.
    Data,
}

impl Part {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Names => "names",
            Self::Data => "data",
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Of what.
    pub part: Part,
    /// The path of the file concerned, if there is one and its name is known.
    pub path: Option<String>,
    /// What is wrong, as a sentence; it begins with the path.
    pub what: String,
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is read now.
    pub doing: &'static str,
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that are to be read, as far as that is known.
    pub bytes_total: u64,
}

/// What a check has read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is wrong, in order.
    pub faults: Vec<Fault>,
    /// Whether the file system was closed in order: if not, the next start recovers what was under way.
    pub is_closed: bool,
    /// Rows of the metadata engine.
    pub rows: u64,
    /// Files, directories and whatever else has attributes.
    pub objects: u64,
    /// Blocks of files, with those that snapshots keep.
    pub blocks: u64,
    /// Records of the data.
    pub records: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// Checks the file system of a directory. Memory: some hundred bytes a file, and twice the index of the data.
/// Everything that files have is read twice: frame by frame, and in the order in which it was written.
///
/// # Errors
/// It could not be looked at: there is none, somebody has it open, the system refuses something, or it has a format of
/// a later version.
pub async fn check(
    core: &rt::Handle,
    dir: &Path,
    tell: &mut dyn FnMut(Progress),
) -> Result<Checked, LocalError> {
    check_directory(dir)?;
    let mut check = Check::new(tell);
    let data_bytes = fs::metadata(dir.join(DATA)).map_err(failed(&dir.join(DATA)))?;
    let rows_bytes = bytes_of(&dir.join(ROWS))?;
    check.told.bytes_total = rows_bytes + 2 * data_bytes.len();
    check.advance(0);
    // First, because they are locked by whoever has the file system open.
    let rows = check.rows(dir)?;
    check.advance(rows_bytes);
    let device = open_device(core, &dir.join(DATA)).await?;
    let engine = rows.as_ref().map(Embedded::handle);
    check.parts(core, engine, &device).await?;
    if let Some(rows) = rows {
        rows.close()?;
    }
    Ok(check.finish())
}

/// Checks the file system that was [made](Local::format_parts) of these parts, but for what the engine itself keeps
/// its rows in.
///
/// # Errors
/// As those of [`check()`].
pub async fn check_parts(
    core: &rt::Handle,
    parts: Parts<'_>,
    tell: &mut dyn FnMut(Progress),
) -> Result<Checked, LocalError> {
    let mut check = Check::new(tell);
    let Parts { engine, device } = parts;
    check.parts(core, Some(engine), device).await?;
    Ok(check.finish())
}

/// What blocks are compared with.
struct Both<'a> {
    core: &'a rt::Handle,
    names: Option<&'a Report>,
    damaged: &'a [ScrubFault],
}

struct Check<'a> {
    checked: Checked,
    told: Progress,
    tell: &'a mut dyn FnMut(Progress),
}

impl<'a> Check<'a> {
    fn new(tell: &'a mut dyn FnMut(Progress)) -> Self {
        Self {
            checked: Checked::default(),
            told: Progress {
                doing: "rows",
                bytes: 0,
                bytes_total: 0,
            },
            tell,
        }
    }

    fn finish(mut self) -> Checked {
        self.checked.faults.sort();
        self.checked.faults.dedup();
        self.checked.bytes = self.told.bytes;
        self.checked
    }

    /// Compares the rows with each other and with the data. Without the one, the other is read all the same.
    async fn parts(
        &mut self,
        core: &rt::Handle,
        engine: Option<Rc<dyn Engine>>,
        device: &dyn block::Device,
    ) -> Result<(), LocalError> {
        let disk = Disk::open(device, DEPTH)?;
        let _polled = core.register_poller(disk.poller());
        let extents = self.extents(core, device, &disk).await?;
        if let Some(extents) = &extents {
            let used = extents.list().into_iter().map(|info| {
                let pages = info.pages.unwrap_or_else(|| extents.segment_pages());
                u64::from(pages) * PAGE as u64
            });
            self.told.bytes_total = self.told.bytes + 2 * used.sum::<u64>();
        }
        let mut names = None;
        if let Some(engine) = &engine {
            names = self.names(engine).await?;
        }
        let damaged = match &extents {
            Some(extents) => self.pages(extents).await?,
            None => Vec::new(),
        };
        match (engine, extents) {
            (Some(engine), Some(extents)) => {
                let of = Both {
                    core,
                    names: names.as_ref(),
                    damaged: &damaged,
                };
                self.blocks(of, &engine, extents).await?;
            }
            _ => damaged.iter().for_each(|fault| self.page(fault, None)),
        }
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        self.told.bytes += bytes;
        (self.tell)(self.told);
    }

    fn begin(&mut self, doing: &'static str) {
        self.told.doing = doing;
        self.advance(0);
    }

    fn fault(&mut self, part: Part, what: impl ToString) {
        self.checked.faults.push(Fault {
            part,
            path: None,
            what: what.to_string(),
        });
    }

    fn fault_of(&mut self, part: Part, path: String, what: &str) {
        self.checked.faults.push(Fault {
            part,
            what: format!("{path}: {what}"),
            path: Some(path),
        });
    }

    /// Reads the journal and the database. None: they cannot be used.
    fn rows(&mut self, dir: &Path) -> Result<Option<Embedded>, LocalError> {
        let dir = dir.join(ROWS);
        let options = meta::Options::existing();
        // The database's library trusts what it reads in places.
        let verified = {
            let (dir, options) = (dir.clone(), options.clone());
            std::thread::spawn(move || Embedded::verify(dir, &options)).join()
        };
        let error = match verified {
            Ok(Ok(verified)) => {
                self.checked.rows = verified.rows;
                return Ok(Some(Embedded::open(&dir, &options)?));
            }
            Ok(Err(error)) => error,
            Err(_) => {
                let why = "reading the database has ended by a fault (restore a backup)".into();
                OpenError::Damaged { why }
            }
        };
        match error {
            OpenError::Damaged { .. } | OpenError::Foreign { .. } => {
                self.fault(Part::Rows, error);
                Ok(None)
            }
            error => Err(error.into()),
        }
    }

    /// Opens the disk of the data. None: it cannot be used.
    async fn extents(
        &mut self,
        core: &rt::Handle,
        device: &dyn block::Device,
        disk: &Disk,
    ) -> Result<Option<ExtentServer>, LocalError> {
        match ExtentServer::examine(core, device, disk).await {
            Ok((extents, copies)) => {
                for copy in copies {
                    let of = match copy.segment {
                        None => "the superblock".to_string(),
                        Some(segment) => format!("the entry of segment {segment}"),
                    };
                    let number = copy.copy + 1;
                    let source = copy.source;
                    let what = format!(
                        "copy {number} of {of} is damaged, the next start writes it anew: {source}"
                    );
                    self.fault(Part::Data, what);
                }
                Ok(Some(extents))
            }
            Err(
                error @ ExtentError::NoDisk {
                    source: FormatError::Version { .. } | FormatError::Features { .. },
                    ..
                },
            ) => Err(error.into()),
            Err(error @ (ExtentError::NoDisk { .. } | ExtentError::TooShort { .. })) => {
                self.fault(Part::Data, error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Compares the rows of the index with each other.
    async fn names(&mut self, engine: &Rc<dyn Engine>) -> Result<Option<Report>, LocalError> {
        self.begin("names");
        let report = match index::check(&*scope(engine, INDEX)).await {
            Ok(report) => report,
            Err(error) => {
                self.fault(Part::Rows, error);
                return Ok(None);
            }
        };
        let path = |object: &Handle| report.path(object, Local::VOLUME);
        for finding in &report.findings {
            let about = finding.object().map(|object| path(&object));
            self.checked.faults.push(Fault {
                part: Part::Names,
                path: about.filter(|path| path.starts_with('/')),
                what: finding.tell(&path),
            });
        }
        self.checked.objects = report.objects;
        Ok(Some(report))
    }

    /// Reads every frame.
    async fn pages(&mut self, extents: &ExtentServer) -> Result<Vec<ScrubFault>, LocalError> {
        self.begin("pages");
        let (mut scrub, mut damaged) = (Scrub::new(extents), Vec::new());
        loop {
            match scrub.step().await? {
                ScrubStep::Sound { pages } => self.advance(u64::from(pages) * PAGE as u64),
                ScrubStep::Bad(fault) => damaged.push(fault),
                ScrubStep::Over => return Ok(damaged),
            }
        }
    }

    /// A damaged page that no file can be named for.
    fn page(&mut self, fault: &ScrubFault, of: Option<&str>) {
        let ScrubFault {
            segment,
            from,
            to,
            source,
            ..
        } = fault;
        let what = match (from == to, of) {
            (true, _) => format!("nobody knows what segment {segment} holds: {source}"),
            (false, None) => {
                format!("segment {segment}, pages {from} to {to} are damaged: {source}")
            }
            (false, Some(of)) => {
                format!("segment {segment}, pages {from} to {to} are damaged, {of}: {source}")
            }
        };
        self.fault(Part::Data, what);
    }

    /// Makes the index of the data anew, and compares it.
    async fn blocks(
        &mut self,
        of: Both<'_>,
        engine: &Rc<dyn Engine>,
        extents: ExtentServer,
    ) -> Result<(), LocalError> {
        self.begin("blocks");
        let row = match unit::look(&*scope(engine, UNITS)).await {
            Ok(row) => row,
            Err(error @ LocalError::BadUnit) => {
                self.fault(Part::Rows, error);
                of.damaged.iter().for_each(|fault| self.page(fault, None));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if row.disk != extents.disk_id() {
            self.fault(
                Part::Data,
                "the data is that of another file system than the rows",
            );
            return Ok(());
        }
        let streams = StreamServer::examine(of.core, scope(engine, STREAMS), vec![extents]);
        let mut tell = |bytes| self.advance(bytes);
        let examined = match DataUnit::examine(&streams, row.streams, &mut tell).await {
            Ok(examined) => examined,
            Err(error) => {
                self.fault(Part::Data, error);
                of.damaged.iter().for_each(|fault| self.page(fault, None));
                return Ok(());
            }
        };
        self.checked.is_closed = examined.is_closed;
        self.checked.records = examined.read.records;
        self.checked.blocks = examined.count() as u64;
        self.flaws(&of, &row, &examined);
        match streams.check_ids().await {
            Ok(()) => {}
            Err(error @ StreamError::Row { .. }) => self.fault(Part::Rows, error),
            Err(error) => return Err(error.into()),
        }
        match streams.unknown_extents().await {
            // After a crash there may be some, which the next start frees.
            Ok(unknown) if examined.is_closed => {
                for (_, place) in unknown {
                    let (segment, extent) = (place.segment, place.extent.0);
                    let what =
                        format!("segment {segment} has extent {extent}, of which there is no row");
                    self.fault(Part::Rows, what);
                }
            }
            Ok(_) => {}
            Err(error @ (StreamError::NotOurs { .. } | StreamError::Row { .. })) => {
                self.fault(Part::Rows, error);
            }
            Err(error) => return Err(error.into()),
        }
        // What is lost of one of them is not another fault of each of its files.
        if let Some(names) = of.names
            && examined.flaws.is_empty()
        {
            self.compare(names, &examined);
        }
        Ok(())
    }

    fn flaws(&mut self, of: &Both<'_>, row: &UnitRow, examined: &Examined) {
        let named: BTreeSet<_> = of
            .damaged
            .iter()
            .map(|fault| (fault.stream, fault.number, fault.from))
            .collect();
        for fault in of.damaged {
            if fault.stream == row.streams.index {
                self.page(fault, Some("which a checkpoint of the data's index has"));
                continue;
            }
            let stored = examined.stored_at(fault.number, fault.from, fault.to);
            if fault.stream != row.streams.data || stored.is_empty() {
                self.page(fault, Some("which no file is known to need"));
            }
            for (fid, byte) in stored {
                let what = |byte| {
                    format!(
                        "damaged at byte {byte}, which cannot be read: {}",
                        fault.source
                    )
                };
                self.block(of.names, fid, byte, what);
            }
        }
        for flaw in &examined.flaws {
            match flaw {
                Flaw::Damaged(FileError::Stream(StreamError::Damaged { stream, from, .. }))
                | Flaw::Checkpoints(FileError::Stream(StreamError::Damaged {
                    stream, from, ..
                })) if named.contains(&(*stream, from.extent, from.page)) => {}
                Flaw::Page(at) => {
                    let has_it = |fault: &&ScrubFault| {
                        fault.stream == row.streams.data
                            && fault.number == at.extent
                            && (fault.from..fault.to).contains(&at.page)
                    };
                    // Of an extent that nobody has ended, which is not scrubbed.
                    if of.damaged.iter().all(|fault| !has_it(&fault)) {
                        self.page_at(of.names, *at, examined);
                    }
                }
                Flaw::Block(fid) => self.block(of.names, *fid, 0, |byte| {
                    format!("the checkpoint of the data's index and the data differ, from byte {byte} on")
                }),
                flaw => self.fault(Part::Data, flaw),
            }
        }
        if examined.is_lacking {
            self.fault(
                Part::Data,
                "records that the index of the data needs are damaged: the file system cannot be opened (restore a backup)",
            );
        }
    }

    /// A damaged page of the data.
    fn page_at(&mut self, names: Option<&Report>, at: Address, examined: &Examined) {
        let stored = examined.stored_at(at.extent, at.page, at.page + 1);
        if stored.is_empty() {
            let what = format!("the page at {at} is damaged, which no file is known to need");
            self.fault(Part::Data, what);
        }
        for (fid, byte) in stored {
            self.block(names, fid, byte, |byte| {
                format!("damaged at byte {byte}, which cannot be read: a checksum is wrong")
            });
        }
    }

    /// Something of a block, with the file that has it.
    fn block(&mut self, names: Option<&Report>, fid: Fid, byte: u64, what: impl Fn(u64) -> String) {
        let owner = names.and_then(|names| Some((names, names.owners.get(&BlockId(fid.0))?)));
        match owner {
            Some((names, (file, from))) => {
                let path = names.path(file, Local::VOLUME);
                self.fault_of(Part::Data, path, &what(from + byte));
            }
            None => {
                let what = what(byte);
                self.fault(
                    Part::Data,
                    format!("block {:x}, which no file has now: {what}", fid.0),
                );
            }
        }
    }

    /// Compares what files have by their rows with what is stored of them.
    fn compare(&mut self, names: &Report, examined: &Examined) {
        let mut stored: HashMap<Handle, u64> = HashMap::new();
        let mut nobody: BTreeMap<Fid, u64> = BTreeMap::new();
        for (fid, bytes) in examined.blocks() {
            match names.owners.get(&BlockId(fid.0)) {
                Some((file, _)) => *stored.entry(*file).or_default() += bytes,
                None => drop(nobody.insert(fid, bytes)),
            }
        }
        for (fid, bytes) in nobody {
            let what = format!(
                "block {:x} has {bytes} bytes, and no file has the block",
                fid.0
            );
            self.fault(Part::Data, what);
        }
        for (file, said) in &names.used {
            let found = stored.get(file).copied().unwrap_or(0);
            if *said != found {
                let path = names.path(file, Local::VOLUME);
                let what = format!("{said} bytes are stored by its row, and {found} are there");
                self.fault_of(Part::Data, path, &what);
            }
        }
    }
}

/// Bytes of the files of a directory.
fn bytes_of(dir: &Path) -> Result<u64, LocalError> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).map_err(failed(dir))? {
        let entry = entry.map_err(failed(dir))?;
        bytes += entry.metadata().map_err(failed(&entry.path()))?.len();
    }
    Ok(bytes)
}
