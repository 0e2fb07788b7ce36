//! The hot path does not allocate, on either side.

use cache::herd::{ClientConfig, Command, Outcome, ServerConfig, StoreMode};
use cache::mica::NewValue;

use super::rig::Rig;
use crate::mica_allocation::allocations_of;

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
