//! HERD: what lies in slots, what comes in datagrams, and the handshake of both sides.
//!
//! | file | what |
//! | --- | --- |
//! | [`wire`] | the readers of bytes alone |
//! | [`server`] | a server whose clients write anything into their slots |
//! | [`client`] | a client whose server sends anything |
//! | `liar.rs` | that server |
//! | `ask.rs` | requests that are well-formed |
//! | `rig.rs` | a server in one thread, and clients that keep to no rules |

mod ask;
pub mod client;
mod liar;
mod rig;
pub mod server;
pub mod wire;
