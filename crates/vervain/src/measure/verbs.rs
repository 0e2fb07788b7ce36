//! `vervain bench verbs`: two processes of this program, a NIC each.

use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::machine::{first_and_last, two_cpus};
use bench::units;
use bench::verbs::{
    Experiment, Inline, Link, POSTLIST_MAX, Progress, QPS_MAX, Role, Target, VerbsRun, Wishes,
    serve_peer, write_verbs,
};
use clap::{Args, ValueEnum};
use verbs::Transport;

use crate::cli::{NicFlags, open_nic, run_dir_of};

/// How long the peer may take to end by itself after its input has.
const PATIENCE: Duration = Duration::from_secs(2);

/// `vervain bench verbs`.
#[derive(Args, Debug)]
#[command(
    after_help = "Starts a second process of its own; needs no server. Examples:
  vervain bench verbs                            all experiments, briefly
  vervain bench verbs --list                     what there is
  vervain bench verbs write --sizes 16,64,1K     WRITE by size
  vervain bench verbs echo --window 1,16,64      the ladder of HERD's Fig 5
  vervain bench verbs read --latency             one at a time, each timed
  vervain bench verbs send --transport ud --role inbound --qps 1,64"
)]
pub struct VerbsFlags {
    /// Which experiments [default: all, with fewer sizes and windows].
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<Experiment>,
    /// Show the experiments and measure nothing.
    #[arg(long)]
    pub list: bool,
    /// The CPUs of the two processes [default: the first and the last].
    #[arg(long, value_name = "A,B", value_parser = two_cpus)]
    pub cpus: Option<[usize; 2]>,
    /// Bytes of a message, several by commas.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = units::size,
          help_heading = "Instead of the experiment's own choice")]
    pub sizes: Vec<usize>,
    /// Requests under way, on each queue pair.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096),
          help_heading = "Instead of the experiment's own choice")]
    pub window: Vec<u32>,
    /// Work requests in one post call.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(POSTLIST_MAX)),
          help_heading = "Instead of the experiment's own choice")]
    pub postlist: Vec<u32>,
    /// One completion in so many work requests.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096),
          help_heading = "Instead of the experiment's own choice")]
    pub signal_every: Vec<u32>,
    /// Queue pairs.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QPS_MAX)),
          help_heading = "Instead of the experiment's own choice")]
    pub qps: Vec<u32>,
    /// Transports.
    #[arg(
        long,
        value_enum,
        value_name = "NAME,...",
        value_delimiter = ',',
        help_heading = "Instead of the experiment's own choice"
    )]
    pub transport: Vec<TransportFlag>,
    /// Which messages are carried within the work request.
    #[arg(long, value_enum, default_value_t = InlineFlag::Auto,
          help_heading = "Instead of the experiment's own choice")]
    pub inline: InlineFlag,
    /// Who posts.
    #[arg(
        long,
        value_enum,
        value_name = "ROLE",
        help_heading = "Instead of the experiment's own choice"
    )]
    pub role: Option<RoleFlag>,
    /// What the target's CPU does with WRITEs.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        help_heading = "Instead of the experiment's own choice"
    )]
    pub target: Option<TargetFlag>,
    /// Measure the time of one request instead of throughput.
    #[arg(long)]
    pub latency: bool,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "50ms", value_parser = units::duration)]
    pub each: Duration,
    /// How often each is repeated; shown are medians.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// The NIC.
    #[command(flatten)]
    pub nic: NicFlags,
}

/// `vervain bench verbs-peer`.
#[derive(Args, Debug)]
pub struct PeerFlags {
    /// The NIC.
    #[command(flatten)]
    pub nic: NicFlags,
}

/// `--transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportFlag {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// `--inline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InlineFlag {
    /// Those of up to 256 bytes.
    Auto,
    /// All of them.
    Always,
    /// None.
    Never,
}

/// `--role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleFlag {
    /// The process on the first CPU, which measures what it sends.
    Outbound,
    /// The process on the second CPU; the first one measures what arrives.
    Inbound,
}

/// `--target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetFlag {
    /// It polls for each message and reads it.
    Polling,
    /// Nothing.
    Idle,
}

/// Measures; false when something was visible earlier than the NIC promises.
pub(super) fn run(flags: &VerbsFlags, as_json: bool) -> anyhow::Result<bool> {
    if flags.list {
        return list(as_json);
    }
    let context = open_nic(&flags.nic)?.context;
    let mut run = VerbsRun::new(context);
    run.wishes = wishes(flags);
    if !flags.experiments.is_empty() {
        run.experiments.clone_from(&flags.experiments);
        run.wishes.brief = false;
    }
    run.cpus = flags.cpus.or_else(first_and_last);
    run.each = flags.each;
    run.rounds = flags.rounds;
    // What cannot be done is said before anything is started.
    run.count()?;
    let (peer, link) = Peer::start(&flags.nic)?;
    let shown = std::io::stderr().is_terminal() && !as_json;
    let report = run.run(link, &mut |progress| {
        if shown {
            show(progress);
        }
    });
    if shown {
        // Nothing to do about a stderr that is closed.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let report = report.context("the benchmark did not finish")?;
    peer.end();
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        write_verbs(&report, &mut out)?;
    }
    Ok(report.order_violations() == 0)
}

/// The second process: does what it is told on standard input, until that ends.
pub(super) fn run_peer(flags: &PeerFlags) -> anyhow::Result<bool> {
    let context = open_nic(&flags.nic)?.context;
    let link = Link::new(std::io::stdin(), std::io::stdout());
    serve_peer(&context, link)?;
    Ok(true)
}

fn list(as_json: bool) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let all = Experiment::ALL.map(|one| (one.name(), one.summary()));
        let all: serde_json::Map<_, _> = all
            .into_iter()
            .map(|(name, summary)| (name.to_string(), summary.into()))
            .collect();
        bench::print::write_json(&all, &mut out)?;
        return Ok(true);
    }
    for one in Experiment::ALL {
        writeln!(out, "{:<12}{}", one.name(), one.summary())?;
    }
    Ok(true)
}

fn wishes(flags: &VerbsFlags) -> Wishes {
    let transport = |flag: &TransportFlag| match flag {
        TransportFlag::Rc => Transport::Rc,
        TransportFlag::Uc => Transport::Uc,
        TransportFlag::Ud => Transport::Ud,
    };
    Wishes {
        sizes: flags.sizes.clone(),
        windows: flags.window.clone(),
        postlists: flags.postlist.clone(),
        signal_every: flags.signal_every.clone(),
        qps: flags.qps.clone(),
        transports: flags.transport.iter().map(transport).collect(),
        inline: match flags.inline {
            InlineFlag::Auto => Inline::Auto,
            InlineFlag::Always => Inline::Always,
            InlineFlag::Never => Inline::Never,
        },
        role: flags.role.map(|role| match role {
            RoleFlag::Outbound => Role::Outbound,
            RoleFlag::Inbound => Role::Inbound,
        }),
        target: flags.target.map(|target| match target {
            TargetFlag::Polling => Target::Polling,
            TargetFlag::Idle => Target::Idle,
        }),
        latency: flags.latency,
        brief: true,
    }
}

fn show(progress: Progress) {
    let percent = progress.done * 100 / progress.total.max(1);
    // Nothing to do about a stderr that is closed.
    let _ = write!(
        std::io::stderr(),
        "\r\x1b[Kmeasuring: {percent} %, {}",
        progress.experiment
    );
}

/// The second process; killed with this value if it has not ended.
#[derive(Debug)]
pub struct Peer(Child);

impl Peer {
    /// Starts it, with a link to it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(flags: &NicFlags) -> anyhow::Result<(Self, Link)> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        // The lab is this program under another name.
        command.arg0("vervain");
        command.args(["bench", "verbs-peer", "--run-dir"]);
        command.arg(run_dir_of(flags));
        if let Some(gid) = flags.gid {
            command.args(["--gid", &gid.to_string()]);
        }
        if let Some(ppm) = flags.nic_loss {
            command.args(["--nic-loss", &ppm.to_string()]);
        }
        if flags.nic_trace {
            command.arg("--nic-trace");
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the second process")?;
        let mut peer = Peer(child);
        let pipes = (peer.0.stdout.take(), peer.0.stdin.take());
        let (Some(output), Some(input)) = pipes else {
            anyhow::bail!("the second process has no pipes");
        };
        Ok((peer, Link::new(output, input)))
    }

    /// Lets it end by itself, which it does as its input has ended.
    fn end(mut self) {
        let give_up = Instant::now() + PATIENCE;
        while let Ok(None) = self.0.try_wait() {
            if Instant::now() > give_up {
                tracing::warn!("the second process does not end by itself");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended, or ends now; there is nothing else to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
