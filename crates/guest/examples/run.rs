//! A script in a guest: `cargo run -p guest --example run -- IMAGE_DIRECTORY SCRIPT [PROGRAM]...`. A word
//! `HOST=GUEST` in place of a program is a file, `disk=FILE` a disk, `pcap=FILE` a capture and
//! `HOST:GUEST` a forwarded port.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use guest::{Image, Job};

fn main() -> Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let image = words.next().context("a directory for the image")?;
    let script = words.next().context("a script")?;
    let script = std::fs::read_to_string(&script).with_context(|| script)?;
    let mut job = Job::new(script).memory_mib(1024);
    for word in words {
        job = match (word.split_once('='), word.split_once(':')) {
            (Some(("disk", file)), _) => job.disk(Path::new(file)),
            (Some(("pcap", file)), _) => job.capture(Path::new(file)),
            (Some((host, guest)), _) => job.file(host, guest),
            (None, Some((host, guest))) => job.forward(host.parse()?, guest.parse()?),
            (None, None) => job.program(&word)?,
        };
    }
    let said = Image::open(Path::new(&image))?.run(&job)?;
    println!("{}", said.console);
    Ok(ExitCode::from(u8::try_from(said.code)?))
}
