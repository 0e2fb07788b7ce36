//! A reference NIC: in this process, everything behind one lock, slow, and meant to be obviously
//! right. Tests run the suite and the decorators against it.
//!
//! Requests are carried out by whoever posts them, each as a whole. Logical time passes when a
//! completion queue is polled: a request whose peer does not answer, or has no RECV, is tried once
//! more per poll, and gives up after as many polls as it has retries.
//!
//! It is strict where a NIC has a choice: a send queue's slots become free when the completion of
//! a request at or after them is polled, a completion queue overruns at exactly its depth, and a
//! datagram too long for its RECV leaves the RECV alone.

mod deliver;
mod memory;
mod nic;
mod objects;
mod world;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::Gid;
use world::{Node, World};

/// A reference NIC.
#[derive(Clone, Debug)]
pub struct ModelNic {
    handle: Handle,
}

impl ModelNic {
    /// `count` NICs that reach one another, with the addresses 10.0.0.1 and so on.
    pub fn fabric(count: u8) -> Vec<ModelNic> {
        let nodes = (1..=count).map(|host| Node {
            gid: Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, host)),
            // Apart from each other, so that no test passes with a number of the wrong node.
            last: u32::from(host) << 16,
            ..Node::default()
        });
        let world = Arc::new(Mutex::new(World {
            nodes: nodes.collect(),
            ..World::default()
        }));
        let nic = |node| ModelNic {
            handle: Handle {
                world: Arc::clone(&world),
                node,
            },
        };
        (0..usize::from(count)).map(nic).collect()
    }
}

/// The world, seen from one of its nodes.
#[derive(Clone)]
struct Handle {
    world: Arc<Mutex<World>>,
    node: usize,
}

impl Handle {
    fn lock(&self) -> MutexGuard<'_, World> {
        // A test that failed while it held the lock must not hide behind a poisoned one.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}", self.node)
    }
}
