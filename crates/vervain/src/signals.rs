//! Ending in order when a signal says so.

use std::time::Duration;

use anyhow::Context as _;
use rt::threads::Shutdown;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A signal came.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// The first SIGINT or SIGTERM is told to whoever waits for it. The second one ends the process at once, as does the
/// first after `patience`, for what is blocked and does not look.
pub(crate) fn watch(patience: Option<Duration>) -> anyhow::Result<Shutdown> {
    let shutdown = Shutdown::new();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot take signals")?;
    let told = shutdown.clone();
    let wait = move || {
        for signal in signals.forever() {
            if told.is_triggered() {
                end(signal);
            }
            told.trigger();
            if let Some(patience) = patience {
                std::thread::spawn(move || {
                    std::thread::sleep(patience);
                    end(signal);
                });
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread
        .spawn(wait)
        .context("cannot start the signal thread")?;
    Ok(shutdown)
}

/// Ends as if nobody had taken the signal.
fn end(signal: i32) {
    if let Err(error) = emulate_default_handler(signal) {
        tracing::warn!(%error, "a signal does not end it");
    }
}
