//! Volumes and what they may use: asked of the process that serves, or done in the directory if nobody does.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use fs::{Local, LocalOptions, Quota};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::status::VolumeStatus;
use super::{ask, place};
use crate::cli::{FsQuota, FsVolume, FsVolumeLs, FsVolumeWhat, show_size};

/// A change of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    name: String,
    /// Whether it is to be made.
    is_new: bool,
    bytes_max: Option<u64>,
    files_max: Option<u64>,
}

impl Change {
    fn of(flags: &FsQuota, is_new: bool) -> Self {
        Self {
            name: flags.name.clone(),
            is_new,
            bytes_max: flags.bytes,
            files_max: flags.files,
        }
    }
}

/// Carries a change out.
pub(super) async fn change(fs: &Local, change: &Change) -> anyhow::Result<()> {
    let quota = Quota {
        bytes: change.bytes_max,
        files: change.files_max,
    };
    if change.is_new {
        fs.create_volume(&change.name, quota).await?;
    } else {
        fs.set_quota_of(&change.name, quota).await?;
    }
    Ok(())
}

/// All volumes.
pub(super) async fn of(fs: &Local) -> anyhow::Result<Vec<VolumeStatus>> {
    let all = fs.volumes().await?;
    let status = |volume: fs::Volume| VolumeStatus {
        number: volume.of.volume.0,
        name: volume.name,
        bytes: volume.of.bytes,
        bytes_max: volume.of.quota.bytes,
        files: volume.of.files,
        files_max: volume.of.quota.files,
    };
    Ok(all.into_iter().map(status).collect())
}

/// `vervain fs volume`.
pub(super) fn run(flags: &FsVolume, as_json: bool) -> anyhow::Result<()> {
    match &flags.what {
        FsVolumeWhat::Ls(of) => ls(of, as_json),
        FsVolumeWhat::Create(of) => apply(of, true, as_json),
    }
}

/// `vervain fs quota`.
pub(super) fn quota(flags: &FsQuota, as_json: bool) -> anyhow::Result<()> {
    apply(flags, false, as_json)
}

fn apply(flags: &FsQuota, is_new: bool, as_json: bool) -> anyhow::Result<()> {
    let wanted = Change::of(flags, is_new);
    let is_served = ask::change(&flags.data, &wanted)?;
    if !is_served {
        alone(&flags.data, async |fs| change(fs, &wanted).await)?;
    }
    let mut out = bench::print::output();
    let may = bounds(flags.bytes, flags.files);
    if as_json {
        let done = json!({
            "volume": flags.name, "bytes_max": flags.bytes, "files_max": flags.files, "new": is_new,
        });
        writeln!(out, "{done}")?;
    } else if is_new && is_served {
        writeln!(
            out,
            "{}: a volume of {may}; the next start serves it",
            flags.name
        )?;
    } else {
        writeln!(out, "{}: {may}", flags.name)?;
    }
    Ok(())
}

fn ls(flags: &FsVolumeLs, as_json: bool) -> anyhow::Result<()> {
    let all = match ask::status_of_directory(&flags.data)? {
        Some(status) => status.volumes,
        None => alone(&flags.data, of)?,
    };
    let mut out = bench::print::output();
    if as_json {
        writeln!(out, "{}", json!(all))?;
        return Ok(());
    }
    for volume in all {
        let name = volume.name.as_deref().unwrap_or("(half made)");
        let (bytes, files) = (size(volume.bytes), volume.files);
        let may = bounds(volume.bytes_max, volume.files_max);
        writeln!(out, "{name:<16} {bytes:>10} {files:>10} files   of {may}")?;
    }
    Ok(())
}

/// What a volume may use, in words.
fn bounds(bytes: Option<u64>, files: Option<u64>) -> String {
    let bytes = bytes.map_or_else(|| "all bytes".to_string(), size);
    let files = files.map_or_else(
        || "any number of files".to_string(),
        |files| format!("{files} files"),
    );
    format!("{bytes}, {files}")
}

fn size(bytes: u64) -> String {
    show_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Opens a directory that nobody serves, does something, and closes it.
fn alone<T>(data: &Path, work: impl AsyncFnOnce(&Local) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    core.block_on(async {
        let options = LocalOptions::new(super::clock(), fastrand::u64(..));
        let fs = Local::open(&handle, data, &options).await;
        let fs = fs.map_err(|error| place::explain(data, error))?;
        let done = work(&fs).await;
        let closed = fs.close().await.context("closing the file system");
        done.and_then(|done| closed.map(|()| done))
    })
}
