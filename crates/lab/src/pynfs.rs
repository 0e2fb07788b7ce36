//! `cargo lab pynfs`: the server tests of pynfs, NFS's own suite, against ours and NFS-Ganesha.
//!
//! pynfs is in no registry of packages: whoever has a checkout that has been built (`setup.py build` in it)
//! names it. Its `testserver.py` is started in `nfs4.0` and `nfs4.1`, for each server one after another,
//! and writes what came of each test as JSON. A test that Ganesha passes and ours does not is a failure of
//! this command.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

/// A server that does not answer by then does not start.
const START_MAX: Duration = Duration::from_secs(30);

/// `cargo lab pynfs`.
#[derive(clap::Args, Debug)]
pub struct PynfsFlags {
    /// A checkout of pynfs, built.
    #[arg(long, value_name = "CHECKOUT")]
    dir: PathBuf,
    /// Python for it.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Which of its suites.
    #[arg(long, value_name = "VERSION", default_values = ["4.0", "4.1"], value_parser = ["4.0", "4.1"])]
    version: Vec<String>,
    /// Ours alone; otherwise `ganesha.nfsd` beside it, which needs root.
    #[arg(long)]
    alone: bool,
    /// Which tests, by pynfs's own words for them.
    #[arg(value_name = "FLAG", default_values = ["all"])]
    tests: Vec<String>,
}

/// What came of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It passed, perhaps with a warning.
    Passed,
    /// The server's answer is not what the test wants.
    Failed,
    /// It was left out: of another version, or it needs one that failed.
    Skipped,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// What pynfs writes with `--json`; further members are passed over.
#[derive(Deserialize)]
struct Written {
    testcase: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    classname: String,
    /// Older versions write none.
    code: Option<String>,
    failure: Option<serde_json::Value>,
    skipped: Option<serde_json::Value>,
}

/// Outcomes by the tests' codes; by suite and name where it writes no codes.
///
/// # Errors
/// The text is not what pynfs writes, or has no test.
pub fn outcomes(json: &str) -> anyhow::Result<BTreeMap<String, Outcome>> {
    let written: Written = serde_json::from_str(json).context("what pynfs wrote")?;
    ensure!(!written.testcase.is_empty(), "pynfs ran no test");
    let outcome = |case: Case| {
        let outcome = match (case.failure, case.skipped) {
            (Some(_), _) => Outcome::Failed,
            (None, Some(_)) => Outcome::Skipped,
            (None, None) => Outcome::Passed,
        };
        let code = case.code;
        (
            code.unwrap_or_else(|| format!("{}.{}", case.classname, case.name)),
            outcome,
        )
    };
    Ok(written.testcase.into_iter().map(outcome).collect())
}

/// One suite through the servers.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Which.
    pub version: String,
    /// By ours.
    pub ours: BTreeMap<String, Outcome>,
    /// By Ganesha, if it was asked.
    pub theirs: Option<BTreeMap<String, Outcome>>,
}

impl Compared {
    /// Tests that Ganesha passes and ours does not.
    #[must_use]
    pub fn worse(&self) -> Vec<&str> {
        let theirs = self.theirs.iter().flatten();
        let passed = theirs.filter(|(_, outcome)| **outcome == Outcome::Passed);
        let ours = |code: &String| self.ours.get(code) != Some(&Outcome::Passed);
        let worse = passed.filter(|(code, _)| ours(code));
        worse.map(|(code, _)| code.as_str()).collect()
    }

    /// The sums, and a line for each test that somebody does not pass.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let count = |of: &BTreeMap<String, Outcome>| {
            let all = [Outcome::Passed, Outcome::Failed, Outcome::Skipped];
            let words = all.map(|one| {
                let count = of.values().filter(|outcome| **outcome == one).count();
                format!("{count:>4} {}", one.word())
            });
            words.join(" ")
        };
        writeln!(out, "pynfs {} vervain {}", self.version, count(&self.ours))?;
        if let Some(theirs) = &self.theirs {
            writeln!(out, "pynfs {} Ganesha {}", self.version, count(theirs))?;
        }
        for (code, outcome) in &self.ours {
            let theirs = self.theirs.as_ref().and_then(|theirs| theirs.get(code));
            if *outcome != Outcome::Passed || theirs.is_some_and(|one| *one != Outcome::Passed) {
                let beside = theirs.map_or("-", |outcome| outcome.word());
                writeln!(out, "{code:<12} {:<8} {beside}", outcome.word())?;
            }
        }
        let worse = self.worse();
        if !worse.is_empty() {
            writeln!(
                out,
                "Ganesha passes, and vervain does not: {}",
                worse.join(" ")
            )?;
        }
        Ok(())
    }
}

/// Runs the suites; false where Ganesha passes what ours does not.
///
/// # Errors
/// There is no such checkout, a server does not start, or pynfs writes nothing.
pub fn run(flags: &PynfsFlags, as_json: bool) -> anyhow::Result<bool> {
    let mut is_fine = true;
    for version in &flags.version {
        let ours = Served::vervain()?;
        let mut compared = Compared {
            version: version.clone(),
            ours: flags.ask(version, &ours)?,
            theirs: None,
        };
        drop(ours);
        if !flags.alone {
            compared.theirs = Some(flags.ask(version, &Served::ganesha()?)?);
        }
        is_fine &= compared.worse().is_empty();
        bench::print::show(&compared, as_json, |compared, out| compared.write(out))?;
    }
    Ok(is_fine)
}

impl PynfsFlags {
    /// What a server makes of a suite.
    fn ask(&self, version: &str, server: &Served) -> anyhow::Result<BTreeMap<String, Outcome>> {
        let suite = self.dir.join(format!("nfs{version}"));
        let script = suite.join("testserver.py");
        ensure!(
            script.exists(),
            "{} is not there: a checkout of pynfs?",
            script.display()
        );
        let written = server.folder.path().join("pynfs.json");
        let mut command = Command::new(&self.python);
        command
            .current_dir(&suite)
            .arg("testserver.py")
            .arg(format!("--json={}", written.display()))
            .args(["--maketree", "--rundeps", "--uid=0", "--gid=0"])
            .arg(format!("{}/pynfs", server.address))
            .args(&self.tests)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // It exits with an error where a test fails.
        let status = command.status().context("starting testserver.py")?;
        let json = fs::read_to_string(&written);
        outcomes(&json.with_context(|| format!("testserver.py wrote nothing: {status}"))?)
    }
}

/// A server of a directory that goes with it.
struct Served {
    child: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Served {
    /// This program.
    fn vervain() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(crate::program()?);
        command
            .arg0("vervain")
            .args(["--json", "fs", "serve", "--squash", "none"])
            .args([
                "--size",
                "1G",
                "--lease",
                "10",
                "--listen",
                "127.0.0.1:0",
                "--data",
            ])
            .arg(folder.path().join("files"))
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take().context("a pipe")?;
        let mut served = Self {
            child,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            folder,
        };
        let mut hello = String::new();
        BufReader::new(out).read_line(&mut hello)?;
        let hello: serde_json::Value = serde_json::from_str(&hello).context("a greeting")?;
        let listens = hello["listen"].as_str().context("an address")?;
        served.address = listens.parse()?;
        Ok(served)
    }

    /// NFS-Ganesha over a directory of this machine.
    fn ganesha() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        for name in ["export", "recovery"] {
            fs::create_dir(folder.path().join(name))?;
        }
        // A port that was free a moment ago.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let configuration = folder.path().join("ganesha.conf");
        fs::write(
            &configuration,
            ganesha_configuration(folder.path(), address.port()),
        )?;
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(&configuration);
        command.arg("-L").arg(folder.path().join("log"));
        command.arg("-p").arg(folder.path().join("pid"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        let child = child.context("starting ganesha.nfsd (`--alone` does without)")?;
        let mut served = Self {
            child,
            address,
            folder,
        };
        let give_up = Instant::now() + START_MAX;
        while TcpStream::connect(address).is_err() {
            if served.child.try_wait()?.is_some() || Instant::now() > give_up {
                let log = fs::read_to_string(served.folder.path().join("log"));
                bail!("ganesha.nfsd does not serve: {}", log.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn ganesha_configuration(folder: &Path, port: u16) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; \
         Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSV4 {{ Minor_Versions = 0,1,2; Graceless = true; Only_Numeric_Owners = true; \
         RecoveryBackend = fs; RecoveryRoot = {folder}/recovery; }}\n\
         EXPORT {{ Export_Id = 1; Path = {folder}/export; Pseudo = /; Access_Type = RW; \
         Squash = None; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
        folder = folder.display(),
    )
}
