//! Whether a library can be put before a program's own.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, FileKind, elf};

/// What the library is built for.
#[cfg(target_arch = "x86_64")]
const MACHINE: elf::Machine = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: elf::Machine = elf::EM_AARCH64;

/// Where a shell would find it.
pub(super) fn find(name: &OsStr) -> anyhow::Result<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        if !path.exists() {
            bail!("{} does not exist", path.display());
        }
        return Ok(path.to_path_buf());
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |path: &PathBuf| {
        (path.metadata())
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let mut found = std::env::split_paths(&search).map(|dir| dir.join(name));
    found
        .find(is_program)
        .with_context(|| format!("there is no program {} in $PATH", path.display()))
}

/// The dynamic linker of this process.
pub(super) fn loader() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("where this program is")?;
    // A process that was started as `ld.so PROGRAM` is its dynamic linker's.
    Ok(check(&path).ok().flatten().unwrap_or(path))
}

/// The program's dynamic linker; none of what another program carries out.
///
/// # Errors
/// Says in a sentence what to do where the library would not be loaded, and the program would see no device.
pub(super) fn check(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let known = file
        .metadata()
        .with_context(|| format!("cannot read {shown}"))?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mode = known.permissions().mode();
    let is_other = (mode & 0o4000 != 0 && known.uid() != uid.as_raw())
        || (mode & 0o2000 != 0 && known.gid() != gid.as_raw());
    if is_other {
        bail!(
            "{shown} runs as another user or group (set-user-ID), so the kernel lets nobody put a library before its own: run a copy of it without that bit"
        );
    }
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0; 64]).is_ok();
    if has_capabilities && !uid.is_root() {
        bail!(
            "{shown} has capabilities of its own (setcap), so the kernel lets nobody put a library before its own: run a copy of it"
        );
    }
    let mut bytes = Vec::new();
    // What matters is in the first pages; a program may be large.
    file.by_ref()
        .take(1 << 16)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {shown}"))?;
    // A script is its interpreter's, which gets the same environment.
    match FileKind::parse(&*bytes) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => {
            bail!(
                "{shown} is a 32-bit program, and the library is of 64 bits: build the program for 64 bits"
            )
        }
        _ => return Ok(None),
    }
    let header = elf::FileHeader64::<Endianness>::parse(&*bytes)
        .with_context(|| format!("{shown} is no program of this machine"))?;
    let endian = header.endian()?;
    if header.e_machine(endian) != MACHINE {
        bail!("{shown} is a program of another processor");
    }
    let segments = header.program_headers(endian, &*bytes)?;
    let is_interpreter =
        |segment: &&elf::ProgramHeader64<_>| segment.p_type(endian) == elf::PT_INTERP;
    let interpreter = segments.iter().find(is_interpreter);
    // Its name may stand anywhere in the file.
    let name = interpreter.map(|segment| {
        let mut name = vec![0; segment.p_filesz(endian).min(4096) as usize];
        let read = file.read_exact_at(&mut name, segment.p_offset(endian));
        read.map_or_else(|_| Vec::new(), |()| name)
    });
    match name {
        None if segments.is_empty() => Ok(None),
        None => bail!(
            "{shown} is statically linked, so no library can be put before its own: link it dynamically with libibverbs"
        ),
        Some(loader) if loader.windows(4).any(|part| part == b"musl") => {
            bail!("{shown} is built for musl, and the library for glibc: run a glibc build of it")
        }
        Some(mut loader) => {
            loader.truncate(loader.iter().position(|byte| *byte == 0).unwrap_or(0));
            Ok(Some(PathBuf::from(OsString::from_vec(loader))))
        }
    }
}
