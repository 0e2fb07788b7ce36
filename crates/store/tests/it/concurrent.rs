//! Concurrent changes of the same keys.

use block::sim::Loss;
use fastrand::Rng;

use super::world::{Task, World, blank, open, options, with_image};

/// What the index has after concurrent changes of the same keys is what the log says too.
#[test]
fn concurrent_changes_end_alike_in_index_and_log() {
    for seed in 0..40 {
        let device = blank(seed, 10);
        let mut world = World::open(&device, &options(), 2).expect("a store");
        let sessions = world.sessions.clone();
        let tasks = (0..12_u64).map(|number| {
            let session = &sessions[number as usize % 2];
            Box::pin(async move {
                let mut random = Rng::with_seed(seed << 8 | number);
                for step in 0..10 {
                    let key = [random.u8(..2)];
                    if random.u32(..4) == 0 {
                        session.delete(&key).await.expect("deleted");
                    } else {
                        let value = vec![number as u8 * 16 + step; random.usize(1..3000)];
                        session.put(&key, &value).await.expect("put");
                    }
                }
            }) as Task<'_>
        });
        world.run(tasks.collect()).expect("they end");
        let has = |store: &store::Store| [0, 1].map(|key| store.get(&[key]).expect("got"));
        let before = has(&world.store);
        let cut = with_image(seed, device.snapshot().after(Loss::All));
        let after = open(&cut, &options()).expect("recovered");
        assert!(has(&after) == before, "seed {seed}");
    }
}
