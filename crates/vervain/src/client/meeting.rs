//! Why client and server do not meet over the NIC although the door is open.

use std::path::Path;
use std::time::Duration;

use cache::herd::client::{BlockingError, ConnectError};
use cache::herd::wire::handshake::Refusal;

use super::socket::SocketClient;
use crate::cli::{ClientFlags, run_dir_of};

/// How long a server is asked for its settings at least, however short an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Does something over the NIC; if nobody is met there, says so when it is because of another run
/// directory.
pub(super) fn meeting<T>(
    flags: &ClientFlags,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    work().map_err(|error| match other_run_dir(flags, &error) {
        Some(theirs) => error.context(format!(
            "the server's run directory is {theirs}, not {}; choose it with --run-dir",
            run_dir_of(&flags.nic).display()
        )),
        None => error,
    })
}

/// The server's run directory, if it is another than ours and that may be why this went wrong.
fn other_run_dir(flags: &ClientFlags, error: &anyhow::Error) -> Option<String> {
    let silent = matches!(
        error.downcast_ref(),
        Some(BlockingError::TimedOut | BlockingError::Unknown)
    );
    let refused = matches!(
        error.downcast_ref(),
        Some(ConnectError::Refused(Refusal::Nic))
    );
    if flags.socket || !(silent || refused) {
        return None;
    }
    // A server that does not even tell this has other troubles, and the error stays as it is.
    let patient = ClientFlags {
        timeout: flags.timeout.max(PATIENCE),
        ..flags.clone()
    };
    let settings = SocketClient::connect(&patient)
        .ok()?
        .stats(Some("settings"));
    let mut settings = settings.ok()?.into_iter();
    let (_, theirs) = settings.find(|(name, _)| name == "run_dir")?;
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    (whole(Path::new(&theirs)) != whole(&run_dir_of(&flags.nic))).then_some(theirs)
}
