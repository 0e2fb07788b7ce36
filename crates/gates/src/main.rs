//! Runs one hot path again and again, marking whose instructions come next.
//!
//! Started by `cargo lab gates`, which counts; `gates-driver CASE ROUNDS`.
//!
//! | file | what |
//! | --- | --- |
//! | `tell.rs` | what the tracer is told |
//! | `herd.rs` | a HERD client and server taking turns |
//! | `nic.rs` | the verbs of the software NIC |
//! | `mica.rs` | a partition alone |
//! | `codec.rs` | the Memcache protocol without I/O |
//! | `block.rs` | reads of a block device that takes no time |
//! | `index.rs` | the store's index alone |
//! | `store.rs` | a store over a device that takes no time |
//! | `door.rs` | the Memcache protocol through a socket |
//! | `probe.rs` | what no hot path does, for tests of the counting |

mod block;
mod codec;
mod door;
mod herd;
mod index;
mod mica;
mod nic;
mod probe;
mod store;
mod tell;

use anyhow::{Context, bail};
use gates::Mark;

use tell::{begin, mark, meet_tracer};

/// Rounds before anybody counts: what grows once has grown, and rings have wrapped.
const ROUNDS_BEFORE: usize = 2000;

/// A hot path.
trait Path {
    /// Operations in a round.
    fn operations(&self) -> usize;
    /// One round, with marks for what counts.
    fn round(&mut self) -> anyhow::Result<()>;
}

fn open(case: &str) -> anyhow::Result<Box<dyn Path>> {
    Ok(match case {
        "herd-get-1" => Box::new(herd::Herd::new(1, herd::Ask::Hit)?),
        "herd-get-32" => Box::new(herd::Herd::new(32, herd::Ask::Hit)?),
        "herd-miss-1" => Box::new(herd::Herd::new(1, herd::Ask::Miss)?),
        "herd-miss-32" => Box::new(herd::Herd::new(32, herd::Ask::Miss)?),
        "herd-put-1" => Box::new(herd::Herd::new(1, herd::Ask::Put)?),
        "herd-put-32" => Box::new(herd::Herd::new(32, herd::Ask::Put)?),
        "nic-write-64" => Box::new(nic::Connected::new(nic::Verb::Write)?),
        "nic-write-64-list" => Box::new(nic::Connected::new(nic::Verb::WriteList)?),
        "nic-write-64-element" => Box::new(nic::Connected::new(nic::Verb::WriteElement)?),
        "nic-read-64" => Box::new(nic::Connected::new(nic::Verb::Read)?),
        "nic-cas" => Box::new(nic::Connected::new(nic::Verb::CompareSwap)?),
        "nic-send-ud" => Box::new(nic::Datagrams::new(true)?),
        "nic-send-ud-list" => Box::new(nic::Datagrams::new(false)?),
        "mica-get" => Box::new(mica::Mica::new(mica::Ask::Get)?),
        "mica-put" => Box::new(mica::Mica::new(mica::Ask::Put)?),
        "codec-get" => Box::new(codec::Codec::new(codec::Ask::Get)),
        "codec-multiget" => Box::new(codec::Codec::new(codec::Ask::Multiget)),
        "codec-set" => Box::new(codec::Codec::new(codec::Ask::Set)),
        "block-read" => Box::new(block::Block::new()?),
        "index-lookup" => Box::new(index::Index::new(index::Call::LookupMany)?),
        "index-lookup-one" => Box::new(index::Index::new(index::Call::Lookup)?),
        "index-insert" => Box::new(index::Index::new(index::Call::Insert)?),
        "index-replace" => Box::new(index::Index::new(index::Call::Replace)?),
        "store-get" => Box::new(store::Stored::new(1, store::Ask::Get)?),
        "store-get-many" => Box::new(store::Stored::new(16, store::Ask::Get)?),
        "store-put" => Box::new(store::Stored::new(1, store::Ask::Put)?),
        "store-put-new" => Box::new(store::Stored::new(1, store::Ask::PutNew)?),
        "store-put-many" => Box::new(store::Stored::new(8, store::Ask::Put)?),
        "probe" => Box::new(probe::Probe),
        _ => bail!("there is no case {case}"),
    })
}

/// Runs rounds of a path; the last ones are watched.
fn run(path: &mut dyn Path, rounds: usize) -> anyhow::Result<()> {
    for _ in 0..ROUNDS_BEFORE {
        path.round()?;
    }
    begin(path.operations())?;
    for _ in 0..rounds {
        path.round()?;
        mark(Mark::Round);
    }
    mark(Mark::End);
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(case), Some(rounds)) = (arguments.next(), arguments.next()) else {
        bail!("usage: gates-driver CASE ROUNDS");
    };
    let rounds = rounds.parse().context("ROUNDS is a number")?;
    meet_tracer()?;
    match case.as_str() {
        "door-uring" => door::run(rt::IoKind::Uring, rounds),
        "door-epoll" => door::run(rt::IoKind::Epoll, rounds),
        _ => run(&mut *open(&case)?, rounds),
    }
}
