//! The process that serves.

use std::future::poll_fn;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fs::{Local, LocalOptions};
use nfs::server::{Door, Export, Options, Squash};
use rt::net::{Addr, ListenOptions, Listener};
use rt::threads::Shutdown;
use serde_json::json;

use crate::cli::{FsServe, SquashKind};
use crate::serve::stop_on_signals;

/// Serves until SIGINT or SIGTERM.
pub(super) fn run(flags: &FsServe, as_json: bool) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    stop_on_signals(&shutdown)?;
    let mut core = rt::Core::new(rt::Config::default())?;
    let handle = core.handle();
    core.block_on(serve(&handle, flags, as_json, shutdown))
}

async fn serve(
    core: &rt::Handle,
    flags: &FsServe,
    as_json: bool,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let (listener, address) = listen(core, flags)?;
    let dir = &flags.data.data;
    if !Local::is_there(dir) && Local::can_make(dir) {
        super::make(core, &flags.data).await?;
    }
    let mut options = LocalOptions::new(super::clock(), fastrand::u64(..));
    options.cache_bytes = flags.cache;
    let fs = Local::open(core, dir, &options).await;
    let fs = fs.with_context(|| format!("cannot serve {}", dir.display()))?;
    let mut of_door = Options::new(vec![export(flags, address)]);
    of_door.lease = Duration::from_secs(u64::from(flags.lease));
    let door = Door::open(core, Rc::new(fs.clone()), of_door).await?;
    let own = fs.clone();
    let mut tasks = vec![core.spawn(async move { own.keep().await })];
    tasks.push(core.spawn(Rc::clone(&door).keep()));
    tasks.push(core.spawn(Rc::clone(&door).serve(listener)));
    greet(flags, address, as_json);
    let mut stop = pin!(shutdown.wait());
    // The tasks end with the core alone, or by a fault.
    let served = poll_fn(|context| {
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
    // Connections that are open yet are told to come again.
    tasks.iter().for_each(rt::JoinHandle::abort);
    drop(tasks);
    // The next start recovers what cannot be written down now.
    let closed = fs.close().await.context("closing the file system");
    served.and(closed)
}

/// Listens where it was asked to, or at the first port that is free.
fn listen(core: &rt::Handle, flags: &FsServe) -> anyhow::Result<(Listener, SocketAddr)> {
    let mut taken = None;
    for address in flags.addresses() {
        match Listener::bind(core, &Addr::Tcp(address), ListenOptions::default()) {
            Ok(listener) => {
                let bound = match listener.local_addr()? {
                    Addr::Tcp(bound) => bound,
                    Addr::Unix(_) => address,
                };
                return Ok((listener, bound));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => taken = Some((address, error)),
            Err(error) => return Err(error).context(format!("cannot listen on {address}")),
        }
    }
    match taken {
        Some((address, error)) => {
            let what = "is another server running there? `--listen` takes another port";
            Err(error).context(format!("cannot listen on {address} ({what})"))
        }
        None => bail!("there is no address to listen on"),
    }
}

fn export(flags: &FsServe, address: SocketAddr) -> Export {
    let mut export = Export::new(flags.export.clone(), Local::VOLUME);
    export.read_only = flags.read_only;
    export.clients.clone_from(&flags.allow);
    let is_local = address.ip().is_loopback();
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
fn greet(flags: &FsServe, address: SocketAddr, as_json: bool) {
    let mut out = std::io::stdout().lock();
    let port = match address.port() {
        2049 => String::new(),
        port => format!("-o port={port} "),
    };
    let path = if flags.export.starts_with('/') {
        flags.export.clone()
    } else {
        format!("/{}", flags.export)
    };
    let mount = format!("mount -t nfs4 {port}{}:{path} DIR", address.ip());
    let said = if as_json {
        let hello = json!({
            "pid": std::process::id(),
            "listen": address.to_string(),
            "data": flags.data.data,
            "mount": mount,
        });
        writeln!(out, "{hello}")
    } else {
        writeln!(
            out,
            "serving {} on {address}; its clients: {mount}",
            flags.data.data.display()
        )
    };
    if let Err(error) = said.and_then(|()| out.flush()) {
        // Whoever started us may not care to hear it.
        tracing::warn!(%error, "nobody takes the greeting");
    }
}
