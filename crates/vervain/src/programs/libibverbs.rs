//! Machines without rdma-core: a `libibverbs.so.1` for programs that are linked with it.
//!
//! Our library answers in libibverbs' place, but the dynamic linker starts no program before it has found each library that
//! the program names. Where it finds no libibverbs, it gets what lies in our library for that (`crates/shim/src/discovery/facade`): a file in the
//! run directory, which `LD_LIBRARY_PATH` names.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, bail};
use nic_soft::make_private;
use object::Endianness;
use object::read::elf::ElfFile64;
use object::read::{Object as _, ObjectSection as _};

const NAME: &str = "libibverbs.so.1";
/// Where it lies in our library.
const SECTION: &str = ".vervain.ibverbs";
/// Its directory in the run directory.
const DIR: &str = "libibverbs";
/// Where the dynamic linker looks for libraries.
pub(super) const SEARCH: &str = "LD_LIBRARY_PATH";

/// The rest of rdma-core that programs are linked with: libraries, and the packages that have them.
const OTHERS: &[(&str, &str)] = &[
    (
        "librdmacm.so.",
        "librdmacm1 (Debian, Ubuntu) or librdmacm (Fedora, RHEL)",
    ),
    (
        "libibumad.so.",
        "libibumad3 (Debian, Ubuntu) or libibumad (Fedora, RHEL)",
    ),
    ("libmlx4.so.", DRIVERS),
    ("libmlx5.so.", DRIVERS),
    ("libefa.so.", DRIVERS),
    ("libmana.so.", DRIVERS),
    ("libhns.so.", DRIVERS),
];
const DRIVERS: &str = "ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)";

/// What the dynamic linker says of libibverbs.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    At(PathBuf),
    Nowhere,
    /// It cannot be asked.
    Unknown,
}

/// Where the dynamic linker finds libibverbs with this process's environment, but for those of ours that a shell has from us.
///
/// It is asked itself, by having it list what our library would be loaded with: caches and directories are its own business.
fn found(loader: &Path, library: &Path) -> Found {
    let mut asked = Command::new(loader);
    let asked = asked.args(["--preload", NAME, "--list"]).arg(library);
    asked.env_remove("LD_PRELOAD").env(SEARCH, others(None));
    let said = match asked.output() {
        Ok(said) if said.status.success() => said,
        Ok(_) | Err(_) => return Found::Unknown,
    };
    let mut lines = said.stdout.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| {
        let line = line.trim_ascii_start().strip_prefix(NAME.as_bytes())?;
        line.strip_prefix(b" => /")
    });
    let Some(line) = line else {
        return Found::Nowhere;
    };
    // Behind it is where it would be mapped; a path may have spaces itself.
    let len = line.windows(4).rposition(|part| part == b" (0x");
    let path = &line[..len.unwrap_or(line.len())];
    Found::At(Path::new("/").join(OsStr::from_bytes(path)))
}

/// Whose libibverbs programs get that are linked with one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The machine's, and the `LD_LIBRARY_PATH` with which it is found where a shell's would lead to one of ours.
    Machines(Option<OsString>),
    /// What lies in our library, and is put into this directory.
    Ours(PathBuf),
    /// The dynamic linker cannot be asked. Programs get what they always got.
    Unknown,
}

impl Whose {
    pub(super) fn of(loader: &Path, library: &Path, run_dir: &Path) -> Self {
        match found(loader, library) {
            Found::At(_) => {
                let (given, others) = (std::env::var_os(SEARCH), others(None));
                Whose::Machines(given.is_some_and(|given| given != others).then_some(others))
            }
            Found::Nowhere => Whose::Ours(run_dir.join(DIR)),
            Found::Unknown => Whose::Unknown,
        }
    }
}

/// Whether a libibverbs is one that was put into some run directory, which no package's is: its mode tells them apart as well.
fn is_put(path: &Path) -> bool {
    path.parent().is_some_and(|dir| dir.ends_with(DIR))
        && (path.metadata()).is_ok_and(|known| known.mode() & 0o777 == 0o500)
}

/// Puts the libibverbs that lies in our library there, and gives the `LD_LIBRARY_PATH` with which it is found.
///
/// # Errors
/// It cannot be put there, would not be loaded from there, or could be changed by others.
pub(super) fn put(dir: &Path, library: &Path) -> anyhow::Result<OsString> {
    let shown = dir.display();
    let why = "which programs need here because the machine has none: say another directory with --run-dir, or install libibverbs1 (Debian, Ubuntu) or libibverbs (Fedora, RHEL)";
    if dir
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b":;$".contains(byte))
    {
        bail!(
            "the dynamic linker takes no {SEARCH} with a colon, semicolon or dollar sign, as {shown}: say another directory with --run-dir"
        );
    }
    write(dir, library).with_context(|| format!("cannot put a {NAME} into {shown}, {why}"))?;
    let flags = rustix::fs::statvfs(dir).with_context(|| format!("where {shown} is"))?;
    if flags.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
        bail!(
            "nothing may be executed from {shown} (noexec), so no program can load the {NAME} in it, {why}"
        );
    }
    Ok(others(Some(dir)))
}

/// The `LD_LIBRARY_PATH` that is given without the directories of other run directories, which a shell may have from us and which
/// would be found first; with this one, if any.
fn others(own: Option<&Path>) -> OsString {
    let given = std::env::var_os(SEARCH).unwrap_or_default();
    let own = own.map(Path::as_os_str);
    let is_separator = |byte: &u8| matches!(byte, b':' | b';');
    let mut parts: Vec<&OsStr> = (given.as_bytes().split(is_separator))
        .map(OsStr::from_bytes)
        .filter(|part| Some(*part) == own || !is_put(&Path::new(part).join(NAME)))
        .collect();
    if given.is_empty() {
        parts.clear();
    }
    parts.extend(own.filter(|own| !parts.contains(own)));
    parts.join(OsStr::new(":"))
}

fn write(dir: &Path, library: &Path) -> anyhow::Result<()> {
    // Whatever others have put there would be found as well.
    if dir
        .symlink_metadata()
        .is_ok_and(|known| known.mode() & 0o022 != 0 && known.is_dir())
    {
        bail!("others may write there");
    }
    make_private(dir)?;
    let bytes = std::fs::read(library).with_context(|| format!("reading {}", library.display()))?;
    let parsed = ElfFile64::<Endianness>::parse(&*bytes)?;
    let section = parsed.section_by_name(SECTION);
    let section =
        section.with_context(|| format!("{} is of another version", library.display()))?;
    let content = section.data()?;
    let path = dir.join(NAME);
    if std::fs::read(&path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    // Programs that have the one that is there keep it; others find one or the other whole.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(content)?;
    file.as_file()
        .set_permissions(Permissions::from_mode(0o500))?;
    file.persist(&path)?;
    Ok(())
}

/// Whether a program is linked with libibverbs, itself or by another library: its own dynamic linker says so, with the environment that
/// the program would get; `None` if it cannot be asked. What a program loads later by `dlopen` nobody knows.
pub(super) fn is_linked_with(
    loader: &Path,
    program: &Path,
    variables: &[(&'static str, OsString)],
) -> Option<bool> {
    let said = list(loader, program, variables)?;
    let is_named = |line: &[u8]| line.trim_ascii_start().starts_with(NAME.as_bytes());
    Some(said.stdout.split(|byte| *byte == b'\n').any(is_named))
}

/// What a program's dynamic linker lists for it; `None` if it cannot be asked, which says by itself what is wrong when the program
/// is started.
fn list(loader: &Path, program: &Path, variables: &[(&'static str, OsString)]) -> Option<Output> {
    let mut asked = Command::new(loader);
    // As `ldd` does; with `--list` it would stop at the first that is missing.
    let asked = asked.arg(program).env("LD_TRACE_LOADED_OBJECTS", "1");
    asked.envs(variables.iter().cloned()).output().ok()
}

/// Says in a sentence what else of rdma-core a program needs that is not there. It is asked of the program's own dynamic linker, with the
/// environment that the program would get.
pub(super) fn check(
    loader: &Path,
    program: &Path,
    variables: &[(&'static str, OsString)],
) -> anyhow::Result<()> {
    let said = list(loader, program, variables);
    match said.as_ref().and_then(sentence) {
        Some(why) => bail!("{} {why}", program.display()),
        None => Ok(()),
    }
}

fn sentence(said: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    let missing = text.lines().find_map(|line| {
        let name = line.trim_start().strip_suffix(" => not found")?;
        let known = OTHERS.iter().find(|(other, _)| name.starts_with(other));
        known.map(|(_, package)| (name, package))
    });
    if let Some((name, package)) = missing {
        return Some(format!(
            "needs {name} of rdma-core, which this machine does not have, and Vervain has a libibverbs alone: install {package}"
        ));
    }
    // A driver's library goes with the libibverbs that it was built with.
    let other = text
        .lines()
        .find(|line| line.contains(&format!("{NAME}: version `")) && line.contains("not found"))?;
    Some(format!(
        "needs the libibverbs of another rdma-core, which this machine does not have ({}): install libibverbs1 (Debian, Ubuntu) or libibverbs (Fedora, RHEL)",
        other.trim()
    ))
}
