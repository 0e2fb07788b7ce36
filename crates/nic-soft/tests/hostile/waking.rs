//! Sleepers that must wake, and posters that must not wait.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nic_soft::{SoftNic, SoftOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use verbs::typed::{
    CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, QpOptions,
    QueuePair, Rc, Ud, Wr,
};
use verbs::{Access, CqNum, Psn, QpNum, QpState, RecvWr, Wc};

use crate::host::Host;
use crate::layout::Published;
use crate::speaker::{HELLO, OK, Speaker, home, qpn, send};
use crate::victim::{Honest, QKEY, until};

#[test]
fn a_sleeper_wakes_while_its_channel_is_flooded() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let context = Context::new(crate::pair::open(run_dir.path()));
    let mut honest = Honest::start(run_dir.path());
    let pd = context.alloc_pd().expect("a domain");
    let mut channel = context.create_channel().expect("a channel");
    // Two queues on one channel: a ring that is lost must not leave the second one asleep.
    let mut idle = context.create_cq_on(4, &channel).expect("a queue");
    let mut cq = context.create_cq_on(64, &channel).expect("a queue");
    let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let options = ConnectOptions::default();
    honest.connect(&mut qp, &options);
    let memory = pd.allocate(4096, Access::LOCAL_WRITE).expect("memory");

    let (stop, rings) = (AtomicBool::new(false), AtomicU64::new(0));
    let speaker = Speaker::new(run_dir.path(), 100);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !stop.load(Ordering::Relaxed) {
                let len = random.usize(..10);
                let bytes: Vec<u8> = (0..len).map(|_| random.u8(..3)).collect();
                rings.fetch_add(speaker.ring(0, &bytes), Ordering::Relaxed);
            }
        });
        until("the flood", || {
            (rings.load(Ordering::Relaxed) > 100).then_some(())
        });
        for id in 0..100 {
            let sges = [memory.sge(0..64)];
            qp.post_recv(&[RecvWr { id, sges: &sges }]).expect("posted");
            let mut out = [Wc::default()];
            idle.arm(false).expect("it has a channel");
            cq.arm(false).expect("it has a channel");
            assert_eq!(cq.poll(&mut out), Ok(0));
            honest.send(b"wake up");
            // The event names the queue in the end, whatever else it names before.
            until("the event", || {
                let mut fds = [PollFd::new(&channel, PollFlags::IN)];
                let limit = Timespec {
                    tv_sec: 120,
                    tv_nsec: 0,
                };
                assert_eq!(
                    poll(&mut fds, Some(&limit)),
                    Ok(1),
                    "slept through message {id}"
                );
                let event = channel.event().expect("an event or none");
                (event == Some(cq.num())).then_some(())
            });
            until("the message", || (cq.poll(&mut out) == Ok(1)).then_some(()));
            assert!(out[0].is_ok() && out[0].id == id);
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{} rings", rings.load(Ordering::Relaxed));
}

#[test]
fn a_channel_leaves_no_file_behind() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let directory = run_dir.path().join("127.0.0.1");
    let files = || {
        let entries = std::fs::read_dir(&directory).expect("readable");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("readable").file_name();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    };
    let nic = crate::pair::open(run_dir.path());
    let context = Context::new(nic);
    let channels: Vec<_> = (0..3)
        .map(|_| context.create_channel().expect("a channel"))
        .collect();
    assert_eq!(files(), ["0.c0", "0.c1", "0.c2", "0.lock", "0.sock"]);
    drop(channels);
    assert_eq!(files(), ["0.lock", "0.sock"]);
    // One that died left some.
    drop(context);
    for left in ["0.sock", "0.c5", "0.c77"] {
        let socket = crate::speaker::socket(rustix::net::SocketType::DGRAM);
        let path = rustix::net::SocketAddrUnix::new(directory.join(left)).expect("a path");
        rustix::net::bind(&socket, &path).expect("bound");
    }
    let context = Context::new(crate::pair::open(run_dir.path()));
    assert_eq!(files(), ["0.lock", "0.sock"]);
    // One that takes the names of channels to come.
    for number in 0..4 {
        let socket = crate::speaker::socket(rustix::net::SocketType::DGRAM);
        let path = directory.join(format!("0.c{number}"));
        let path = rustix::net::SocketAddrUnix::new(path).expect("a path");
        rustix::net::bind(&socket, &path).expect("bound");
    }
    assert!(context.create_channel().is_ok());
}

#[test]
fn a_datagram_does_not_wait_for_a_process_that_has_fallen_silent() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut options = SoftOptions::new(run_dir.path());
    // So long that whoever waits for it is found waiting.
    options.contact_timeout = Duration::from_secs(3600);
    let nic = SoftNic::open(&options).expect("an adapter");
    let context = Context::new(nic.clone());
    let speaker = Arc::new(Speaker::new(run_dir.path(), 100));
    let segments = speaker.segments();
    let silent = Arc::new(AtomicBool::new(false));
    let hellos = Arc::new(AtomicU64::new(0));
    let host = {
        let (speaks, silent, hellos) = (speaker.clone(), silent.clone(), hellos.clone());
        Host::start(&speaker, move |socket, request| {
            if request.code != HELLO {
                return;
            }
            hellos.fetch_add(1, Ordering::Relaxed);
            if silent.load(Ordering::Relaxed) {
                return;
            }
            let fds = [segments.published_file.as_fd(), segments.inbox_file.as_fd()];
            send(socket, &speaks.answer(OK), &fds).expect("sent");
        })
    };
    let pd = context.alloc_pd().expect("a domain");
    let mut cq = context.create_cq(64).expect("a queue");
    let mut ud: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    ud.activate(QKEY).expect("ready");
    let ah = pd.create_ah(home()).expect("an address");
    let num = QpNum(qpn(100, 4));
    let mut datagram = || {
        let wr = Wr::send_inline_to(&ah, num, QKEY, b"hello?");
        ud.post_send(&[wr]).expect("posted");
        let wc = until("a datagram sent", || {
            let mut out = [Wc::default()];
            (cq.poll(&mut out) == Ok(1)).then_some(out[0])
        });
        assert!(wc.is_ok(), "{wc:?}");
    };
    datagram();
    until("first contact", || (nic.usage().peers == 1).then_some(()));
    // It ends the connection, takes the next one, and says no more.
    silent.store(true, Ordering::Relaxed);
    drop(host);
    until("its end to be noticed", || {
        (nic.usage().peers == 0).then_some(())
    });
    let host = {
        let hellos = hellos.clone();
        Host::start(&speaker, move |_, request| {
            hellos.fetch_add(u64::from(request.code == HELLO), Ordering::Relaxed);
        })
    };
    for _ in 0..1000 {
        datagram();
    }
    until("it to be asked again", || {
        (hellos.load(Ordering::Relaxed) == 2).then_some(())
    });
    assert_eq!(nic.usage().peers, 0);
    // The attempt under way ends with the adapter, and keeps nothing of it.
    drop((ud, ah, pd, cq, context, nic));
    let next = SoftNic::open(&options).expect("an adapter");
    assert_eq!(next.usage().instance, 0);
    drop(host);
}

#[test]
fn the_end_of_one_is_not_taken_for_the_end_of_another() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let nic = crate::pair::open(run_dir.path());
    let context = Context::new(nic.clone());
    let mut honest = Honest::start(run_dir.path());
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(16).expect("a queue");
    let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    honest.connect(&mut qp, &ConnectOptions::default());
    // What an incarnation is called, everybody can read.
    let reader = Speaker::new(run_dir.path(), 100);
    let met = reader
        .meet(honest.instance())
        .map_err(|_| "refused")
        .expect("met");
    let incarnation = met.published.header.incarnation.load(Ordering::Relaxed);
    let speaker = Arc::new(Speaker::posing(run_dir.path(), 101, incarnation));
    let segments = speaker.segments();
    let host = {
        let speaks = speaker.clone();
        Host::start(&speaker, move |socket, request| {
            if request.code == HELLO {
                let fds = [segments.published_file.as_fd(), segments.inbox_file.as_fd()];
                send(socket, &speaks.answer(OK), &fds).expect("sent");
            }
        })
    };
    let mut front: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let there = Endpoint {
        gid: home(),
        qpn: QpNum(qpn(101, 2)),
        psn: Psn(0),
    };
    front
        .connect(&there, &ConnectOptions::default())
        .expect("connected");
    assert_eq!(nic.usage().peers, 2);
    drop(host);
    until("its end", || (front.state() == QpState::Err).then_some(()));
    assert_eq!(nic.usage().peers, 1);
    assert_eq!(qp.state(), QpState::Rts, "the honest one is there");
}

/// A queue pair whose receiver sleeps, an honest sender, and somebody who rings.
struct Sleeper {
    speaker: Speaker,
    memory: MemoryRegion,
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    channel: CompletionChannel,
    honest: Honest,
    _run_dir: TempDir,
}

impl Sleeper {
    fn new() -> Self {
        let run_dir = tempfile::tempdir().expect("a directory");
        let context = Context::new(crate::pair::open(run_dir.path()));
        let mut honest = Honest::start(run_dir.path());
        let pd = context.alloc_pd().expect("a domain");
        let channel = context.create_channel().expect("a channel");
        let cq = context.create_cq_on(64, &channel).expect("a queue");
        let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        honest.connect(&mut qp, &ConnectOptions::default());
        Self {
            speaker: Speaker::new(run_dir.path(), 100),
            memory: pd.allocate(4096, Access::LOCAL_WRITE).expect("memory"),
            qp,
            cq,
            channel,
            honest,
            _run_dir: run_dir,
        }
    }

    fn post(&mut self, id: u64) {
        let sges = [self.memory.sge(0..64)];
        self.qp
            .post_recv(&[RecvWr { id, sges: &sges }])
            .expect("posted");
    }

    /// Waits for the next event, which is the queue's.
    fn event(&mut self) {
        let event = until("an event", || {
            self.channel.event().expect("an event or none")
        });
        assert_eq!(event, self.cq.num());
    }

    /// Takes the message that has come.
    fn take(&mut self) -> Wc {
        let mut out = [Wc::default()];
        until("the message", || {
            (self.cq.poll(&mut out) == Ok(1)).then_some(())
        });
        out[0]
    }
}

/// What a ring says, for the arming that is published for a queue.
fn ring_of(published: &Published, cq: CqNum) -> [u8; 8] {
    let word = published.cqs[cq.0 as usize].armed.load(Ordering::Relaxed);
    (u64::from(word) << 32 | u64::from(cq.0)).to_le_bytes()
}

#[test]
fn a_late_ring_and_a_false_one_put_nobody_to_sleep() {
    let _alone = crate::victim::alone();
    let mut sleeper = Sleeper::new();
    let met = sleeper.speaker.meet(0).map_err(|_| "refused").expect("met");
    for id in 0..20 {
        sleeper.post(id);
        sleeper.cq.arm(false).expect("it has a channel");
        let late = ring_of(&met.published, sleeper.cq.num());
        sleeper.cq.arm(false).expect("it has a channel");
        assert_eq!(sleeper.cq.poll(&mut [Wc::default()]), Ok(0));
        let is_late = id % 2 == 0;
        let ring = if is_late {
            late
        } else {
            ring_of(&met.published, sleeper.cq.num())
        };
        until("the ring to be there", || {
            (sleeper.speaker.ring(0, &ring) > 0).then_some(())
        });
        sleeper.event();
        // What is late belongs to no arming that is there. What is false may end one, but not the
        // sleep of whoever polls after it.
        if !is_late {
            assert_eq!(sleeper.cq.poll(&mut [Wc::default()]), Ok(0));
        }
        sleeper.honest.send(b"wake up");
        sleeper.event();
        let message = sleeper.take();
        assert!(message.is_ok() && message.id == id);
    }
}

#[test]
fn a_ring_that_finds_no_room_is_not_lost() {
    let _alone = crate::victim::alone();
    let mut sleeper = Sleeper::new();
    for id in 0..10 {
        sleeper.post(id);
        sleeper.cq.arm(false).expect("it has a channel");
        assert_eq!(sleeper.cq.poll(&mut [Wc::default()]), Ok(0));
        // Rings for nobody, more than the channel holds.
        for _ in 0..1000 {
            sleeper.speaker.ring(0, b"one");
        }
        sleeper.honest.send(b"wake up");
        sleeper.event();
        sleeper.take();
        while sleeper.channel.event().expect("an event or none").is_some() {}
    }
}
