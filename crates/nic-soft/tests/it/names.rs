//! A device's several addresses, and groups whose members die.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance::remote::RemoteNic;
use nic_soft::{SoftNic, SoftOptions};
use verbs::nic::Nic;
use verbs::typed::{
    AddressHandle, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion,
    ProtectionDomain, QpOptions, QueuePair, Rc, Ud, Wr,
};
use verbs::wr::GRH_LEN;
use verbs::{Access, AhAttr, Gid, GidEntry, GidKind, Qkey, QpNum, RecvWr, VerbsError, Wc};

use crate::pair;

const QKEY: Qkey = Qkey(3);

fn ipv4(last: u8) -> Gid {
    Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, last))
}

fn ipv6() -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
}

/// A device with three addresses.
fn named(run_dir: &Path) -> SoftOptions {
    let mut options = pair::options(run_dir).gid(ipv4(1));
    options.aliases = [ipv6(), ipv4(2)]
        .map(|gid| GidEntry {
            gid,
            kind: GidKind::RoceV2,
            interface: 7,
        })
        .into();
    options
}

struct Node {
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
}

impl Node {
    fn new(nic: Arc<dyn Nic>) -> Self {
        let context = Context::new(nic);
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(8).expect("a queue");
        let mut ud: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).expect("a queue pair");
        ud.activate(QKEY).expect("ready");
        let memory = pd.allocate(256, Access::EVERYTHING).expect("memory");
        Node {
            ud,
            cq,
            memory,
            pd,
            context,
        }
    }

    fn post_recv(&mut self) {
        let sges = [self.memory.sge(0..128)];
        let posted = self.ud.post_recv(&[RecvWr { id: 1, sges: &sges }]);
        posted.expect("posted");
    }

    fn next(&mut self, what: &str) -> Wc {
        let (mut out, began) = ([Wc::default()], Instant::now());
        while self.cq.poll(&mut out).expect("no overrun") == 0 {
            assert!(began.elapsed() < Duration::from_secs(120), "{what}");
            std::thread::yield_now();
        }
        assert!(out[0].is_ok(), "{what}: {:?}", out[0]);
        out[0]
    }

    fn send(&mut self, ah: &AddressHandle, to: QpNum) {
        let wr = Wr::send_inline_to(ah, to, QKEY, b"hello");
        self.ud.post_send(&[wr]).expect("posted");
        self.next("it is sent");
    }

    fn header(&self) -> [u8; GRH_LEN] {
        let mut header = [0; GRH_LEN];
        self.memory.read(0, &mut header);
        header
    }
}

#[test]
fn a_device_is_reached_by_each_of_its_addresses_which_headers_say() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let open = || SoftNic::open(&named(run_dir.path())).expect("an adapter");
    let (mut here, mut there) = (Node::new(open()), Node::new(open()));
    let port = here.context.nic().port(1).expect("port 1");
    let table: Vec<Gid> = port.gids.iter().map(|entry| entry.gid).collect();
    assert_eq!(table, [ipv4(1), ipv6(), ipv4(2)]);
    assert_eq!(port.gids[1].interface, 7);
    let to = there.ud.num();
    let handle = |node: &Node, gid, index| {
        let mut attr = AhAttr::to(gid);
        attr.gid_index = index;
        node.pd.create_ah_of(&attr)
    };
    for (gid, index) in [(ipv4(1), 0), (ipv4(2), 2), (ipv6(), 1), (ipv4(1), 2)] {
        there.post_recv();
        let ah = handle(&here, gid, index).expect("an address");
        here.send(&ah, to);
        let heard = there.next("it is heard");
        assert_eq!(heard.src_qpn, here.ud.num());
        let header = there.header();
        let from = table[usize::from(index)];
        match (from.ipv4(), gid.ipv4()) {
            (Some(from), Some(to)) => {
                assert_eq!(header[32..36], from.octets());
                assert_eq!(header[36..40], to.octets());
            }
            _ => {
                assert_eq!(header[8..24], from.0);
                assert_eq!(header[24..40], gid.0);
            }
        }
    }
    let beyond = handle(&here, ipv4(1), 3);
    assert!(
        matches!(beyond, Err(VerbsError::NoSuch { .. })),
        "{beyond:?}"
    );
}

#[test]
fn a_connection_is_made_by_any_address() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let open = || SoftNic::open(&named(run_dir.path())).expect("an adapter");
    let (mut here, mut there) = (Node::new(open()), Node::new(open()));
    let made = |node: &Node| -> QueuePair<Rc> {
        let made = node.pd.create_qp(&QpOptions::on(&node.cq));
        made.expect("a queue pair")
    };
    let (mut ours, mut theirs) = (made(&here), made(&there));
    let ends = [&ours, &theirs].map(|qp| qp.endpoint().expect("a GID"));
    for (qp, peer, gid) in [
        (&mut ours, ends[1], ipv4(2)),
        (&mut theirs, ends[0], ipv6()),
    ] {
        let connected = qp.connect(&Endpoint { gid, ..peer }, &ConnectOptions::default());
        connected.expect("connected");
    }
    let sges = [there.memory.sge(0..64)];
    let posted = theirs.post_recv(&[RecvWr { id: 1, sges: &sges }]);
    posted.expect("posted");
    ours.post_send(&[Wr::send_inline(b"hello")])
        .expect("posted");
    here.next("it is sent");
    there.next("it is heard");
}

#[test]
fn a_group_goes_on_without_a_member_that_was_killed() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let mut options = pair::options(run_dir.path());
    options.datagrams_wait = true;
    let mut here = Node::new(SoftNic::open(&options).expect("an adapter"));
    let group = Gid::from_ipv4(Ipv4Addr::new(239, 0, 0, 1));
    let (mut process, stream) = pair::child(run_dir.path());
    let reader = stream.try_clone().expect("cloned");
    let mut dies = Node::new(Arc::new(RemoteNic::new(reader, stream)));
    let mut lives = Node::new(pair::open(run_dir.path()));
    let ah = here.pd.create_ah(group).expect("an address");
    for node in [&mut dies, &mut lives] {
        node.ud.attach_mcast(group).expect("joined");
        node.post_recv();
    }
    here.send(&ah, QpNum::MULTICAST);
    dies.next("the first hears it");
    lives.next("the second hears it");
    process.0.kill().expect("killed");
    process.0.wait().expect("ended");
    // What speaks to it would ask it to give everything back.
    crate::death::keep(dies);
    for _ in 0..3 {
        lives.post_recv();
        here.send(&ah, QpNum::MULTICAST);
        lives.next("the second hears it still");
    }
}
