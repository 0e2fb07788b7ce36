//! The document that a run writes: everything that plots and pages are made from.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use bench::Measured;
use serde::{Deserialize, Serialize};

use super::hardware::Hardware;
use crate::goals::Ratios;

/// The document's format. It changes when an old reader would misread a new document.
pub const FORMAT: u32 = 1;

/// What both reports' documents begin with.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// The document's format.
    pub format: u32,
    /// The program's version.
    pub version: String,
    /// What it was built from.
    pub commit: Commit,
    /// When the run began, UTC.
    pub date: String,
    /// How long it took.
    pub seconds: f64,
    /// Where.
    pub machine: Hardware,
    /// The steps of the run.
    pub steps: Vec<StepTime>,
    /// What was not measured, and why.
    pub left_out: Vec<LeftOut>,
}

impl Head {
    /// That of a run which begins now.
    pub fn new(format: u32, commit: Commit) -> Self {
        Head {
            format,
            version: env!("CARGO_PKG_VERSION").to_string(),
            commit,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            machine: Hardware::this(),
            ..Head::default()
        }
    }

    /// One line: machine, version, commit, day.
    pub fn source(&self) -> String {
        let (machine, version, commit) = (self.machine.line(), &self.version, self.commit.show());
        let day = self.date.split('T').next().unwrap_or_default();
        format!("{machine} · vervain {version} ({commit}) · {day}")
    }

    /// Notes what could not be measured here, or `failed` although it should have been.
    pub(crate) fn leave_out(&mut self, what: &str, why: impl ToString, failed: bool) {
        self.left_out.push(LeftOut {
            what: what.to_string(),
            why: why.to_string(),
            failed,
        });
    }

    /// Whether every measurement that was tried succeeded.
    pub fn is_whole(&self) -> bool {
        !self.left_out.iter().any(|left| left.failed)
    }
}

impl AsMut<Head> for Record {
    fn as_mut(&mut self) -> &mut Head {
        &mut self.head
    }
}

/// A report of the cache.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// What all reports have.
    #[serde(flatten)]
    pub head: Head,
    /// How.
    pub settings: Settings,
    /// The figures that are compared with goals.
    pub ratios: Ratios,
    /// What the machine can do at all.
    pub limit: Option<Limit>,
    /// Throughput by requests under way: HERD, and the bare exchange of slots.
    pub windows: Vec<Curve>,
    /// Best throughput of each way to the same cache, 95 % GET.
    pub ways: Vec<Group>,
    /// HERD's throughput by mix and distribution, in millions a second.
    pub mixes: Vec<Group>,
    /// Latency by offered load.
    pub loads: Vec<Load>,
    /// The socket door beside memcached, in millions a second.
    pub door: Vec<DoorCell>,
    /// Throughput by bytes of a value.
    pub sizes: Vec<Curve>,
    /// Throughput by server cores.
    pub cores: Vec<Curve>,
    /// Throughput by clients.
    pub clients: Vec<Curve>,
    /// Throughput by items.
    pub items: Vec<Curve>,
    /// Throughput of single verbs by size.
    pub verbs: Vec<Curve>,
    /// ECHOs, from plain to HERD's.
    pub echoes: Vec<Group>,
    /// MICA alone beside a hash map, in millions of GETs a second.
    pub tables: Vec<Group>,
    /// The server while nobody asks it.
    pub idle: Option<Idle>,
}

/// A step of the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepTime {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
}

/// What a program was built from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Commit {
    /// The commit; `unknown` outside of a repository.
    pub hash: String,
    /// Whether files had been changed since.
    pub is_dirty: bool,
}

impl Commit {
    /// The commit for people.
    pub fn show(&self) -> String {
        let changed = if self.is_dirty { ", changed since" } else { "" };
        format!("{}{changed}", self.hash)
    }
}

/// The settings of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// `quick`, `standard` or `full`.
    pub scale: String,
    /// The command line, without the program.
    pub flags: Vec<String>,
    /// What repeats the requests exactly.
    pub seed: u64,
    /// How long each single measurement takes.
    pub slice_s: f64,
    /// How often each is repeated; the median counts.
    pub rounds: usize,
    /// CPUs of the servers.
    pub server_cpus: Vec<usize>,
    /// CPUs of the clients.
    pub client_cpus: Vec<usize>,
    /// Bytes of a key.
    pub key_len: usize,
    /// Bytes of a value where nothing else is said.
    pub value_len: usize,
    /// Items where nothing else is said.
    pub items: u64,
    /// The other cache and its version; nothing when none is installed.
    pub peer: Option<String>,
}

/// Whose figure it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Our cache over RDMA.
    Herd,
    /// Our cache over its socket.
    Door,
    /// Another cache over its socket.
    Memcached,
    /// The bare exchange of slots.
    Exchange,
    /// The bare ring.
    Ring,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND and RECV.
    Send,
    /// Our software NIC.
    Nic,
    /// MICA without a server around it.
    Mica,
    /// The standard library's hash map.
    HashMap,
}

/// Figures along something.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// Whose.
    pub who: Who,
    /// In order.
    pub points: Vec<Sample>,
}

impl Curve {
    /// The highest median, and where it was.
    pub fn best(&self) -> Option<Sample> {
        let by_mid = |one: &&Sample, other: &&Sample| one.y.mid.total_cmp(&other.y.mid);
        self.points.iter().max_by(by_mid).copied()
    }
}

/// A figure at a place.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The place.
    pub x: f64,
    /// The figure.
    #[serde(flatten)]
    pub y: Measured,
}

/// Figures about one thing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// What they are about.
    pub label: String,
    /// By whose they are.
    pub values: BTreeMap<Who, Measured>,
}

/// A cell of the comparison of sockets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DoorCell {
    /// `tcp` or `unix`.
    pub socket: String,
    /// `get` or `set`.
    pub operation: String,
    /// Connections.
    pub connections: usize,
    /// `plain`, `pipelined by 32` or `multiget of 32`.
    pub style: String,
    /// Ours, in millions a second.
    pub ours: Measured,
    /// Theirs.
    pub theirs: Option<Measured>,
    /// Ours by theirs.
    pub ratio: Option<f64>,
}

/// Latency of one cache by offered load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Whose.
    pub who: Who,
    /// In order of load.
    pub points: Vec<LoadPoint>,
}

/// Latency at one load, in nanoseconds, counted from when a request was due.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the percentiles' names say it")]
pub struct LoadPoint {
    /// Millions of requests offered a second.
    pub offered_mops: f64,
    /// Millions answered a second.
    pub achieved_mops: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    pub max_ns: f64,
}

/// What the machine can do at all.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// A line from one core to the other and one back.
    pub pingpong_ns: Measured,
    /// Lines one way, in millions a second.
    pub ring_mops: Measured,
    /// The longest time for which a loop that does nothing else did not run.
    pub stall_longest_us: f64,
    /// Percent of the time for which it did not run.
    pub stalled_percent: f64,
    /// A read whose place depends on the read before it.
    pub dependent_read_ns: f64,
    /// Reads that do not depend on each other, in millions a second.
    pub independent_reads_mops: f64,
    /// Billions of bytes copied a second, by bytes of a copy.
    pub copies: Vec<(usize, f64)>,
}

/// The server while nobody asks it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// Percent of a CPU.
    pub cpu_percent: f64,
    /// How long it was watched.
    pub seconds: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// The memory that it was given.
    pub memory_bytes: u64,
}

/// What was not measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// Which.
    pub what: String,
    /// Why.
    pub why: String,
    /// Whether it should have worked.
    pub failed: bool,
}

const NO_REPORT: &str = "this is no report of `cargo lab report`";

impl Record {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not one, or has another format.
    pub fn read(json: &str) -> anyhow::Result<Self> {
        // The format comes first: of another one nothing else can be expected.
        let document: serde_json::Value = serde_json::from_str(json).context(NO_REPORT)?;
        if let Some(format) = document.get("format").and_then(serde_json::Value::as_u64)
            && format != u64::from(FORMAT)
        {
            bail!("the report has format {format}; this version reads {FORMAT}");
        }
        serde_json::from_value(document).context(NO_REPORT)
    }
}
