//! What a peer was asked for, and comes to only when nobody waits for it any more.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use conformance::remote::RemoteNic;
use rustix::process::{Pid, Signal, WaitOptions};
use verbs::typed::{CompletionQueue, ConnectOptions, Context, QpOptions, QueuePair, Rc, Wr};
use verbs::{Access, QpAttr, QpState, RemoteAddr, Sge, WcStatus};

use crate::death::next;
use crate::pair::{self, Process};

#[test]
fn an_atomic_of_an_earlier_connection_is_not_carried_out() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let child = pair::callers_child(run_dir.path());
    asks_and_connects_anew(run_dir.path(), child, |result, place, number| {
        Wr::fetch_add(result, place, u64::from(number[0]))
    });
}

#[test]
fn a_copy_of_an_earlier_connection_is_not_made() {
    crate::refuse::refuse_copying();
    let run_dir = tempfile::tempdir().expect("a directory");
    let child = pair::refused_child(run_dir.path());
    asks_and_connects_anew(run_dir.path(), child, |_, place, number| {
        Wr::write_inline(number, place)
    });
}

/// Has a process go on that may have been stopped, also when a test fails: its objects are asked to go then.
struct Continues(Pid);

impl Drop for Continues {
    fn drop(&mut self) {
        let told = rustix::process::kill_process(self.0, Signal::CONT);
        assert!(told.is_ok() || std::thread::panicking(), "{told:?}");
    }
}

/// A peer's process stands still when it is asked to change a word, and goes on when the queue pair that has asked
/// has been connected anew, of which its own knows nothing.
fn asks_and_connects_anew(
    run_dir: &Path,
    (process, stream): (Process, UnixStream),
    change: impl for<'a> Fn(&'a [Sge; 1], RemoteAddr, &'a [u8; 8]) -> Wr<'a, Rc>,
) {
    let context = Context::new(pair::open(run_dir));
    let reader = stream.try_clone().expect("cloned");
    let there = Context::new(Arc::new(RemoteNic::new(reader, stream)));
    let (pd, their_pd) = (
        context.alloc_pd().expect("a domain"),
        there.alloc_pd().expect("a domain"),
    );
    let mut cq = context.create_cq(16).expect("a queue");
    let their_cq = there.create_cq(16).expect("a queue");
    let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let made = their_pd.create_qp(&QpOptions::on(&their_cq));
    let mut their_qp: QueuePair<Rc> = made.expect("a queue pair");
    let memory = pd.allocate(64, Access::EVERYTHING).expect("memory");
    let theirs = their_pd.allocate(64, Access::EVERYTHING).expect("memory");
    let (to, options) = (
        their_qp.endpoint().expect("a GID"),
        ConnectOptions::default(),
    );
    qp.connect(&to, &options).expect("connected");
    let connected = their_qp.connect(&qp.endpoint().expect("a GID"), &options);
    connected.expect("connected");
    let (place, sges) = (theirs.remote(0), [memory.sge(0..8)]);
    // What it finds there, and it is no more than that.
    let look = |qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue, id| {
        let read = Wr::fetch_add(&sges, place, 0).id(id);
        qp.post_send(&[read]).expect("posted");
        let done = next(cq, "the word");
        assert_eq!((done.id, done.status), (id, WcStatus::Success));
        let mut word = [0; 8];
        memory.read(0, &mut word);
        u64::from_ne_bytes(word)
    };
    assert_eq!(look(&mut qp, &mut cq, 1), 0);
    qp.post_send(&[change(&sges, place, &1u64.to_le_bytes()).id(2)])
        .expect("posted");
    assert_eq!(next(&mut cq, "the change").status, WcStatus::Success);
    assert_eq!(look(&mut qp, &mut cq, 3), 1);

    let pid = Pid::from_child(&process.0);
    let continues = Continues(pid);
    rustix::process::kill_process(pid, Signal::STOP).expect("told");
    rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).expect("stopped");
    qp.post_send(&[change(&sges, place, &2u64.to_le_bytes()).id(4)])
        .expect("posted");
    qp.modify(&QpAttr::to(QpState::Err)).expect("failed");
    let given_up = next(&mut cq, "the flush");
    assert_eq!((given_up.id, given_up.status), (4, WcStatus::WrFlushErr));
    qp.modify(&QpAttr::to(QpState::Reset)).expect("reset");
    qp.connect(&to, &options).expect("connected");
    drop(continues);
    assert_eq!(look(&mut qp, &mut cq, 5), 1, "nobody has waited for it");
}
