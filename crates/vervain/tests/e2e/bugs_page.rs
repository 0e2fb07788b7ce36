//! docs/bugs.md: its commands, run, say what the page says.

use std::path::Path;
use std::process::Command;

use crate::foreign::leave_out;
use crate::harness::{Place, run};
use crate::programs::library;
use crate::wheel::ROOT;

/// A command of a page, and what it says.
struct Shown<'a> {
    command: &'a str,
    says: Vec<&'a str>,
}

/// The commands in a page's consoles.
fn shown(page: &str) -> Vec<Shown<'_>> {
    let consoles = page.split("```console\n").skip(1);
    let mut all: Vec<Shown> = Vec::new();
    for console in consoles {
        let (console, _) = console.split_once("```").expect("its end");
        for line in console.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => all.push(Shown {
                    command,
                    says: Vec::new(),
                }),
                None => all.last_mut().expect("a command first").says.push(line),
            }
        }
    }
    all
}

/// Whether a line is as shown; `...` stands for anything.
fn is_as(line: &str, shown: &str) -> bool {
    let mut parts = shown.split("...");
    let first = parts.next().expect("at least one part");
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut ends_here = true;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        ends_here = part.is_empty();
    }
    rest.is_empty() || (ends_here && shown.ends_with("..."))
}

/// Whether lines are as shown; a line of `...` stands for any number of lines.
fn are_as(lines: &[&str], shown: &[&str]) -> bool {
    match (lines, shown) {
        (_, []) => lines.is_empty(),
        (_, ["...", rest @ ..]) => (0..=lines.len()).any(|from| are_as(&lines[from..], rest)),
        ([line, lines @ ..], [first, rest @ ..]) => is_as(line, first) && are_as(lines, rest),
        ([], _) => false,
    }
}

#[test]
fn its_commands_say_what_it_says() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return leave_out("libibverbs-dev is missing");
    }
    let place = Place::new();
    std::os::unix::fs::symlink(Path::new(ROOT).join("examples"), place.path("examples"))
        .expect("a link");
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/bugs.md")).expect("the page");
    let program = Path::new(env!("CARGO_BIN_EXE_vervain"));
    let tools = program.parent().expect("a directory");
    let path = std::env::var("PATH").expect("a path");
    let commands = shown(&page);
    assert!(commands.len() >= 8, "the page has lost its commands");
    for Shown { command, says } in commands {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(place.path("."))
            .env("PATH", format!("{}:{path}", tools.display()))
            .env("VERVAIN_VERBS_LIBRARY", library())
            .env("VERVAIN_RUN_DIR", place.path("run"))
            .env("XDG_RUNTIME_DIR", place.path("."))
            .env_remove("LD_PRELOAD");
        let said = run(&mut shell, b"");
        let lines: Vec<&str> = said.text().lines().collect();
        assert!(
            are_as(&lines, &says),
            "{command}\n{}\nand not\n{}",
            lines.join("\n"),
            says.join("\n")
        );
    }
}

#[test]
fn a_line_that_differs_is_seen() {
    for (line, shown) in [
        ("a b c", "a b c"),
        ("a b c", "a ..."),
        ("a b c", "a ... c"),
        ("", ""),
    ] {
        assert!(is_as(line, shown), "{line:?}, {shown:?}");
    }
    for (line, shown) in [
        ("a b c", "a b"),
        ("a b c", "b ..."),
        ("a b c", "a ... d"),
        ("a", ""),
    ] {
        assert!(!is_as(line, shown), "{line:?}, {shown:?}");
    }
    assert!(are_as(&["a", "b", "c"], &["a", "...", "c"]));
    assert!(are_as(&["a", "c"], &["a", "...", "c"]));
    assert!(!are_as(&["a", "b", "c"], &["a", "...", "d"]));
    assert!(!are_as(&["a", "b"], &["a"]));
    assert!(!are_as(&["a"], &["a", "b"]));
}
