//! Processes that answer when they like, and some that stand still: nobody's post waits for them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nic_soft::{SoftNic, SoftOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::SealFlags;
use rustix::process::{Pid, Signal, WaitOptions};
use verbs::typed::{
    AddressHandle, CompletionChannel, CompletionQueue, ConnectOptions, Connected, Context,
    Endpoint, ProtectionDomain, QpOptions, QueuePair, Rc, Uc, Ud, Wr,
};
use verbs::{
    Psn, QpAttr, QpNum, QpState, RecvWr, RemoteAddr, Rkey, Transport, VerbsError, Wc, WcStatus,
};

use crate::host::{Host, publish_credits, publish_private, publish_qp, publish_region};
use crate::layout::STAGES;
use crate::speaker::{COPY, HELLO, OK, REGION, Segments, Speaker, home, memfd, qpn, send};
use crate::victim::{Honest, QKEY, until};

const INSTANCE: u32 = 100;
const KEY: u32 = 1 << 16 | 7;
const LEN: u64 = 4096;

/// A NIC that has introduced itself and answers no other question, and a victim of its silence.
struct Scene {
    nic: Arc<SoftNic>,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    segments: Arc<Segments>,
    speaker: Arc<Speaker>,
    /// Connections over which it was asked.
    asked: Arc<Mutex<Vec<OwnedFd>>>,
    memory: OwnedFd,
    _host: Host,
    _run_dir: tempfile::TempDir,
}

impl Scene {
    fn new(contact_timeout: Duration) -> Self {
        let run_dir = tempfile::tempdir().expect("a directory");
        let mut options = SoftOptions::new(run_dir.path());
        options.contact_timeout = contact_timeout;
        let nic = SoftNic::open(&options).expect("an adapter");
        let context = Context::new(Arc::<SoftNic>::clone(&nic));
        let pd = context.alloc_pd().expect("a domain");
        let channel = context.create_channel().expect("a channel");
        let cq = context.create_cq_on(64, &channel).expect("a queue");
        let speaker = Arc::new(Speaker::new(run_dir.path(), INSTANCE));
        let segments = Arc::new(speaker.segments());
        let asked = Arc::new(Mutex::new(Vec::new()));
        publish_region(&segments.published.mrs[1], KEY, LEN);
        let host = {
            let (speaks, hands) = (Arc::clone(&speaker), Arc::clone(&segments));
            let asked = Arc::clone(&asked);
            Host::start(&speaker, move |socket, request| match request.code {
                HELLO => {
                    let fds = [hands.published_file.as_fd(), hands.inbox_file.as_fd()];
                    send(socket, &speaks.answer(OK), &fds).expect("sent");
                }
                REGION | COPY => {
                    let socket = socket.try_clone().expect("a copy");
                    let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                    asked.push(socket);
                }
                _ => {}
            })
        };
        Scene {
            nic,
            pd,
            cq,
            channel,
            segments,
            speaker,
            asked,
            memory: memfd(LEN, SealFlags::SHRINK | SealFlags::GROW),
            _host: host,
            _run_dir: run_dir,
        }
    }

    /// Connects a queue pair to one of the silent process.
    fn connect<T: Connected>(&self, index: u32, transport: Transport) -> QueuePair<T> {
        let options = QpOptions::on(&self.cq);
        let mut qp: QueuePair<T> = self.pd.create_qp(&options).expect("a queue pair");
        self.connect_again(&mut qp, index, transport);
        qp
    }

    fn connect_again<T: Connected>(&self, qp: &mut QueuePair<T>, index: u32, transport: Transport) {
        let published = &self.segments.published;
        publish_credits(published, index as usize);
        let entry = &published.qps[index as usize];
        publish_qp(entry, transport, qp.num().0, index);
        let there = Endpoint {
            gid: home(),
            qpn: QpNum(qpn(INSTANCE, index)),
            psn: Psn(0),
        };
        qp.connect(&there, &ConnectOptions::default())
            .expect("connected");
    }

    /// Answers all that was asked, once it was asked so often.
    fn answer(&self, count: usize) {
        let sockets = until("the silent one to be asked", || {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            (asked.len() == count).then(|| std::mem::take(&mut *asked))
        });
        for socket in sockets {
            let fds = [self.memory.as_fd()];
            send(&socket, &self.speaker.answer(OK), &fds).expect("sent");
        }
    }

    fn poll(&mut self) -> Option<(u64, WcStatus)> {
        let mut out = [Wc::default()];
        let count = self.cq.poll(&mut out).expect("no overrun");
        (count == 1).then_some((out[0].id, out[0].status))
    }

    /// Sleeps until something completes.
    fn sleep(&mut self) -> (u64, WcStatus) {
        until("a sleeper's completion", || {
            self.cq.arm(false).expect("it has a channel");
            if let Some(done) = self.poll() {
                return Some(done);
            }
            let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
            let long = Timespec {
                tv_sec: 120,
                tv_nsec: 0,
            };
            let ready = poll(&mut fds, Some(&long)).expect("polled");
            assert_eq!(ready, 1, "the sleeper is not woken");
            self.channel.event().expect("an event or none");
            self.poll()
        })
    }
}

fn place() -> RemoteAddr {
    RemoteAddr {
        addr: 0x10_0000,
        rkey: Rkey(KEY),
    }
}

#[test]
fn a_request_waits_for_an_answer_and_its_poster_does_not() {
    let _alone = crate::victim::alone();
    // So long that whoever waits for it is found waiting.
    let mut scene = Scene::new(Duration::from_secs(3600));
    let mut rc: QueuePair<Rc> = scene.connect(2, Transport::Rc);
    let mut uc: QueuePair<Uc> = scene.connect(3, Transport::Uc);
    let mut other: QueuePair<Rc> = scene.connect(4, Transport::Rc);
    rc.post_send(&[
        Wr::write_inline(b"first", place()).id(1),
        Wr::send_inline(b"behind").id(2),
    ])
    .expect("posted");
    uc.post_send(&[Wr::write_inline(b"later", place().offset(8)).id(3)])
        .expect("posted");
    // Neither its poster nor anybody else waits, the NIC's thread least of all.
    other
        .post_send(&[Wr::send_inline(b"meanwhile").id(4)])
        .expect("posted");
    assert_eq!(scene.sleep(), (4, WcStatus::Success));
    for _ in 0..100 {
        assert_eq!(scene.poll(), None, "nothing was answered");
    }
    scene.answer(2);
    let mut done: Vec<_> = (0..3).map(|_| scene.sleep()).collect();
    let of_rc: Vec<_> = done.iter().filter(|(id, _)| *id < 3).collect();
    assert_eq!(
        of_rc,
        [&(1, WcStatus::Success), &(2, WcStatus::Success)],
        "in order"
    );
    done.sort_by_key(|(id, _)| *id);
    assert_eq!(done[2], (3, WcStatus::Success));
}

#[test]
fn a_request_that_is_never_answered_fails_and_its_peer_lives_on() {
    let _alone = crate::victim::alone();
    // Its connections are made in this time, too.
    let mut scene = Scene::new(Duration::from_secs(4));
    let mut rc: QueuePair<Rc> = scene.connect(2, Transport::Rc);
    let mut uc: QueuePair<Uc> = scene.connect(3, Transport::Uc);
    let mut other: QueuePair<Rc> = scene.connect(4, Transport::Rc);
    rc.post_send(&[
        Wr::write_inline(b"first", place()).id(1),
        Wr::send_inline(b"behind").id(2),
    ])
    .expect("posted");
    assert_eq!(scene.sleep(), (1, WcStatus::RetryExcErr));
    assert_eq!(scene.sleep(), (2, WcStatus::WrFlushErr));
    assert_eq!(rc.state(), QpState::Err);
    // Over an unreliable connection it is lost.
    uc.post_send(&[Wr::write_inline(b"lost", place()).id(3)])
        .expect("posted");
    assert_eq!(scene.sleep(), (3, WcStatus::Success));
    // One that is slow to answer is not taken for one that has gone.
    other
        .post_send(&[Wr::send_inline(b"still there").id(4)])
        .expect("posted");
    assert_eq!(scene.sleep(), (4, WcStatus::Success));
    assert_eq!(scene.nic.usage().peers, 1);
    // Answers that come late are of use to whoever comes then.
    scene.answer(2);
    rc.modify(&QpAttr::to(QpState::Reset)).expect("reset");
    scene.connect_again(&mut rc, 2, Transport::Rc);
    let written = until("a late answer to be taken", || {
        rc.post_send(&[Wr::write_inline(b"second", place()).id(5)])
            .expect("posted");
        let (id, status) = scene.sleep();
        assert_eq!(id, 5);
        if status != WcStatus::Success {
            // This one was asked for anew, before the late answers were taken.
            rc.modify(&QpAttr::to(QpState::Reset)).expect("reset");
            scene.connect_again(&mut rc, 2, Transport::Rc);
        }
        (status == WcStatus::Success).then_some(status)
    });
    assert_eq!(written, WcStatus::Success);
}

#[test]
fn no_more_is_asked_than_answers_find_room() {
    let _alone = crate::victim::alone();
    let mut scene = Scene::new(Duration::from_secs(3600));
    let mut qps: Vec<QueuePair<Rc>> = (0..40)
        .map(|index| scene.connect(2 + index, Transport::Rc))
        .collect();
    let write = |qp: &mut QueuePair<Rc>, key| {
        let mut place = place();
        place.rkey = Rkey(key);
        qp.post_send(&[Wr::write_inline(b"first", place)])
            .expect("posted");
    };
    for qp in &mut qps[..39] {
        write(qp, KEY);
    }
    for _ in 0..100 {
        assert_eq!(scene.poll(), None, "nothing was answered");
    }
    // What they asked for is there for all of them when some are answered.
    scene.answer(16);
    for _ in 0..39 {
        assert_eq!(scene.sleep().1, WcStatus::Success);
    }
    // Whatever else was asked would be in front of this.
    publish_region(&scene.segments.published.mrs[2], 2 << 16 | 7, LEN);
    write(&mut qps[39], 2 << 16 | 7);
    scene.answer(1);
    assert_eq!(scene.sleep().1, WcStatus::Success);
}

#[test]
fn a_copy_that_is_never_made_fails_and_its_stage_is_kept_until_it_is_answered() {
    let _alone = crate::victim::alone();
    crate::refuse::refuse_copying();
    // Its connections are made in this time, too.
    let mut scene = Scene::new(Duration::from_secs(4));
    publish_private(&scene.segments.published.mrs[2], 2 << 16 | 7, LEN);
    let private = RemoteAddr {
        rkey: Rkey(2 << 16 | 7),
        ..place()
    };
    let count = STAGES as u32;
    let mut qps: Vec<QueuePair<Rc>> = (0..=count)
        .map(|index| scene.connect(2 + index, Transport::Rc))
        .collect();
    let mut uc: QueuePair<Uc> = scene.connect(40, Transport::Uc);
    let (last, first) = qps.split_last_mut().expect("there are some");
    for qp in first {
        let write = [
            Wr::write_inline(b"first", private).id(1),
            Wr::send_inline(b"behind").id(2),
        ];
        qp.post_send(&write).expect("posted");
    }
    let ended = |scene: &mut Scene, count: u32| {
        let mut ended: Vec<_> = (0..count).map(|_| scene.sleep()).collect();
        ended.sort_by_key(|(id, _)| *id);
        ended
    };
    let failed = ended(&mut scene, 2 * count);
    let (failed, flushed) = failed.split_at(STAGES);
    assert!(failed.iter().all(|one| *one == (1, WcStatus::RetryExcErr)));
    assert!(flushed.iter().all(|one| *one == (2, WcStatus::WrFlushErr)));
    // No stage is left, and nobody waits longer for one than for an answer.
    last.post_send(&[Wr::write_inline(b"none", private).id(3)])
        .expect("posted");
    assert_eq!(scene.sleep(), (3, WcStatus::RetryExcErr));
    // Over an unreliable connection it is lost.
    uc.post_send(&[Wr::write_inline(b"lost", private).id(4)])
        .expect("posted");
    assert_eq!(scene.sleep(), (4, WcStatus::Success));
    // What comes late has each stage be free again.
    let bytes = |stage: usize| {
        let words = &scene.segments.inbox.stages[stage].0;
        words[0]
            .load(std::sync::atomic::Ordering::Relaxed)
            .to_le_bytes()
    };
    assert_eq!(&bytes(STAGES - 1)[..5], b"first");
    let sockets = until("the silent one to be asked", || {
        let mut asked = scene.asked.lock().unwrap_or_else(PoisonError::into_inner);
        (asked.len() == STAGES).then(|| std::mem::take(&mut *asked))
    });
    for socket in sockets {
        send(&socket, &scene.speaker.answer(OK), &[]).expect("sent");
    }
    until("a stage to be free", || {
        last.modify(&QpAttr::to(QpState::Reset)).expect("reset");
        scene.connect_again(last, 2 + count, Transport::Rc);
        last.post_send(&[Wr::write_inline(b"again", private).id(5)])
            .expect("posted");
        let asked = scene.asked.lock().unwrap_or_else(PoisonError::into_inner);
        (!asked.is_empty()).then_some(())
    });
    assert_eq!(scene.nic.usage().peers, 1, "it has broken no rule");
}

/// A process that stands still, until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(honest: &Honest) -> Self {
        let pid = honest.pid();
        rustix::process::kill_process(pid, Signal::STOP).expect("stopped");
        let waited = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED);
        let (_, status) = waited.expect("waited").expect("it is there");
        assert!(status.stopped(), "{status:?}");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        rustix::process::kill_process(self.0, Signal::CONT).expect("it goes on");
    }
}

/// Posts RECVs for datagrams.
fn await_datagrams(honest: &mut Honest, count: u64) {
    for id in 0..count {
        let sges = [honest.memory.sge(0..128)];
        honest
            .ud
            .post_recv(&[RecvWr { id, sges: &sges }])
            .expect("posted");
    }
}

/// Somebody who sends datagrams.
struct Sender {
    nic: Arc<SoftNic>,
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    ah: AddressHandle,
    _pd: ProtectionDomain,
}

impl Sender {
    fn new(run_dir: &Path, contact_timeout: Duration) -> Self {
        let mut options = SoftOptions::new(run_dir);
        options.contact_timeout = contact_timeout;
        let nic = SoftNic::open(&options).expect("an adapter");
        let context = Context::new(Arc::<SoftNic>::clone(&nic));
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(64).expect("a queue");
        let mut ud: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let ah = pd.create_ah(home()).expect("an address");
        Sender {
            nic,
            ud,
            cq,
            ah,
            _pd: pd,
        }
    }

    /// Sends a datagram of so many bytes, which completes at once.
    fn send(&mut self, to: QpNum, len: usize) {
        let bytes = [7; 64];
        let wr = Wr::send_inline_to(&self.ah, to, QKEY, &bytes[..len]);
        self.ud.post_send(&[wr]).expect("posted");
        let mut out = [Wc::default()];
        assert_eq!(self.cq.poll(&mut out), Ok(1), "it waits for nobody");
        assert!(out[0].is_ok(), "{:?}", out[0]);
    }
}

#[test]
fn datagrams_to_a_process_that_stands_still_wait_and_nobody_else_does() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    // So long that whoever waits for it is found waiting.
    let mut sender = Sender::new(run_dir.path(), Duration::from_secs(3600));
    let mut awake = Honest::start(run_dir.path());
    let mut asleep = Honest::start(run_dir.path());
    await_datagrams(&mut awake, 1);
    await_datagrams(&mut asleep, 60);
    let (to, elsewhere) = (asleep.ud.num(), awake.ud.num());
    let stopped = Stopped::new(&asleep);
    for len in 0..30 {
        sender.send(to, len);
    }
    // Whoever looks it up beforehand does not wait either.
    sender
        .ud
        .prepare(&sender.ah, to, QKEY)
        .expect("it is being contacted");
    // What goes elsewhere, later, arrives before.
    sender.send(elsewhere, 1);
    awake.completion("a datagram to somebody else");
    for len in 30..60 {
        sender.send(to, len);
    }
    assert_eq!(
        (sender.nic.counters().unsent, sender.nic.usage().peers),
        (0, 1)
    );
    drop(stopped);
    for len in 0..60 {
        let wc = asleep.completion("a datagram that waited");
        assert!(wc.is_ok(), "{wc:?}");
        assert_eq!(wc.byte_len, 40 + len, "in order");
    }
}

#[test]
fn datagrams_that_wait_in_vain_are_lost_and_counted() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut sender = Sender::new(run_dir.path(), Duration::from_secs(1));
    let mut asleep = Honest::start(run_dir.path());
    await_datagrams(&mut asleep, 1);
    let to = asleep.ud.num();
    let stopped = Stopped::new(&asleep);
    for len in 0..5 {
        sender.send(to, len);
    }
    until("them to be lost", || {
        (sender.nic.counters().unsent == 5).then_some(())
    });
    // It is contacted again for the next one.
    drop(stopped);
    let wc = until("a datagram to arrive", || {
        sender.send(to, 9);
        asleep.poll()
    });
    assert_eq!(wc.byte_len, 49);
}

#[test]
fn a_contact_ends_in_time_however_often_it_is_interrupted() {
    extern "C" fn nothing(_: libc::c_int) {}
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    // SAFETY: the handler does nothing, and nobody else here uses the signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
    }
    let mut options = SoftOptions::new(run_dir.path());
    options.contact_timeout = Duration::from_millis(200);
    let context = Context::new(SoftNic::open(&options).expect("an adapter"));
    // It takes calls, and says nothing.
    let _silent = Speaker::new(run_dir.path(), INSTANCE);
    let connecting = std::thread::spawn(move || {
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(4).expect("a queue");
        let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        let there = Endpoint {
            gid: home(),
            qpn: QpNum(qpn(INSTANCE, 2)),
            psn: Psn(0),
        };
        qp.connect(&there, &ConnectOptions::default())
    });
    until("the attempt to end", || {
        // Far more often than its time-out.
        std::thread::sleep(Duration::from_millis(2));
        let thread = std::os::unix::thread::JoinHandleExt::as_pthread_t(&connecting);
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        connecting.is_finished().then_some(())
    });
    let connected = connecting.join().expect("it does not panic");
    assert!(matches!(connected, Err(VerbsError::Unreachable { .. })));
}
