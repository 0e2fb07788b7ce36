//! `vervain fs`: a file system in a directory, served over NFSv4.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | making one |
//! | `serve` | the process that serves |
//! | `listen` | at which addresses, and how these are mounted |
//! | `notify` | what it tells the service manager |
//! | `control`, `status` | what it tells of itself over HTTP |
//! | `ask`, `top` | who asks for that, and shows it |
//! | `volumes` | volumes and quotas |
//! | `check` | what is damaged in one that is not served |
//! | `remote`, `put`, `get` | files of a served one, without a mount |
//! | `again`, `pipe` | trying again; what comes from a pipe or goes into one |
//! | `kept` | what stays of a file that another one replaces |
//! | `place` | its directory: who has it open, when it was last used |

mod again;
mod ask;
mod check;
mod control;
mod get;
mod kept;
mod listen;
mod notify;
mod pipe;
mod place;
mod put;
mod remote;
mod serve;
mod status;
mod top;
mod volumes;

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use files::Timestamp;
use fs::{Drive, Local, LocalError, LocalFormat};
use serde_json::json;

use crate::cli::{FsData, FsFlags, FsFormat, FsWhat, show_size};

/// Runs a `vervain fs` command; false for no.
pub(crate) fn run(flags: &FsFlags, as_json: bool) -> anyhow::Result<bool> {
    match &flags.what {
        FsWhat::Format(of) => format(of, as_json).map(|()| true),
        FsWhat::Serve(of) => serve::run(of, as_json).map(|()| true),
        FsWhat::Ls(of) => remote::ls(of, as_json).map(|()| true),
        FsWhat::Put(of) => put::run(of, as_json).map(|()| true),
        FsWhat::Get(of) => get::run(of).map(|()| true),
        FsWhat::Mkdir(of) => remote::mkdir(of).map(|()| true),
        FsWhat::Rm(of) => remote::rm(of),
        FsWhat::Df(of) => remote::df(of, as_json).map(|()| true),
        FsWhat::Check(of) => check::run(of, as_json),
        FsWhat::Status(of) => top::status(of, as_json).map(|()| true),
        FsWhat::Top(of) => top::top(of, as_json).map(|()| true),
        FsWhat::Volume(of) => volumes::run(of, as_json).map(|()| true),
        FsWhat::Quota(of) => volumes::quota(of, as_json).map(|()| true),
    }
}

/// The date, of this machine.
fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: since.as_secs() as i64,
        nanoseconds: since.subsec_nanos(),
    }
}

/// The date as the file system asks for it.
fn clock() -> Rc<dyn Fn() -> Timestamp> {
    Rc::new(now)
}

fn format(of: &FsFormat, as_json: bool) -> anyhow::Result<()> {
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    let drive = of.drive.as_ref().map(|path| Drive {
        path: path.clone(),
        force: of.force,
    });
    let FsData { data, size } = &of.data;
    let bytes = match core.block_on(make(&handle, &of.data, drive)) {
        Ok(()) => match &of.drive {
            None => *size,
            Some(drive) => File::open(drive)?.seek(SeekFrom::End(0))? as usize,
        },
        Err(error) => return Err(cannot_make(&of.data, of.drive.as_deref(), error)),
    };
    if as_json {
        println!(
            "{}",
            json!({ "data": data, "bytes": bytes, "drive": of.drive })
        );
    } else {
        println!("{}: a file system of {}", data.display(), show_size(bytes));
    }
    Ok(())
}

async fn make(core: &rt::Handle, data: &FsData, drive: Option<Drive>) -> Result<(), LocalError> {
    let format = LocalFormat {
        drive,
        ..LocalFormat::new(data.size as u64, fastrand::u64(..), now())
    };
    Local::format(core, &data.data, &format).await
}

/// Why a file system cannot be made, and what may help.
fn cannot_make(data: &FsData, drive: Option<&Path>, error: LocalError) -> anyhow::Error {
    let hint = match &error {
        error if drive.is_none() && error.is_of_size() => " (`--size` takes another size)",
        error if error.is_of_contents() => " (`--force` takes the drive whatever it holds)",
        _ => "",
    };
    let error = place::explain(&data.data, error);
    let what = match drive {
        None => format!("make a file system of {} in", show_size(data.size)),
        Some(drive) => format!("make a file system on {} in", drive.display()),
    };
    let what = place::cannot(&what, &data.data, &error);
    let what = what.trim_end_matches(" in");
    error.context(format!("{what}{hint}"))
}
