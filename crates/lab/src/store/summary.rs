//! The table for terminals.

use std::io::{self, Write};

use super::{STORE_GOALS, StoreRecord};
use crate::report::Verdict;

/// Writes the figures, their goals, and the machine's limits beside them.
///
/// # Errors
/// The writer's.
pub fn write_store_summary(record: &StoreRecord, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", record.source())?;
    writeln!(out)?;
    writeln!(out, "{:<38}{:>12}{:>10}", "figure", "here", "goal")?;
    let mut missed = 0;
    for goal in &STORE_GOALS {
        let figure = record.ratios.figure(goal.name);
        let verdict = goal.judge(figure);
        missed += usize::from(verdict == Verdict::Missed);
        let (here, bound) = (goal.show(figure), goal.bound.show());
        let (title, mark, word) = (goal.title, verdict.mark(), verdict.word());
        writeln!(out, "{title:<38}{here:>12}{bound:>10}  {mark} {word}")?;
    }
    writeln!(out)?;
    if let Some(recovered) = &record.recovery {
        let (keys, crash_s, clean_s) = (recovered.keys, recovered.crash_s, recovered.clean_s);
        writeln!(
            out,
            "{keys} records of {} B: {crash_s:.2} s after a crash, {clean_s:.2} s after a clean stop",
            recovered.value_len
        )?;
        writeln!(
            out,
            "limit after a crash: the device reads the log's {:.2} GB in {:.2} s at {:.2} GB/s",
            recovered.log_read_bytes as f64 / 1e9,
            recovered.limit_s(),
            recovered.sequential_per_s / 1e9
        )?;
    }
    for left in &record.left_out {
        writeln!(out, "left out: {} ({})", left.what, left.why)?;
    }
    if missed > 0 {
        writeln!(out, "{missed} of {} goals are missed.", STORE_GOALS.len())?;
    }
    Ok(())
}
