//! Makes the library that has libibverbs' symbols with their versions (`src/discovery/facade`): Rust's own libraries have no
//! versions of symbols, so a C compiler links it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SYMBOLS: &str = "src/discovery/facade/symbols";
/// The symbol that is no function: the source has it. Its version is the last.
const DATA: (&str, &str) = ("verbs_allow_disassociate_destroy", "IBVERBS_PRIVATE_34");
const SOURCE: &str = "src/discovery/facade/facade.c";

fn main() {
    for file in [SYMBOLS, SOURCE] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo's OUT_DIR"));
    let text = fs::read_to_string(SYMBOLS).expect("the list of symbols");
    let symbols: Vec<(&str, &str)> = (text.lines())
        .map(|line| line.split_once(' ').expect("a name and a version"))
        .collect();
    fs::write(out.join("symbols.h"), header(&symbols)).expect("written");
    let symbols = [&symbols[..], &[DATA]].concat();
    fs::write(out.join("symbols.map"), map(&symbols)).expect("written");
    link(&out);
}

/// The names, in the order of their slots, and code that goes to where the slots say.
fn header(symbols: &[(&str, &str)]) -> String {
    let mut text = String::from("#define NAMES \\\n");
    for (name, _) in symbols {
        let _ = writeln!(text, "\t\"{name}\", \\");
    }
    text.push_str("\n#define CODE \\\n");
    for (index, (name, version)) in symbols.iter().enumerate() {
        let _ = writeln!(text, "\tTRAMPOLINE({index}, \"{name}\", \"{version}\") \\");
    }
    text.push('\n');
    text
}

/// Each version with the one before it, oldest first.
fn map(symbols: &[(&str, &str)]) -> String {
    let mut versions: Vec<&str> = symbols.iter().map(|(_, version)| *version).collect();
    versions.dedup();
    let (mut text, mut before) = (String::new(), String::new());
    for version in versions {
        let of_it = symbols.iter().filter(|(_, its)| *its == version);
        let names: String = of_it.map(|(name, _)| format!(" {name};")).collect();
        let local = if before.is_empty() { " local: *;" } else { "" };
        let _ = writeln!(text, "{version} {{ global:{names}{local} }}{before};");
        before = format!(" {version}");
    }
    text
}

fn link(out: &Path) {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-I"])
        .arg(out)
        .arg("-o")
        .arg(out.join("facade.so"))
        .arg(SOURCE)
        .arg(format!(
            "-Wl,--version-script={}",
            out.join("symbols.map").display()
        ))
        .args(["-Wl,-soname,libvervain_ibverbs.so.1", "-Wl,-z,nodelete"]);
    let status = command.status();
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
