//! Who gets the memory of a region.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nic_soft::Cause;
use rustix::fs::{Mode, OFlags};
use verbs::Access;
use verbs::typed::{
    ConnectOptions, Context, Endpoint, MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Rc, Uc,
};
use verbs::{Psn, QpNum};

use crate::host::Host;
use crate::layout::{STAGE_LEN, STAGES};
use crate::speaker::{
    ATOMIC, COPY, HELLO, Message, Met, NO_SUCH, OK, REFUSED, REGION, Shared, Speaker, ask, home,
    qpn, send,
};

const INSTANCE: u32 = 100;

/// A NIC, and two hostile ones that it has met: one to which its queue pairs may lead, and a stranger.
struct Scene {
    context: Context,
    met: [Met; 2],
    speaker: Arc<Speaker>,
    _host: Host,
    _run_dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let run_dir = tempfile::tempdir().expect("a directory");
        let context = Context::new(crate::pair::open(run_dir.path()));
        let speaker = Arc::new(Speaker::new(run_dir.path(), INSTANCE));
        let segments = speaker.segments();
        let host = {
            let speaks = Arc::clone(&speaker);
            Host::start(&speaker, move |socket, request| {
                if request.code == HELLO {
                    let fds = [segments.published_file.as_fd(), segments.inbox_file.as_fd()];
                    send(socket, &speaks.answer(OK), &fds).expect("sent");
                }
            })
        };
        let stranger = Speaker::new(run_dir.path(), INSTANCE + 1);
        Scene {
            context,
            met: [&*speaker, &stranger].map(meet),
            speaker,
            _host: host,
            _run_dir: run_dir,
        }
    }

    fn domain(&self) -> ProtectionDomain {
        self.context.alloc_pd().expect("a domain")
    }

    /// Another connection of the first hostile NIC.
    fn meet_again(&self) -> Met {
        meet(&self.speaker)
    }
}

fn meet(speaker: &Speaker) -> Met {
    speaker.meet(0).map_err(|_| "refused").expect("met")
}

/// A queue pair of the first hostile NIC.
fn there(index: u32) -> Endpoint {
    Endpoint {
        gid: home(),
        qpn: QpNum(qpn(INSTANCE, index)),
        psn: Psn(0),
    }
}

/// Asks for a region's file.
fn file_of(socket: &OwnedFd, region: &MemoryRegion) -> Option<OwnedFd> {
    let request = Message::new(REGION, region.rkey().0, 0, 0);
    let (answer, fds) = ask(socket, &request).expect("an answer");
    let file = fds.into_iter().next();
    assert_eq!(answer.code, if file.is_some() { OK } else { NO_SUCH });
    file
}

fn is_read_only(file: &OwnedFd) -> bool {
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let writable = Shared::<[u8; 4096]>::map(file.as_fd(), true).is_ok();
    // A descriptor that reads can be opened anew to write; the mapping must fail all the same.
    let reopened = rustix::fs::open(again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let writable_anew =
        reopened.is_ok_and(|file| Shared::<[u8; 4096]>::map(file.as_fd(), true).is_ok());
    !writable && !writable_anew
}

#[test]
fn a_region_goes_where_a_queue_pair_of_its_domain_leads_and_nowhere_else() {
    let _alone = crate::victim::alone();
    let scene = Scene::new();
    let (pd, other) = (scene.domain(), scene.domain());
    let all = pd.allocate(4096, Access::EVERYTHING).expect("memory");
    let local = pd.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    let reads = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let readable = pd.allocate(4096, reads).expect("memory");
    let elsewhere = other.allocate(4096, Access::EVERYTHING).expect("memory");
    let layout = Layout::from_size_align(4096, 4096).expect("a layout");
    // SAFETY: the layout has a size.
    let own = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
    // SAFETY: the memory outlives the region, and nobody else uses it.
    let moved = unsafe { pd.register(own, 4096, reads) }.expect("registered");

    let [met, met_by_stranger] = &scene.met;
    let regions = [&all, &local, &readable, &elsewhere, &moved];
    for region in regions {
        assert!(
            file_of(&met.socket, region).is_none(),
            "nothing leads there"
        );
    }

    let cq = scene.context.create_cq(4).expect("a queue");
    let mut qp: QueuePair<Uc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    qp.connect(&there(2), &ConnectOptions::default())
        .expect("connected");
    for region in regions {
        assert!(file_of(&met_by_stranger.socket, region).is_none());
    }
    assert!(!is_read_only(
        &file_of(&met.socket, &all).expect("its memory")
    ));
    for region in [&readable, &moved] {
        assert!(is_read_only(
            &file_of(&met.socket, region).expect("its memory")
        ));
    }
    assert!(
        file_of(&met.socket, &local).is_none(),
        "no peer has a right to it"
    );
    assert!(
        file_of(&met.socket, &elsewhere).is_none(),
        "no queue pair leads there"
    );
    drop(qp);
    assert!(
        file_of(&met.socket, &all).is_none(),
        "nothing leads there any more"
    );

    drop(moved);
    // SAFETY: allocated with this layout, and the region has gone.
    unsafe { dealloc(own.as_ptr(), layout) };
}

/// Asks for an addition: the word before, or why there is none.
fn add(met: &Met, qpn: u32, key: u32, addr: u64) -> Result<u64, u32> {
    add_over(met, (qpn, met.epoch_of(qpn)), key, addr)
}

/// The same over a connection of a queue pair's, by its epoch.
fn add_over(met: &Met, (qpn, epoch): (u32, u16), key: u32, addr: u64) -> Result<u64, u32> {
    const FETCH_ADD: u32 = 2 << 24;
    let mut request = Message::new(ATOMIC, key, qpn | FETCH_ADD, addr).over(epoch);
    request.gid.0 = [0; 16];
    request.gid.0[0] = 3;
    let (answer, fds) = ask(&met.socket, &request).expect("an answer");
    assert!(fds.is_empty());
    match answer.code {
        OK => Ok(answer.c),
        REFUSED => Err(answer.a),
        code => panic!("answered {code}"),
    }
}

#[test]
fn an_atomic_is_for_those_whose_queue_pair_may_and_for_nobody_else() {
    let _alone = crate::victim::alone();
    let scene = Scene::new();
    let (pd, other) = (scene.domain(), scene.domain());
    let all = pd.allocate(4096, Access::EVERYTHING).expect("memory");
    let bytes = Access::EVERYTHING - Access::REMOTE_ATOMIC;
    let bytes = pd.allocate(4096, bytes).expect("memory");
    let elsewhere = other.allocate(4096, Access::EVERYTHING).expect("memory");

    let [met, met_by_stranger] = &scene.met;

    let cq = scene.context.create_cq(4).expect("a queue");
    let mut rc: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let mut uc: QueuePair<Uc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let mut careful: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let (key, addr) = (all.rkey().0, all.remote(64).addr);
    let no = |cause: Cause| Err(cause as u32);
    let to = rc.num().0;
    assert_eq!(add(met, to, key, addr), no(Cause::PeerNotReady));
    let options = ConnectOptions::default();
    rc.connect(&there(2), &options).expect("connected");
    uc.connect(&there(3), &options).expect("connected");
    let options = ConnectOptions {
        access: Access::REMOTE_WRITE,
        ..options
    };
    careful.connect(&there(4), &options).expect("connected");

    assert_eq!(add(met, to, key, addr), Ok(0));
    assert_eq!(add(met, to, key, addr), Ok(3));
    let refused = [
        (to, key + 1, addr, Cause::RemoteKey),
        (to, u32::MAX, addr, Cause::RemoteKey),
        (to, 0, addr, Cause::RemoteKey),
        (to, key, addr + 4, Cause::Misaligned),
        (to, key, addr + 4096, Cause::RemoteRange),
        (to, key, 0, Cause::RemoteRange),
        (to, key, u64::MAX - 7, Cause::RemoteRange),
        (to, bytes.rkey().0, bytes.remote(0).addr, Cause::RemoteRight),
        (
            to,
            elsewhere.rkey().0,
            elsewhere.remote(0).addr,
            Cause::RemoteDomain,
        ),
        (uc.num().0, key, addr, Cause::PeerNotReady),
        (careful.num().0, key, addr, Cause::QueuePairRight),
        (qpn(0, 1000), key, addr, Cause::PeerNotReady),
        (qpn(77, to), key, addr, Cause::PeerNotReady),
    ];
    for (to, key, addr, cause) in refused {
        assert_eq!(add(met, to, key, addr), no(cause), "{to} {key} {addr}");
    }
    let epoch = met.epoch_of(to);
    for other in [epoch.wrapping_sub(1), epoch.wrapping_add(1), !epoch] {
        let refused = add_over(met, (to, other), key, addr);
        assert_eq!(refused, no(Cause::PeerNotReady), "of another connection");
    }
    let by_stranger = add(met_by_stranger, to, key, addr);
    assert_eq!(by_stranger, no(Cause::PeerNotReady));
    assert_eq!(add(met, to, key, addr), Ok(6), "nothing else has counted");
    drop(rc);
    assert_eq!(add(met, to, key, addr), no(Cause::PeerNotReady));
}

/// A copy, asked for by hand.
#[derive(Clone, Copy, Debug)]
struct Copy {
    to: u32,
    kind: u32,
    key: u32,
    addr: u64,
    stage: usize,
    len: usize,
}

const WRITE: u32 = 1;
const READ: u32 = 2;

impl Copy {
    /// What becomes of it: nothing that is told, if it ends the connection.
    fn ask(self, met: &Met) -> Option<Result<(), u32>> {
        let request = Message::new(COPY, self.key, self.to | self.kind << 24, self.addr);
        let mut request = request.over(met.epoch_of(self.to));
        request.gid.0 = [0; 16];
        request.gid.0[..4].copy_from_slice(&(self.stage as u32).to_le_bytes());
        request.gid.0[4..8].copy_from_slice(&(self.len as u32).to_le_bytes());
        let (answer, fds) = ask(&met.socket, &request).ok()?;
        assert!(fds.is_empty());
        match answer.code {
            OK => Some(Ok(())),
            REFUSED => Some(Err(answer.a)),
            code => panic!("answered {code}"),
        }
    }
}

#[test]
fn a_copy_is_for_those_whose_queue_pair_may_and_for_nobody_else() {
    let _alone = crate::victim::alone();
    let scene = Scene::new();
    let (pd, other) = (scene.domain(), scene.domain());
    let all = pd.allocate(4096, Access::EVERYTHING).expect("memory");
    let reads = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let reads = pd.allocate(4096, reads).expect("memory");
    let elsewhere = other.allocate(4096, Access::EVERYTHING).expect("memory");

    let [met, met_by_stranger] = &scene.met;

    let cq = scene.context.create_cq(4).expect("a queue");
    let mut rc: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let mut uc: QueuePair<Uc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let mut careful: QueuePair<Rc> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
    let usual = Copy {
        to: rc.num().0,
        kind: WRITE,
        key: all.rkey().0,
        addr: all.remote(61).addr,
        stage: STAGES - 1,
        len: 9,
    };
    let no = |cause: Cause| Some(Err(cause as u32));
    assert_eq!(usual.ask(met), no(Cause::PeerNotReady));
    let options = ConnectOptions::default();
    rc.connect(&there(2), &options).expect("connected");
    uc.connect(&there(3), &options).expect("connected");
    let options = ConnectOptions {
        access: Access::REMOTE_READ,
        ..options
    };
    careful.connect(&there(4), &options).expect("connected");

    let stage = &met.inbox.stages[STAGES - 1].0;
    stage[0].store(u64::from_le_bytes(*b"somebody"), Ordering::Relaxed);
    stage[1].store(u64::from_le_bytes(*b"'s bytes"), Ordering::Relaxed);
    assert_eq!(usual.ask(met), Some(Ok(())));
    let mut found = [0; 11];
    all.read(60, &mut found);
    assert_eq!(&found, b"\0somebody'\0");
    // Back, by another stage.
    let back = Copy {
        kind: READ,
        stage: 0,
        addr: usual.addr + 1,
        len: 8,
        ..usual
    };
    assert_eq!(back.ask(met), Some(Ok(())));
    let word = met.inbox.stages[0].0[0].load(Ordering::Relaxed);
    assert_eq!(&word.to_le_bytes(), b"omebody'");
    let over_uc = Copy {
        to: uc.num().0,
        ..usual
    };
    assert_eq!(over_uc.ask(met), Some(Ok(())), "a WRITE it may");

    stage[0].store(0, Ordering::Relaxed);
    let (read_only, strange) = (reads.rkey().0, elsewhere.rkey().0);
    let refused = [
        (
            Copy {
                key: usual.key + 1,
                ..usual
            },
            Cause::RemoteKey,
        ),
        (
            Copy {
                key: u32::MAX,
                ..usual
            },
            Cause::RemoteKey,
        ),
        (Copy { key: 0, ..usual }, Cause::RemoteKey),
        (
            Copy {
                addr: all.remote(0).addr + 4088,
                ..usual
            },
            Cause::RemoteRange,
        ),
        (
            Copy {
                len: STAGE_LEN,
                ..usual
            },
            Cause::RemoteRange,
        ),
        (
            Copy {
                addr: u64::MAX - 3,
                ..usual
            },
            Cause::RemoteRange,
        ),
        (Copy { addr: 0, ..usual }, Cause::RemoteRange),
        (
            Copy {
                key: read_only,
                addr: reads.remote(0).addr,
                ..usual
            },
            Cause::RemoteRight,
        ),
        (
            Copy {
                key: strange,
                addr: elsewhere.remote(0).addr,
                ..usual
            },
            Cause::RemoteDomain,
        ),
        (
            Copy {
                kind: READ,
                ..over_uc
            },
            Cause::PeerNotReady,
        ),
        (
            Copy {
                to: careful.num().0,
                ..usual
            },
            Cause::QueuePairRight,
        ),
        (
            Copy {
                to: qpn(0, 1000),
                ..usual
            },
            Cause::PeerNotReady,
        ),
        (
            Copy {
                to: qpn(77, usual.to),
                ..usual
            },
            Cause::PeerNotReady,
        ),
    ];
    for (copy, cause) in refused {
        assert_eq!(copy.ask(met), no(cause), "{copy:?}");
    }
    let by_stranger = usual.ask(met_by_stranger);
    assert_eq!(by_stranger, no(Cause::PeerNotReady));
    all.read(60, &mut found);
    assert_eq!(&found, b"\0somebody'\0", "nothing was written");
    // What can be no copy ends the connection.
    for wrong in [
        Copy {
            stage: STAGES,
            ..usual
        },
        Copy {
            len: STAGE_LEN + 1,
            ..usual
        },
        Copy { len: 0, ..usual },
        Copy { kind: 3, ..usual },
    ] {
        assert_eq!(wrong.ask(&scene.meet_again()), None, "{wrong:?}");
    }
}
