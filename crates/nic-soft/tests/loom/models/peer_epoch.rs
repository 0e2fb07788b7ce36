//! What is remembered of those that have gone.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::sync::peer_epoch::{PeerEpoch, Seen};

/// A peer as a table of destinations remembers it: the mark is looked at without an order of its
/// own, as the data path does.
struct World {
    peer_epoch: PeerEpoch,
    dead: [AtomicBool; 2],
}

#[test]
fn nobody_who_has_gone_is_remembered_after_a_look() {
    loom::model(|| {
        let world = Arc::new(World {
            peer_epoch: PeerEpoch::new(),
            dead: [AtomicBool::new(false), AtomicBool::new(false)],
        });
        let agent = {
            let world = world.clone();
            thread::spawn(move || {
                for dead in &world.dead {
                    dead.store(true, Ordering::Relaxed);
                    world.peer_epoch.advance();
                }
            })
        };
        let (mut seen, mut remembered) = (Seen::default(), [true; 2]);
        let mut sends = |world: &World| {
            if world.peer_epoch.differs_from(seen) {
                seen = world.peer_epoch.read();
                for (remembered, dead) in remembered.iter_mut().zip(&world.dead) {
                    *remembered &= !dead.load(Ordering::Relaxed);
                }
            }
            remembered
        };
        sends(&world);
        sends(&world);
        agent.join().unwrap();
        assert_eq!(sends(&world), [false; 2]);
    });
}
