//! `vervain bench verbs`: two processes of this program, a NIC each.

use std::io::{IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::verbs::{
    Experiment, Inline, Link, Progress, Role, Target, VerbsRun, Wishes, serve_peer, write_verbs,
};
use verbs::Transport;

use crate::cli::{
    BenchVerbs, BenchVerbsPeer, InlineFlag, NicFlags, RoleFlag, TargetFlag, TransportFlag,
    open_nic, run_dir_of,
};

/// How long the peer may take to end by itself after its input has.
const PATIENCE: Duration = Duration::from_secs(2);

/// Measures; false when something was visible earlier than the NIC promises.
pub(crate) fn bench_verbs(flags: &BenchVerbs, as_json: bool) -> anyhow::Result<bool> {
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
pub(crate) fn bench_verbs_peer(flags: &BenchVerbsPeer) -> anyhow::Result<bool> {
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

fn wishes(flags: &BenchVerbs) -> Wishes {
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

/// The first and the last CPU that this process may use, if there are two.
fn first_and_last() -> Option<[usize; 2]> {
    let allowed = bench::machine::allowed_cpus();
    match (allowed.first(), allowed.last()) {
        (Some(one), Some(two)) if one != two => Some([*one, *two]),
        _ => None,
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
pub(super) struct Peer(Child);

impl Peer {
    pub(super) fn start(flags: &NicFlags) -> anyhow::Result<(Self, Link)> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
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
