//! The kernel's own NFS server, over ext4 in a guest, is asked what ours is asked: random programs of names,
//! attributes and data have to be answered alike.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use conformance::files::program::{
    Known, Op, Scope, Step, check, draw, seeds, side_by_side, users,
};
use files::{Caller, CreateHow, Kind, Mode, New, SeekFor};
use guest::Job;

use super::through::{Server, Through};
use super::{is_deep, peer};
use crate::filesystem::{FsServer, image};
use crate::harness::{Place, fixed_port};

/// Serves a disk with ext4 to everybody, root as root. What a daemon would tell the kernel is written by
/// hand: who the clients are, and what is exported to them. The flags are those of `insecure`, `async`,
/// `no_root_squash`, `no_subtree_check` and `fsid`.
const NFSD: &str = r#"
load virtio_blk; load ext4; load nfsd
mkdir -p /export /var/lib/nfs/v4recovery
mount -t ext4 /dev/vda /export || exit 98
mount -t nfsd nfsd /proc/fs/nfsd || exit 97
echo 'nfsd 10.0.2.2 2147483647 *' > /proc/net/rpc/auth.unix.ip/channel
echo '* /export 2147483647 9234 65534 65534 0' > /proc/net/rpc/nfsd.export/channel
echo '* 1 \x00000000 2147483647 /export' > /proc/net/rpc/nfsd.fh/channel
echo '-3 +4 +4.1 +4.2' > /proc/fs/nfsd/versions
echo 'tcp 2049' > /proc/fs/nfsd/portlist || exit 96
echo 2 > /proc/fs/nfsd/threads || exit 95
echo Y > /proc/fs/nfsd/v4_end_grace
echo 'nfsd serves'
sleep 100000
"#;

/// Whether a step means the same to both: the list of `docs/fs-judges.md`, in its order.
pub(super) fn is_alike(step: &Step, on: &[Option<Known>]) -> bool {
    let (caller, picked) = (&step.caller, step.op.picks());
    let picked = picked.iter().map(|pick| on[pick % on.len()].as_ref());
    let Some(picked) = picked.collect::<Option<Vec<&Known>>>() else {
        return false;
    };
    let all = |kind: Kind| picked.iter().all(|known| known.kind == kind);
    let owns = caller.uid != 0 && picked.iter().any(|known| known.uid == caller.uid);
    let runs = caller.uid != 0 && picked.iter().any(|known| known.mode.bits() & 0o111 != 0);
    let has_set_id = |known: &Known| known.mode.bits() & 0o6000 != 0;
    match &step.op {
        Op::Parent(_) => all(Kind::Directory) && picked[0].object != 0,
        Op::ReadLink(_) => all(Kind::Symlink),
        Op::Lookup(..) | Op::List(..) => picked[0].kind != Kind::Symlink,
        Op::Create(_, _, New::Directory, set) => {
            let mode = set.mode.map_or(0, Mode::bits);
            may_change(caller, picked[0]) && mode & 0o6000 == 0
        }
        Op::CreateFile(_, _, how, set) => {
            let is_own = !matches!(how, CreateHow::Exclusive(_)) || caller.uid == 0;
            let cuts = *how == CreateHow::Unchecked && set.size == Some(0);
            let spoils = cuts && on.iter().flatten().any(has_set_id);
            may_change(caller, picked[0]) && is_own && !spoils
        }
        Op::Create(..) | Op::Remove(..) => may_change(caller, picked[0]),
        Op::Rename(..) => picked.iter().all(|directory| may_change(caller, directory)),
        Op::Link(..) => picked[0].kind != Kind::Directory && may_change(caller, picked[1]),
        Op::SetAttributes(_, set) => {
            let is_cut = set.size.is_some();
            let may_cut = all(Kind::File) && !owns && !has_set_id(picked[0]);
            (!is_cut || may_cut) && (set.mode.is_none() || !all(Kind::Symlink))
        }
        Op::Commit(..) => all(Kind::File) && caller.uid == 0,
        Op::Read(_, range) => all(Kind::File) && !owns && !runs && range.len > 0,
        Op::Seek(_, _, what) => all(Kind::File) && !owns && !runs && *what == SeekFor::Hole,
        Op::Copy(..) => all(Kind::File) && !owns && !runs,
        Op::Write(..) => all(Kind::File) && !owns,
        Op::Allocate(_, range) | Op::Deallocate(_, range) => {
            all(Kind::File) && !owns && range.len > 0 && !has_set_id(picked[0])
        }
        Op::SetXattr(..) | Op::RemoveXattr(..) => {
            let is_sticky = picked[0].mode.has(Mode::STICKY);
            all(Kind::File) || all(Kind::Directory) && !is_sticky
        }
        Op::Clone(..) => false,
        Op::Open(..) | Op::Downgrade(..) | Op::Lock(..) | Op::TestLock(..) | Op::Unlock(..) => {
            false
        }
        Op::Delegate(..) | Op::ReturnDelegation(..) | Op::Forget(_) => false,
        _ => true,
    }
}

/// Whether a caller may change a directory's names.
fn may_change(caller: &Caller, directory: &Known) -> bool {
    let is_member = caller.gid == directory.gid || caller.groups.contains(&directory.gid);
    let shift = match (caller.uid == directory.uid, is_member) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    let is_allowed = caller.uid == 0 || directory.mode.bits() >> shift & 3 == 3;
    directory.kind == Kind::Directory && is_allowed
}

/// Programs of some seeds through another server and ours.
fn compare(theirs: SocketAddr, ours: SocketAddr, count: u64) {
    let core = rt::Core::new(rt::Config::default()).expect("a core");
    let core = Rc::new(RefCell::new(core));
    let [theirs, ours] =
        [theirs, ours].map(|address| Rc::new(Server::connect(&core, address, &users())));
    for seed in seeds(0..count) {
        let steps = draw(seed, 60, Scope::Local, &users());
        check(seed, &steps, &mut |steps| {
            side_by_side(steps, Through::new(&theirs), Through::new(&ours))
        });
    }
}

#[test]
fn the_kernels_own_server_answers_the_same() {
    let (Some(image), Some(mkfs)) = (image(), peer("VERVAIN_TEST_MKFS_EXT4", "mkfs.ext4")) else {
        return;
    };
    let place = Place::new();
    let disk = place.path("disk");
    let file = std::fs::File::create(&disk).expect("made");
    file.set_len(256 << 20).expect("as long");
    let made = Command::new(mkfs).arg("-q").arg(&disk).status();
    assert!(made.expect("it starts").success());
    let port = fixed_port();
    let job = Job::new(NFSD)
        .disk(&disk)
        .forward(port, 2049)
        .timeout(Duration::from_secs(if is_deep() { 7200 } else { 900 }));
    let mut machine = image.start(&job).expect("it boots");
    let ours = FsServer::start(&place, "127.0.0.1:0", &[]);
    machine.wait_for("nfsd serves").expect("it serves");
    let theirs = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    compare(theirs, ours.address, if is_deep() { 200 } else { 12 });
}
