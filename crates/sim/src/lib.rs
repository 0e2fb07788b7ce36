//! Clusters in virtual time, on one thread, from one seed.
//!
//! A [`World`] has nodes; each has cores of `rt` with sockets, a NIC, and a disk if it wants one. What
//! runs there is what runs on machines: tasks, `rt::net`, `block`, `verbs`. A core's turn takes a fixed
//! time, and when nobody has anything to do the clock jumps to what is due next, so a second costs as
//! much as what happens in it; and the same seed gives the same run, to the last turn
//! ([`World::trace`], [`twice`]).
//!
//! | module | what |
//! | --- | --- |
//! | [`world`] | nodes that start, stall, die and come back; the steps of time |
//! | [`streams`] | sockets between them, over links that delay and are cut |
//! | [`chaos`] | what goes wrong by chance, as often as one says |
//! | [`timeline`] | what is due when |
//! | [`chance`] | random numbers a purpose, and the hash of a run |
//!
//! The NICs are `conformance`'s model, with its network and faults; the disks are `block`'s simulated
//! device, with its power cuts.
//!
//! ```
//! use sim::World;
//!
//! let mut world = World::of(7, 2);
//! world.boot(0, |env| async move {
//!     let addr = env.addr(0, 7);
//!     let mut listener = rt::net::Listener::bind(&env.core, &addr, Default::default()).expect("free");
//!     let mut stream = listener.accept().await.expect("a client");
//!     let (_, bytes) = stream.recv(Vec::with_capacity(5)).await;
//!     stream.send_all(bytes).await.0.expect("the client is there");
//! });
//! let answer = world.run(1, |env| async move {
//!     env.core.sleep(std::time::Duration::from_millis(1)).await;
//!     let mut stream = rt::net::Stream::connect(&env.core, &env.addr(0, 7)).await?;
//!     stream.send_all(b"!".to_vec()).await.0?;
//!     let (count, bytes) = stream.recv(Vec::new()).await;
//!     count.map(|_| bytes)
//! })?;
//! assert_eq!(answer?, b"!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod chance;
pub mod chaos;
pub mod streams;
pub mod timeline;
pub mod world;

pub use chance::twice;
pub use chaos::{Chaos, Troubles};
pub use streams::Links;
pub use timeline::Timeline;
pub use world::{Env, World, WorldError, WorldOptions};
