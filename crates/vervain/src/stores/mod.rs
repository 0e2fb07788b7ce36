//! `vervain store`: stores in files and on drives.
//!
//! | file | what |
//! | --- | --- |
//! | `look.rs` | `inspect`, `check` and `repair` |
//! | `copy.rs` | `export` and `import` |

mod copy;
mod look;

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use block::{Engine, FileDevice};
use serde_json::json;
use store::format::layout::Layout;
use store::{Options, Progress, Recovery, Store};

use crate::cli::{StoreCreate, StoreFlags, StoreKeys, StoreSet, StoreWhat, show_size};

/// The least that files are addressed by. With it, whatever has a layout has one.
const BLOCK_MIN: u32 = 512;

/// Runs a `vervain store` command; false for no.
pub(crate) fn run(flags: &StoreFlags, as_json: bool) -> anyhow::Result<bool> {
    match &flags.what {
        StoreWhat::Create(create) => self::create(create, as_json),
        StoreWhat::Get(get) => self::get(get, as_json),
        StoreWhat::Set(set) => self::set(set, as_json),
        StoreWhat::Del(del) => self::del(del, as_json),
        StoreWhat::Inspect(inspect) => look::inspect(inspect, as_json),
        StoreWhat::Check(file) => look::check(&file.path, as_json),
        StoreWhat::Repair(repair) => look::repair(repair, as_json),
        StoreWhat::Export(file) => copy::export(&file.path),
        StoreWhat::Import(file) => copy::import(&file.path, as_json),
    }
}

/// A device on a file or drive that is there.
fn device(path: &Path) -> anyhow::Result<Arc<dyn block::Device>> {
    if !path.exists() {
        bail!(
            "there is no {} (`vervain store create {0}` makes a store)",
            path.display()
        );
    }
    let options = block::Options::existing().with_engine(Engine::Blocking);
    Ok(Arc::new(FileDevice::open(path, &options)?))
}

/// Opens a store that is there, and shows on standard error how its recovery goes.
fn open(path: &Path, mut options: Options) -> anyhow::Result<Store> {
    options.create = false;
    options.on_progress = Some(Arc::new(show_progress));
    let store = Store::on(device(path)?, &options)?;
    if let Recovery::Log {
        records, damaged, ..
    } = store.recovery()
    {
        tracing::info!(
            records,
            damaged,
            "the store had not been closed: read its log"
        );
    }
    Ok(store)
}

/// A line on a terminal, written over and over.
fn show_progress(progress: Progress) {
    let mut err = std::io::stderr();
    if !std::io::IsTerminal::is_terminal(&err) || progress.segments_total < 64 {
        return;
    }
    let Progress {
        segments,
        segments_total,
        ..
    } = progress;
    let end = if segments == segments_total {
        "\r\x1b[K"
    } else {
        ""
    };
    // Nothing to do about a terminal that is gone.
    let _ = write!(
        err,
        "\rreading the log: {segments} of {segments_total} segments{end}"
    );
}

fn create(create: &StoreCreate, as_json: bool) -> anyhow::Result<bool> {
    let path = &create.file.path;
    let is_there = std::fs::metadata(path).is_ok_and(|file| !file.is_file() || file.len() > 0);
    let file = if is_there {
        block::Options::existing()
    } else {
        block::Options::create(create.size as u64)
    };
    let mut options = Options::default();
    options.cache = create.cache;
    options.force = create.force;
    options.segment_bytes = create.segment.map(|bytes| bytes as u64);
    if let Some(len) = file.create_len {
        // Before there is a file: what cannot become a store leaves nothing behind.
        Layout::new(len, BLOCK_MIN, options.segment_bytes)
            .with_context(|| format!("{} cannot hold such a store", path.display()))?;
    }
    let device = Arc::new(FileDevice::open(path, &file.with_engine(Engine::Blocking))?);
    let store = Store::on(device, &options)?;
    if store.recovery() != Recovery::Formatted {
        bail!("{} is a store already", path.display());
    }
    let layout = store.superblock().layout;
    let (segments, bytes) = (layout.segments, layout.segment_bytes());
    store.close()?;
    let mut out = bench::print::output();
    if as_json {
        let made = json!({"path": path, "segments": segments, "segment_bytes": bytes});
        writeln!(out, "{made}")?;
    } else {
        writeln!(
            out,
            "{}: a {} of {segments} segments of {}",
            path.display(),
            if create.cache { "cache" } else { "store" },
            show_size(bytes as usize)
        )?;
    }
    Ok(true)
}

fn get(get: &StoreKeys, as_json: bool) -> anyhow::Result<bool> {
    let store = open(&get.file.path, Options::default())?;
    let mut out = bench::print::output();
    let mut all = true;
    for key in &get.keys {
        let value = store.get(key.as_bytes())?;
        all &= value.is_some();
        match value {
            _ if as_json => {
                let text = value.map(|value| String::from_utf8_lossy(&value).into_owned());
                writeln!(out, "{}", json!({"key": key, "value": text}))?;
            }
            Some(value) => {
                out.write_all(&value)?;
                writeln!(out)?;
            }
            None => writeln!(std::io::stderr(), "{key}: not found")?,
        }
    }
    store.close()?;
    Ok(all)
}

fn set(set: &StoreSet, as_json: bool) -> anyhow::Result<bool> {
    let store = open(&set.file.path, Options::default())?;
    let mut value = set.value.clone().into_bytes();
    if set.value == "-" {
        value.clear();
        let mut stdin = std::io::stdin().lock();
        stdin.read_to_end(&mut value).context("reading the value")?;
    }
    let put = store.put(set.key.as_bytes(), &value)?;
    store.close()?;
    if as_json {
        let told = json!({"key": set.key, "stored": put.stored, "replaced": put.replaced});
        writeln!(bench::print::output(), "{told}")?;
    } else {
        let told = if put.stored { "stored" } else { "not stored" };
        writeln!(bench::print::output(), "{told}")?;
    }
    Ok(put.stored)
}

fn del(del: &StoreKeys, as_json: bool) -> anyhow::Result<bool> {
    let store = open(&del.file.path, Options::default())?;
    let mut all = true;
    for key in &del.keys {
        let was_there = store.delete(key.as_bytes())?;
        all &= was_there;
        if as_json {
            let told = json!({"key": key, "deleted": was_there});
            writeln!(bench::print::output(), "{told}")?;
        } else if was_there {
            writeln!(bench::print::output(), "deleted")?;
        } else {
            writeln!(std::io::stderr(), "{key}: not found")?;
        }
    }
    store.close()?;
    Ok(all)
}
