//! `vervain fs check`: what is damaged.

use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use fs::{Checked, Fault, Progress};
use serde_json::json;

use super::place;
use crate::cli::{FsCheck, Unseen, show_size, verdict};

/// How often a terminal is told how far it has come.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Checks a directory; false if something is damaged.
pub(super) fn run(flags: &FsCheck, as_json: bool) -> anyhow::Result<bool> {
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    let mut line = Line::new(std::io::stderr().is_terminal());
    let checked = core.block_on(fs::check(&handle, &flags.data, &mut |progress| {
        line.tell(progress);
    }));
    line.clear();
    let checked = checked.map_err(|error| place::explain(&flags.data, error));
    let checked = checked.map_err(|error| {
        let what = place::cannot("check", &flags.data, &error);
        error.context(Unseen(what))
    })?;
    let text = if as_json {
        format!("{}\n", as_value(&checked))
    } else {
        as_text(&checked)
    };
    let said = bench::print::output().write_all(text.as_bytes());
    verdict(said, checked.faults.is_empty())
}

fn as_value(checked: &Checked) -> serde_json::Value {
    let fault = |fault: &Fault| json!({ "part": fault.part.name(), "path": fault.path, "what": fault.what });
    json!({
        "sound": checked.faults.is_empty(),
        "closed": checked.is_closed,
        "faults": checked.faults.iter().map(fault).collect::<Vec<_>>(),
        "rows": checked.rows,
        "objects": checked.objects,
        "blocks": checked.blocks,
        "records": checked.records,
        "bytes": checked.bytes,
    })
}

fn as_text(checked: &Checked) -> String {
    let mut text = String::new();
    for fault in &checked.faults {
        text += &format!("{}: {}\n", fault.part.name(), fault.what);
    }
    let Checked {
        rows,
        objects,
        blocks,
        records,
        ..
    } = checked;
    let bytes = size(checked.bytes);
    text += &match checked.faults.len() {
        0 => "sound: ".to_string(),
        1 => "1 fault: ".to_string(),
        faults => format!("{faults} faults: "),
    };
    text += &format!(
        "{objects} files and directories, {rows} rows, {blocks} blocks, {records} records; {bytes} were read\n"
    );
    if !checked.is_closed && checked.faults.is_empty() {
        text += "It was not closed: the next start recovers what was under way.\n";
    }
    text
}

fn size(bytes: u64) -> String {
    show_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// The line of a terminal that says how far a check has come.
struct Line {
    is_shown: bool,
    begun: Instant,
    told: Option<Instant>,
}

impl Line {
    fn new(is_shown: bool) -> Self {
        Self {
            is_shown,
            begun: Instant::now(),
            told: None,
        }
    }

    fn tell(&mut self, progress: Progress) {
        if !self.is_shown || self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        // Nothing to do about a terminal that is gone.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{}",
            far(progress, self.begun.elapsed())
        );
    }

    fn clear(&self) {
        if self.told.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// How far it is, how fast, and how long it takes yet.
fn far(progress: Progress, since: Duration) -> String {
    let Progress {
        doing,
        bytes,
        bytes_total,
    } = progress;
    let total = bytes_total.max(bytes);
    let percent = bytes.saturating_mul(100).checked_div(total).unwrap_or(0);
    let rate = bytes as f64 / since.as_secs_f64().max(0.001);
    let left = Duration::try_from_secs_f64((total - bytes) as f64 / rate.max(1.0));
    let left = left.unwrap_or(Duration::MAX).as_secs();
    format!(
        "{doing:<6} {percent:>3} %  {} of {}  {}/s  {}:{:02} left",
        size(bytes),
        size(total),
        size(rate as u64),
        left / 60,
        left % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let progress = Progress {
            doing: "pages",
            bytes: 256 << 20,
            bytes_total: 1 << 30,
        };
        assert_eq!(
            far(progress, Duration::from_secs(2)),
            "pages   25 %  256 MiB of 1 GiB  128 MiB/s  0:06 left"
        );
        let none = Progress {
            doing: "rows",
            bytes: 0,
            bytes_total: 0,
        };
        assert!(far(none, Duration::ZERO).contains("0 %"));
    }

    #[test]
    fn what_was_found_is_said_a_line_each() {
        let mut checked = Checked {
            is_closed: true,
            ..Checked::default()
        };
        assert!(as_text(&checked).starts_with("sound: 0 files"));
        checked.faults.push(Fault {
            part: fs::Part::Data,
            path: Some("/a".into()),
            what: "/a: damaged".into(),
        });
        assert!(as_text(&checked).starts_with("data: /a: damaged\n1 fault: "));
        assert_eq!(as_value(&checked)["faults"][0]["path"], "/a");
    }
}
