//! Other people's verbs programs on the software NIC: `run`, `env`, `devices`.
//!
//! A program is started with `libvervain_verbs.so` before its own libraries, and is then this process: its signals, its exit
//! code, its descriptors.
//!
//! | file | what |
//! | --- | --- |
//! | `flags` | what a program's device is like |
//! | `forms` | how variables are written for shells and CI |
//! | `library` | where the library is |
//! | `libibverbs` | a libibverbs for machines that have none |
//! | `program` | whether a program can be started so |

mod flags;
mod forms;
mod libibverbs;
mod library;
mod program;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use bench::print::show;
use nic_soft::{SoftNic, SoftOptions};
use rustix::fs::Access;
use serde::Serialize;
use verbs::nic::Nic;

pub(crate) use flags::{DevicesFlags, EnvFlags, RunFlags};

use flags::DeviceFlags;
use libibverbs::Whose;

/// Names of variables, and what they say.
type Variables = Vec<(&'static str, OsString)>;

/// What a program of this dynamic linker is started with, and whatever it starts, and whether that has a libibverbs of ours. Why none can
/// be put where the machine has none is for the caller to judge: the variables are those without it then.
fn environment(
    flags: &DeviceFlags,
    loader: &Path,
) -> anyhow::Result<(Variables, anyhow::Result<bool>)> {
    let library = library::find()?;
    let shown = library.to_string_lossy();
    if shown.contains([' ', ':']) {
        anyhow::bail!(
            "the dynamic linker takes no path with a space or colon, as {shown}: move the library"
        );
    }
    // What a program has before its libraries already comes after ours.
    let others = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let preload = before(&library, &others);
    let run_dir = flags.run_dir();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&run_dir)
        .with_context(|| format!("cannot make {}, where programs meet: say another directory with --run-dir, such as one on a tmpfs", run_dir.display()))?;
    rustix::fs::access(&run_dir, Access::WRITE_OK | Access::EXEC_OK).with_context(|| {
        let run_dir = run_dir.display();
        format!("cannot write into {run_dir}, where programs meet: say another directory with --run-dir, such as one on a tmpfs")
    })?;
    // Libraries are loaded from there, before the NIC looks at it.
    nic_soft::make_private(&run_dir).with_context(|| {
        let run_dir = run_dir.display();
        format!("cannot have {run_dir} for this user alone, where programs meet: say another directory with --run-dir")
    })?;
    let mut variables = vec![
        ("LD_PRELOAD", preload),
        ("VERVAIN_RUN_DIR", absolute(&run_dir)?),
    ];
    let run_dir = PathBuf::from(absolute(&run_dir)?);
    let put = match Whose::of(loader, &library, &run_dir) {
        Whose::Ours(dir) => libibverbs::put(&dir, &library)
            .map(|search| variables.push((libibverbs::SEARCH, search)))
            .map(|()| true),
        Whose::Machines(search) => {
            variables.extend(search.map(|search| (libibverbs::SEARCH, search)));
            Ok(false)
        }
        Whose::Unknown => Ok(false),
    };
    if let Some(gid) = flags.gid {
        variables.push(("VERVAIN_GID", gid.to_string().into()));
    }
    if let Some(trace) = &flags.trace {
        variables.push(("VERVAIN_TRACE", absolute(trace)?));
    }
    if let Some(check) = &flags.check {
        // Without a file it is a dash.
        let check = match check.as_os_str() == "-" {
            true => "-".into(),
            false => absolute(check)?,
        };
        variables.push(("VERVAIN_CHECK", check));
    }
    if let Some(faults) = &flags.faults {
        let seed = flags
            .seed
            .map_or_else(String::new, |seed| format!(",seed={seed}"));
        variables.push(("VERVAIN_FAULTS", format!("{faults}{seed}").into()));
    }
    Ok((variables, put))
}

/// The library, and whatever else was preloaded. It is there once, however often a shell has read its variables.
fn before(library: &Path, others: &OsStr) -> OsString {
    let mut preload = library.as_os_str().to_owned();
    let is_end = |byte: &u8| matches!(byte, b':' | b' ');
    for other in others.as_bytes().split(is_end) {
        if !other.is_empty() && other != library.as_os_str().as_bytes() {
            preload.push(":");
            preload.push(OsStr::from_bytes(other));
        }
    }
    preload
}

/// For a program that goes elsewhere.
fn absolute(path: &Path) -> anyhow::Result<OsString> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.with_context(|| format!("where {} is", path.display()))?;
    Ok(absolute.into_os_string())
}

/// `vervain run`: becomes the program. Returns only when that fails.
pub(crate) fn run(flags: &RunFlags) -> anyhow::Result<bool> {
    let Some((name, arguments)) = flags.program.split_first() else {
        anyhow::bail!("there is no program to run");
    };
    let path = program::find(name)?;
    // A script's interpreter has this program's.
    let own = program::check(&path)?;
    let loader = match &own {
        Some(loader) => loader.clone(),
        None => program::loader()?,
    };
    let (variables, put) = environment(&flags.device, &loader)?;
    let has_ours = put.as_ref().is_ok_and(|has_ours| *has_ours);
    if let Err(why) = put {
        let is_needed =
            (own.as_ref()).and_then(|loader| libibverbs::is_linked_with(loader, &path, &variables));
        let known = match is_needed {
            Some(true) => return Err(why),
            Some(false) => "is not linked with it and starts, but",
            None => "starts, though nobody knows whether it is linked with it, and",
        };
        // Whoever hears nothing has asked for that.
        let _ = writeln!(
            std::io::stderr(),
            "vervain: warning: {why:#}; {} {known} what it loads or starts later finds none",
            path.display()
        );
    }
    if has_ours && own.is_some() {
        libibverbs::check(&loader, &path, &variables)?;
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments).envs(variables);
    Err(anyhow::Error::new(command.exec()).context(format!("cannot start {}", path.display())))
}

/// `vervain env`: what a shell or a CI job sets to have its programs run so.
pub(crate) fn env(flags: &EnvFlags, as_json: bool) -> anyhow::Result<bool> {
    let text = |(name, value): (&'static str, OsString)| {
        let value = value.into_string();
        value.map(|value| (name, value)).map_err(|value| {
            anyhow::anyhow!("{name} would be {}, which is no text", value.display())
        })
    };
    let (variables, put) = environment(&flags.device, &program::loader()?)?;
    // What the shell will start is not known.
    put?;
    let variables = variables.into_iter().map(text);
    let variables = variables.collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    let lines = (variables.iter()).map(|(name, value)| flags.format.line(name, value));
    let lines = lines.collect::<anyhow::Result<Vec<_>>>()?;
    show(&variables, as_json, |_, out| {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    })?;
    Ok(true)
}

/// The device, as a program sees it.
#[derive(Serialize)]
struct Seen {
    name: &'static str,
    firmware: String,
    state: String,
    link_layer: String,
    gids: Vec<String>,
    mtu: usize,
    qp_max: u32,
    cq_max: u32,
    mr_max: u32,
    sge_max: u32,
    inline_max: u32,
    rd_atomic_max: u8,
    run_dir: PathBuf,
    /// What programs get that are linked with it: the machine's, or ours where that has none, or nobody can be asked.
    libibverbs: &'static str,
    /// None when programs would not find it.
    library: Option<PathBuf>,
}

/// `vervain devices`: what a program would see. Exits with 1 when the library is missing.
pub(crate) fn devices(flags: &DevicesFlags, as_json: bool) -> anyhow::Result<bool> {
    let options = SoftOptions::new(flags.device.run_dir());
    // As programs get it.
    let options = match flags.device.gid {
        Some(gid) => options.gid(gid),
        None => options.host_aliases(),
    };
    let nic = SoftNic::open(&options).with_context(|| {
        let run_dir = options.run_dir.display();
        format!("cannot open the software NIC in {run_dir}")
    })?;
    let (device, port) = (nic.device(), nic.port(1)?);
    let library = library::find();
    let loader = program::loader()?;
    let run_dir = PathBuf::from(absolute(&options.run_dir)?);
    let whose = (library.as_ref()).map_or(Whose::Unknown, |library| {
        Whose::of(&loader, library, &run_dir)
    });
    let seen = Seen {
        name: "vervain0",
        firmware: device.firmware,
        state: format!("{:?}", port.state),
        link_layer: format!("{:?}", port.link_layer),
        gids: (port.gids.iter())
            .map(|entry| entry.gid.to_string())
            .collect(),
        mtu: port.mtu.bytes(),
        qp_max: device.qp_max,
        cq_max: device.cq_max,
        mr_max: device.mr_max,
        sge_max: device.sge_max,
        inline_max: device.inline_max,
        rd_atomic_max: device.rd_atomic_max,
        run_dir: options.run_dir,
        libibverbs: match whose {
            Whose::Machines(_) => "the machine's",
            Whose::Ours(_) => "vervain's",
            Whose::Unknown => "unknown: the dynamic linker cannot be asked",
        },
        library: library.as_ref().ok().cloned(),
    };
    show(&[seen], as_json, |[seen], out| {
        let (state, link) = (&seen.state, &seen.link_layer);
        writeln!(
            out,
            "{}: {state}, {link} (RoCE v2), MTU {}",
            seen.name, seen.mtu
        )?;
        for (index, gid) in seen.gids.iter().enumerate() {
            writeln!(out, "  GID {index}            {gid}")?;
        }
        writeln!(out, "  queue pairs      {}", seen.qp_max)?;
        writeln!(out, "  CQs              {}", seen.cq_max)?;
        writeln!(out, "  regions          {}", seen.mr_max)?;
        writeln!(out, "  elements         {} a request", seen.sge_max)?;
        writeln!(out, "  inline           {} bytes", seen.inline_max)?;
        writeln!(out, "  READs, atomics   {} under way", seen.rd_atomic_max)?;
        writeln!(out, "  programs meet in {}", seen.run_dir.display())?;
        writeln!(out, "  libibverbs       {}", seen.libibverbs)?;
        match &seen.library {
            Some(library) => writeln!(out, "  library          {}", library.display()),
            None => Ok(()),
        }
    })?;
    library.map(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let ours = Path::new("/lib/ours.so");
        for (others, all) in [
            ("", "/lib/ours.so"),
            ("/lib/ours.so", "/lib/ours.so"),
            ("a.so b.so:/lib/ours.so", "/lib/ours.so:a.so:b.so"),
        ] {
            assert_eq!(before(ours, OsStr::new(others)), all);
        }
    }
}
