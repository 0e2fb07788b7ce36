//! The hot path does not allocate, on either side.

use cache::herd::wire::handshake::{Connect, ConnectCore};
use cache::herd::{Acceptor, ClientConfig, Command, Outcome, Server, ServerConfig, StoreMode};
use cache::mica::NewValue;

use verbs::Qkey;
use verbs::typed::{Context, QpOptions, Uc, Ud};

use super::rig::Rig;
use crate::mica_allocation::{allocations_of, bytes_of};

#[test]
fn small_requests_do_not_allocate() {
    let rig = Rig::new(ServerConfig {
        cores: 2,
        ..ServerConfig::default()
    });
    let mut client = rig.client(ClientConfig::default());
    rig.step();
    let value = [7; 600];
    rig.machine(|machine| {
        for number in 0..64u64 {
            let key = number.to_le_bytes();
            let core = rig.config.route().core(&key);
            let partition = &mut machine.engines[core as usize];
            let hash = partition.hash(&key);
            let new = NewValue::new(&value[..number as usize * 9]);
            partition.set(hash, &key, new, 0).unwrap().cas().unwrap();
        }
    });
    let mut round = |count: u64| {
        let mut answered = 0;
        for turn in 0..count {
            for number in 0..16u64 {
                let key = ((turn * 7 + number) & 63).to_le_bytes();
                let command = if number % 4 == 0 {
                    Command::Store {
                        mode: StoreMode::Set,
                        key: &key,
                        value: &value[..(turn & 31) as usize * 16],
                        flags: 0,
                        expiry_s: 0,
                    }
                } else {
                    Command::Get { key: &key }
                };
                client.submit(&command, number % 3 == 0, turn).unwrap();
            }
            client.poll(rig.now_ns(), &mut |_, _| panic!("too early"));
            rig.step();
            client.poll(rig.now_ns(), &mut |_, outcome| {
                assert!(matches!(
                    outcome,
                    Outcome::Value { .. } | Outcome::Done { .. }
                ));
                answered += 1;
            });
        }
        assert_eq!(answered, count * 16);
    };
    // The first rounds may grow what grows once.
    round(20);
    assert_eq!(allocations_of(|| round(500)), 0);
}

/// What each further client takes is in the memory that is promised.
#[test]
fn clients_take_no_more_than_was_promised() {
    let config = |clients_max| ServerConfig {
        cores: 2,
        clients_max,
        staging_count: 1,
        value_len_max: 1024,
        ..ServerConfig::default()
    };
    let taken = |clients_max: u32| {
        let config = config(clients_max);
        let fabric = super::fabric();
        let [server_pd, client_pd] =
            [fabric.server, fabric.client].map(|nic| Context::new(nic).alloc_pd().unwrap());
        let cq = client_pd.context().create_cq(16).unwrap();
        let connects: Vec<_> = (0..clients_max)
            .map(|_| {
                let cores = (0..config.cores).map(|_| {
                    let uc = client_pd.create_qp::<Uc>(&QpOptions::on(&cq)).unwrap();
                    let ud = client_pd.create_qp::<Ud>(&QpOptions::on(&cq)).unwrap();
                    let core = ConnectCore {
                        uc: uc.endpoint().unwrap(),
                        ud_qpn: ud.num(),
                        qkey: Qkey(1),
                    };
                    (core, (uc, ud))
                });
                let (cores, queue_pairs): (Vec<_>, Vec<_>) = cores.unzip();
                let connect = Connect {
                    incarnation: config.incarnation,
                    window: config.window_max,
                    gid: client_pd.context().gid().unwrap(),
                    cores,
                };
                (connect, queue_pairs)
            })
            .collect();
        let (bytes, _made) = bytes_of(|| {
            let made =
                (0..config.cores).map(|core| Server::new(&server_pd, core, &config).unwrap());
            let (mut servers, ports): (Vec<Server>, Vec<_>) = made.unzip();
            let acceptor = Acceptor::new(server_pd.clone(), &config, ports).unwrap();
            for (connect, _) in &connects {
                let (_, attachments) = acceptor.accept(connect, 0).unwrap();
                for (server, attachment) in servers.iter_mut().zip(attachments) {
                    server.attach(attachment);
                }
            }
            (servers, acceptor)
        });
        bytes
    };
    const MORE: u32 = 64;
    let (few, many) = (taken(1), taken(1 + MORE));
    let promised = config(1 + MORE).memory_max() - config(1).memory_max();
    let registered = MORE as usize * config(1).client_memory();
    let taken = many - few;
    assert!(
        taken <= promised - registered,
        "{taken} of {} bytes",
        promised - registered
    );
}
