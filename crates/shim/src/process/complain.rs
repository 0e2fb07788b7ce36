//! What a user is told.

use std::io::Write as _;

/// Says on standard error why something cannot be had.
pub(crate) fn complain(what: &str, why: &dyn std::fmt::Display) {
    // Nothing to do about a stderr that is closed.
    let _ = writeln!(std::io::stderr(), "vervain: {what}: {why}");
}
