//! `vervain fs`: a file system in a directory, served over NFSv4.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | making one |
//! | `serve` | the process that serves |
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
mod notify;
mod pipe;
mod place;
mod put;
mod remote;
mod serve;
mod status;
mod top;
mod volumes;

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use files::Timestamp;
use fs::{Local, LocalError, LocalFormat};
use serde_json::json;

use crate::cli::{FsData, FsFlags, FsWhat, show_size};

/// Runs a `vervain fs` command; false for no.
pub(crate) fn run(flags: &FsFlags, as_json: bool) -> anyhow::Result<bool> {
    match &flags.what {
        FsWhat::Format(of) => format(&of.data, as_json).map(|()| true),
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

fn format(data: &FsData, as_json: bool) -> anyhow::Result<()> {
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    let made = core.block_on(make(&handle, data));
    made.map_err(|error| cannot_make(data, error))?;
    if as_json {
        println!("{}", json!({ "data": data.data, "bytes": data.size }));
    } else {
        println!(
            "{}: a file system of {}",
            data.data.display(),
            show_size(data.size)
        );
    }
    Ok(())
}

async fn make(core: &rt::Handle, data: &FsData) -> Result<(), LocalError> {
    let format = LocalFormat::new(data.size as u64, fastrand::u64(..), now());
    Local::format(core, &data.data, &format).await
}

/// Why a file system cannot be made, and what may help.
fn cannot_make(data: &FsData, error: LocalError) -> anyhow::Error {
    let hint = match error.is_of_size() {
        true => " (`--size` takes another size)",
        false => "",
    };
    let error = place::explain(&data.data, error);
    let what = format!("make a file system of {} in", show_size(data.size));
    let what = place::cannot(&what, &data.data, &error);
    let what = what.trim_end_matches(" in");
    error.context(format!("{what}{hint}"))
}
