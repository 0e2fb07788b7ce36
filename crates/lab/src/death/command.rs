//! `cargo lab death`, and the clients that it kills.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use bench::cache::Target;
use bench::machine::{Machine, Placement, pin_to};
use bench::process::ServerSettings;
use vervain::cli::{ClientFlags, NicFlags, door, open_nic};
use vervain::measure::cache::nic_target;
use vervain::measure::{Progress, stop_servers_on_signals};

use super::{DeathRun, Scene, death_plots, play_stranger, play_victim, write_death};
use crate::folder;

/// `cargo lab death`.
#[derive(clap::Args, Debug)]
pub struct DeathFlags {
    #[command(flatten)]
    run: DeathRun,
    /// The server's cores.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: u16,
    /// Write the figures and the plots into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    nic: NicFlags,
}

/// Which victim.
#[derive(clap::Args, Debug)]
pub struct VictimFlags {
    /// Is no client, and has so many bytes.
    #[arg(long, value_name = "BYTES")]
    stranger: Option<u64>,
    #[command(flatten)]
    client: ClientFlags,
}

/// Measures; false when somebody who lives on was answered wrongly, or not at all.
pub(crate) fn run(flags: DeathFlags, as_json: bool) -> anyhow::Result<bool> {
    let placement = Placement::split(flags.cores as usize);
    let mut run = flags.run;
    run.cpu = placement.load.last().copied();
    // What cannot be done is said before anything is started.
    run.check()?;
    if let Some(out) = &flags.out {
        folder(out)?;
    }
    stop_servers_on_signals()?;
    let server = vervain::measure::cache::start_ours(&ServerSettings {
        cpus: placement.server.clone(),
        cores: flags.cores as usize,
        ..ServerSettings::default()
    })?;
    // With all its CPUs, before this thread has some of them only.
    let machine = Machine::this();
    // The others have the load's CPUs and leave the server its own. CPUs that the kernel refuses make
    // the run no worse than without.
    let _pinned = placement.load.is_empty() || pin_to(&placement.load);
    let target = nic_target(&server, &flags.nic)?;
    let Target::Nic { context, door } = target else {
        anyhow::bail!("{} does not offer RDMA", server.name());
    };
    let exe = crate::program()?;
    let run_dir = server.nic().map(|place| place.run_dir.clone());
    let address = server.address().to_string();
    let victim = || {
        let mut command = Command::new(&exe);
        command.args(["death-victim", "--server", &address]);
        if let Some(run_dir) = &run_dir {
            command.arg("--run-dir").arg(run_dir);
        }
        if let Some(gid) = flags.nic.gid {
            command.args(["--gid", &gid.to_string()]);
        }
        command
    };
    let stranger = |bytes: u64| {
        let mut command = Command::new(&exe);
        command.args(["death-victim", "--stranger", &bytes.to_string()]);
        command
    };
    let progress = Progress::new(as_json);
    let scene = Scene {
        context: &context,
        door,
        server: server.pid(),
        victim: &victim,
        stranger: &stranger,
    };
    let report = run.run(&scene, &mut |death, deaths| {
        progress.tell(&format!("death {death} of {deaths}"));
    });
    let mut report = report.context("the benchmark did not finish")?;
    report.machine = machine;
    drop(progress);
    let mut out = std::io::stdout().lock();
    if as_json {
        bench::print::write_json(&report, &mut out)?;
    } else {
        write_death(&report, &mut out)?;
    }
    if let Some(folder) = &flags.out {
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes)
                .with_context(|| format!("cannot write {}", path.display()))?;
            anyhow::Ok(path)
        };
        let mut json = Vec::new();
        bench::print::write_json(&report, &mut json)?;
        let mut paths = vec![write("death.json", &json)?];
        for (name, svg) in death_plots(&report) {
            paths.push(write(&format!("death-{name}.svg"), svg.as_bytes())?);
        }
        if !as_json {
            writeln!(out)?;
            for path in paths {
                writeln!(out, "written       {}", path.display())?;
            }
        }
    }
    Ok(report.is_right())
}

/// A client that is killed.
pub(crate) fn run_victim(flags: &VictimFlags) -> anyhow::Result<bool> {
    if let Some(bytes) = flags.stranger {
        play_stranger(bytes)?;
        return Ok(true);
    }
    let context = open_nic(&flags.client.nic)?.context;
    play_victim(&context, door(&flags.client))?;
    Ok(true)
}
