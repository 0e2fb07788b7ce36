//! What holds over partitions, whose answers are at hand.

use cache::herd::{ClientConfig, Command, ServerConfig};
use cache::mica::KeyHash;

use super::rig::Rig;

/// A bucket has room for eight keys. Whoever could choose more of one bucket would have others' items
/// forgotten at will.
#[test]
fn keys_chosen_by_what_a_server_tells_do_not_push_each_other_out() {
    let rig = Rig::new(ServerConfig::default());
    let mut client = rig.blocking(ClientConfig::default());
    let told = client.client().info().expect("a connection").route_seed;
    let buckets = rig.machine(|machine| machine.engines[0].census().buckets);
    let keys: Vec<_> = (0..u64::MAX)
        .map(u64::to_le_bytes)
        .filter(|key| KeyHash::new(told, key).bucket(buckets) == 0)
        .take(32)
        .collect();
    for key in &keys {
        client.set(key, key).unwrap();
    }
    let kept = keys
        .iter()
        .filter(|key| client.get(*key).unwrap().is_some());
    assert_eq!(kept.count(), keys.len());
}

#[test]
fn a_greedy_client_leaves_room_for_others() {
    let rig = Rig::new(ServerConfig {
        batch_max: 8,
        clients_max: 8,
        ..ServerConfig::default()
    });
    let mut greedy = rig.client(ClientConfig {
        window: 16,
        ..ClientConfig::default()
    });
    let mut modest: Vec<_> = (0..4)
        .map(|_| rig.client(ClientConfig::default()))
        .collect();
    let (mut many, mut few) = (0, [0; 4]);
    let get = Command::Get { key: b"key" };
    for _ in 0..200 {
        while greedy.submit(&get, false, 0).is_ok() {}
        greedy.poll(rig.now_ns(), &mut |_, _| many += 1);
        for (client, count) in modest.iter_mut().zip(&mut few) {
            if client.waiting() == 0 {
                client.submit(&get, false, 0).unwrap();
            }
            client.poll(rig.now_ns(), &mut |_, _| *count += 1);
        }
        rig.step();
    }
    assert!(many > 1000, "{many}");
    // One answer per step, but for the way there and back.
    assert!(few.iter().all(|&count| count >= 95), "{few:?}");
}
