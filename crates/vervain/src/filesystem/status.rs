//! What a served file system does and holds: gathered by the process that serves, told as JSON and to Prometheus,
//! read by `fs status` and `fs top`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fs::Local;
use nfs::server::{Door, Latencies};
use serde::{Deserialize, Serialize};

/// Everything, since the server was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Status {
    /// The process that serves.
    pub(super) pid: u32,
    /// The directory.
    pub(super) data: String,
    /// Where NFS is served.
    pub(super) listen: String,
    /// Where else.
    #[serde(default)]
    pub(super) also: Vec<String>,
    /// How long it has been.
    pub(super) uptime_ms: u64,
    /// Whether clients are claiming what they had before a restart.
    pub(super) in_grace: bool,
    pub(super) volumes: Vec<VolumeStatus>,
    pub(super) operations: Vec<OperationStatus>,
    /// What only grows, by its name in [`COUNTERS`].
    pub(super) counters: BTreeMap<String, u64>,
    /// What there is now, by its name in [`GAUGES`].
    pub(super) gauges: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct VolumeStatus {
    pub(super) number: u32,
    /// None: making it was interrupted.
    pub(super) name: Option<String>,
    pub(super) bytes: u64,
    pub(super) bytes_max: Option<u64>,
    pub(super) files: u64,
    pub(super) files_max: Option<u64>,
}

/// Calls for one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OperationStatus {
    pub(super) name: String,
    pub(super) errors: u64,
    pub(super) delayed: u64,
    pub(super) total_us: u64,
    /// Calls by the microseconds that they took at most.
    pub(super) calls_us: Vec<(u64, u64)>,
}

impl OperationStatus {
    pub(super) fn latencies(&self) -> Latencies {
        Latencies::from_buckets(self.calls_us.iter().copied(), self.total_us)
    }
}

/// Names and meanings, as Prometheus has them.
const COUNTERS: [(&str, &str); 28] = [
    ("received_bytes", "Bytes of calls."),
    ("sent_bytes", "Bytes of answers."),
    ("slow_calls", "Calls that took longer than --slow."),
    (
        "repeated_calls",
        "Calls that got their first answer again, from their session's slot.",
    ),
    ("delegations_given", "Delegations that were given."),
    ("delegations_recalled", "Delegations that were wanted back."),
    (
        "clients_forgotten",
        "Clients that are no more: they ended in order, or lost what they held.",
    ),
    ("cache_hits", "Pages found in the cache."),
    ("cache_misses", "Pages that had to be read."),
    (
        "index_requests",
        "Requests to the index that did not come from memory at once.",
    ),
    (
        "index_quick",
        "Requests to the index that were answered from memory at once.",
    ),
    ("index_reads", "Rows and ranges that the index has read."),
    (
        "index_conflicts",
        "Transactions of the index that were done again, because a row had changed.",
    ),
    ("commits", "Transactions that were committed."),
    (
        "commit_conflicts",
        "Transactions of which a comparison failed.",
    ),
    ("commit_failures", "Transactions with another end."),
    (
        "journal_writes",
        "Durable writes of the journal: each commits a group of transactions.",
    ),
    ("journal_bytes", "Bytes that were written to the journal."),
    (
        "journal_checkpoints",
        "Times that rows went from the journal's memory to the database.",
    ),
    (
        "journal_stalls",
        "Times that commits had to wait for a checkpoint.",
    ),
    ("rows_read", "Rows that the metadata engine was asked for."),
    ("device_reads", "Reads of the data's device."),
    ("device_writes", "Writes of the data's device."),
    ("device_flushes", "Flushes of the data's device."),
    ("device_read_bytes", "Bytes read from the data's device."),
    (
        "device_written_bytes",
        "Bytes written to the data's device.",
    ),
    ("compacted_bytes", "Bytes that compaction has copied."),
    (
        "compacted_extents",
        "Extents that compaction has given back.",
    ),
];

const GAUGES: [(&str, &str); 14] = [
    ("clients", "Clients."),
    ("connections", "Connections that are open."),
    ("sessions", "Sessions."),
    ("opens", "Opens of files."),
    ("locks", "Locks of files, by their owners."),
    ("delegations", "Delegations that clients have."),
    ("space_bytes", "Bytes that there are for files."),
    ("space_free_bytes", "Bytes of segments that nothing is in."),
    ("space_taken_bytes", "Bytes of the data's segments."),
    ("space_valid_bytes", "Bytes of pages that files have."),
    (
        "space_garbage_bytes",
        "Bytes of the data's segments that no file has: compaction's, or still to be written.",
    ),
    ("index_memory_bytes", "Bytes of the data's index in memory."),
    ("rows_memory_bytes", "Bytes of rows in memory."),
    (
        "in_grace",
        "1 while clients claim what they had before a restart.",
    ),
];

impl Status {
    /// What there is now; the process, the directory and the time are the caller's.
    pub(super) async fn of(fs: &Local, door: &Door) -> anyhow::Result<Self> {
        let figures = fs.figures().await?;
        let counts = door.counts();
        let (index, rows, device) = (figures.index, figures.rows, figures.device);
        let garbage = figures.bytes_taken.saturating_sub(figures.bytes_valid);
        let counters = [
            counts.bytes_in,
            counts.bytes_out,
            counts.slow,
            counts.repeats,
            counts.delegations,
            counts.recalls,
            counts.forgotten,
            figures.cache_hits,
            figures.cache_misses,
            index.requests,
            index.quick,
            index.reads,
            index.conflicts,
            rows.committed,
            rows.conflicts,
            rows.failed,
            rows.groups,
            rows.journal_bytes,
            rows.checkpoints,
            rows.stalls,
            rows.gets + rows.scans,
            device.reads,
            device.writes,
            device.flushes,
            device.read_bytes,
            device.written_bytes,
            figures.compacted.pages * 4096,
            figures.compacted.extents,
        ];
        let gauges = [
            counts.clients,
            counts.connections,
            counts.sessions,
            counts.opens,
            counts.locks,
            counts.delegated,
            figures.bytes_total,
            figures.bytes_free,
            figures.bytes_taken,
            figures.bytes_valid,
            garbage,
            figures.index_bytes,
            figures.rows_bytes,
            u64::from(door.is_in_grace()),
        ];
        Ok(Self {
            in_grace: door.is_in_grace(),
            volumes: super::volumes::of(fs).await?,
            operations: door.operations().into_iter().map(operation).collect(),
            counters: named(&COUNTERS, &counters),
            gauges: named(&GAUGES, &gauges),
            ..Self::default()
        })
    }

    /// A counter; 0 if a server of another version has none of this name.
    pub(super) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    pub(super) fn gauge(&self, name: &str) -> u64 {
        self.gauges.get(name).copied().unwrap_or(0)
    }

    /// As Prometheus reads it (exposition format 0.0.4).
    pub(super) fn prometheus(&self) -> String {
        let mut out = String::new();
        header(
            &mut out,
            "uptime_seconds",
            "gauge",
            "Seconds since the server was started.",
        );
        line(&mut out, "uptime_seconds", "", self.uptime_ms as f64 / 1e3);
        for (name, help) in COUNTERS {
            let name = format!("{name}_total");
            header(&mut out, &name, "counter", help);
            line(
                &mut out,
                &name,
                "",
                self.counter(name.trim_end_matches("_total")) as f64,
            );
        }
        for (name, help) in GAUGES {
            header(&mut out, name, "gauge", help);
            line(&mut out, name, "", self.gauge(name) as f64);
        }
        self.tell_operations(&mut out);
        self.tell_volumes(&mut out);
        out
    }

    fn tell_operations(&self, out: &mut String) {
        type Of = fn(&OperationStatus) -> u64;
        let counts: [(&str, &str, Of); 2] = [
            (
                "call_errors_total",
                "Calls that were answered with an error.",
                |of| of.errors,
            ),
            (
                "calls_delayed_total",
                "Calls that were told to come again: for a delegation, or in the grace period.",
                |of| of.delayed,
            ),
        ];
        for (name, help, count) in counts {
            header(out, name, "counter", help);
            for of in &self.operations {
                let label = format!("{{operation=\"{}\"}}", of.name);
                line(out, name, &label, count(of) as f64);
            }
        }
        let name = "call_seconds";
        header(
            out,
            name,
            "histogram",
            "How long calls took, by what they were for.",
        );
        for of in &self.operations {
            let mut below = 0;
            let mut calls = of.calls_us.iter().peekable();
            // Powers of two, at which buckets end.
            for power in (4..=24).step_by(2) {
                let end = 1_u64 << power;
                while let Some((_, count)) = calls.next_if(|(us, _)| *us < end) {
                    below += count;
                }
                let label = format!("{{operation=\"{}\",le=\"{}\"}}", of.name, end as f64 / 1e6);
                line(out, "call_seconds_bucket", &label, below as f64);
            }
            let all = below + calls.map(|(_, count)| count).sum::<u64>();
            let label = format!("{{operation=\"{}\",le=\"+Inf\"}}", of.name);
            line(out, "call_seconds_bucket", &label, all as f64);
            let label = format!("{{operation=\"{}\"}}", of.name);
            line(out, "call_seconds_sum", &label, of.total_us as f64 / 1e6);
            line(out, "call_seconds_count", &label, all as f64);
        }
    }

    fn tell_volumes(&self, out: &mut String) {
        type Of = fn(&VolumeStatus) -> Option<u64>;
        let of: [(&str, &str, Of); 4] = [
            (
                "volume_bytes",
                "Bytes that a volume's files occupy.",
                |of| Some(of.bytes),
            ),
            (
                "volume_bytes_max",
                "Bytes that a volume's files may occupy.",
                |of| of.bytes_max,
            ),
            ("volume_files", "Objects in a volume.", |of| Some(of.files)),
            (
                "volume_files_max",
                "Objects that may be in a volume.",
                |of| of.files_max,
            ),
        ];
        for (name, help, value) in of {
            header(out, name, "gauge", help);
            for volume in &self.volumes {
                let called = volume.name.as_deref().unwrap_or("");
                if let Some(value) = value(volume) {
                    line(out, name, &format!("{{volume=\"{called}\"}}"), value as f64);
                }
            }
        }
    }
}

fn operation(of: nfs::server::OperationCounts) -> OperationStatus {
    OperationStatus {
        name: of.name,
        errors: of.errors,
        delayed: of.delayed,
        total_us: of.latencies.total_us(),
        calls_us: of.latencies.buckets().collect(),
    }
}

fn named<const N: usize>(names: &[(&str, &str); N], values: &[u64; N]) -> BTreeMap<String, u64> {
    let names = names.iter().map(|(name, _)| (*name).to_string());
    names.zip(values.iter().copied()).collect()
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "# HELP vervain_fs_{name} {help}\n# TYPE vervain_fs_{name} {kind}\n"
    );
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(out, "vervain_fs_{name}{labels} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Status {
        Status {
            uptime_ms: 1500,
            operations: vec![OperationStatus {
                name: "read".into(),
                errors: 2,
                delayed: 1,
                total_us: 2_000_070,
                calls_us: vec![(3, 5), (15, 1), (19, 4), (2_000_000, 2), (3_000_000_000, 1)],
            }],
            volumes: vec![VolumeStatus {
                number: 1,
                name: Some("main".into()),
                bytes: 7,
                bytes_max: None,
                files: 3,
                files_max: Some(9),
            }],
            counters: named(&COUNTERS, &std::array::from_fn(|at| at as u64)),
            ..Status::default()
        }
    }

    /// Each line is a comment, or a name with labels and a number; buckets only grow.
    #[test]
    fn prometheus_can_read_it() {
        let text = example().prometheus();
        let mut last = None;
        for line in text.lines() {
            if line.starts_with("# ") {
                continue;
            }
            let (name, value) = line.rsplit_once(' ').expect("a name and a number");
            let value: f64 = value.parse().expect("a number");
            assert!(name.starts_with("vervain_fs_"), "{line}");
            assert!(!name.contains('{') || name.ends_with("\"}"), "{line}");
            if name.contains("_bucket") {
                assert!(last.is_none_or(|last| last <= value), "{line}");
                last = Some(value);
            }
        }
        for wanted in [
            "vervain_fs_received_bytes_total 0\n",
            "vervain_fs_compacted_extents_total 27\n",
            "vervain_fs_call_errors_total{operation=\"read\"} 2\n",
            "vervain_fs_call_seconds_bucket{operation=\"read\",le=\"0.000016\"} 6\n",
            "vervain_fs_call_seconds_bucket{operation=\"read\",le=\"0.000064\"} 10\n",
            "vervain_fs_call_seconds_bucket{operation=\"read\",le=\"+Inf\"} 13\n",
            "vervain_fs_call_seconds_count{operation=\"read\"} 13\n",
            "vervain_fs_volume_files_max{volume=\"main\"} 9\n",
            "vervain_fs_uptime_seconds 1.5\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert!(!text.contains("volume_bytes_max{"), "there is no bound");
    }

    #[test]
    fn it_is_the_same_after_json() {
        let text = serde_json::to_string(&example()).expect("JSON");
        let again: Status = serde_json::from_str(&text).expect("JSON");
        assert_eq!(again, example());
    }
}
