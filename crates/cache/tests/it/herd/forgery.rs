//! Datagrams that are not what a client waits for, and pass for it. The software NIC gives two addresses the same queue pair numbers,
//! which the reference NIC does not.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use cache::herd::local::LocalStream;
use cache::herd::wire::request::Request;
use cache::herd::{Client, ClientConfig, Command, Outcome, ServerConfig, Status};
use nic_soft::SoftNic;
use verbs::typed::{AddressHandle, Context, QpOptions, QueuePair, Ud, Wr};
use verbs::{Access, Gid, Mtu, Qkey, UdDest};

use super::raw::Raw;
use super::rig::Rig;
use crate::herd::meddler::{Datagram, Fate, Message};
use crate::herd::options;

fn server() -> ServerConfig {
    ServerConfig {
        cores: 1,
        clients_max: 8,
        ..ServerConfig::default()
    }
}

fn patient() -> ClientConfig {
    ClientConfig {
        // Others come first: a poller looks at a new lane only now and then.
        retry_ns: 500_000,
        deadline_ns: 10_000_000,
        ..ClientConfig::default()
    }
}

type OneClient = Client<Box<dyn FnMut() -> io::Result<LocalStream>>>;

/// Has a client ask for an item that is not there, and the answer lost.
fn lose_an_answer(rig: &Rig, client: &mut OneClient) -> Datagram {
    let mut answers = 0;
    rig.server_nic.set(move |message| {
        answers += u32::from(message == Message::Answer);
        if message == Message::Answer && answers == 1 {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    let get = Command::Get { key: b"nothing" };
    client.submit(&get, false, 1).unwrap();
    for _ in 0..2000 {
        client.poll(rig.now_ns(), &mut |_, _| panic!("it was lost"));
        rig.step();
        if let Some(answer) = rig.server_nic.last_lost() {
            return answer;
        }
    }
    panic!("no answer");
}

/// Has the client come to an end with it; how many outcomes say that the item is not there.
fn outcomes(rig: &Rig, client: &mut OneClient) -> Vec<bool> {
    let mut outcomes = Vec::new();
    for _ in 0..2000 {
        client.poll(rig.now_ns(), &mut |_, outcome| {
            outcomes.push(matches!(outcome, Outcome::Refused(Status::NotFound)));
        });
        rig.step();
    }
    outcomes
}

fn connect(rig: &Rig) -> OneClient {
    let dial: Box<dyn FnMut() -> io::Result<LocalStream>> = Box::new(rig.dial());
    Client::connect(rig.client_pd(), patient(), dial, rig.now_ns()).unwrap()
}

#[test]
fn an_answer_from_another_address_is_none() {
    let [here, there] = [1, 9].map(|last| Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, last)));
    forge_an_answer(here, there);
    // Addresses that only an IPv6 header can tell, and that end alike.
    let [mut here, mut there] = [Gid([0x55; 16]); 2];
    (here.0[0], there.0[0]) = (0xfd, 0xfc);
    forge_an_answer(here, there);
}

/// Makes contact with the process of a receiver, so that what is sent there goes out at once.
fn contact(nic: &SoftNic, qp: &mut QueuePair<Ud>, ah: &AddressHandle, to: &UdDest) {
    qp.prepare(ah, to.qpn, to.qkey).unwrap();
    while nic.usage().peers == 0 {
        std::thread::yield_now();
    }
}

/// A client and its server have an address; somebody at another one answers.
fn forge_an_answer(at: Gid, gid: Gid) {
    let rig = Rig::on(super::fabric_at(at), server());
    let mut client = connect(&rig);
    let (server_ud, to, mut bytes) = lose_an_answer(&rig, &mut client);
    // Whoever sends it is at another address, and has a queue pair of the same number.
    let elsewhere = SoftNic::open(&options(rig.run_dir()).gid(gid)).unwrap();
    let pd = Context::new(Arc::<SoftNic>::clone(&elsewhere))
        .alloc_pd()
        .unwrap();
    let cq = pd.context().create_cq(1).unwrap();
    let mut others = Vec::new();
    let mut forger = loop {
        let qp: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).unwrap();
        if qp.num() == server_ud {
            break qp;
        }
        assert!(qp.num() < server_ud, "{} is beyond {server_ud}", qp.num());
        others.push(qp);
    };
    forger.activate(Qkey(1)).unwrap();
    let client_gid = rig.client_pd().context().gid().unwrap();
    let ah = pd.create_ah(client_gid).unwrap();
    bytes[4] = Status::OutOfMemory as u8;
    let forged = Wr::send_inline_to(&ah, to.qpn, to.qkey, &bytes);
    contact(&elsewhere, &mut forger, &ah, &to);
    forger.post_send(&[forged]).unwrap();
    assert_eq!(outcomes(&rig, &mut client), [true]);
    assert_eq!(client.stats().strays, 1);
}

/// A client says itself where its answers go: to another client, from the very queue pair that the other
/// one has its own answers from.
#[test]
fn an_answer_to_what_another_client_asked_is_none() {
    let rig = Rig::new(server());
    let keys = [(); 2].map(|()| {
        let mut client = connect(&rig);
        let (_, to, _) = lose_an_answer(&rig, &mut client);
        // Even if it has guessed the key.
        let mut forger = Raw::connect_for(&rig, 0, Some((to.qpn, to.qkey)));
        let id = forger.accept.first_id;
        let mut slot = [0; 64];
        let len = Request::Noop.emit(id, false, &mut slot).expect("it fits");
        forger.write(id, &slot[64 - len..], None);
        assert_eq!(outcomes(&rig, &mut client), [true]);
        assert_eq!(client.stats().strays, 1);
        to.qkey
    });
    assert_ne!(keys[0], keys[1], "anybody can guess them");
}

#[test]
fn a_datagram_longer_than_any_answer_breaks_no_connection() {
    let rig = Rig::new(server());
    // So that others can send more than the server says it does.
    rig.kill();
    rig.server_nic.set_mtu(Mtu::B1024);
    rig.start();
    let mut client = connect(&rig);
    let (_, to, _) = lose_an_answer(&rig, &mut client);
    let stranger = SoftNic::open(&options(rig.run_dir())).unwrap();
    let pd = Context::new(Arc::<SoftNic>::clone(&stranger))
        .alloc_pd()
        .unwrap();
    let cq = pd.context().create_cq(1).unwrap();
    let mut qp: QueuePair<Ud> = pd.create_qp(&QpOptions::on(&cq)).unwrap();
    qp.activate(Qkey(1)).unwrap();
    let memory = pd.allocate(4096, Access::empty()).unwrap();
    let client_gid = rig.client_pd().context().gid().unwrap();
    let ah = pd.create_ah(client_gid).unwrap();
    let long = [memory.sge(0..2000)];
    contact(&stranger, &mut qp, &ah, &to);
    qp.post_send(&[Wr::send_to(&ah, to.qpn, to.qkey, &long)])
        .unwrap();
    assert_eq!(outcomes(&rig, &mut client), [true]);
    let stats = client.stats();
    // It has no room among the RECVs, which are the NIC's, so that the client never sees it.
    assert_eq!((stats.strays, stats.connects), (0, 1), "{stats:?}");
}
