//! Files that cannot be mapped as they should be, and entries that change after they were believed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nic_soft::{SoftNic, SoftOptions};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, memfd_create};
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, Rc, Wr,
};
use verbs::{
    Access, Psn, QpNum, QpState, RecvWr, RemoteAddr, Rkey, Transport, VerbsError, Wc, WcStatus,
};

use crate::host::{Host, publish_credits, publish_qp, publish_region};
use crate::layout::{Header, Inbox, KIND_PRIVATE, Published};
use crate::speaker::{
    HELLO, LANE, LATER, Message, OK, REGION, Segments, Speaker, descriptors, home, mappings, memfd,
    plain_file, qpn, send,
};
use crate::victim::{Honest, until};

const INSTANCE: u32 = 100;
const WHOLE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

fn endpoint(index: u32) -> Endpoint {
    Endpoint {
        gid: home(),
        qpn: QpNum(qpn(INSTANCE, index)),
        psn: Psn(0),
    }
}

fn open(path: &str, flags: OFlags) -> OwnedFd {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("opened")
}

/// Files that are no segments of the right length, each with what it is.
fn wrong_files(len: u64) -> Vec<(&'static str, OwnedFd)> {
    let (pipe, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let sealed = memfd(len, WHOLE);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&sealed));
    let mut files = vec![
        ("a pipe", pipe),
        ("a directory", open("/", OFlags::RDONLY | OFlags::DIRECTORY)),
        ("zeros", open("/dev/zero", OFlags::RDWR)),
        ("a place", open(&path, OFlags::PATH)),
        ("a file", plain_file(len)),
        (
            "a socket",
            crate::speaker::socket(rustix::net::SocketType::DGRAM),
        ),
        (
            "a memfd that can be cut short",
            memfd(len, SealFlags::empty()),
        ),
        ("a memfd that can grow only", memfd(len, SealFlags::GROW)),
        ("a short memfd", memfd(len - 4096, WHOLE)),
        ("an empty memfd", memfd(0, WHOLE)),
    ];
    let huge = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // Where the kernel has huge pages at all; none need be free.
    if let Ok(file) = memfd_create("hostile", huge)
        && rustix::fs::ftruncate(&file, len.next_multiple_of(1 << 30)).is_ok()
        && rustix::fs::fcntl_add_seals(&file, WHOLE).is_ok()
    {
        files.push(("a memfd of huge pages", file));
    }
    files
}

/// What the hostile NIC answers with next.
type Answer = Arc<Mutex<Vec<OwnedFd>>>;

fn answering(speaker: &Arc<Speaker>, code: u32, answer: &Answer) -> Host {
    let (speaks, answer) = (Arc::clone(speaker), Arc::clone(answer));
    Host::start(speaker, move |socket, request| {
        if request.code == code {
            let fds = answer.lock().unwrap_or_else(PoisonError::into_inner);
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            send(socket, &speaks.answer(OK), &fds).expect("sent");
        }
    })
}

fn set(answer: &Answer, fds: Vec<OwnedFd>) {
    *answer.lock().unwrap_or_else(PoisonError::into_inner) = fds;
}

struct Victim {
    nic: Arc<SoftNic>,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Victim {
    fn new(run_dir: &std::path::Path, patience: Duration) -> Self {
        let mut options = SoftOptions::new(run_dir);
        options.contact_timeout = patience;
        let nic = SoftNic::open(&options).expect("an adapter");
        let context = Context::new(nic.clone());
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(64).expect("a queue");
        let memory = pd.allocate(1 << 20, Access::EVERYTHING).expect("memory");
        Victim {
            nic,
            pd,
            cq,
            memory,
        }
    }

    fn qp(&self) -> QueuePair<Rc> {
        self.pd
            .create_qp(&QpOptions::on(&self.cq))
            .expect("a queue pair")
    }

    fn connect(&self, index: u32) -> Result<QueuePair<Rc>, VerbsError> {
        let mut qp = self.qp();
        qp.connect(&endpoint(index), &ConnectOptions::default())?;
        Ok(qp)
    }

    fn status(&mut self, what: &str) -> WcStatus {
        until(what, || {
            let mut out = [Wc::default()];
            (self.cq.poll(&mut out).expect("no overrun") == 1).then_some(out[0].status)
        })
    }
}

/// Segments of a speaker that are whole, as files.
fn files(segments: &Segments) -> [OwnedFd; 2] {
    let copy = |file: &OwnedFd| file.try_clone().expect("a copy");
    [copy(&segments.published_file), copy(&segments.inbox_file)]
}

#[test]
fn an_introduction_with_files_that_cannot_be_mapped_is_refused() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let victim = Victim::new(run_dir.path(), Duration::from_secs(60));
    let speaker = Arc::new(Speaker::new(run_dir.path(), INSTANCE));
    let segments = speaker.segments();
    let answer = Answer::default();
    let host = answering(&speaker, HELLO, &answer);
    let mut tried = 0;
    let mut refused = |what: &str, fds: Vec<OwnedFd>| {
        set(&answer, fds);
        let before = mappings("vervain") + mappings("hostile");
        let connected = victim.connect(2);
        assert!(connected.is_err(), "{what} was mapped");
        assert_eq!(
            mappings("vervain") + mappings("hostile"),
            before,
            "{what} stays"
        );
        tried += 1;
    };
    for (what, file) in wrong_files(size_of::<Published>() as u64) {
        let [_, inbox] = files(&segments);
        refused(what, vec![file, inbox]);
    }
    for (what, file) in wrong_files(size_of::<Inbox>() as u64) {
        let [published, _] = files(&segments);
        refused(what, vec![published, file]);
    }
    let read_only = memfd(size_of::<Inbox>() as u64, WHOLE | SealFlags::WRITE);
    let [published, inbox] = files(&segments);
    refused(
        "an inbox that cannot be written",
        vec![published, read_only],
    );
    refused("nothing", vec![]);
    refused("one file", vec![inbox]);
    let [published, inbox] = files(&segments);
    refused("them the wrong way round", vec![inbox, published]);
    let many = (0..30).flat_map(|_| files(&segments)).collect();
    refused("sixty files", many);
    // The right files with a wrong word.
    type Spoil = fn(&Header);
    let spoils: [Spoil; 4] = [
        |header| header.magic.store(1, Ordering::Relaxed),
        |header| header.version.store(1, Ordering::Relaxed),
        |header| header.instance.store(0, Ordering::Relaxed),
        |header| header.incarnation.store(0, Ordering::Relaxed),
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        for header in [&segments.published.header, &segments.inbox.header] {
            spoil(header);
            refused(&format!("header {number}"), files(&segments).into());
            speaker.sign(header);
        }
    }
    set(&answer, files(&segments).into());
    assert!(victim.connect(2).is_ok(), "the right ones are taken");
    set(&answer, vec![]);
    println!("{tried} inputs");
    drop((host, victim));
}

/// A hostile NIC with a queue pair, credits and a region, and a victim's that is connected to it.
struct Pair {
    victim: Victim,
    speaker: Arc<Speaker>,
    segments: Arc<Segments>,
    region: Answer,
    /// With what the next question for a region is answered, of which no copy is kept.
    only: Arc<Mutex<Vec<OwnedFd>>>,
    _host: Host,
    run_dir: tempfile::TempDir,
}

const KEY: u32 = 1 << 16 | 7;
const LEN: u64 = 64 << 10;

impl Pair {
    fn new() -> Self {
        let run_dir = tempfile::tempdir().expect("a directory");
        let victim = Victim::new(run_dir.path(), Duration::from_secs(60));
        let speaker = Arc::new(Speaker::new(run_dir.path(), INSTANCE));
        let segments = Arc::new(speaker.segments());
        let region = Answer::default();
        let (speaks, hands, regions) = (
            Arc::clone(&speaker),
            Arc::clone(&segments),
            Arc::clone(&region),
        );
        let only = Arc::new(Mutex::new(Vec::<OwnedFd>::new()));
        let given_away = Arc::clone(&only);
        let host = Host::start(&speaker, move |socket, request| {
            if request.code == REGION {
                let only = std::mem::take(&mut *given_away.lock().expect("no test fails here"));
                if !only.is_empty() {
                    let only: Vec<BorrowedFd<'_>> = only.iter().map(AsFd::as_fd).collect();
                    send(socket, &speaks.answer(OK), &only).expect("sent");
                    return;
                }
            }
            let fds = regions.lock().unwrap_or_else(PoisonError::into_inner);
            let fds: Vec<BorrowedFd<'_>> = match request.code {
                HELLO => vec![hands.published_file.as_fd(), hands.inbox_file.as_fd()],
                REGION => fds.iter().map(AsFd::as_fd).collect(),
                _ => return,
            };
            send(socket, &speaks.answer(OK), &fds).expect("sent");
        });
        publish_region(&segments.published.mrs[1], KEY, LEN);
        Pair {
            victim,
            speaker,
            segments,
            region,
            only,
            _host: host,
            run_dir,
        }
    }

    fn connect(&self, index: u32) -> QueuePair<Rc> {
        let mut qp = self.victim.qp();
        let published = &self.segments.published;
        publish_credits(published, index as usize);
        let entry = &published.qps[index as usize];
        publish_qp(entry, Transport::Rc, qp.num().0, 1);
        qp.connect(&endpoint(index), &ConnectOptions::default())
            .expect("connected");
        qp
    }

    /// WRITEs a kibibyte at an offset of the region.
    fn write(&mut self, qp: &mut QueuePair<Rc>, offset: u64) -> WcStatus {
        let remote = RemoteAddr {
            addr: 0x10_0000 + offset,
            rkey: Rkey(KEY),
        };
        let sges = [self.victim.memory.sge(0..1024)];
        qp.post_send(&[Wr::write(&sges, remote)]).expect("posted");
        self.victim.status("a WRITE")
    }
}

#[test]
fn a_region_that_cannot_be_mapped_is_refused() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    let mut tried = 0;
    let mut wrong: Vec<(&str, Vec<OwnedFd>)> = wrong_files(LEN)
        .into_iter()
        .map(|(what, file)| (what, vec![file]))
        .collect();
    wrong.push(("nothing", vec![]));
    let read_only = memfd(LEN, WHOLE | SealFlags::WRITE);
    wrong.push(("memory that cannot be written", vec![read_only]));
    for (index, (what, fds)) in wrong.into_iter().enumerate() {
        let mut qp = pair.connect(2 + index as u32);
        set(&pair.region, fds);
        assert_eq!(pair.write(&mut qp, 0), WcStatus::RemAccessErr, "{what}");
        tried += 1;
    }
    set(&pair.region, vec![memfd(LEN, WHOLE)]);
    let mut qp = pair.connect(100);
    assert_eq!(pair.write(&mut qp, 0), WcStatus::Success);
    assert_eq!(
        mappings("hostile"),
        3 + 2,
        "its segments, twice, and the region"
    );
    println!("{tried} inputs");
}

/// A socket that takes as long to close as somebody likes: there is something left to send, for which
/// the other end has no room.
fn lingering() -> (std::net::TcpStream, std::net::TcpStream) {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    // There may be many of them.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("set");
    let address = listener.local_addr().expect("an address");
    let mut socket = std::net::TcpStream::connect(address).expect("connected");
    let (other_end, _) = listener.accept().expect("accepted");
    socket.set_nonblocking(true).expect("set");
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 4096).expect("set");
    while socket.write(&[0; 1 << 16]).is_ok() {}
    let long = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&socket, long).expect("set");
    socket.set_nonblocking(false).expect("set");
    (socket, other_end)
}

#[test]
fn a_descriptor_that_is_slow_to_close_holds_nobody_up() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    let (slow, other_end) = lingering();
    *pair.only.lock().expect("no test fails here") = vec![slow.into()];
    let mut qp = pair.connect(2);
    assert_eq!(pair.write(&mut qp, 0), WcStatus::RemAccessErr);
    // The connection is reset, as there are bytes that nobody has read: whoever closes it is done.
    drop(other_end);
    set(&pair.region, vec![memfd(LEN, WHOLE)]);
    let mut next = pair.connect(3);
    assert_eq!(pair.write(&mut next, 0), WcStatus::Success);
}

/// A peer that keeps the rules has memory of which nobody has used any, and a queue pair leads there.
fn writes_to_fresh_memory(victim: &mut Victim, honest: &mut Honest, qp: &mut QueuePair<Rc>) {
    let fresh = honest.pd.allocate(4096, Access::EVERYTHING);
    let fresh = fresh.expect("memory");
    let sges = [victim.memory.sge(0..1024)];
    let write = Wr::write(&sges, fresh.remote(0));
    qp.post_send(&[write]).expect("posted");
    assert_eq!(victim.status("a WRITE"), WcStatus::Success);
}

#[test]
fn descriptors_that_are_too_many_and_slow_to_close_hold_nobody_up() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    let mut honest = Honest::start(pair.run_dir.path());
    let mut to_honest = pair.victim.qp();
    honest.connect(&mut to_honest, &ConnectOptions::default());
    for in_front in [2, 5, 60] {
        let (slow, other_end) = lingering();
        let mut fds: Vec<OwnedFd> = (0..in_front).map(|_| memfd(LEN, WHOLE)).collect();
        fds.push(slow.into());
        *pair.only.lock().expect("no test fails here") = fds;
        let mut qp = pair.connect(in_front);
        assert_eq!(pair.write(&mut qp, 0), WcStatus::RemAccessErr);
        writes_to_fresh_memory(&mut pair.victim, &mut honest, &mut to_honest);
        drop(other_end);
    }
}

#[test]
fn slow_descriptors_of_one_peer_cost_one_thread_and_are_bounded() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut victim = Victim::new(run_dir.path(), Duration::from_secs(60));
    let mut honest = Honest::start(run_dir.path());
    let mut to_honest = victim.qp();
    honest.connect(&mut to_honest, &ConnectOptions::default());
    let before = descriptors();
    let speaker = Arc::new(Speaker::new(run_dir.path(), INSTANCE));
    let (other_ends, unsent) = (Answer::default(), Answer::default());
    let host = {
        let (speaks, ends, unsent) = (speaker.clone(), other_ends.clone(), unsent.clone());
        let keep = |all: &Answer, one: OwnedFd| {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(one);
        };
        Host::start(&speaker, move |socket, request| {
            if request.code == HELLO {
                let (slow, other_end) = lingering();
                keep(&ends, other_end.into());
                let sent = send(socket, &speaks.answer(LATER), &[slow.as_fd()]);
                match sent {
                    // Whoever closes it last is slow, which may be this side.
                    Ok(_) => drop(std::thread::spawn(move || drop(slow))),
                    // Whoever called has hung up.
                    Err(_) => keep(&unsent, slow.into()),
                }
            }
        })
    };
    let closers = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("readable");
        let names = tasks.filter_map(|task| {
            // One may end meanwhile.
            std::fs::read_to_string(task.expect("readable").path().join("comm")).ok()
        });
        names.filter(|name| name.contains("close")).count()
    };
    let mut most_closers = 0;
    for _ in 0..200 {
        assert!(victim.connect(2).is_err());
        most_closers = most_closers.max(closers());
        if most_closers > 1 {
            break;
        }
    }
    let count = || {
        let ends = other_ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.len()
    };
    if most_closers == 1 {
        // The host's ends of the connections go a little later.
        until("most descriptors to be closed", || {
            (descriptors() - before < count() + 100).then_some(())
        });
        writes_to_fresh_memory(&mut victim, &mut honest, &mut to_honest);
    }
    let asked = count();
    // The connections are reset: whoever closes what is slow is done.
    set(&other_ends, vec![]);
    drop((host, speaker));
    set(&unsent, vec![]);
    assert_eq!(most_closers, 1);
    assert!(asked < 100, "it was asked {asked} times");
    until("all descriptors to be closed", || {
        (descriptors() <= before).then_some(())
    });
    until("the thread to end", || (closers() == 0).then_some(()));
}

/// While it lives, this process can open no descriptor.
struct NoneLeft(rustix::process::Rlimit);

impl NoneLeft {
    fn new() -> Self {
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let none = rustix::process::Rlimit {
            // So many are open, and may be asked about at once.
            current: Some(3),
            ..before
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, none).expect("lowered");
        NoneLeft(before)
    }
}

impl Drop for NoneLeft {
    fn drop(&mut self) {
        let raised = rustix::process::setrlimit(rustix::process::Resource::Nofile, self.0);
        assert!(raised.is_ok() || std::thread::panicking());
    }
}

#[test]
fn a_shortage_of_descriptors_is_not_taken_for_the_peers_fault() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let [mut us, them] = [(); 2].map(|()| Victim::new(run_dir.path(), Duration::from_secs(120)));
    let (mut ours, mut theirs) = (us.qp(), them.qp());
    let ends = [&ours, &theirs].map(|qp| qp.endpoint().expect("a GID"));
    let options = ConnectOptions::default();
    ours.connect(&ends[1], &options).expect("connected");
    theirs.connect(&ends[0], &options).expect("connected");
    let sges = [us.memory.sge(0..1024)];
    let none_left = NoneLeft::new();
    ours.post_send(&[Wr::write(&sges, them.memory.remote(0))])
        .expect("posted");
    for _ in 0..100 {
        them.nic.catch_up();
        us.nic.catch_up();
        let mut out = [Wc::default()];
        assert_eq!(us.cq.poll(&mut out), Ok(0), "{out:?}");
    }
    drop(none_left);
    assert_eq!(us.status("a WRITE"), WcStatus::Success);
}

#[test]
fn one_that_answers_wrongly_for_ever_loses_the_connection() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    let watcher = pair.connect(200);
    for index in 0..=64 {
        assert_eq!(watcher.state(), QpState::Rts);
        let mut qp = pair.connect(2 + index);
        assert_ne!(pair.write(&mut qp, 0), WcStatus::Success);
    }
    until("the end of its connection", || {
        (watcher.state() == QpState::Err).then_some(())
    });
}

#[test]
fn a_region_that_changes_under_its_key_is_mapped_anew_or_refused() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    set(&pair.region, vec![memfd(LEN, WHOLE)]);
    let entry = |pair: &Pair| {
        let segments = Arc::clone(&pair.segments);
        move |len: u64, access: Access| {
            let entry = &segments.published.mrs[1];
            entry.len.store(len, Ordering::Relaxed);
            entry.access.store(access.bits(), Ordering::Relaxed);
        }
    };
    let describe = entry(&pair);
    let reads = Access::REMOTE_READ;
    describe(LEN, reads);
    let mut first = pair.connect(2);
    let result = [pair.victim.memory.sge(0..8)];
    let remote = RemoteAddr {
        addr: 0x10_0000,
        rkey: Rkey(KEY),
    };
    first
        .post_send(&[Wr::read(&result, remote)])
        .expect("posted");
    assert_eq!(pair.victim.status("a READ"), WcStatus::Success);
    // The same key, longer than the mapping: each queue pair believes it by itself.
    describe(1 << 40, reads);
    let far = RemoteAddr {
        addr: 0x10_0000 + (1 << 30),
        rkey: Rkey(KEY),
    };
    let mut second = pair.connect(3);
    second.post_send(&[Wr::read(&result, far)]).expect("posted");
    assert_eq!(pair.victim.status("a READ"), WcStatus::RemAccessErr);
    // The same key, writable all at once: what is mapped is not, so it is mapped anew.
    describe(LEN, Access::EVERYTHING);
    let mut third = pair.connect(4);
    assert_eq!(pair.write(&mut third, 0), WcStatus::Success);
    // The queue pair that knows the region is not misled either.
    describe(1 << 40, Access::EVERYTHING);
    first.post_send(&[Wr::read(&result, far)]).expect("posted");
    assert_eq!(pair.victim.status("a READ"), WcStatus::RemAccessErr);
    assert!(pair.speaker.instance == INSTANCE);
}

#[test]
fn private_memory_beyond_all_addresses_is_refused() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    let mut index = 2;
    for start in [u64::MAX - 3, u64::MAX - LEN + 1, u64::MAX - LEN] {
        let entry = &pair.segments.published.mrs[1];
        entry.start.store(start, Ordering::Relaxed);
        entry.kind.store(KIND_PRIVATE, Ordering::Release);
        for offset in [0, LEN - 1024] {
            let mut qp = pair.connect(index);
            assert_eq!(pair.write(&mut qp, offset), WcStatus::RemAccessErr);
            index += 1;
        }
    }
}

#[test]
fn an_announcement_longer_than_any_message_fails_its_queue_pair() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    let mut qp = pair.connect(2);
    let sges = [pair.victim.memory.sge(0..64)];
    qp.post_recv(&[RecvWr { id: 1, sges: &sges }])
        .expect("posted");
    let met = pair.speaker.meet(0).map_err(|_| "refused").expect("met");
    let to = u64::from(qp.num().0) | 1 << 32;
    let announcement = Message::new(LANE, 0, qpn(INSTANCE, 2), to);
    send(&met.socket, &announcement.bytes(), &[]).expect("sent");
    const WRITE_IMM: u64 = 3;
    crate::storm::write_line(&met.inbox, 0, 0, WRITE_IMM, 0, (1 << 30) + 1);
    assert_eq!(pair.victim.status("the RECV"), WcStatus::WrFlushErr);
    assert_eq!(qp.state(), QpState::Err);
}

#[test]
fn memory_that_was_mapped_cannot_be_cut_short() {
    let _alone = crate::victim::alone();
    let mut pair = Pair::new();
    let region = memfd(LEN, WHOLE);
    let mine = region.try_clone().expect("a copy");
    set(&pair.region, vec![region]);
    let mut qp = pair.connect(2);
    assert_eq!(pair.write(&mut qp, LEN - 1024), WcStatus::Success);
    for file in [
        &mine,
        &pair.segments.published_file,
        &pair.segments.inbox_file,
    ] {
        let cut = rustix::fs::ftruncate(file, 0);
        assert_eq!(cut, Err(rustix::io::Errno::PERM));
    }
    assert_eq!(pair.write(&mut qp, LEN - 1024), WcStatus::Success);
    // And what the victim has handed out: neither shortened, nor written without the right to.
    let met = pair.speaker.meet(0).map_err(|_| "refused").expect("met");
    for file in [&met.inbox_file, &met.published_file] {
        let cut = rustix::fs::ftruncate(file, 0);
        assert_eq!(cut, Err(rustix::io::Errno::PERM));
    }
    assert!(
        crate::speaker::Shared::<Published>::map(met.published_file.as_fd(), true).is_err(),
        "the published segment is for reading"
    );
}

#[test]
fn what_is_refused_is_closed() {
    let _alone = crate::victim::alone();
    let run_dir = tempfile::tempdir().expect("a directory");
    let victim = Victim::new(run_dir.path(), Duration::from_secs(60));
    let speaker = Arc::new(Speaker::new(run_dir.path(), INSTANCE));
    let answer = Answer::default();
    let host = answering(&speaker, HELLO, &answer);
    let fds: Vec<OwnedFd> = (0..10).map(plain_file).collect();
    set(&answer, fds);
    let before = descriptors();
    for _ in 0..20 {
        assert!(victim.connect(2).is_err());
    }
    // By threads of their own, and the host's ends of the connections a little later.
    until("all descriptors to be closed", || {
        (descriptors() == before).then_some(())
    });
    drop(host);
}
