//! The process that serves.

use std::future::poll_fn;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use files::VolumeId;
use fs::{Local, LocalError, LocalOptions, Volume};
use nfs::server::{Door, Export, Options, Squash};
use rt::net::{Addr, ListenOptions, Listener};
use rt::threads::Shutdown;
use serde_json::json;

use crate::cli::{FsServe, SquashKind};
use crate::signals;

use super::control::{self, Control, Served};
use super::listen::{listed, listen, mount};
use super::notify::Manager;
use super::place;

/// Serves until SIGINT or SIGTERM; the second one ends it at once.
pub(super) fn run(flags: &FsServe, as_json: bool) -> anyhow::Result<()> {
    rt::memory::keep_freed();
    let shutdown = signals::watch(None)?;
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    core.block_on(serve(&handle, flags, as_json, shutdown))
}

/// What serves when all of it is open.
struct Started {
    listeners: Vec<Listener>,
    control: Control,
    metrics: Option<Listener>,
    served: Rc<Served>,
}

async fn start(core: &rt::Handle, flags: &FsServe) -> anyhow::Result<Started> {
    let bound = listen(core, flags).await?;
    let (listeners, addresses): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
    let metrics = flags
        .metrics
        .map(|address| listen_for_metrics(core, address));
    let metrics = metrics.transpose()?;
    let fs = open(core, flags).await?;
    let mut of_door = Options::new(exports(&fs.volumes().await?, flags, &addresses));
    of_door.lease = Duration::from_secs(u64::from(flags.lease));
    of_door.slow = flags.slow.map(Duration::from_millis);
    let door = Door::open(core, Rc::new(fs.clone()), of_door).await?;
    let control = Control::listen(core, &flags.data.data)?;
    let served = Rc::new(Served {
        core: core.clone(),
        fs,
        door,
        data: flags.data.data.display().to_string(),
        listen: addresses,
        started: core.now(),
    });
    Ok(Started {
        listeners,
        control,
        metrics,
        served,
    })
}

async fn serve(
    core: &rt::Handle,
    flags: &FsServe,
    as_json: bool,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let manager = Manager::of_environment();
    let mut stop = pin!(shutdown.wait());
    let started = {
        let mut start = pin!(start(core, flags));
        // Whatever is given up in the middle of this is as after a crash, which loses nothing.
        poll_fn(|context| match stop.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => start.as_mut().poll(context).map(Some),
        })
        .await
    };
    let Some(started) = started else {
        manager.stopping();
        tracing::info!("it was told to stop before it served");
        return Ok(());
    };
    let Started {
        listeners,
        control,
        metrics,
        served,
    } = started?;
    let (fs, door) = (served.fs.clone(), Rc::clone(&served.door));
    let own = fs.clone();
    let mut tasks = vec![core.spawn(async move { own.keep().await })];
    tasks.push(core.spawn(Rc::clone(&door).keep()));
    for listener in listeners {
        tasks.push(core.spawn(Rc::clone(&door).serve(listener)));
    }
    let (listener, _name) = control.into_parts();
    tasks.push(core.spawn(control::serve(Rc::clone(&served), listener, true)));
    if let Some(listener) = metrics {
        tasks.push(core.spawn(control::serve(Rc::clone(&served), listener, false)));
    }
    greet(flags, &served.listen, as_json);
    let listens = listed(&served.listen);
    manager.ready(&format!("serving {} on {listens}", served.data));
    // The tasks end with the core alone, or by a fault.
    let ended = poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut ended = tasks.iter_mut().map(|task| pin!(task).poll(context));
        if ended.any(|ended| ended.is_ready()) {
            return Poll::Ready(Err(anyhow::anyhow!(
                "a part of the server has ended by a fault"
            )));
        }
        Poll::Pending
    })
    .await;
    manager.stopping();
    // Connections that are open yet are told to come again.
    tasks.iter().for_each(rt::JoinHandle::abort);
    drop((tasks, served));
    // The next start recovers what cannot be written down now.
    let closed = fs.close().await.context("closing the file system");
    ended.and(closed)
}

/// Opens the file system, which is made first if there is none.
async fn open(core: &rt::Handle, flags: &FsServe) -> anyhow::Result<Local> {
    let dir = &flags.data.data;
    let made = make_if_none(dir, async || super::make(core, &flags.data, None).await).await;
    made.map_err(|error| super::cannot_make(&flags.data, None, error))?;
    if let Some(behind) = place::clock_went_back(dir, SystemTime::now()) {
        let behind = behind.as_secs();
        tracing::warn!(
            "the clock stands {behind} s before the last change in {}: times of files will seem to go back (set the clock)",
            dir.display()
        );
    }
    let mut options = LocalOptions::new(super::clock(), fastrand::u64(..));
    options.cache_bytes = flags.cache;
    let fs = Local::open(core, dir, &options).await;
    let fs = fs.map_err(|error| place::explain(dir, error));
    fs.map_err(|error| {
        let what = place::cannot("serve", dir, &error);
        error.context(what)
    })
}

/// Makes a file system if there is none. If another process has made it meanwhile, there is one.
async fn make_if_none(
    dir: &Path,
    make: impl AsyncFnOnce() -> Result<(), LocalError>,
) -> Result<(), LocalError> {
    if Local::is_there(dir) || !Local::can_make(dir) {
        return Ok(());
    }
    match make().await {
        Err(LocalError::NotEmpty(_) | LocalError::InUse(_)) if Local::is_there(dir) => Ok(()),
        made => made,
    }
}

fn listen_for_metrics(core: &rt::Handle, address: SocketAddr) -> anyhow::Result<Listener> {
    let listener = Listener::bind(core, &Addr::Tcp(address), ListenOptions::default());
    listener.with_context(|| format!("cannot tell metrics on {address}"))
}

/// What is exported: the first volume under the path that was asked for, or all below it, by their names. A volume without
/// a name is half made, and moves nothing.
fn exports(volumes: &[Volume], flags: &FsServe, addresses: &[SocketAddr]) -> Vec<Export> {
    let named: Vec<_> = volumes
        .iter()
        .filter_map(|one| Some((one.name.as_ref()?, one.of.volume)))
        .collect();
    if named.len() == 1 {
        return vec![export(flags, addresses, &flags.export, Local::VOLUME)];
    }
    let above = flags.export.trim_end_matches('/');
    let path = |name: &str| format!("{above}/{name}");
    let named = named.into_iter();
    named
        .map(|(name, volume)| export(flags, addresses, &path(name), volume))
        .collect()
}

fn export(flags: &FsServe, addresses: &[SocketAddr], path: &str, volume: VolumeId) -> Export {
    let mut export = Export::new(path, volume);
    export.read_only = flags.read_only;
    export.clients.clone_from(&flags.allow);
    let is_local = addresses.iter().all(|one| one.ip().is_loopback());
    export.squash = match flags.squash {
        Some(SquashKind::None) => Squash::None,
        Some(SquashKind::All) => Squash::All,
        Some(SquashKind::Root) => Squash::Root,
        // Who is root of this machine can read the directory anyhow.
        None if is_local => Squash::None,
        None => Squash::Root,
    };
    export
}

/// Says that the server is ready, and how it is mounted.
fn greet(flags: &FsServe, addresses: &[SocketAddr], as_json: bool) {
    let mut out = std::io::stdout().lock();
    let mounts = addresses.iter();
    let mounts: Vec<_> = mounts.map(|one| mount(*one, &flags.export)).collect();
    let said = if as_json {
        let others = addresses.iter().zip(&mounts).skip(1);
        let also: Vec<_> = others
            .map(|(address, mount)| json!({ "listen": address.to_string(), "mount": mount }))
            .collect();
        let hello = json!({
            "pid": std::process::id(),
            "listen": addresses[0].to_string(),
            "data": flags.data.data,
            "mount": mounts[0],
            "also": also,
        });
        writeln!(out, "{hello}")
    } else {
        writeln!(
            out,
            "serving {} on {}; its clients: {}",
            flags.data.data.display(),
            listed(addresses),
            mounts.join(" or ")
        )
    };
    if let Err(error) = said.and_then(|()| out.flush()) {
        // Whoever started us may not care to hear it.
        tracing::warn!(%error, "nobody takes the greeting");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fs::VolumeUse;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: FsServe,
    }

    fn paths(names: &[Option<&str>]) -> Vec<String> {
        let Line { flags } = Line::parse_from(["serve", "--data", "d", "--export", "/files"]);
        let volume = |(number, name): (u32, &Option<&str>)| Volume {
            name: name.map(str::to_string),
            of: VolumeUse {
                volume: VolumeId(number),
                quota: fs::Quota::default(),
                bytes: 0,
                files: 1,
            },
        };
        let volumes: Vec<_> = (1..).zip(names).map(volume).collect();
        let addresses = [SocketAddr::from(([127, 0, 0, 1], 2049))];
        let exports = exports(&volumes, &flags, &addresses).into_iter();
        exports.map(|export| export.path).collect()
    }

    #[test]
    fn a_volume_that_is_half_made_moves_nothing() {
        assert_eq!(paths(&[Some("main")]), ["/files"]);
        assert_eq!(paths(&[Some("main"), None]), ["/files"]);
        let both = ["/files/main", "/files/team"];
        assert_eq!(paths(&[Some("main"), Some("team")]), both);
        assert_eq!(paths(&[Some("main"), None, Some("team")]), both);
    }

    /// Who is root of this machine can read the directory; who is root of another one cannot.
    #[test]
    fn root_is_nobody_as_soon_as_other_machines_are_served() {
        let Line { flags } = Line::parse_from(["serve", "--data", "d"]);
        let of = |all: &[&str]| {
            let all: Vec<SocketAddr> = all
                .iter()
                .map(|one| one.parse().expect("an address"))
                .collect();
            export(&flags, &all, "/", VolumeId(1)).squash
        };
        assert_eq!(of(&["127.0.0.1:2049", "[::1]:2049"]), Squash::None);
        assert_eq!(of(&["127.0.0.1:2049", "10.0.0.1:2049"]), Squash::Root);
    }

    #[test]
    fn a_file_system_that_another_process_has_made_meanwhile_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("files");
        let mut core = rt::Core::new(rt::Config::default()).expect("a core");
        let handle = core.handle();
        core.block_on(async {
            let format = fs::LocalFormat::new(64 << 20, 1, crate::filesystem::now());
            let make = async || Local::format(&handle, &path, &format).await;
            let made = make_if_none(&path, async || {
                make().await.expect("nothing is there");
                make().await
            });
            made.await.expect("it is there");
            // What is there, and is no file system, is not taken for one.
            std::fs::remove_dir_all(path.join("rows")).expect("removed");
            assert!(matches!(make().await, Err(LocalError::NotEmpty(_))));
            make_if_none(&path, make).await.expect("opening says it");
        });
    }
}
