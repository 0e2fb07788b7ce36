//! A hostile peer: a process on the same link that lies, writes what it likes wherever it can, and
//! keeps no rule. The others neither read nor write out of bounds, nor die, nor wait for it; what
//! it has with them fails.
//!
//! | module | what |
//! | --- | --- |
//! | `speaker`, `host` | the hostile NIC: sockets and segments by hand |
//! | `victim` | those who keep the rules |
//! | `handshake` | lies and nonsense on the socket, and using things up |
//! | `descriptors` | files that cannot be mapped, and entries that change |
//! | `regions` | who gets the memory of a region |
//! | `waking` | rings that cannot be stolen, and peers that fall silent |
//! | `departure` | what those who go leave behind |
//! | `storm`, `siege` | everything at once, in a process of its own, and the victim's side of it |

/// What the layout is made of.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
}

#[path = "../../src/shared/layout.rs"]
#[allow(dead_code, reason = "the layout's users are elsewhere")]
mod layout;
#[path = "../it/pair.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod pair;
#[path = "../it/refuse.rs"]
mod refuse;

mod departure;
mod descriptors;
mod handshake;
mod host;
mod regions;
mod siege;
mod silence;
mod speaker;
mod storm;
mod victim;
mod waking;
