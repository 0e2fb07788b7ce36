//! Why client and server do not meet over the NIC although the door is open.

use std::time::Duration;

use cache::herd::client::{BlockingError, ConnectError};
use cache::herd::wire::handshake::Refusal;

use super::socket::SocketClient;
use crate::cli::{ClientFlags, run_dir_of, told_run_dir};

/// Time limit for asking the server for its settings, if `--timeout` is shorter.
const PATIENCE: Duration = Duration::from_secs(10);

/// Does something over the NIC; if nobody is met there, says so when it is because of another run
/// directory.
pub(super) fn meeting<T>(
    flags: &ClientFlags,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    work().map_err(|error| match other_run_dir(flags, &error) {
        Some([theirs, ours]) => error.context(format!(
            "the server's run directory is {theirs}, not {ours}; choose it with --run-dir"
        )),
        None => error,
    })
}

/// The server's run directory and ours, if they are not the same and that may be why this went wrong.
fn other_run_dir(flags: &ClientFlags, error: &anyhow::Error) -> Option<[String; 2]> {
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
    let ours = told_run_dir(&run_dir_of(&flags.nic));
    (theirs != ours).then_some([theirs, ours])
}
