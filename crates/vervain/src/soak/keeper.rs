//! The server: started, killed, stopped, measured, and looked after for leaks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bench::process::vervain::{Home, fixed_port, start_in};
use bench::process::{Server, ServerSettings, Signal};

use super::faults::Fault;
use super::tally::Peak;
use super::world::{Failure, World};
use crate::cli::{ClientFlags, NicFlags, show_size};
use crate::client::SocketClient;

/// How long a server may take to let go of what clients left that are gone. This and the next bound
/// what is never done: a machine that is busy, or stands still for a while, is no reason to fail.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to end.
const END_MAX: Duration = Duration::from_secs(30);
/// Has glibc's allocator give back what is freed, so that the memory a server uses tells what it
/// holds.
const GIVE_BACK: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
];
/// How much more memory a server may hold without clients than when it began: each core keeps
/// buffers for the mail to others.
const GROWTH_MAX: u64 = 96 << 20;
/// How many more descriptors.
const DESCRIPTORS_MORE: usize = 4;

/// What a server uses.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    resident_bytes: u64,
    descriptors: usize,
}

/// A server and the home where it comes back.
pub(super) struct Keeper {
    exe: PathBuf,
    settings: ServerSettings,
    home: Home,
    loss_ppm_max: u32,
    random: fastrand::Rng,
    server: Option<Server>,
    at_start: Use,
    pub(super) starts: u64,
    pub(super) peak: Peak,
}

impl Keeper {
    /// Makes a home for a server and starts the first one. `loss_ppm_max` is the most that its NIC
    /// may lose of a million messages.
    pub(super) fn start(
        exe: &Path,
        settings: ServerSettings,
        dir: PathBuf,
        loss_ppm_max: u32,
        mut random: fastrand::Rng,
        world: &World,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let port = fixed_port(&mut random).context("no TCP port is free")?;
        let mut keeper = Keeper {
            exe: exe.to_path_buf(),
            settings,
            home: Home { dir, port },
            loss_ppm_max,
            random,
            server: None,
            at_start: Use::default(),
            starts: 0,
            peak: Peak::default(),
        };
        keeper.start_again(world)?;
        Ok(keeper)
    }

    pub(super) fn listen(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.home.port))
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    fn start_again(&mut self, world: &World) -> anyhow::Result<()> {
        let clock = world.wall.path().display().to_string();
        let mut flags = vec!["--clock-ahead".to_string(), clock];
        if self.loss_ppm_max > 0 && self.random.bool() {
            let ppm = self.random.u32(1..=self.loss_ppm_max);
            flags.extend(["--nic-loss".to_string(), ppm.to_string()]);
            world.count(Fault::Loss);
        }
        let (exe, settings, home) = (&self.exe, &self.settings, &self.home);
        let server =
            start_in(exe, settings, home, &flags, &GIVE_BACK).context("cannot start the server")?;
        self.starts += 1;
        let process = self.server.insert(server).pid();
        self.at_start = self.measure()?;
        // Whoever reads this may kill it: nothing is asked of it any more that a living one must answer.
        world.note(&format!(
            "server {} has started as process {process} {}",
            self.starts,
            flags.join(" ")
        ));
        Ok(())
    }

    fn server(&mut self) -> anyhow::Result<&mut Server> {
        self.server.as_mut().context("there is no server")
    }

    fn measure(&mut self) -> anyhow::Result<Use> {
        let server = self.server()?;
        let now = Use {
            resident_bytes: server.usage()?.resident_bytes,
            descriptors: server.descriptors()?,
        };
        self.peak.resident_bytes = self.peak.resident_bytes.max(now.resident_bytes);
        self.peak.descriptors = self.peak.descriptors.max(now.descriptors);
        Ok(now)
    }

    /// Looks how the server is; fails if it has ended.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        let measured = self.measure();
        // One that is just dying can no longer be measured, but has no status yet.
        let give_up = Instant::now() + END_MAX;
        loop {
            let server = self.server()?;
            if let Some(status) = server.status()? {
                bail!(
                    "the server ended by itself with {status}; it says: {}",
                    server.stderr().trim()
                );
            }
            if measured.is_ok() || Instant::now() > give_up {
                return measured.map(drop);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the server and starts another one.
    pub(super) fn kill(&mut self, world: &World) -> anyhow::Result<()> {
        self.look()?;
        self.server()?.kill()?;
        world.server_was_killed();
        self.keep_errors()?;
        self.start_again(world)
    }

    /// Stops the server, or lets it go on.
    pub(super) fn set_stopped(&mut self, stopped: bool) -> anyhow::Result<()> {
        let signal = if stopped { Signal::STOP } else { Signal::CONT };
        Ok(self.server()?.signal(signal)?)
    }

    /// What the server said goes where the next one does not write.
    fn keep_errors(&mut self) -> anyhow::Result<()> {
        let errors = self.server()?.stderr();
        let name = format!("server-{}.stderr", self.starts);
        std::fs::write(self.home.dir.join(name), &errors)?;
        if let Some(line) = errors.lines().find(|line| line.contains("panicked at")) {
            bail!("the server panicked: {line}");
        }
        Ok(())
    }

    /// Fails if the server keeps something of clients that are gone: all are.
    pub(super) fn check_leaks(&mut self) -> Result<(), Failure> {
        let give_up = Instant::now() + SETTLE_MAX;
        loop {
            let Err(error) = self.leaks() else {
                return Ok(());
            };
            if Instant::now() > give_up {
                let error = crate::cli::explain(&error);
                return Err(Failure::Leak(format!("all clients are gone, but {error}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn leaks(&mut self) -> anyhow::Result<()> {
        let flags = client_flags(self.listen());
        let counters = SocketClient::connect(&flags)?.stats(None)?;
        for (name, allowed) in [("herd_clients", 0), ("curr_connections", 1)] {
            let (_, value) = counters
                .iter()
                .find(|(counter, _)| counter == name)
                .with_context(|| format!("the server has no counter {name}"))?;
            let value: u64 = value.parse().with_context(|| format!("{name} {value}"))?;
            if value > allowed {
                bail!("the server counts {value} {name}");
            }
        }
        let (start, now) = (self.at_start, self.measure()?);
        if now.descriptors > start.descriptors + DESCRIPTORS_MORE {
            bail!(
                "the server has {} descriptors open, {} when it began",
                now.descriptors,
                start.descriptors
            );
        }
        if now.resident_bytes > start.resident_bytes + GROWTH_MAX {
            bail!(
                "the server uses {}, {} when it began",
                show_size(now.resident_bytes as usize),
                show_size(start.resident_bytes as usize)
            );
        }
        Ok(())
    }

    /// Ends the server as a user would.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.look()?;
        self.keep_errors()?;
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        if !server.end(END_MAX)? {
            bail!("the server did not end by itself, or not without complaint");
        }
        Ok(())
    }
}

/// How to ask a server for its counters.
pub(super) fn client_flags(server: SocketAddr) -> ClientFlags {
    ClientFlags {
        server,
        unix: None,
        socket: true,
        nic: NicFlags::default(),
        timeout: Duration::from_secs(10),
    }
}
