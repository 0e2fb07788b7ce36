//! A process that is watched by ptrace, system call by system call, and cut at one of its steps.
//!
//! All calls to a [`Traced`] come from the thread that started it: the kernel knows tracers by
//! thread. Several threads may trace a process each.

use std::collections::HashMap;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::calls::{Call, only_waits};
use crate::harness::LIMIT;
use crate::step::{Side, Spot, Step};

/// The first argument of the system call by which a victim says what comes next; see [`mark`].
const MARK: u64 = 0x7665_7276_6169_6e00;

/// Says to the tracer that what comes next is stepped through, or is so no more. It is a system
/// call that does nothing; without a tracer that is all.
pub(crate) fn mark(stepped: bool) {
    // SAFETY: getppid takes no arguments, reads none and cannot fail.
    unsafe { libc::syscall(libc::SYS_getppid, MARK, u64::from(stepped)) };
}

/// How a traced process stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It has come to its step, and stands still there with all its threads.
    Cut,
    /// It has ended by itself, with this code.
    Ended(i32),
    /// A signal has ended it.
    Killed(Signal),
}

#[derive(Debug)]
struct Thread {
    id: Pid,
    calls: Vec<Call>,
    /// It is in the system, by a call that counts.
    inside: bool,
    /// What it does until its next mark is stepped through, across its calls.
    in_region: bool,
    /// Marks until now, and the instructions behind each as far as they were counted.
    marks: u32,
    regions: Vec<u32>,
    /// It has the tracer's CPU.
    is_close: bool,
    /// Instructions are carried out one by one, so many until now.
    stepping: bool,
    steps: u32,
    gone: bool,
}

/// A process that stands still whenever its tracer looks at it.
#[derive(Debug)]
pub(crate) struct Traced {
    child: Child,
    pid: Pid,
    threads: Vec<Thread>,
    /// Addresses that were looked at: whether there is a system call.
    code: HashMap<u64, bool>,
    /// Threads that stand still, with the signal that they are to get.
    held: Vec<(Pid, Option<Signal>)>,
    /// The program runs, and not the shell that starts it.
    started: bool,
    ended: Option<Standing>,
    /// Count the instructions behind marks.
    count_instructions: bool,
    step: Option<Step>,
    /// Where this thread may run.
    cpus: CpuSet,
    _overdue: Sender<()>,
}

/// The program of a command behind a shell that stops itself first, so that not even the program's
/// first step is missed. Pipes and files are the caller's to set.
pub(crate) fn stopped_first(command: &Command) -> Command {
    let mut stopped = Command::new("/bin/sh");
    stopped
        .args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => stopped.env(name, value),
            None => stopped.env_remove(name),
        };
    }
    stopped
}

impl Traced {
    /// Starts a command made by [`stopped_first`].
    pub(crate) fn start(mut command: Command) -> Self {
        let child = command.spawn().expect("starting a victim");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("a child of this thread");
        assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
        let options = Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC;
        ptrace::seize(pid, options)
            .expect("tracing a child (a container needs a seccomp profile that allows ptrace)");
        kill(pid, Signal::SIGCONT).expect("signalling a child");
        let (overdue, in_time) = channel();
        std::thread::spawn(move || kill_when_overdue(pid, &in_time));
        Traced {
            child,
            pid,
            threads: vec![Thread::new(pid)],
            code: HashMap::new(),
            held: Vec::new(),
            started: false,
            ended: None,
            count_instructions: false,
            step: None,
            cpus: sched_getaffinity(None).expect("the CPUs of this thread"),
            _overdue: overdue,
        }
    }

    /// The child, for its pipes and its number.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Lets it run to its end.
    pub(crate) fn run_to_end(&mut self) -> Standing {
        self.run()
    }

    /// The same, counting the instructions behind its marks. It is slow there, and so waits less.
    pub(crate) fn step_to_end(&mut self) -> Standing {
        self.count_instructions = true;
        self.run()
    }

    /// Lets it run to a step, or to its end.
    pub(crate) fn run_to(&mut self, step: Step) -> Standing {
        self.step = Some(step);
        self.run()
    }

    /// What each of its threads has called.
    pub(crate) fn calls(&self) -> Vec<Vec<Call>> {
        let threads = self.threads.iter();
        threads.map(|thread| thread.calls.clone()).collect()
    }

    /// How many instructions follow each of its threads' marks.
    pub(crate) fn regions(&self) -> Vec<Vec<u32>> {
        let threads = self.threads.iter();
        threads.map(|thread| thread.regions.clone()).collect()
    }

    /// Where it was cut, for people.
    pub(crate) fn place(&self) -> String {
        let Some(step) = self.step else {
            return "nowhere".into();
        };
        let Some(thread) = self.threads.get(step.thread) else {
            return format!("step {step}");
        };
        let name = std::fs::read_to_string(format!("/proc/{}/task/{}/comm", self.pid, thread.id));
        let call = thread.calls.last().map_or("-".into(), Call::name);
        format!(
            "step {step} (thread `{}`, {call}, {} instructions on)",
            name.unwrap_or_default().trim(),
            thread.steps
        )
    }

    /// Kills it where it stands, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        kill(self.pid, Signal::SIGKILL).expect("killing a child");
        while self.next_stop().is_some() {}
    }

    /// Lets it go on without a tracer, and gives it back.
    pub(crate) fn let_go(mut self) -> Child {
        for (id, signal) in std::mem::take(&mut self.held) {
            self.keep_close(id, false);
            expect_alive(ptrace::detach(id, signal));
        }
        self.child
    }

    fn run(&mut self) -> Standing {
        loop {
            let Some((id, status)) = self.next_stop() else {
                return self.ended.expect("a process that has ended");
            };
            let mut signal = None;
            let arrived = match status {
                // Whoever waits for its stop waits no longer.
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => continue,
                WaitStatus::PtraceSyscall(_) => self.at_call(id),
                WaitStatus::PtraceEvent(_, _, event) => {
                    self.at_event(id, event);
                    false
                }
                // The tracer's own doing, and nothing for the process: it would die of it.
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                    self.thread(id).stepping && self.at_instruction(id)
                }
                WaitStatus::Stopped(_, other) => {
                    signal = Some(other);
                    false
                }
                other => panic!("a traced process stands in an odd way: {other:?}"),
            };
            if arrived {
                self.hold_all(id);
                return Standing::Cut;
            }
            let thread = self.thread(id);
            let close = thread.stepping || thread.in_region;
            self.keep_close(id, close);
            let resumed = if self.thread(id).stepping {
                ptrace::step(id, signal)
            } else {
                ptrace::syscall(id, signal)
            };
            expect_alive(resumed);
        }
    }

    /// Has a thread share its tracer's CPU while it is stepped through. Each instruction hands the CPU
    /// from one to the other and back; where others want all CPUs, whoever wakes up on another CPU
    /// waits for milliseconds until it is his turn, and an operation would take minutes.
    fn keep_close(&mut self, id: Pid, close: bool) {
        let thread = self.thread(id);
        if thread.is_close == close {
            return;
        }
        thread.is_close = close;
        let mut cpus = self.cpus;
        if close {
            cpus.clear();
            cpus.set(sched_getcpu());
        }
        sched_setaffinity(None, &cpus).expect("CPUs that this thread may have");
        let id = rustix::process::Pid::from_raw(id.as_raw());
        match sched_setaffinity(id, &cpus) {
            // Killed meanwhile; its end comes next.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("moving a traced thread: {error}"),
        }
    }

    /// The next thread that has stopped or ended; `None` once the process has gone.
    fn next_stop(&mut self) -> Option<(Pid, WaitStatus)> {
        // What other threads of this process trace is not ours to wait for.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        while self.ended.is_none() {
            let status = match waitpid(None, Some(flags)) {
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(error) => panic!("waiting for a traced process: {error}"),
            };
            let standing = match status {
                WaitStatus::Exited(_, code) => Standing::Ended(code),
                WaitStatus::Signaled(_, signal, _) => Standing::Killed(signal),
                _ => return status.pid().map(|id| (id, status)),
            };
            let id = status.pid().expect("a thread that has ended");
            self.thread(id).gone = true;
            if id != self.pid {
                return Some((id, status));
            }
            self.ended = Some(standing);
        }
        None
    }

    fn number(&mut self, id: Pid) -> usize {
        match self.threads.iter().position(|thread| thread.id == id) {
            Some(number) => number,
            None => {
                self.threads.push(Thread::new(id));
                self.threads.len() - 1
            }
        }
    }

    fn thread(&mut self, id: Pid) -> &mut Thread {
        let number = self.number(id);
        &mut self.threads[number]
    }

    fn at_event(&mut self, id: Pid, event: i32) {
        match event {
            libc::PTRACE_EVENT_CLONE => {
                let born = ptrace::getevent(id).expect("the number of a new thread");
                self.number(Pid::from_raw(i32::try_from(born).expect("a thread id")));
            }
            libc::PTRACE_EVENT_EXEC => self.started = true,
            // A new thread, or one that goes on after it was stopped.
            _ => {}
        }
    }

    /// At a system call, before or after it; whether this is the step.
    fn at_call(&mut self, id: Pid) -> bool {
        let info = match ptrace::syscall_info(id) {
            Ok(info) => info,
            // Killed meanwhile; its end comes next.
            Err(Errno::ESRCH) => return false,
            Err(error) => panic!("asking for a system call: {error}"),
        };
        if !self.started {
            return false;
        }
        let (number, wanted, counting) = (self.number(id), self.step, self.count_instructions);
        let thread = &mut self.threads[number];
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            // SAFETY: this is the variant of a stop before a system call.
            let call = unsafe { info.u.entry };
            thread.inside = !only_waits(call.nr);
            if !thread.inside {
                return false;
            }
            thread.calls.push(Call { number: call.nr });
            if call.nr == libc::SYS_getppid as u64 && call.args[0] == MARK {
                let is_over = thread.at_mark(call.args[1] != 0, counting, number, wanted);
                if is_over {
                    return true;
                }
            }
            return wanted
                .is_some_and(|step| step.side == Side::Enter && thread.is_at(number, step));
        }
        if std::mem::take(&mut thread.inside)
            && let Some(step) = wanted
            && step.side == Side::Leave
            && thread.is_at(number, step)
        {
            thread.stepping = true;
            return step.instructions == 0;
        }
        thread.stepping |= thread.in_region;
        false
    }

    /// After an instruction; whether this is the step.
    fn at_instruction(&mut self, id: Pid) -> bool {
        let calls_next = self.calls_next(id);
        let wanted = self.step;
        let thread = self.thread(id);
        thread.steps += 1;
        // The system's part of it is not for stepping.
        thread.stepping = !calls_next;
        wanted.is_some_and(|step| {
            thread.steps == step.instructions || (calls_next && !thread.in_region)
        })
    }

    /// Whether a thread's next instruction is a system call.
    #[cfg(target_arch = "x86_64")]
    fn calls_next(&mut self, id: Pid) -> bool {
        let Ok(registers) = ptrace::getregs(id) else {
            return false;
        };
        *self.code.entry(registers.rip).or_insert_with(|| {
            let word = ptrace::read(id, registers.rip as ptrace::AddressType);
            word.is_ok_and(|word| word & 0xffff == 0x050f)
        })
    }

    /// Elsewhere threads are not stepped through.
    #[cfg(not(target_arch = "x86_64"))]
    fn calls_next(&mut self, _: Pid) -> bool {
        self.code.is_empty()
    }

    /// Stops all threads but one, which stands still already.
    fn hold_all(&mut self, first: Pid) {
        self.held.push((first, None));
        for thread in &self.threads {
            if thread.id != first && !thread.gone {
                expect_alive(ptrace::interrupt(thread.id));
            }
        }
        let is_held = |held: &[(Pid, Option<Signal>)], id| held.iter().any(|(one, _)| *one == id);
        loop {
            let held = &self.held;
            let missing = |thread: &Thread| !thread.gone && !is_held(held, thread.id);
            if !self.threads.iter().any(missing) {
                return;
            }
            let Some((id, status)) = self.next_stop() else {
                return;
            };
            if let WaitStatus::PtraceEvent(_, _, event) = status {
                self.at_event(id, event);
            }
            let signal = match status {
                WaitStatus::Stopped(_, signal) if signal != Signal::SIGTRAP => Some(signal),
                _ => None,
            };
            if !self.thread(id).gone {
                self.held.push((id, signal));
            }
        }
    }
}

impl Thread {
    fn new(id: Pid) -> Self {
        Thread {
            id,
            calls: Vec::new(),
            inside: false,
            in_region: false,
            is_close: false,
            marks: 0,
            regions: Vec::new(),
            stepping: false,
            steps: 0,
            gone: false,
        }
    }

    /// At a mark, which begins a region or ends one. Whether a step that lies in it was not come to
    /// before its end, which is then as good.
    fn at_mark(
        &mut self,
        begins: bool,
        counting: bool,
        number: usize,
        wanted: Option<Step>,
    ) -> bool {
        if begins {
            self.marks += 1;
            self.steps = 0;
            let mark = Spot::Mark(self.marks - 1);
            self.in_region =
                counting || wanted.is_some_and(|step| (step.thread, step.spot) == (number, mark));
            return false;
        }
        let was_in_region = std::mem::take(&mut self.in_region);
        if counting {
            self.regions.push(self.steps);
        }
        was_in_region && !counting
    }

    /// Whether its latest call is a step's.
    fn is_at(&self, number: usize, step: Step) -> bool {
        let Spot::Call(call) = step.spot else {
            return false;
        };
        step.thread == number && self.calls.len() == call as usize + 1
    }
}

/// A thread that somebody else kills is gone by the time it is resumed; its end is reported.
fn expect_alive(done: nix::Result<()>) {
    match done {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => panic!("tracing: {error}"),
    }
}

/// Kills a process that is traced for longer than anything takes, every instruction a step, on a
/// machine with much else to do.
fn kill_when_overdue(pid: Pid, in_time: &Receiver<()>) {
    if in_time.recv_timeout(15 * LIMIT) == Err(RecvTimeoutError::Timeout) {
        eprintln!("process {pid} is overdue");
        // It has not been waited for, so the number is its own.
        let _ = kill(pid, Signal::SIGKILL);
    }
}
