//! Two nodes: in one process, on two addresses, or in two processes.

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use conformance::remote::{RemoteNic, serve_nic};
use conformance::{CallersMemory, Fixture, Mortal};
use nic_soft::{SoftNic, SoftOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::Gid;
use verbs::nic::Nic;

/// Names the socket over which a child process is told what to do.
const CHILD: &str = "NIC_SOFT_TEST_CHILD";
/// Says to it that its memory is to be the caller's.
const CALLERS: &str = "NIC_SOFT_TEST_CALLERS";
/// Says to it that the kernel is not to copy for it.
const REFUSED: &str = "NIC_SOFT_TEST_REFUSED";

fn readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec::try_from(patience).expect("a short time");
    poll(&mut fds, Some(&timeout)).is_ok_and(|count| count > 0)
}

/// Patient, because many tests share the processors.
pub(crate) fn options(run_dir: &Path) -> SoftOptions {
    SoftOptions::new(run_dir).contact_timeout(Duration::from_secs(60))
}

pub(crate) fn open(run_dir: &Path) -> Arc<SoftNic> {
    SoftNic::open(&options(run_dir)).expect("an adapter")
}

/// One that leaves memory of the caller where it is: peers reach it through the kernel.
fn open_in_place(run_dir: &Path) -> Arc<SoftNic> {
    let mut options = options(run_dir);
    options.remap = false;
    SoftNic::open(&options).expect("an adapter")
}

/// Two adapters of one process on one GID.
pub(crate) fn within_a_process() -> Fixture {
    let run_dir = tempfile::tempdir().expect("a directory");
    let (a, b) = (open(run_dir.path()), open(run_dir.path()));
    let path = run_dir.path().to_owned();
    Fixture::new(a, b)
        .waiting_with(readable)
        .with_mortals(move || dropped(open(&path)))
        .keeping(run_dir)
}

/// A node of this process, which dies when it is dropped.
fn dropped(nic: Arc<SoftNic>) -> Mortal {
    Mortal {
        kill: Box::new({
            let nic = Arc::clone(&nic);
            move || drop(nic)
        }),
        nic,
    }
}

/// Two adapters with an address each, which leave memory of the caller where it is.
pub(crate) fn across_gids() -> Fixture {
    let run_dir = tempfile::tempdir().expect("a directory");
    let path = run_dir.path().to_owned();
    let on = move |last| {
        let gid = Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, last));
        let mut options = options(&path).gid(gid);
        options.remap = false;
        SoftNic::open(&options).expect("an adapter")
    };
    Fixture::new(on(1), on(2))
        .waiting_with(readable)
        .with_mortals(move || dropped(on(3)))
        .keeping(run_dir)
}

/// A child process, ended with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already, or now; either way there is nothing else to do about it here.
        let _ = self.0.kill();
        self.0.wait().expect("the child is ours to wait for");
    }
}

/// Two adapters of one process, all of whose memory is the caller's and stays where it is.
pub(crate) fn callers_memory() -> Fixture {
    let run_dir = tempfile::tempdir().expect("a directory");
    let path = run_dir.path().to_owned();
    let on = move |path: &Path| CallersMemory(open_in_place(path));
    let (a, b) = (on(&path), on(&path));
    let fixture = Fixture::new(Arc::new(a), Arc::new(b))
        .waiting_with(readable)
        .with_mortals(move || {
            let nic = open_in_place(&path);
            let mortal = dropped(Arc::clone(&nic));
            Mortal {
                nic: Arc::new(CallersMemory(nic)),
                ..mortal
            }
        })
        .keeping(run_dir);
    by_the_kernel(fixture)
}

/// Two processes, all of whose memory is the caller's and stays where it is.
pub(crate) fn callers_memory_across_processes() -> Fixture {
    let run_dir = tempfile::tempdir().expect("a directory");
    let (process, stream) = callers_child(run_dir.path());
    let reader = stream.try_clone().expect("cloned");
    let b = Arc::new(RemoteNic::new(reader, stream));
    let path = run_dir.path().to_owned();
    let a = CallersMemory(open_in_place(run_dir.path()));
    let fixture = Fixture::new(Arc::new(a), b)
        .waiting_with(readable)
        .with_mortals(move || killed(callers_child(&path)))
        .keeping((process, run_dir));
    by_the_kernel(fixture)
}

/// The same, where the kernel copies for neither.
pub(crate) fn refused_across_processes() -> Fixture {
    crate::refuse::refuse_copying();
    let run_dir = tempfile::tempdir().expect("a directory");
    let (process, stream) = refused_child(run_dir.path());
    let reader = stream.try_clone().expect("cloned");
    let b = Arc::new(RemoteNic::new(reader, stream));
    let path = run_dir.path().to_owned();
    let a = CallersMemory(open_in_place(run_dir.path()));
    Fixture::new(Arc::new(a), b)
        .waiting_with(readable)
        .with_mortals(move || killed(refused_child(&path)))
        .keeping((process, run_dir))
}

/// Of nodes whose memory the kernel copies to, byte by byte.
fn by_the_kernel(fixture: Fixture) -> Fixture {
    Fixture {
        words_appear_whole: false,
        ..fixture
    }
}

/// Starts a process that holds an adapter, and a stream to steer it.
pub(crate) fn child(run_dir: &Path) -> (Process, UnixStream) {
    child_that(run_dir, &[])
}

/// The same, with all of its memory the caller's.
pub(crate) fn callers_child(run_dir: &Path) -> (Process, UnixStream) {
    child_that(run_dir, &[(CALLERS, "1")])
}

/// The same, for which the kernel does not copy.
pub(crate) fn refused_child(run_dir: &Path) -> (Process, UnixStream) {
    child_that(run_dir, &[(CALLERS, "1"), (REFUSED, "1")])
}

/// The same, with something in its environment.
fn child_that(run_dir: &Path, has: &[(&str, &str)]) -> (Process, UnixStream) {
    let path = run_dir.join("child.sock");
    // A second child of a test meets the socket of the first.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("bound");
    let process = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "pair::node_of_another_process", "--nocapture"])
        .env(CHILD, run_dir)
        .envs(has.iter().copied())
        .stdout(Stdio::null())
        .spawn()
        .expect("a child");
    let process = Process(process);
    let (stream, _) = listener.accept().expect("the child connects");
    (process, stream)
}

/// What the child process does: nothing, when it is not one.
#[test]
fn node_of_another_process() {
    let Some(run_dir) = std::env::var_os(CHILD) else {
        return;
    };
    if std::env::var_os(REFUSED).is_some() {
        crate::refuse::refuse_copying();
    }
    let run_dir = Path::new(&run_dir);
    let stream = UnixStream::connect(run_dir.join("child.sock")).expect("the parent listens");
    let reader = stream.try_clone().expect("cloned");
    // The parent hangs up when it is done.
    let nic: Arc<dyn Nic> = match std::env::var_os(CALLERS) {
        Some(_) => Arc::new(CallersMemory(open_in_place(run_dir))),
        None => open_in_place(run_dir),
    };
    let served = serve_nic(nic, reader, stream);
    if let Err(error) = served {
        eprintln!("the parent went: {error}");
    }
}

/// A node of a process that is killed.
fn killed((process, stream): (Process, UnixStream)) -> Mortal {
    let reader = stream.try_clone().expect("cloned");
    Mortal {
        nic: Arc::new(RemoteNic::new(reader, stream)),
        kill: Box::new(move || drop(process)),
    }
}

/// Two processes on one GID; node B is the other one.
pub(crate) fn across_processes() -> Fixture {
    let run_dir = tempfile::tempdir().expect("a directory");
    let (process, stream) = child(run_dir.path());
    let reader = stream.try_clone().expect("cloned");
    let b = Arc::new(RemoteNic::new(reader, stream));
    let path = run_dir.path().to_owned();
    Fixture::new(open(run_dir.path()), b)
        .waiting_with(readable)
        .with_mortals(move || killed(child(&path)))
        .keeping((process, run_dir))
}
