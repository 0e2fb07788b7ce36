//! `vervain bench verbs`: two processes of this program, a NIC each.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::machine::{first_and_last, two_cpus};
use bench::units;
use bench::verbs::{Experiment, Link, VerbsRun, Wishes, serve_peer, write_verbs};
use clap::Args;

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
    #[arg(value_name = "EXPERIMENT", value_enum, hide_possible_values = true)]
    pub experiments: Vec<Experiment>,
    /// Show the experiments and measure nothing.
    #[arg(long)]
    pub list: bool,
    /// The CPUs of the two processes [default: the first and the last].
    #[arg(long, value_name = "A,B", value_parser = two_cpus)]
    pub cpus: Option<[usize; 2]>,
    /// What is wished instead of the experiments' own choice.
    #[command(flatten)]
    pub wishes: Wishes,
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

/// Measures; false when something was visible earlier than the NIC promises.
pub(super) fn run(flags: &VerbsFlags, as_json: bool) -> anyhow::Result<bool> {
    if flags.list {
        return list(as_json);
    }
    let context = open_nic(&flags.nic)?.context;
    let mut run = VerbsRun::new(context);
    run.wishes = Wishes {
        brief: flags.experiments.is_empty(),
        ..flags.wishes.clone()
    };
    if !flags.experiments.is_empty() {
        run.experiments.clone_from(&flags.experiments);
    }
    run.cpus = flags.cpus.or_else(first_and_last);
    run.each = flags.each;
    run.rounds = flags.rounds;
    // What cannot be done is said before anything is started.
    run.count()?;
    let (peer, link) = Peer::start(&flags.nic)?;
    let shown = super::Progress::new(as_json);
    let report = run.run(link, &mut |progress| {
        let percent = progress.done * 100 / progress.total.max(1);
        shown.tell(&format!("measuring: {percent} %, {}", progress.experiment));
    });
    drop(shown);
    let report = report.context("the benchmark did not finish")?;
    drop(peer);
    bench::print::show(&report, as_json, write_verbs)?;
    Ok(true)
}

/// The second process: does what it is told on standard input, until that ends.
pub(super) fn run_peer(flags: &PeerFlags) -> anyhow::Result<bool> {
    let context = open_nic(&flags.nic)?.context;
    let link = Link::new(std::io::stdin(), bench::print::output());
    serve_peer(&context, link)?;
    Ok(true)
}

fn list(as_json: bool) -> anyhow::Result<bool> {
    let all = Experiment::all().into_iter();
    let all: BTreeMap<Experiment, String> = all.map(|one| (one, one.summary())).collect();
    bench::print::show(&all, as_json, |all, out| {
        all.iter()
            .try_for_each(|(one, summary)| writeln!(out, "{one:<12}{summary}"))
    })?;
    Ok(true)
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
        if let Some(patience) = flags.contact_timeout {
            command.args(["--contact-timeout", &format!("{}s", patience.as_secs_f64())]);
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
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends by itself, as its input has ended.
        let give_up = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It has ended, or ends now; there is nothing else to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
