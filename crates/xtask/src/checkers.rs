//! Runs of the tests under tools that watch memory: AddressSanitizer, valgrind, Miri.
//!
//! Each knows something that the others do not. AddressSanitizer sees every access of compiled
//! code, leaks too, but not what is uninitialised. valgrind sees that as well, and is slow. Miri
//! sees every rule of the language, but no system calls. What the kernel writes for io_uring, and
//! what another process writes into shared memory, none of them sees.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::{Reach, cargo};

/// What is run under a tool: a package, and the arguments that choose its tests.
type Selection = (&'static str, &'static [&'static str]);

/// Everything that is unsafe, or that unsafe code is driven by: io_uring, two processes and all.
const UNSAFE: [Selection; 7] = [
    ("verbs", &[]),
    ("conformance", &[]),
    ("nic-soft", &[]),
    ("rt", &[]),
    ("block", &[]),
    ("cache", &[]),
    ("store", &[]),
];

/// Tables, rings and copies, by their unit tests.
const SMALL: [Selection; 4] = [
    ("verbs", &["--lib", "mem::"]),
    ("cache", &["--lib", "mica::"]),
    ("cache", &["--lib", "bytes::"]),
    ("nic-soft", &["--lib"]),
];

/// What Miri can follow: no system calls, and so few steps that it ends.
const PURE: [Selection; 3] = [
    ("verbs", &["--lib", "mem::"]),
    ("cache", &["--lib", "mica::"]),
    ("cache", &["--lib", "bytes::"]),
];

/// The package whose library is loaded into programs, whose tests are therefore not built for the sanitizer: the library is.
const LOADED: &str = "shim";

/// Its tests of programs that are compiled for them, but for those that rely on what the sanitizer has in libc's place.
const LOADED_TESTS: [&str; 20] = [
    "answers::",
    "api::",
    "check::",
    "confined::",
    "dlopen::",
    "memory::",
    "own::",
    "places::",
    // The sanitizer's allocator comes before ours: no memory of it is born shared, and nobody hears what is freed.
    "--skip",
    "memory::programs_see_private_memory",
    "--skip",
    "check::memory_that_goes_while_it_is_registered_is_told",
    // It knows no `mallopt`.
    "--skip",
    "check::a_process_that_is_interrupted_in_the_allocator_ends",
    // It calls `dlopen` for the program, and so is who asks.
    "--skip",
    "dlopen::what_dlopen_looks_for_still_depends_on_who_asks",
    // Debian's programs, of which the same calls are made by those that are compiled.
    "--skip",
    "check::debians_programs_make_no_errors",
    "--skip",
    "memory::perftest_measures_atomics_and_one_sided_operations",
];

/// The variables with which the compiler puts AddressSanitizer in: it is part of the stable compiler; only its flag asks for the
/// first one.
const ASAN: [(&str, &str); 3] = [
    ("RUSTC_BOOTSTRAP", "1"),
    ("RUSTFLAGS", "-Zsanitizer=address"),
    ("CARGO_TARGET_DIR", "target/asan"),
];

/// What is run with every change: all but programs that load the library, whose tests are run a second time for it.
pub(crate) fn asan_brief(reach: Reach) -> anyhow::Result<()> {
    asan_tests(&[], reach)
}

/// Runs tests under AddressSanitizer, which finds accesses out of bounds, after free and leaks.
pub(crate) fn asan(packages: &[String]) -> anyhow::Result<()> {
    let (loaded, tested): (Vec<String>, Vec<String>) =
        packages.iter().cloned().partition(|name| name == LOADED);
    if packages.is_empty() || !tested.is_empty() {
        asan_tests(&tested, Reach::Run)?;
    }
    if packages.is_empty() || !loaded.is_empty() {
        asan_loaded()?;
    }
    Ok(())
}

/// Those of packages that are built for it, tests and all.
fn asan_tests(packages: &[String], reach: Reach) -> anyhow::Result<()> {
    let others = [
        (
            "ASAN_OPTIONS",
            "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
        ),
        // Each cut does what all others do with memory.
        ("VERVAIN_STORE_SEEDS", "0..1"),
    ];
    let environment = [&ASAN[..], &others].concat();
    // With a target named, build scripts and macros are left as they are.
    let host = host()?;
    let mut test = vec!["test", "--target", &host, "--lib", "--test", "it"];
    for package in chosen(&UNSAFE, packages)? {
        test.extend(["--package", package.0]);
    }
    test.extend(reach.flags());
    cargo(&test, &environment)
}

/// Those that start programs with our library in them: it alone is built for the sanitizer, whose own library goes before it.
fn asan_loaded() -> anyhow::Result<()> {
    let host = host()?;
    cargo(&["build", "--target", &host, "--package", LOADED], &ASAN)?;
    let library = std::env::current_dir()?
        .join("target/asan")
        .join(&host)
        .join("debug/libvervain_verbs.so");
    let library = library.to_str().context("a path that is no UTF-8")?;
    let environment = [
        ("VERVAIN_VERBS_LIBRARY", library),
        ("VERVAIN_TEST_ASAN", &sanitizer()?),
    ];
    let test = ["test", "--package", LOADED, "--test", "it", "--"];
    cargo(&[&test[..], &LOADED_TESTS].concat(), &environment)
}

/// The sanitizer's library, which comes with the C compiler.
fn sanitizer() -> anyhow::Result<String> {
    const NAME: &str = "libasan.so.8";
    let output = Command::new("cc")
        .arg(format!("-print-file-name={NAME}"))
        .output()
        .context("starting cc, of gcc")?;
    let path = String::from_utf8(output.stdout).context("reading cc's answer")?;
    let path = path.trim();
    // It says only the name of what it does not find.
    ensure!(
        path.contains('/'),
        "{NAME} is not installed (Debian's package is called `libasan8`)"
    );
    Ok(path.to_owned())
}

/// Runs unit tests under valgrind, which finds what AddressSanitizer does and decisions that hang
/// on memory nobody has written.
pub(crate) fn valgrind(packages: &[String]) -> anyhow::Result<()> {
    let installed = Command::new("valgrind").arg("--version").output();
    ensure!(
        installed.is_ok_and(|output| output.status.success()),
        "valgrind is not installed (Debian's package is called `valgrind`)"
    );
    let runner = format!(
        "CARGO_TARGET_{}_RUNNER",
        host()?.to_uppercase().replace(['-', '.'], "_")
    );
    let command = "valgrind --quiet --error-exitcode=1 --leak-check=full --num-callers=30 \
                   --errors-for-leak-kinds=definite --fair-sched=yes";
    for (package, tests) in chosen(&SMALL, packages)? {
        let test = ["test", "--package", package];
        cargo(&[&test[..], tests].concat(), &[(&runner, command)])?;
    }
    Ok(())
}

/// Runs unit tests in Miri, which follows the language's own rules. It comes with nightly only.
pub(crate) fn miri(packages: &[String]) -> anyhow::Result<()> {
    let installed = Command::new("cargo")
        .args(["+nightly", "miri", "--version"])
        .output();
    ensure!(
        installed.is_ok_and(|output| output.status.success()),
        "Miri is not installed (`rustup toolchain install nightly --component miri,rust-src`)"
    );
    let environment = [
        ("CARGO_TARGET_DIR", "target/miri"),
        // Registered memory is named by address.
        ("MIRIFLAGS", "-Zmiri-permissive-provenance"),
        ("PROPTEST_CASES", "4"),
    ];
    for (package, tests) in chosen(&PURE, packages)? {
        let test = ["+nightly", "miri", "test", "--package", package];
        let arguments = [&test[..], tests].concat();
        eprintln!("$ cargo {}", arguments.join(" "));
        let status = Command::new("cargo")
            .args(&arguments)
            .envs(environment)
            .status()
            .context("starting cargo")?;
        ensure!(status.success(), "Miri found fault with {package}");
    }
    Ok(())
}

/// The selections of these packages; all when none is named.
fn chosen<'a>(all: &'a [Selection], packages: &[String]) -> anyhow::Result<Vec<&'a Selection>> {
    for package in packages {
        ensure!(
            all.iter().any(|(name, _)| name == package),
            "nothing of {package} runs under this tool, but of {}",
            names(all).join(", ")
        );
    }
    let named = |(name, _): &&Selection| packages.is_empty() || packages.iter().any(|p| p == name);
    Ok(all.iter().filter(named).collect())
}

fn names(all: &[Selection]) -> Vec<&'static str> {
    let mut names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    names.dedup();
    names
}

/// The machine's target, as the compiler calls it: named, so that build scripts and macros are not
/// instrumented.
pub(crate) fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .output()
        .context("starting rustc")?;
    let text = String::from_utf8(output.stdout).context("reading rustc's answer")?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc does not say what its host is")
}
