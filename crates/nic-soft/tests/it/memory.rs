//! Memory that the caller brings along, and shared memory without memfd.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use conformance::Fixture;
use nic_soft::SoftNic;
use rustix::fs::{MemfdFlags, SealFlags};
use verbs::nic::Nic;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Rc, Wr,
};
use verbs::{Access, Iova, VerbsError, Wc, WcStatus};

use crate::pair;

const LEN: usize = 3 * 4096;

/// Memory from the allocator, aligned as asked.
struct Owned {
    start: NonNull<u8>,
    layout: Layout,
}

impl Owned {
    fn new(align: usize) -> Self {
        let layout = Layout::from_size_align(LEN, align).expect("a layout");
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        Owned { start, layout }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is ours, and no peer is at work while a test looks.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), LEN) }
    }

    fn register(
        &self,
        context: &Context,
        offset: usize,
        access: Access,
    ) -> Result<MemoryRegion, VerbsError> {
        let pd = context.alloc_pd().expect("a protection domain");
        // SAFETY: the memory outlives the region in every test here.
        unsafe {
            let start = NonNull::new_unchecked(self.start.as_ptr().add(offset));
            pd.register(start, LEN - 2 * offset, access)
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A queue pair of each of two adapters, connected.
fn connected(
    (pd, cq): (&ProtectionDomain, &CompletionQueue),
    (their_pd, their_cq): (&ProtectionDomain, &CompletionQueue),
) -> (QueuePair<Rc>, QueuePair<Rc>) {
    let make = |pd: &ProtectionDomain, cq| pd.create_qp(&QpOptions::on(cq)).expect("a queue pair");
    let (mut ours, mut theirs) = (make(pd, cq), make(their_pd, their_cq));
    let [to_us, to_them] = [&ours, &theirs].map(|qp| qp.endpoint().expect("a GID"));
    let options = ConnectOptions::default();
    ours.connect(&to_them, &options).expect("connected");
    theirs.connect(&to_us, &options).expect("connected");
    (ours, theirs)
}

/// Has a peer WRITE into, READ from and count in a region of ours.
fn use_from(peer: Arc<dyn Nic>, context: &Context, region: &MemoryRegion) {
    let theirs = Context::new(peer);
    let (pd, mut cq) = (
        theirs.alloc_pd().expect("a domain"),
        theirs.create_cq(16).expect("a queue"),
    );
    let our_cq = context.create_cq(16).expect("a queue");
    let (mut qp, _ours) = connected((&pd, &cq), (region.pd(), &our_cq));
    let memory = pd.allocate(LEN, Access::LOCAL_WRITE).expect("memory");
    let pattern: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
    memory.write(0, &pattern);
    let mut one = |wr: &Wr<'_, Rc>| {
        qp.post_send(std::slice::from_ref(wr)).expect("posted");
        let mut done = [Wc::default()];
        while cq.poll(&mut done).expect("no overrun") == 0 {}
        done[0].status
    };
    let sges = [memory.sge(0..5000)];
    assert_eq!(one(&Wr::write(&sges, region.remote(8))), WcStatus::Success);
    let mut bytes = vec![0; 5000];
    region.read(8, &mut bytes);
    assert_eq!(bytes, pattern);
    region.write(100, b"written at home");
    let sges = [memory.sge(6000..6015)];
    assert_eq!(one(&Wr::read(&sges, region.remote(100))), WcStatus::Success);
    let mut bytes = [0; 15];
    memory.read(6000, &mut bytes);
    assert_eq!(&bytes, b"written at home");
    region.write(8192 - 64, &41u64.to_le_bytes());
    let result = [memory.sge(0..8)];
    let counted = one(&Wr::fetch_add(&result, region.remote(8192 - 64), 1));
    assert_eq!(counted, WcStatus::Success);
    let word = region.atomic_u64(8192 - 64);
    assert_eq!(word.load(Ordering::Acquire), 42);
    let end = region.len();
    let sges = [memory.sge(0..8)];
    assert_eq!(
        one(&Wr::write(&sges, region.remote(end - 7))),
        WcStatus::RemAccessErr
    );
}

const WORDS: Access = Access::EVERYTHING;

fn bytes_only() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

/// The peer of a fixture's node A, in this process and in another one.
fn peers(test: impl Fn(&Context, Arc<dyn Nic>)) {
    for Fixture { a, b, keep, .. } in [pair::within_a_process(), pair::across_processes()] {
        test(&Context::new(a), b);
        drop(keep);
    }
}

#[test]
fn whole_pages_are_moved_in_place_and_back() {
    peers(|context, peer| {
        let mut owned = Owned::new(4096);
        owned.bytes().fill(0x5a);
        let region = owned.register(context, 0, WORDS).expect("registered");
        assert_eq!(region.as_ptr(), owned.start.as_ptr());
        assert!(
            owned.bytes().iter().all(|byte| *byte == 0x5a),
            "the bytes stay"
        );
        use_from(peer, context, &region);
        let before = owned.bytes().to_vec();
        drop(region);
        assert_eq!(owned.bytes(), before, "the bytes stay");
    });
}

#[test]
fn parts_of_pages_are_reached_through_the_kernel() {
    peers(|context, peer| {
        let owned = Owned::new(64);
        let region = owned.register(context, 24, WORDS).expect("registered");
        use_from(peer, context, &region);
    });
}

#[test]
fn pages_stay_where_they_are_if_that_is_wanted() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut options = pair::options(run_dir.path());
    options.remap = false;
    let context = Context::new(SoftNic::open(&options).expect("an adapter"));
    let owned = Owned::new(4096);
    let region = owned.register(&context, 0, WORDS).expect("registered");
    use_from(pair::open(run_dir.path()), &context, &region);
}

#[test]
fn without_memfd_unnamed_files_do() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut options = pair::options(run_dir.path());
    options.memfd = false;
    let context = Context::new(SoftNic::open(&options).expect("an adapter"));
    let pd = context.alloc_pd().expect("a domain");
    let region = pd.allocate(LEN, WORDS).expect("memory");
    // A peer with memfd would insist on seals.
    let peer = SoftNic::open(&options).expect("an adapter");
    use_from(peer, &context, &region);
    let files = std::fs::read_dir(run_dir.path()).expect("readable").count();
    assert_eq!(files, 1, "nothing but the GID's directory");
    let sealed = pair::open(run_dir.path());
    let cq = context.create_cq(1).expect("a queue");
    let mut qp: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let theirs = Context::new(sealed);
    let (their_pd, their_cq) = (
        theirs.alloc_pd().expect("pd"),
        theirs.create_cq(1).expect("cq"),
    );
    let mut their_qp: QueuePair<Rc> = their_pd
        .create_qp(&QpOptions::on(&their_cq))
        .expect("a queue pair");
    let refused = their_qp.connect(&qp.endpoint().expect("a GID"), &ConnectOptions::default());
    assert!(
        refused.is_err(),
        "memory that could be cut short is not mapped"
    );
    let accepted = qp.connect(
        &their_qp.endpoint().expect("a GID"),
        &ConnectOptions::default(),
    );
    assert!(accepted.is_ok(), "{accepted:?}");
}

#[test]
fn memory_that_is_deregistered_is_let_go_by_peers() {
    // No other test has regions of this length.
    const PAGES: usize = 1237;
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own mappings");
        let len = |line: &str| {
            let (from, rest) = line.split_once('-')?;
            let (to, _) = rest.split_once(' ')?;
            let parse = |text| usize::from_str_radix(text, 16).ok();
            Some(parse(to)? - parse(from)?)
        };
        let lens = maps.lines().filter_map(len);
        lens.filter(|len| *len == PAGES * 4096).count()
    };
    let run_dir = tempfile::tempdir().expect("a directory");
    let [ours, theirs] = [(); 2].map(|()| Context::new(pair::open(run_dir.path())));
    let [pd, their_pd] = [&ours, &theirs].map(|context| context.alloc_pd().expect("a domain"));
    let [our_cq, mut cq] = [&ours, &theirs].map(|context| context.create_cq(16).expect("a queue"));
    let (_qp, mut their_qp) = connected((&pd, &our_cq), (&their_pd, &cq));
    for round in 0..64 {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = pd.allocate(PAGES * 4096, access).expect("memory");
        let write = Wr::write_inline(b"bytes", region.remote(0)).id(round);
        their_qp.post_send(&[write]).expect("posted");
        let mut done = [Wc::default()];
        while cq.poll(&mut done).expect("no overrun") == 0 {}
        assert_eq!((done[0].id, done[0].status), (round, WcStatus::Success));
    }
    // A queue pair remembers a few regions.
    let left = mapped();
    assert!(left <= 17, "{left} are still mapped");
}

#[test]
fn memory_under_another_region_stays_when_the_first_goes() {
    const PAGE: usize = 4096;
    // So much that moving it back takes longer than a READ.
    const ALL: usize = 4096 * PAGE;
    let layout = Layout::from_size_align(ALL, PAGE).expect("a layout");
    // SAFETY: the layout has a size.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
    let end = start.as_ptr().wrapping_add(ALL - PAGE);
    // SAFETY: the last page of it.
    unsafe { end.write_bytes(0x5a, PAGE) };
    let run_dir = tempfile::tempdir().expect("a directory");
    let [ours, theirs] = [(); 2].map(|()| Context::new(pair::open(run_dir.path())));
    let [pd, their_pd] = [&ours, &theirs].map(|context| context.alloc_pd().expect("a domain"));
    let [our_cq, mut cq] = [&ours, &theirs].map(|context| context.create_cq(16).expect("a queue"));
    let (_qp, mut their_qp) = connected((&pd, &our_cq), (&their_pd, &cq));
    let register = |start, len| {
        // SAFETY: the memory outlives the regions, and is read by the NICs alone meanwhile.
        unsafe { pd.register(start, len, bytes_only()) }.expect("registered")
    };
    let first = register(start, ALL);
    let second = register(NonNull::new(end).expect("not at 0"), PAGE);
    let result = their_pd.allocate(8, Access::LOCAL_WRITE).expect("memory");
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sges = [result.sge(0..8)];
            loop {
                let is_last = is_over.load(Ordering::Acquire);
                let read = Wr::read(&sges, second.remote(64));
                their_qp.post_send(&[read]).expect("posted");
                let mut done = [Wc::default()];
                while cq.poll(&mut done).expect("no overrun") == 0 {
                    std::thread::yield_now();
                }
                assert_eq!(done[0].status, WcStatus::Success);
                let mut bytes = [0; 8];
                result.read(0, &mut bytes);
                assert_eq!(bytes, [0x5a; 8]);
                reads.fetch_add(1, Ordering::Relaxed);
                if is_last {
                    return;
                }
            }
        });
        while reads.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        drop(first);
        is_over.store(true, Ordering::Release);
    });
    drop(second);
    // SAFETY: no region lies there any more.
    unsafe {
        assert_eq!(end.add(PAGE - 1).read(), 0x5a, "the bytes stay");
        dealloc(start.as_ptr(), layout);
    }
}

/// Pages of a file of the caller's, mapped.
struct Filed {
    file: OwnedFd,
    start: NonNull<u8>,
}

impl Filed {
    const LEN: usize = 4 * 4096;

    fn new(seals: SealFlags) -> Self {
        use rustix::mm::{MapFlags, ProtFlags};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("callers", flags).expect("a memfd");
        rustix::fs::ftruncate(&file, Self::LEN as u64).expect("a length");
        rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
        let (protection, anywhere) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(anywhere, Self::LEN, protection, MapFlags::SHARED, &file, 0)
        };
        let start = NonNull::new(start.expect("mapped").cast()).expect("not at 0");
        Filed { file, start }
    }
}

impl Drop for Filed {
    fn drop(&mut self) {
        // SAFETY: the mapping is its own, and no region lies there any more.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), Self::LEN) }.expect("unmapped");
    }
}

#[test]
fn memory_in_a_file_of_the_callers_is_mapped_by_peers() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut options = pair::options(run_dir.path());
    options.remap = false;
    let nic = SoftNic::open(&options).expect("an adapter");
    let context = Context::new(nic.clone());
    let theirs = Context::new(pair::open(run_dir.path()));
    let [pd, their_pd] = [&context, &theirs].map(|one| one.alloc_pd().expect("a domain"));
    let [our_cq, mut cq] = [&context, &theirs].map(|one| one.create_cq(16).expect("a queue"));
    let (_qp, mut their_qp) = connected((&pd, &our_cq), (&their_pd, &cq));
    let filed = Filed::new(SealFlags::SHRINK);
    let register = |filed: &Filed, at: usize, len: usize, offset: u64, access: Access| {
        // SAFETY: the memory outlives the regions, and lies at this offset or is refused.
        unsafe {
            let start = filed.start.add(at);
            let (pd, iova, file) = (pd.num(), Iova::of(start), filed.file.as_fd());
            nic.register_file(pd, start, len, iova, access, file, offset)
        }
    };
    // Not at the beginning of a page, nor to the end of one.
    let region = register(&filed, 4096 + 40, 8192, 4096 + 40, WORDS).expect("registered");
    let memory = their_pd.allocate(64, Access::LOCAL_WRITE).expect("memory");
    let mut one = |wr: &Wr<'_, Rc>| {
        their_qp
            .post_send(std::slice::from_ref(wr))
            .expect("posted");
        let mut done = [Wc::default()];
        while cq.poll(&mut done).expect("no overrun") == 0 {
            std::thread::yield_now();
        }
        done[0].status
    };
    let word = |at: usize| {
        // SAFETY: an aligned word of the mapping.
        unsafe { AtomicU64::from_ptr(filed.start.add(at).cast().as_ptr()) }
    };
    let at = |offset| verbs::nic::remote_addr(&*region, offset);
    word(4096 + 48).store(41, Ordering::Release);
    let sges = [memory.sge(0..8)];
    assert_eq!(one(&Wr::fetch_add(&sges, at(8), 1)), WcStatus::Success);
    assert_eq!(word(4096 + 48).load(Ordering::Acquire), 42);
    memory.write(8, &77u64.to_ne_bytes());
    let sges = [memory.sge(8..16)];
    assert_eq!(one(&Wr::write(&sges, at(8184))), WcStatus::Success);
    assert_eq!(word(3 * 4096 + 32).load(Ordering::Acquire), 77);
    // Nobody has moved it, nor do they when the region goes.
    drop(region);
    assert_eq!(word(4096 + 48).load(Ordering::Acquire), 42);

    let invalid = |made: Result<_, VerbsError>| matches!(made, Err(VerbsError::Invalid { .. }));
    assert!(invalid(register(&filed, 0, 2 * 4096, 3 * 4096, WORDS)));
    assert!(invalid(register(&filed, 0, 4096, u64::MAX - 4095, WORDS)));
    let unsealed = Filed::new(SealFlags::GROW);
    assert!(invalid(register(&unsealed, 0, 4096, 0, WORDS)));
    // Nobody has a right to map this.
    register(&unsealed, 0, 4096, 0, Access::LOCAL_WRITE).expect("registered");
}
