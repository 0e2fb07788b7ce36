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
//! | `again`, `signals` | trying again; ending in order |
//! | `place` | its directory: who has it open, when it was last used |

mod again;
mod ask;
mod check;
mod control;
mod get;
mod notify;
mod place;
mod put;
mod remote;
mod serve;
mod signals;
mod status;
mod top;
mod volumes;

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use files::Timestamp;
use fs::{Local, LocalFormat};
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
    core.block_on(make(&handle, data))?;
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

async fn make(core: &rt::Handle, data: &FsData) -> anyhow::Result<()> {
    let format = LocalFormat::new(data.size as u64, fastrand::u64(..), now());
    let made = Local::format(core, &data.data, &format).await;
    let hint = match &made {
        Err(error) if error.is_of_size() => " (`--size` takes another size)",
        _ => "",
    };
    let made = made.map_err(|error| place::explain(&data.data, error));
    made.with_context(|| {
        let (dir, size) = (data.data.display(), show_size(data.size));
        format!("cannot make a file system of {size} in {dir}{hint}")
    })
}
