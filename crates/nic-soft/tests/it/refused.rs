//! Memory that only its owner can reach, because the kernel does not copy: the owner's NIC does.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance::remote::RemoteNic;
use nic_soft::{Cause, SoftNic};
use verbs::nic::Nic;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Rc, Uc, Wr,
};
use verbs::{Access, RecvWr, VendorErr, Wc, WcStatus};

use crate::pair;
use crate::refuse::refuse_copying;

/// More than one stage, and of no round length.
const LEN: usize = (300 << 10) + 77;

/// One of two NICs.
struct Side {
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

/// Two NICs for which the kernel does not copy.
fn sides() -> (Side, Side, tempfile::TempDir) {
    refuse_copying();
    let run_dir = tempfile::tempdir().expect("a directory");
    let side = || Side::open(run_dir.path());
    (side(), side(), run_dir)
}

impl Side {
    fn open(run_dir: &Path) -> Self {
        let mut options = pair::options(run_dir);
        options.remap = false;
        Side::on(SoftNic::open(&options).expect("an adapter"))
    }

    fn on(nic: Arc<dyn Nic>) -> Self {
        let context = Context::new(nic);
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(256).expect("a queue");
        Side { pd, cq }
    }

    /// Registers bytes, from the first that is not at a word's beginning.
    fn register(&self, bytes: &mut [u8]) -> MemoryRegion {
        let start = std::ptr::NonNull::from(&mut bytes[3]);
        // SAFETY: the bytes outlive the region in every test here, and are looked at when no peer is at work.
        unsafe { self.pd.register(start, bytes.len() - 3, Access::EVERYTHING) }.expect("registered")
    }

    fn next(&mut self) -> Wc {
        let (mut out, began) = ([Wc::default()], Instant::now());
        while self.cq.poll(&mut out).expect("no overrun") == 0 {
            assert!(began.elapsed() < Duration::from_secs(120), "no completion");
            std::thread::yield_now();
        }
        out[0]
    }

    fn succeeds(&mut self, id: u64) {
        let done = self.next();
        assert_eq!((done.id, done.status), (id, WcStatus::Success));
    }
}

fn connect<T: verbs::typed::Connected>(ours: &Side, theirs: &Side) -> (QueuePair<T>, QueuePair<T>) {
    let make = |side: &Side| {
        side.pd
            .create_qp(&QpOptions::on(&side.cq))
            .expect("a queue pair")
    };
    let (mut here, mut there): (QueuePair<T>, QueuePair<T>) = (make(ours), make(theirs));
    let [to_here, to_there] = [&here, &there].map(|qp| qp.endpoint().expect("a GID"));
    let options = ConnectOptions::default();
    here.connect(&to_there, &options).expect("connected");
    there.connect(&to_here, &options).expect("connected");
    (here, there)
}

fn pattern(len: usize, factor: usize) -> Vec<u8> {
    (0..len).map(|at| (at * factor + at / 251) as u8).collect()
}

#[test]
fn what_takes_many_pieces_comes_before_what_is_behind_it() {
    let (mut ours, mut theirs, _run_dir) = sides();
    let (mut here, mut there) = connect::<Rc>(&ours, &theirs);
    let (mut from, mut to) = (vec![0; LEN + 3], vec![0; LEN + 3]);
    let (local, remote) = (ours.register(&mut from), theirs.register(&mut to));
    for round in 1..4 {
        let bytes = pattern(LEN, round);
        local.write(0, &bytes);
        there
            .post_recv(&[RecvWr { id: 9, sges: &[] }])
            .expect("posted");
        // Pieces end where elements do not.
        let sges = [
            local.sge(0..1),
            local.sge(1..200_001),
            local.sge(200_001..LEN),
        ];
        here.post_send(&[
            Wr::write(&sges, remote.remote(0)).id(1),
            Wr::send_inline(b"").id(2),
        ])
        .expect("posted");
        theirs.succeeds(9);
        let mut found = vec![0; LEN];
        remote.read(0, &mut found);
        assert!(found == bytes, "a SEND overtook the WRITE before it");
        ours.succeeds(1);
        ours.succeeds(2);
        // A READ sees the WRITE before it.
        let cleared = vec![0; LEN];
        local.write(0, &cleared);
        local.write(0, b"changed");
        let (small, all) = ([local.sge(0..7)], [local.sge(7..100), local.sge(200..LEN)]);
        let end = 93 + LEN - 200;
        here.post_send(&[
            Wr::write(&small, remote.remote(5)).id(3),
            Wr::read(&all, remote.remote(0)).id(4),
        ])
        .expect("posted");
        ours.succeeds(3);
        ours.succeeds(4);
        let mut wanted = bytes[..end].to_vec();
        wanted[5..12].copy_from_slice(b"changed");
        let mut found = vec![0; LEN];
        local.read(0, &mut found);
        assert!(found[7..100] == wanted[..93] && found[200..] == wanted[93..]);
    }
}

#[test]
fn more_ask_than_there_are_stages_and_all_are_served() {
    let (mut ours, theirs, _run_dir) = sides();
    let (mut from, mut to) = (pattern(LEN + 3, 7), vec![0; 3 + 40 * LEN]);
    let (local, remote) = (ours.register(&mut from), theirs.register(&mut to));
    let mut pairs: Vec<_> = (0..40).map(|_| connect::<Rc>(&ours, &theirs)).collect();
    let sges = [local.sge(0..LEN)];
    for (at, (here, _)) in pairs.iter_mut().enumerate() {
        let write = Wr::write(&sges, remote.remote(at * LEN));
        here.post_send(&[write]).expect("posted");
    }
    for _ in 0..40 {
        assert_eq!(ours.next().status, WcStatus::Success);
    }
    let mut found = vec![0; 40 * LEN];
    remote.read(0, &mut found);
    assert!(found.chunks(LEN).all(|one| *one == from[3..]));
}

#[test]
fn processes_with_a_queue_pair_more_than_stages_are_all_served() {
    const QPS: usize = 17;
    const PROCESSES: usize = 3;
    refuse_copying();
    let run_dir = tempfile::tempdir().expect("a directory");
    let owner = Side::open(run_dir.path());
    let mut to = vec![0; 3 + PROCESSES * QPS * LEN];
    let remote = owner.register(&mut to);
    let mut askers: Vec<_> = (0..PROCESSES)
        .map(|number| {
            let (process, stream) = pair::refused_child(run_dir.path());
            let reader = stream.try_clone().expect("cloned");
            let side = Side::on(Arc::new(RemoteNic::new(reader, stream)));
            let memory = side.pd.allocate(LEN, Access::EVERYTHING).expect("memory");
            memory.write(0, &pattern(LEN, 3 + number));
            let pairs: Vec<_> = (0..QPS).map(|_| connect::<Rc>(&side, &owner)).collect();
            // The process goes last, which has the others.
            (pairs, memory, side, process)
        })
        .collect();
    for (number, (pairs, memory, ..)) in askers.iter_mut().enumerate() {
        let sges = [memory.sge(0..LEN)];
        for (at, (here, _)) in pairs.iter_mut().enumerate() {
            let write = Wr::write(&sges, remote.remote((number * QPS + at) * LEN));
            here.post_send(&[write.id(at as u64)]).expect("posted");
        }
    }
    for (_, _, side, _) in &mut askers {
        for _ in 0..QPS {
            assert_eq!(side.next().status, WcStatus::Success);
        }
    }
    let mut found = vec![0; PROCESSES * QPS * LEN];
    remote.read(0, &mut found);
    for (number, of_one) in found.chunks(QPS * LEN).enumerate() {
        let wanted = pattern(LEN, 3 + number);
        assert!(of_one.chunks(LEN).all(|one| *one == wanted), "{number}");
    }
}

#[test]
fn an_unreliable_write_is_copied_too() {
    let (mut ours, theirs, _run_dir) = sides();
    let (mut here, _there) = connect::<Uc>(&ours, &theirs);
    let (mut from, mut to) = (pattern(LEN + 3, 5), vec![0; LEN + 3]);
    let (local, remote) = (ours.register(&mut from), theirs.register(&mut to));
    let sges = [local.sge(0..LEN)];
    here.post_send(&[Wr::write(&sges, remote.remote(0)).id(1)])
        .expect("posted");
    ours.succeeds(1);
    let mut found = vec![0; LEN];
    remote.read(0, &mut found);
    assert!(found == from[3..]);
}

#[test]
fn pages_that_are_not_there_fail_the_request_and_nobody_else() {
    use rustix::mm::{MapFlags, ProtFlags};
    const PAGE: usize = 4096;
    let (mut ours, theirs, _run_dir) = sides();
    let (mut from, protection) = (vec![7; 2 * PAGE + 3], ProtFlags::READ | ProtFlags::WRITE);
    let local = ours.register(&mut from);
    let sges = [local.sge(0..PAGE)];
    for is_read in [false, true] {
        let (mut here, _there) = connect::<Rc>(&ours, &theirs);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            let private = MapFlags::PRIVATE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, protection, private)
        };
        let start = start.expect("memory");
        let first = std::ptr::NonNull::new(start.cast::<u8>()).expect("not at address 0");
        // SAFETY: nobody uses the memory but peers, which are told when it is not there.
        let region = unsafe { theirs.pd.register(first, 2 * PAGE, Access::EVERYTHING) };
        let region = region.expect("registered");
        // SAFETY: the second page, of which nobody knows.
        unsafe { rustix::mm::munmap(start.wrapping_byte_add(PAGE), PAGE) }.expect("unmapped");
        let ask = |at, id| match is_read {
            true => Wr::read(&sges, region.remote(at)).id(id),
            false => Wr::write(&sges, region.remote(at)).id(id),
        };
        here.post_send(&[ask(0, 1), ask(1, 2), ask(0, 3)])
            .expect("posted");
        ours.succeeds(1);
        let failed = ours.next();
        assert_eq!((failed.id, failed.status), (2, WcStatus::RemAccessErr));
        assert_eq!(failed.vendor_err, VendorErr::from(Cause::RemotePages));
        let flushed = ours.next();
        assert_eq!((flushed.id, flushed.status), (3, WcStatus::WrFlushErr));
        drop(region);
        // SAFETY: the first page, which no region names any more.
        unsafe { rustix::mm::munmap(start, PAGE) }.expect("unmapped");
    }
}
