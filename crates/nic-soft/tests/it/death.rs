//! Processes that die: the others see errors, and nothing stays behind.

use std::any::Any;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conformance::remote::RemoteNic;
use verbs::nic::AsyncEvent;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Rc, Uc, Ud, Wr,
};
use verbs::{Access, Qkey, QpState, RecvWr, RemoteAddr, Sge, Wc, WcStatus};

use crate::pair::{self, Process};

/// Keeps what speaks to a process that is dead, for the rest of the run: dropping it in an orderly
/// way would ask that process.
pub(crate) fn keep(proxy: impl Send + 'static) {
    static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());
    KEPT.lock()
        .expect("no test panics here")
        .push(Box::new(proxy));
}

const QKEY: Qkey = Qkey(7);

/// Waits for what must happen soon.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "waited in vain for {what}"
        );
        std::thread::yield_now();
    }
}

pub(crate) fn next(cq: &mut CompletionQueue, what: &str) -> Wc {
    let mut out = [Wc::default()];
    until(what, || {
        (cq.poll(&mut out).expect("no overrun") == 1).then_some(out[0])
    })
}

/// One end: a queue pair of each kind, all on one completion queue.
struct End {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    rc: QueuePair<Rc>,
    uc: QueuePair<Uc>,
    ud: QueuePair<Ud>,
}

impl End {
    fn new(context: Context) -> Self {
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(64).expect("a queue");
        let options = QpOptions::on(&cq);
        let rc = pd.create_qp(&options).expect("a queue pair");
        let uc = pd.create_qp(&options).expect("a queue pair");
        let mut ud: QueuePair<Ud> = pd.create_qp(&options).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let memory = pd.allocate(4096, Access::EVERYTHING).expect("memory");
        End {
            context,
            pd,
            cq,
            memory,
            rc,
            uc,
            ud,
        }
    }

    fn connect(&mut self, peer: &End) {
        let options = ConnectOptions::default();
        self.rc
            .connect(&peer.rc.endpoint().expect("a GID"), &options)
            .expect("connected");
        self.uc
            .connect(&peer.uc.endpoint().expect("a GID"), &options)
            .expect("connected");
    }

    fn recv(&mut self, id: u64) {
        let sges = [self.memory.sge(0..256)];
        self.rc
            .post_recv(&[RecvWr { id, sges: &sges }])
            .expect("posted");
        self.ud
            .post_recv(&[RecvWr { id, sges: &sges }])
            .expect("posted");
    }

    /// Sends something in each way; all of it is received.
    fn greet(&mut self, peer: &mut End) {
        peer.recv(1);
        let remote = peer.memory.remote(512);
        self.rc
            .post_send(&[Wr::send_inline(b"rc"), Wr::write_inline(b"rc", remote)])
            .expect("posted");
        self.uc
            .post_send(&[Wr::write_inline(b"uc", remote)])
            .expect("posted");
        let ah = self
            .pd
            .create_ah(peer.context.gid().expect("a GID"))
            .expect("an address");
        self.ud
            .post_send(&[Wr::send_inline_to(&ah, peer.ud.num(), QKEY, b"ud")])
            .expect("posted");
        for _ in 0..4 {
            assert!(next(&mut self.cq, "a greeting sent").is_ok());
        }
        for _ in 0..2 {
            assert!(next(&mut peer.cq, "a greeting received").is_ok());
        }
    }
}

fn start(run_dir: &Path) -> (Process, Context) {
    steer(pair::child(run_dir))
}

fn steer((process, stream): (Process, UnixStream)) -> (Process, Context) {
    let reader = stream.try_clone().expect("cloned");
    (
        process,
        Context::new(Arc::new(RemoteNic::new(reader, stream))),
    )
}

#[test]
fn a_dead_peer_fails_its_queue_pairs_and_leaves_nothing() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = pair::open(run_dir.path());
    let mut here = End::new(Context::new(nic.clone()));
    for round in 0..3 {
        let (mut process, there) = start(run_dir.path());
        let mut there = End::new(there);
        here.connect(&there);
        there.connect(&here);
        here.greet(&mut there);
        there.greet(&mut here);
        here.recv(77);
        assert_eq!(nic.usage().peers, 1, "round {round}");
        assert!(nic.usage().lanes >= 2);

        process.0.kill().expect("killed");
        process.0.wait().expect("ended");
        keep(there);

        // What the dead one had in flight is gone; a RECV of a reliable connection is flushed.
        let flushed = next(&mut here.cq, "the flushed RECV");
        assert_eq!((flushed.id, flushed.status), (77, WcStatus::WrFlushErr));
        assert_eq!(here.rc.state(), QpState::Err);
        here.rc
            .post_send(&[Wr::send_inline(b"hello?")])
            .expect("posted");
        assert_eq!(next(&mut here.cq, "an error").status, WcStatus::WrFlushErr);
        // An unreliable one is none the wiser.
        let nowhere = here.memory.remote(0);
        here.uc
            .post_send(&[Wr::write_inline(b"hello?", nowhere)])
            .expect("posted");
        assert!(next(&mut here.cq, "an unreliable success").is_ok());
        let gone = until("the event", || match *here.context.async_event()? {
            AsyncEvent::PeerGone(qpn) => Some(qpn),
            _ => None,
        });
        assert_eq!(gone, here.rc.num());

        // Lanes are given back by whoever polls.
        until("lanes and peers to be given back", || {
            assert_eq!(here.cq.poll(&mut [Wc::default()]), Ok(0));
            let usage = nic.usage();
            ((usage.lanes, usage.peers) == (0, 0)).then_some(())
        });
        let fresh = here
            .pd
            .create_qp(&QpOptions::on(&here.cq))
            .expect("a queue pair");
        here.rc = fresh;
        here.uc = here
            .pd
            .create_qp(&QpOptions::on(&here.cq))
            .expect("a queue pair");
        while here.context.async_event().is_some() {}
        // The UD queue pair's RECV of this round is still posted.
        here.ud = here
            .pd
            .create_qp(&QpOptions::on(&here.cq))
            .expect("a queue pair");
        here.ud.activate(QKEY).expect("ready");
    }
    let directory = run_dir.path().join("127.0.0.1");
    let files = std::fs::read_dir(directory).expect("readable").count();
    assert!(
        files <= 4,
        "two instances' lock and socket, not {files} files"
    );
}

#[test]
fn a_lane_that_ends_while_it_is_read_for_a_failed_queue_pair_is_let_go() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = pair::open(run_dir.path());
    let mut here = End::new(Context::new(nic.clone()));
    let (mut process, there) = start(run_dir.path());
    let mut there = End::new(there);
    here.connect(&there);
    there.connect(&here);
    // No other lane may end in the same poll: what it takes along would not be seen.
    here.recv(1);
    let posted = there.rc.post_send(&[Wr::send_inline(b"the only one")]);
    posted.expect("posted");
    assert!(next(&mut here.cq, "the message").is_ok());
    assert_eq!(nic.usage().lanes, 1);
    process.0.kill().expect("killed");
    process.0.wait().expect("ended");
    keep(there);
    // Nobody polls before all is known of the end: so the first poll finds the queue pair failed, and
    // comes to its lane's end for it.
    until("both connections to end", || {
        let is_known = here.rc.state() == QpState::Err && nic.usage().connections == 0;
        is_known.then_some(())
    });
    // That the sender has gone is told a little later than that its connection has ended.
    until("its lane to be let go", || {
        assert_eq!(here.cq.poll(&mut [Wc::default()]), Ok(0));
        (nic.usage().lanes == 0).then_some(())
    });
}

#[test]
fn a_request_under_way_to_a_dying_peer_completes_with_an_error() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = End::new(Context::new(pair::open(run_dir.path())));
    let (mut process, there) = start(run_dir.path());
    let mut there = End::new(there);
    here.connect(&there);
    there.connect(&here);
    // The peer has no RECV, and the sender waits for one for ever.
    here.rc
        .post_send(&[
            Wr::send_inline(b"wait").id(5),
            Wr::send_inline(b"too").id(6),
        ])
        .expect("posted");
    let mut out = [Wc::default()];
    for _ in 0..1000 {
        assert_eq!(here.cq.poll(&mut out), Ok(0));
    }
    process.0.kill().expect("killed");
    process.0.wait().expect("ended");
    keep(there);
    let failed = next(&mut here.cq, "the error");
    assert_eq!((failed.id, failed.status), (5, WcStatus::RetryExcErr));
    let flushed = next(&mut here.cq, "the flush");
    assert_eq!((flushed.id, flushed.status), (6, WcStatus::WrFlushErr));
}

#[test]
fn an_atomic_that_a_dying_peer_was_asked_for_completes_with_an_error() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let child = pair::callers_child(run_dir.path());
    asks_a_dying_peer(run_dir.path(), child, |result, place, id| {
        Wr::fetch_add(result, place, 1).id(id)
    });
}

#[test]
fn a_copy_that_a_dying_peer_was_asked_for_completes_with_an_error() {
    crate::refuse::refuse_copying();
    for is_read in [false, true] {
        let run_dir = tempfile::tempdir().expect("a directory");
        let child = pair::refused_child(run_dir.path());
        asks_a_dying_peer(run_dir.path(), child, |sges, place, id| match is_read {
            true => Wr::read(sges, place).id(id),
            false => Wr::write(sges, place).id(id),
        });
    }
}

/// A peer's process answers the first request that it alone can carry out, and dies when it is asked for two more.
fn asks_a_dying_peer(
    run_dir: &Path,
    child: (Process, UnixStream),
    ask: impl for<'a> Fn(&'a [Sge; 1], RemoteAddr, u64) -> Wr<'a, Rc>,
) {
    let mut here = End::new(Context::new(pair::open(run_dir)));
    let (mut process, there) = steer(child);
    let mut there = End::new(there);
    here.connect(&there);
    there.connect(&here);
    let (place, sges) = (there.memory.remote(64), [here.memory.sge(0..8)]);
    let ask = |id| ask(&sges, place, id);
    here.rc.post_send(&[ask(4)]).expect("posted");
    let done = next(&mut here.cq, "the first answer");
    assert_eq!((done.id, done.status), (4, WcStatus::Success));
    // It stands still, and cannot carry anything out.
    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("told");
    let stops = rustix::process::WaitOptions::UNTRACED;
    rustix::process::waitpid(Some(pid), stops).expect("stopped");
    here.rc.post_send(&[ask(5), ask(6)]).expect("posted");
    let mut out = [Wc::default()];
    for _ in 0..1000 {
        assert_eq!(here.cq.poll(&mut out), Ok(0));
    }
    process.0.kill().expect("killed");
    process.0.wait().expect("ended");
    keep(there);
    let failed = next(&mut here.cq, "the error");
    assert_eq!((failed.id, failed.status), (5, WcStatus::RetryExcErr));
    let flushed = next(&mut here.cq, "the flush");
    assert_eq!((flushed.id, flushed.status), (6, WcStatus::WrFlushErr));
}

#[test]
fn a_dead_peer_that_never_spoke_is_noticed() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = End::new(Context::new(pair::open(run_dir.path())));
    let (mut process, there) = start(run_dir.path());
    let mut there = End::new(there);
    here.connect(&there);
    there.connect(&here);
    here.recv(9);
    process.0.kill().expect("killed");
    process.0.wait().expect("ended");
    keep(there);
    let flushed = next(&mut here.cq, "the flushed RECV");
    assert_eq!((flushed.id, flushed.status), (9, WcStatus::WrFlushErr));
}

#[test]
fn an_instance_number_is_free_again_once_its_process_is_dead() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = pair::open(run_dir.path());
    assert_eq!(nic.usage().instance, 0);
    for _ in 0..3 {
        let (mut process, there) = start(run_dir.path());
        let pd = there.alloc_pd().expect("a domain");
        let cq = there.create_cq(1).expect("a queue");
        let qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        assert_eq!(qp.num().0 >> 14, 1, "the lowest free number");
        process.0.kill().expect("killed");
        process.0.wait().expect("ended");
        keep((pd, cq, qp, there));
    }
    drop(nic);
    assert_eq!(pair::open(run_dir.path()).usage().instance, 0);
}

#[test]
fn an_instance_number_is_free_again_once_its_adapter_is_dropped() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = pair::open(run_dir.path());
    // A process that is being started has all that this one has, until it runs its program.
    let [(ready, is_ready), (go_on, goes_on)] = [(); 2].map(|()| {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        (writer, reader)
    });
    let mut command = std::process::Command::new("/bin/true");
    let stands = move || {
        rustix::io::write(&ready, b"!")?;
        rustix::io::read(&goes_on, &mut [0u8; 1])?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and touches nothing else.
    unsafe { command.pre_exec(stands) };
    let starting = std::thread::spawn(move || command.status().expect("a program that ends"));
    rustix::io::read(&is_ready, &mut [0u8; 1]).expect("a process that stands");
    drop(nic);
    let next = pair::open(run_dir.path()).usage().instance;
    rustix::io::write(&go_on, b"!").expect("a process that goes on");
    assert!(starting.join().expect("started").success());
    assert_eq!(next, 0);
}

#[test]
fn nobody_home_is_unreachable() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut here = End::new(Context::new(pair::open(run_dir.path())));
    let (mut process, there) = start(run_dir.path());
    let there = End::new(there);
    let endpoint = there.rc.endpoint().expect("a GID");
    process.0.kill().expect("killed");
    process.0.wait().expect("ended");
    keep(there);
    let refused = here
        .rc
        .connect(&endpoint, &ConnectOptions::default())
        .expect_err("nobody there");
    assert!(
        refused.to_string().starts_with("cannot reach instance 1"),
        "{refused}"
    );
}
