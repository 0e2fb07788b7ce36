//! Datagrams whose sender goes as soon as they have completed, where they wait for contact with their receiver.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance::remote::RemoteNic;
use nic_soft::{SoftNic, SoftOptions};
use rustix::process::{Pid, Signal, WaitOptions};
use verbs::typed::{
    AddressHandle, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Ud, Wr,
};
use verbs::{Access, Qkey, QpAttr, QpNum, QpState, RecvWr, Wc, WcStatus};

use crate::pair::{self, Process};

const QKEY: Qkey = Qkey(5);
/// Tells a child process where to send its datagram.
const SPEAKER: &str = "NIC_SOFT_TEST_SPEAKER";
/// What it says first.
const SAYS: &str = "polled in vain: ";
/// Looks at a completion that must not be there.
const LOOKS: usize = 1000;

/// Waits for what must happen soon.
fn next(cq: &mut CompletionQueue, what: &str) -> Wc {
    let (mut out, began) = ([Wc::default()], Instant::now());
    while cq.poll(&mut out).expect("no overrun") == 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::yield_now();
    }
    out[0]
}

/// Somebody who sends datagrams, and keeps them until contact is made.
struct Sender {
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    ah: AddressHandle,
    _pd: ProtectionDomain,
}

impl Sender {
    fn new(mut options: SoftOptions) -> Self {
        options.datagrams_wait = true;
        let context = Context::new(SoftNic::open(&options).expect("an adapter"));
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(8).expect("a queue");
        let mut ud: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let ah = pd.create_ah(context.gid().expect("a GID"));
        Sender {
            ud,
            cq,
            ah: ah.expect("an address"),
            _pd: pd,
        }
    }

    fn send(&mut self, to: QpNum, id: u64) {
        let bytes = id.to_ne_bytes();
        let wr = Wr::send_inline_to(&self.ah, to, QKEY, &bytes).id(id);
        self.ud.post_send(&[wr]).expect("posted");
    }

    fn has_completed(&mut self) -> bool {
        self.cq.poll(&mut [Wc::default()]).expect("no overrun") == 1
    }
}

/// What the child process does: nothing, when it is not one.
#[test]
fn speaker_of_another_process() {
    let Some(told) = std::env::var_os(SPEAKER) else {
        return;
    };
    let told = told.into_string().expect("text");
    let (qpn, run_dir) = told.split_once(' ').expect("two words");
    let to = QpNum(qpn.parse().expect("a number"));
    let mut sender = Sender::new(pair::options(Path::new(run_dir)));
    sender.send(to, 9);
    let in_vain = (0..LOOKS).take_while(|_| !sender.has_completed()).count();
    println!("\n{SAYS}{in_vain}");
    if in_vain == LOOKS {
        assert!(next(&mut sender.cq, "it completes").is_ok());
    }
    // Nothing is destroyed and nobody is told.
    // SAFETY: it only ends the process.
    unsafe { libc::_exit(0) };
}

/// Another process, which has a RECV for datagrams.
struct Receiver {
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
    // Dropped last: the others are its objects.
    process: Process,
}

impl Receiver {
    fn start(run_dir: &Path) -> Self {
        let (process, stream) = pair::child(run_dir);
        let reader = stream.try_clone().expect("cloned");
        let context = Context::new(Arc::new(RemoteNic::new(reader, stream)));
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(8).expect("a queue");
        let mut ud: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let memory = pd.allocate(64, Access::LOCAL_WRITE).expect("memory");
        let sges = [memory.sge(0..64)];
        let posted = ud.post_recv(&[RecvWr { id: 1, sges: &sges }]);
        posted.expect("posted");
        Receiver {
            ud,
            cq,
            memory,
            _pd: pd,
            process,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process.0)
    }

    fn stop(&self) {
        rustix::process::kill_process(self.pid(), Signal::STOP).expect("told");
        let waited = rustix::process::waitpid(Some(self.pid()), WaitOptions::UNTRACED);
        let (_, status) = waited.expect("waited").expect("it is there");
        assert!(status.stopped(), "{status:?}");
    }

    fn go_on(&self) {
        rustix::process::kill_process(self.pid(), Signal::CONT).expect("told");
    }

    fn hears(&mut self) -> u64 {
        let heard = next(&mut self.cq, "the datagram comes");
        assert!(heard.is_ok(), "{heard:?}");
        let mut bytes = [0; 8];
        self.memory.read(verbs::wr::GRH_LEN, &mut bytes);
        u64::from_ne_bytes(bytes)
    }
}

impl Drop for Receiver {
    /// A test that fails while it is stopped must not wait for it.
    fn drop(&mut self) {
        // It may have ended.
        let _ = rustix::process::kill_process(self.pid(), Signal::CONT);
    }
}

#[test]
fn a_datagram_that_has_completed_arrives_though_its_sender_has_exited() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut receiver = Receiver::start(run_dir.path());
    // So that contact is not made before the sender has looked for its completion.
    receiver.stop();
    let path = run_dir.path().to_str().expect("text");
    let speaker = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "farewell::speaker_of_another_process"])
        .arg("--nocapture")
        .env(SPEAKER, format!("{} {path}", receiver.ud.num().0))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut speaker = Process(speaker);
    let output = speaker.0.stdout.take().expect("its output");
    let mut lines = BufReader::new(output).lines();
    let said = lines.find_map(|line| Some(line.expect("text").strip_prefix(SAYS)?.to_owned()));
    assert_eq!(
        said,
        Some(LOOKS.to_string()),
        "it waits in the queue for contact"
    );
    receiver.go_on();
    assert!(speaker.0.wait().expect("ended").success());
    assert_eq!(receiver.hears(), 9);
}

#[test]
fn what_was_posted_is_sent_before_its_queue_pair_goes() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut receiver = Receiver::start(run_dir.path());
    receiver.stop();
    let mut sender = Sender::new(pair::options(run_dir.path()));
    sender.send(receiver.ud.num(), 9);
    assert!(!sender.has_completed(), "nobody can have answered");
    std::thread::scope(|scope| {
        let going = scope.spawn(move || drop(sender));
        receiver.go_on();
        going.join().expect("it goes");
    });
    assert_eq!(receiver.hears(), 9);
}

#[test]
fn who_takes_the_number_of_a_process_that_died_is_waited_for() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut dies = Receiver::start(run_dir.path());
    let mut sender = Sender::new(pair::options(run_dir.path()));
    dies.stop();
    sender.send(dies.ud.num(), 1);
    assert!(!sender.has_completed(), "nobody can have answered");
    let before = dies.ud.num();
    dies.process.0.kill().expect("killed");
    dies.process.0.wait().expect("ended");
    // What speaks to it would ask it to give everything back.
    crate::death::keep(dies);
    assert!(next(&mut sender.cq, "nobody is there").is_ok());
    let mut successor = Receiver::start(run_dir.path());
    assert_eq!(successor.ud.num(), before);
    successor.stop();
    sender.send(before, 2);
    assert!(!sender.has_completed(), "nobody can have answered");
    successor.go_on();
    assert!(next(&mut sender.cq, "it completes").is_ok());
    assert_eq!(successor.hears(), 2);
}

#[test]
fn a_process_that_does_not_answer_holds_a_queue_up_once() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut awake = Receiver::start(run_dir.path());
    let asleep = Receiver::start(run_dir.path());
    // It ends soon; the time-out of one that answers must not.
    let mut sender = Sender::new(pair::options(run_dir.path()));
    sender.send(awake.ud.num(), 1);
    assert_eq!(next(&mut sender.cq, "it completes").id, 1);
    assert_eq!(awake.hears(), 1);
    drop(sender);
    asleep.stop();
    let timeout = Duration::from_millis(50);
    let mut sender = Sender::new(pair::options(run_dir.path()).contact_timeout(timeout));
    for (to, id) in [(&asleep, 2), (&asleep, 3)] {
        sender.send(to.ud.num(), id);
    }
    for id in 2..4 {
        let done = next(&mut sender.cq, "nobody answers");
        assert!(done.is_ok() && done.id == id, "{done:?}");
    }
    // From now on none waits there.
    sender.send(asleep.ud.num(), 4);
    assert!(sender.has_completed(), "it waits a second time");
    asleep.go_on();
}

#[test]
fn what_fails_while_it_waits_says_nothing_of_the_process_it_was_for() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let asleep = Receiver::start(run_dir.path());
    asleep.stop();
    // Much longer than all below takes while both requests wait for one attempt.
    let timeout = Duration::from_secs(10);
    let mut sender = Sender::new(pair::options(run_dir.path()).contact_timeout(timeout));
    let memory = sender._pd.allocate(64, Access::LOCAL_WRITE);
    let memory = memory.expect("memory");
    let to = asleep.ud.num();
    let sges = [memory.sge(0..8)];
    let gathered = Wr::send_to(&sender.ah, to, QKEY, &sges).id(1);
    sender.ud.post_send(&[gathered]).expect("posted");
    // Another queue pair's, which completes when the attempt that both wait for is over.
    let made = sender._pd.create_qp(&QpOptions::on(&sender.cq));
    let mut other: QueuePair<Ud> = made.expect("a queue pair");
    other.activate(QKEY).expect("ready");
    let datagram = Wr::send_inline_to(&sender.ah, to, QKEY, b"other").id(2);
    other.post_send(&[datagram]).expect("posted");
    drop(memory);
    let failed = next(&mut sender.cq, "it fails");
    assert_eq!((failed.id, failed.status), (1, WcStatus::LocProtErr));
    let over = next(&mut sender.cq, "nobody answers");
    assert_eq!((over.id, over.status), (2, WcStatus::Success));
    sender
        .ud
        .modify(&QpAttr::to(QpState::Rts))
        .expect("ready again");
    sender.send(to, 3);
    assert!(!sender.has_completed(), "for an attempt of its own");
    asleep.go_on();
    drop(other);
}
