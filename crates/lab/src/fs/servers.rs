//! Both servers, as processes on the same CPUs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::process::{Child, Directory, START_MAX, Signal};
use programs::{find, free_port};
use serde::Deserialize;

/// NFS-Ganesha's program.
const GANESHA: &str = "ganesha.nfsd";
/// What has to be installed for it.
pub(super) const PACKAGES: &str =
    "NFS-Ganesha is not installed: Debian's packages nfs-ganesha and nfs-ganesha-vfs have it";
/// How long a server may take to end.
const END_MAX: Duration = Duration::from_secs(60);

/// The line by which ours says that it serves.
#[derive(Deserialize)]
struct Hello {
    listen: SocketAddr,
}

/// What ours has read so far, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Pages {
    /// Those that its cache had.
    pub(super) hits: u64,
    /// The others.
    pub(super) misses: u64,
}

impl Pages {
    /// What was read since.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.hits += more.hits;
        self.misses += more.misses;
    }

    /// How many of them the cache had; none if none was read.
    pub(super) fn cached_share(self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }
}

/// What `fs status` tells, as far as it is asked for here.
#[derive(Deserialize)]
struct Told {
    counters: BTreeMap<String, u64>,
}

/// Our server.
pub(super) struct Ours {
    home: Directory,
    data: PathBuf,
    size: u64,
    cache: u64,
    cpus: Vec<usize>,
    running: Option<(Child, SocketAddr)>,
}

impl Ours {
    /// Starts one over a new directory; (bytes of data, bytes of cache).
    pub(super) fn start(
        data: PathBuf,
        (size, cache): (u64, u64),
        cpus: &[usize],
    ) -> anyhow::Result<Self> {
        let mut ours = Ours {
            home: Directory::new()?,
            data,
            size,
            cache,
            cpus: cpus.to_vec(),
            running: None,
        };
        ours.go()?;
        Ok(ours)
    }

    /// Starts it; what it has in memory is gone.
    fn go(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(crate::program()?);
        command
            // The lab is this program under another name.
            .arg0("vervain")
            .args(["--json", "fs", "serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&self.data)
            .args(["--size", &self.size.to_string()])
            .args(["--cache", &self.cache.to_string()])
            .stdout(Stdio::piped())
            // Ctrl-C is for whoever measures, who ends it then.
            .process_group(0);
        let mut child = Child::start("vervain", &mut command, &self.cpus, self.home.path())?;
        let line = child.first_line(START_MAX)?;
        let hello: Hello = serde_json::from_str(&line).map_err(|_| child.odd(&line))?;
        self.running = Some((child, hello.listen));
        Ok(())
    }

    /// Ends it, and starts it again with nothing cached.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        if let Some((mut child, _)) = self.running.take() {
            child.signal(Signal::TERM)?;
            let ended = child.wait_end(END_MAX)?;
            ensure!(ended, "our server did not end well: {}", child.stderr());
        }
        self.go()
    }

    /// Kills it, and starts it again.
    pub(super) fn crash(&mut self) -> anyhow::Result<()> {
        if let Some((mut child, _)) = self.running.take() {
            child.kill()?;
        }
        self.go()
    }

    /// What it has read since it was started.
    pub(super) fn pages(&self) -> anyhow::Result<Pages> {
        let mut command = Command::new(crate::program()?);
        command.arg0("vervain");
        command.args(["--json", "fs", "status", "--data"]);
        let said = command.arg(&self.data).output()?;
        let complaint = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "fs status: {}", complaint.trim());
        let told: Told = serde_json::from_slice(&said.stdout).context("fs status")?;
        let counter = |name: &str| {
            let counter = told.counters.get(name).copied();
            counter.with_context(|| format!("fs status tells no {name}"))
        };
        Ok(Pages {
            hits: counter("cache_hits")?,
            misses: counter("cache_misses")?,
        })
    }

    /// Where it serves.
    pub(super) fn address(&self) -> anyhow::Result<SocketAddr> {
        let running = self.running.as_ref();
        Ok(running.context("our server does not run")?.1)
    }
}

/// NFS-Ganesha's server, over a directory.
pub(super) struct Ganesha {
    child: Child,
    address: SocketAddr,
    data: PathBuf,
    // After the process, which uses it.
    home: Directory,
}

impl Ganesha {
    /// Its version; nothing when it is not installed.
    pub(super) fn version() -> Option<String> {
        let said = Command::new(find(GANESHA)?).arg("-v").output().ok()?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = text.lines().find_map(|line| line.split_once("Release = "));
        Some(version.map_or("NFS-Ganesha".to_string(), |(_, version)| {
            format!("NFS-Ganesha {}", version.trim().trim_start_matches('V'))
        }))
    }

    /// Starts it over a directory, which it makes.
    pub(super) fn start(data: PathBuf, cpus: &[usize]) -> anyhow::Result<Self> {
        fs::create_dir(&data)?;
        let data = data.canonicalize()?;
        let home = Directory::new()?;
        let port = free_port();
        let (conf, log) = (home.path().join("conf"), home.path().join("log"));
        fs::write(&conf, configuration(port, &data, home.path()))?;
        let mut command = Command::new(find(GANESHA).context(PACKAGES)?);
        command
            .arg("-F")
            .arg("-L")
            .arg(&log)
            .arg("-f")
            .arg(&conf)
            .arg("-p")
            .arg(home.path().join("pid"))
            .stdout(Stdio::null())
            .process_group(0);
        let mut child = Child::start("NFS-Ganesha", &mut command, cpus, home.path())?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let answers = || TcpStream::connect(address).ok();
        let started = child.wait_for(START_MAX, answers);
        started.with_context(|| last_words(&log))?;
        Ok(Ganesha {
            child,
            address,
            data,
            home,
        })
    }

    /// Where it serves.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The directory that it serves.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Counts its system calls that make something durable while `work` goes on.
    pub(super) fn syncs<T>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, u64)> {
        let calls = "trace=fsync,fdatasync,sync_file_range,syncfs,sync";
        let trace = self.home.path().join("trace");
        let mut command = Command::new(find("strace").context("strace is not installed")?);
        command
            .args(["-f", "-e", calls, "-p", &self.child.pid().to_string(), "-o"])
            .arg(&trace);
        let home = Directory::new()?;
        let mut strace = Child::start("strace", &mut command, &[], home.path())?;
        // It says on standard error which threads it has attached to.
        let errors = home.path().join("stderr");
        let attached = || {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            said.contains("attached").then_some(())
        };
        strace.wait_for(START_MAX, attached)?;
        let done = work()?;
        strace.signal(Signal::INT)?;
        strace.wait_end(END_MAX)?;
        let text = fs::read_to_string(&trace).context("what strace has written")?;
        // A call that another thread's interrupts is in two lines; the second one says so.
        let is_call = |line: &&str| line.contains("sync") && !line.contains(" resumed>");
        Ok((done, text.lines().filter(is_call).count() as u64))
    }
}

fn configuration(port: u16, data: &Path, home: &Path) -> String {
    let (data, home) = (data.display(), home.display());
    format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Bind_addr = 127.0.0.1; \
         Enable_UDP = false; Enable_RQUOTA = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{home}\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{data}\"; Pseudo = /; Access_Type = RW; Squash = None; \
         SecType = sys; FSAL {{ Name = VFS; }} }}\n"
    )
}

/// The end of a log.
fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    format!("NFS-Ganesha's log ends with: {}", lines.join(" | "))
}
