//! A reference NIC: in this process, everything behind one lock, slow, and meant to be obviously
//! right. Tests run the suite and the decorators against it.
//!
//! Requests are carried out by whoever posts them, each as a whole. Logical time passes when a
//! completion queue is polled: a request whose peer does not answer, or has no RECV, is tried once
//! more per poll, and fails when its queue pair allows no further retry.
//!
//! It is strict where a NIC has a choice: a send queue's slots become free when the completion of
//! a request at or after them is polled, a completion queue overruns at exactly its depth, and a
//! datagram too long for its RECV leaves the RECV alone.
//!
//! Between the NICs there is nothing, or a [`Network`] in virtual time that delays messages and does
//! to them whatever their transport lets it.
//!
//! | file | what |
//! | --- | --- |
//! | `world.rs` | nodes, their objects, completions |
//! | `nic.rs`, `objects.rs` | the traits of a NIC |
//! | `deliver.rs` | carrying out requests |
//! | `arrive.rs` | what arrives at receivers |
//! | `network.rs` | virtual time, and what happens to messages on their way |
//! | `memory.rs` | registered memory |

mod arrive;
mod cause;
mod deliver;
mod memory;
mod network;
mod nic;
mod objects;
mod world;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use network::{Broken, Faults, Network, NetworkOptions, NetworkStats};
use verbs::names::Gid;
use world::{Node, World};

/// A reference NIC.
#[derive(Clone, Debug)]
pub struct ModelNic {
    handle: Handle,
}

impl ModelNic {
    /// `count` NICs that reach one another, with the addresses 10.0.0.1 and so on.
    pub fn fabric(count: u8) -> Vec<ModelNic> {
        ModelNic::in_world(count, None).0
    }

    /// The same with a network between them.
    pub fn networked(count: u8, options: NetworkOptions) -> (Vec<ModelNic>, Network) {
        let (nics, world) = ModelNic::in_world(count, Some(network::Air::new(options)));
        (nics, Network::new(world))
    }

    fn in_world(count: u8, air: Option<network::Air>) -> (Vec<ModelNic>, Arc<Mutex<World>>) {
        let nodes = (1..=count).map(|host| Node {
            gid: Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, host)),
            // Apart from each other, so that no test passes with a number of the wrong node.
            last: u32::from(host) << 16,
            ..Node::default()
        });
        let world = Arc::new(Mutex::new(World {
            nodes: nodes.collect(),
            air,
            ..World::default()
        }));
        let nic = |node| ModelNic {
            handle: Handle {
                world: Arc::clone(&world),
                node,
            },
        };
        ((0..usize::from(count)).map(nic).collect(), world)
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
