//! A script, what it needs, and what it said.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::Image;
use crate::image::{output, pack};

/// The host, as the guest reaches it.
pub const HOST: &str = "10.0.2.2";

/// What a guest is to do.
#[derive(Clone, Debug)]
pub struct Job {
    script: String,
    files: Vec<(PathBuf, String)>,
    memory_mib: u32,
    timeout: Duration,
    devices: Vec<String>,
    forwards: String,
}

/// What a job said.
#[derive(Clone, Debug)]
pub struct Said {
    /// The script's exit code.
    pub code: i32,
    /// What it printed, to standard output and error.
    pub text: String,
    /// All that the console showed: the kernel's own words too.
    pub console: String,
}

impl Job {
    /// A script for busybox's `sh`, run by root in `/`.
    #[must_use]
    pub fn new(script: impl Into<String>) -> Self {
        Self {
            script: script.into(),
            files: Vec::new(),
            memory_mib: 512,
            timeout: Duration::from_secs(600),
            devices: Vec::new(),
            forwards: String::new(),
        }
    }

    /// With a file of the host's at this path of the guest.
    #[must_use]
    pub fn file(mut self, host: impl Into<PathBuf>, guest: impl Into<String>) -> Self {
        self.files.push((host.into(), guest.into()));
        self
    }

    /// With a program of the host's in `/bin`, and the libraries that it is linked with.
    ///
    /// # Errors
    /// There is no such program.
    pub fn program(mut self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path
            .file_name()
            .context("a program has a name")?
            .to_string_lossy();
        self.files
            .push((path.to_path_buf(), format!("/bin/{name}")));
        // A program that is linked statically has no list.
        let Ok(list) = output(Command::new("ldd").arg(path)) else {
            return Ok(self);
        };
        let libraries: BTreeSet<&str> = list
            .lines()
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
            .collect();
        for library in libraries {
            self.files.push((library.into(), library.into()));
        }
        Ok(self)
    }

    /// With so much memory; 512 MiB otherwise.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Ended after this time; 10 minutes otherwise.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// With a file of the host's as a disk: `/dev/vda` the first, after `load virtio_blk`.
    #[must_use]
    pub fn disk(mut self, file: &Path) -> Self {
        let number = self.devices.len();
        let file = file.display();
        self.devices.extend([
            "-drive".to_string(),
            format!("file={file},format=raw,if=none,cache=unsafe,id=disk{number}"),
            "-device".to_string(),
            format!("virtio-blk-pci,drive=disk{number}"),
        ]);
        self
    }

    /// With all that its network card sends and receives in this file (pcap).
    #[must_use]
    pub fn capture(mut self, file: &Path) -> Self {
        self.devices.extend([
            "-object".to_string(),
            format!("filter-dump,id=capture,netdev=net,file={}", file.display()),
        ]);
        self
    }

    /// With a port of the host's 127.0.0.1 that leads to one of the guest's.
    #[must_use]
    pub fn forward(mut self, host: u16, guest: u16) -> Self {
        self.forwards += &format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}");
        self
    }

    pub(crate) const fn timeout_of(&self) -> Duration {
        self.timeout
    }

    /// The machine that does it, with this archive. The kernel would look for 10 ms whether its timer
    /// ticks, and give up, which a host that has much else to do does not answer in time.
    pub(crate) fn machine(&self, image: &Image, initrd: &Path) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args([
                "-nodefaults",
                "-no-reboot",
                "-display",
                "none",
                "-serial",
                "stdio",
            ])
            .args(["-M", "q35,accel=tcg", "-cpu", "max", "-smp", "1"])
            .args(["-m", &format!("{}M", self.memory_mib)])
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(initrd)
            .args(["-netdev", &format!("user,id=net{}", self.forwards)])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .args([
                "-append",
                "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
            ])
            .args(&self.devices);
        command
    }

    /// The script and its files as an archive, behind the image's own: later files win.
    pub(crate) fn archive(&self, image: &Image, scratch: &Path) -> Result<PathBuf> {
        let root = scratch.join("root");
        fs::create_dir_all(&root)?;
        fs::write(root.join("job"), &self.script)?;
        for (host, guest) in &self.files {
            let to = root.join(guest.trim_start_matches('/'));
            if let Some(directory) = to.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::copy(host, &to).with_context(|| format!("copying {}", host.display()))?;
        }
        let own = scratch.join("job.cpio.gz");
        pack(&root, &own)?;
        let both = scratch.join("initrd");
        let mut file = fs::File::create(&both)?;
        for part in [&image.root, &own] {
            io::copy(&mut fs::File::open(part)?, &mut file)?;
        }
        file.flush()?;
        Ok(both)
    }
}

impl Said {
    pub(crate) fn of(console: String, complaint: &str) -> Result<Self> {
        let begin = "guest: begin\n";
        let part = console.split_once(begin).map(|(_, rest)| rest);
        let ended = part.and_then(|rest| rest.rsplit_once("guest: end "));
        let Some((text, rest)) = ended else {
            bail!("the guest came to no end: {complaint}\n{console}");
        };
        let code = rest.split_whitespace().next().unwrap_or_default();
        let code = code
            .parse()
            .with_context(|| format!("an exit code: {code:?}"))?;
        Ok(Self {
            code,
            text: text.to_string(),
            console,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_said_stands_between_its_marks() {
        let console = "kernel\nguest: begin\none\ntwo\nguest: end 3\n[ 1.0] reboot".to_string();
        let said = Said::of(console, "").expect("both marks");
        assert_eq!((said.code, said.text.as_str()), (3, "one\ntwo\n"));
    }

    #[test]
    fn a_guest_that_stops_in_the_middle_is_an_error_that_shows_what_it_said() {
        let error = Said::of("guest: begin\npanic".to_string(), "killed").expect_err("no end");
        let error = error.to_string();
        assert!(
            error.contains("panic") && error.contains("killed"),
            "{error}"
        );
    }
}
