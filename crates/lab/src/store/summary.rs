//! The table for terminals.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::StoreRecord;
use crate::report::write_goals;

/// Writes the figures, their goals, and the machine's limits beside them.
///
/// # Errors
/// The writer's.
pub fn write_store_summary(record: &StoreRecord, out: &mut impl Write) -> io::Result<()> {
    let mut more = String::from("\n");
    if let Some(recovered) = &record.recovery {
        let (keys, bytes, limit_s) = (recovered.keys, recovered.value_len, recovered.limit_s());
        let (crash_s, clean_s) = (recovered.crash_s, recovered.clean_s);
        let read_gb = recovered.log_read_bytes as f64 / 1e9;
        let gb_per_s = recovered.sequential_per_s / 1e9;
        let _ = write!(
            more,
            "{keys} records of {bytes} B: {crash_s:.2} s after a crash, {clean_s:.2} s after a clean stop\n\
             limit after a crash: the device reads the log's {read_gb:.2} GB in {limit_s:.2} s at {gb_per_s:.2} GB/s\n",
        );
    }
    write_goals(&record.head, record.ratios.rows(), &more, out)
}
