//! Where `vervain` is, and how this process itself comes onto the software NIC.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the program where it is not in `$PATH`.
const PROGRAM: &str = "VERVAIN";
/// Names the library where the program does not find it by itself.
const LIBRARY: &str = "VERVAIN_VERBS_LIBRARY";
/// What the library's file is called.
const LIBRARY_NAME: &str = "libvervain_verbs";

/// An installed `vervain`.
#[derive(Clone, Debug)]
pub struct Vervain {
    program: PathBuf,
    library: Option<PathBuf>,
}

impl Vervain {
    /// The one that `$VERVAIN` names, else the first in `$PATH`.
    ///
    /// # Errors
    /// `NotFound`, with a sentence that says what to do.
    pub fn find() -> io::Result<Self> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        find_in(std::env::var_os(PROGRAM).as_deref(), &search)
    }

    /// The program at a path.
    #[must_use]
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Vervain {
            program: program.into(),
            library: None,
        }
    }

    /// Names its library, which it otherwise finds beside itself or in `../lib`.
    #[must_use]
    pub fn library(mut self, library: impl Into<PathBuf>) -> Self {
        self.library = Some(library.into());
        self
    }

    /// `vervain run` with these flags, which become a program and its arguments.
    pub(crate) fn run<'a>(&self, flags: impl IntoIterator<Item = &'a OsString>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("run").args(flags).arg("--");
        if let Some(library) = &self.library {
            command.env(LIBRARY, library);
        }
        command
    }

    /// Starts this process again on the software NIC, with the same arguments, in the same process. Where it is there already, nothing happens.
    ///
    /// Threads, and what is buffered for output, are lost: it is for the first line of a `main`.
    ///
    /// # Errors
    /// Why it cannot be started; otherwise it returns on the software NIC only. What `vervain` refuses (a statically linked
    /// binary, a missing library) it says on standard error, and the process ends with 1.
    pub fn reexec(&self) -> io::Result<()> {
        if is_on_software_nic() {
            return Ok(());
        }
        let mut command = self.run([]);
        command.arg(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1));
        Err(about(&self.program, command.exec()))
    }
}

/// The program that was named, or the first in a `$PATH`.
fn find_in(given: Option<&OsStr>, search: &OsStr) -> io::Result<Vervain> {
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        let why = format!("${PROGRAM} is {}, which is no file", given.display());
        return is_file(given, why);
    }
    let mut places = std::env::split_paths(search).map(|dir| dir.join("vervain"));
    let found = places.find(|place| place.is_file()).unwrap_or_default();
    let why = format!(
        "there is no `vervain` in $PATH, and ${PROGRAM} names none: install Vervain's wheel, or build a checkout of it with `cargo build --release`"
    );
    is_file(found, why)
}

fn is_file(program: PathBuf, why: String) -> io::Result<Vervain> {
    match program.is_file() {
        true => Ok(Vervain::at(program)),
        false => Err(io::Error::new(io::ErrorKind::NotFound, why)),
    }
}

fn about(program: &Path, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot start {}: {error}", program.display()),
    )
}

/// Whether this process, and what it starts, has the software NIC's libibverbs.
#[must_use]
pub fn is_on_software_nic() -> bool {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    preloaded.to_string_lossy().contains(LIBRARY_NAME)
}

/// [`Vervain::reexec`] of the `vervain` that [`Vervain::find`] finds.
///
/// # Errors
/// Theirs.
pub fn reexec() -> io::Result<()> {
    match is_on_software_nic() {
        true => Ok(()),
        false => Vervain::find()?.reexec(),
    }
}

/// Has a test binary run on the software NIC, whatever its tests are: `vervain_test::on_software_nic!();` at the top of
/// `tests/it/main.rs`, or with an expression that gives a [`Vervain`].
///
/// It starts the binary again before `main`, so that also the usual test harness can be used. Where that fails the binary ends
/// with 101 and says why. It expands to a function pointer in `.init_array`, which the lint `unsafe_code` does not like.
#[macro_export]
macro_rules! on_software_nic {
    () => {
        $crate::on_software_nic!(@with $crate::reexec());
    };
    (@with $done:expr) => {
        const _: () = {
            extern "C" fn start() {
                if let Err(error) = $done {
                    eprintln!("vervain-test: {error}");
                    std::process::exit(101);
                }
            }
            #[used]
            #[unsafe(link_section = ".init_array")]
            static START: extern "C" fn() = start;
        };
    };
    ($vervain:expr) => {
        $crate::on_software_nic!(@with $crate::Vervain::reexec(&$vervain));
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_one_that_is_named_or_the_first_in_the_path() {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let search = std::env::join_paths([first.path(), second.path()]).expect("a path");
        let found = |given: Option<&str>| {
            let found = find_in(given.map(OsStr::new), &search);
            found
                .map(|found| found.program)
                .map_err(|why| why.to_string())
        };
        let none = found(None).expect_err("it is nowhere");
        assert!(none.contains("there is no `vervain` in $PATH"), "{none}");
        for dir in [&second, &first] {
            let program = dir.path().join("vervain");
            std::fs::write(&program, "").expect("written");
            assert_eq!(found(None), Ok(program));
        }
        let named = second.path().join("vervain");
        assert_eq!(found(named.to_str()), Ok(named));
        let none = found(Some("/nowhere/vervain")).expect_err("it is not there");
        assert_eq!(none, "$VERVAIN is /nowhere/vervain, which is no file");
    }
}
