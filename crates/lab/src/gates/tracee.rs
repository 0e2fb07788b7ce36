//! A driver process, stepped through instruction by instruction.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use nix::libc::user_regs_struct as Registers;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::decode::Decoded;

/// The longest x86 instruction.
const INSTRUCTION_LEN_MAX: usize = 15;

/// Where `cpuid` tells of most that is newer than AVX.
const FEATURES_LEAF: u32 = 7;
/// The bits of what the counts are made with, if there is AVX2 at all: BMI1, AVX2, BMI2.
const FEATURES: u64 = 1 << 3 | 1 << 5 | 1 << 8;
const CPUID_LEN: u64 = 2;

/// A driver, stopped between two instructions.
pub(crate) struct Tracee {
    child: Child,
    pid: Pid,
    stdout: BufReader<ChildStdout>,
    memory: File,
    decoded: HashMap<u64, Decoded>,
    /// Operations in a round.
    pub(crate) operations: u64,
    /// Where the mark is made.
    pub(crate) mark: u64,
    /// What is called for each allocation.
    pub(crate) allocated: u64,
}

impl Tracee {
    /// Starts the driver and stops it where it wants to be watched.
    pub(crate) fn start(driver: &Path, case: &str, rounds: u64) -> anyhow::Result<Tracee> {
        let mut child = Command::new(driver)
            .args([case, &rounds.to_string()])
            // The C library chooses its copy routines by the CPU. These are what every x86-64 has,
            // so that the counts are the same everywhere. For Rust's own see `answer_for_processor`.
            .env(
                "GLIBC_TUNABLES",
                "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,\
                 -RTM,-SSSE3",
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", driver.display()))?;
        let stdout = child.stdout.take().context("the driver's output")?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        let memory = format!("/proc/{pid}/mem");
        let mut tracee = Tracee {
            child,
            pid,
            stdout: BufReader::new(stdout),
            memory: File::open(&memory).with_context(|| format!("opening {memory}"))?,
            decoded: HashMap::new(),
            operations: 0,
            mark: 0,
            allocated: 0,
        };
        let met = tracee.meet();
        met.with_context(|| format!("the case {case}"))?;
        Ok(tracee)
    }

    fn meet(&mut self) -> anyhow::Result<()> {
        ptrace::seize(self.pid, ptrace::Options::PTRACE_O_EXITKILL).context(
            "cannot trace the driver: the system forbids ptrace (a container needs a seccomp \
             profile that allows it)",
        )?;
        let mut stdin = self.child.stdin.take().context("the driver's input")?;
        writeln!(stdin, "go")?;
        self.wait_until_stopped()?;
        self.answer_for_processor()?;
        ptrace::cont(self.pid, None)?;
        self.wait_until_stopped()?;
        self.operations = self.line()?.parse().context("operations in a round")?;
        let functions = self.line()?;
        let (mark, allocated) = functions
            .split_once(' ')
            .context("two addresses expected from the driver")?;
        self.mark = mark.parse()?;
        self.allocated = allocated.parse()?;
        Ok(())
    }

    fn wait_until_stopped(&self) -> anyhow::Result<()> {
        loop {
            match waitpid(self.pid, None)? {
                WaitStatus::Stopped(_, Signal::SIGUSR1) => return Ok(()),
                WaitStatus::Stopped(_, signal) => ptrace::cont(self.pid, signal)?,
                WaitStatus::PtraceEvent(..) => ptrace::cont(self.pid, None)?,
                other => bail!("the driver ended before it was watched: {other:?}"),
            }
        }
    }

    /// Has the driver believe that its processor can do AVX2 and nothing newer: libraries choose
    /// their ways by what the standard library has found, and the counts are to be the same everywhere.
    fn answer_for_processor(&mut self) -> anyhow::Result<()> {
        let mut was_asked = false;
        loop {
            let mut registers = self.registers()?;
            let instruction = self.instruction(registers.rip)?;
            if instruction.is_syscall {
                ensure!(
                    was_asked,
                    "the driver has not asked what its processor can do"
                );
                return Ok(());
            }
            if !instruction.is_cpuid || registers.rax as u32 != FEATURES_LEAF {
                self.step()?;
                continue;
            }
            was_asked = true;
            let is_first = registers.rcx as u32 == 0;
            registers.rax = 0;
            registers.rbx = if is_first { features() } else { 0 };
            registers.rcx = 0;
            registers.rdx = 0;
            registers.rip += CPUID_LEN;
            ptrace::setregs(self.pid, registers)?;
        }
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line.is_empty() {
            let status = self.child.wait()?;
            bail!("the driver ended early, with {status}");
        }
        Ok(line.trim_end().to_string())
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its registers.
    pub(crate) fn registers(&self) -> anyhow::Result<Registers> {
        Ok(ptrace::getregs(self.pid)?)
    }

    /// The word at an address.
    pub(crate) fn word(&self, address: u64) -> anyhow::Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The instruction at an address.
    pub(crate) fn instruction(&mut self, address: u64) -> anyhow::Result<&Decoded> {
        if !self.decoded.contains_key(&address) {
            let mut bytes = [0; INSTRUCTION_LEN_MAX];
            // Code may end with the mapping.
            let len = self.memory.read_at(&mut bytes, address)?;
            let decoded = Decoded::new(&bytes[..len], address);
            let decoded = decoded.with_context(|| {
                format!("cannot decode the instruction at {address:#x}: {bytes:x?}")
            })?;
            self.decoded.insert(address, decoded);
        }
        Ok(&self.decoded[&address])
    }

    /// Carries out one instruction.
    pub(crate) fn step(&mut self) -> anyhow::Result<()> {
        let mut signal = None;
        loop {
            ptrace::step(self.pid, signal)?;
            match waitpid(self.pid, None)? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => return Ok(()),
                WaitStatus::Stopped(_, other) => signal = Some(other),
                WaitStatus::PtraceEvent(..) => signal = None,
                other => bail!("the driver ended while it was watched: {other:?}"),
            }
        }
    }

    /// Lets it run to its end, which must be a good one.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        ptrace::detach(self.pid, None)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the driver ended with {status}");
        Ok(())
    }
}

fn features() -> u64 {
    let all = is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi2");
    if all { FEATURES } else { 0 }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // It has ended already unless there was an error, which is what gets reported.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
