//! What the commands share: flags, where things are, how errors read.

mod flags;
mod fs_flags;
mod place;
mod store_flags;

pub(crate) use bench::units::{duration, show_size};

pub use flags::{ClientFlags, NicFlags};
pub(crate) use flags::{
    DelFlags, Durable, EngineKind, GetFlags, IncrFlags, Io, ServeFlags, SetFlags, ShellFlags,
    SoakClient, SoakFlags, StatsFlags, TouchFlags,
};
pub(crate) use fs_flags::{
    FsAbout, FsCheck, FsData, FsFlags, FsFormat, FsGet, FsPaths, FsPut, FsQuota, FsServe, FsServer,
    FsSome, FsTop, FsVolume, FsVolumeLs, FsVolumeWhat, FsWhat, SquashKind,
};
pub use place::{OpenedNic, open_nic};
pub(crate) use place::{
    on_a_line, parse_gid, parse_host_address, run_dir, run_dir_of, told_run_dir,
};
pub(crate) use store_flags::{
    StoreCreate, StoreFlags, StoreInspect, StoreKeys, StoreRepair, StoreSet, StoreWhat,
};

use cache::herd::client::Address;

/// Where the server's door is.
pub fn door(flags: &ClientFlags) -> Address {
    match &flags.unix {
        Some(path) => Address::Unix(path.clone()),
        None => Address::Tcp(flags.server),
    }
}

/// What was to be looked at cannot be: neither yes nor no.
#[derive(Debug)]
pub(crate) struct Unseen(pub(crate) String);

impl std::fmt::Display for Unseen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was found out by looking, also if nobody reads all of what is said of it: `check | head` fails as `check` does.
///
/// # Errors
/// The output's, but that it is closed.
pub(crate) fn verdict(said: std::io::Result<()>, is_good: bool) -> anyhow::Result<bool> {
    match said {
        Err(error) if !bench::print::is_output_closed(&error) => Err(error.into()),
        _ => Ok(is_good),
    }
}

/// An error and its causes. Some errors end with their cause's text, which is not said twice.
pub fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let io = || std::io::Error::other("no room");
        let error = anyhow::Error::new(verbs::VerbsError::io("making a file", io()));
        assert_eq!(
            explain(&error.context("cannot start")),
            "cannot start: making a file: no room"
        );
        let error = anyhow::Error::new(io()).context("making a file");
        assert_eq!(explain(&error), "making a file: no room");
    }
}
