//! What a user holds: handles that keep what they need alive, and queue pairs whose type carries
//! their transport.
//!
//! | file | what |
//! | --- | --- |
//! | `context.rs` | an opened device, protection domains, address handles |
//! | `memory.rs` | memory regions and pieces of them |
//! | `batch.rs` | batches with their transport, destinations of datagrams |
//! | `cq.rs` | completion queues and channels |
//! | `qp.rs` | queue pairs, shared receive queues, connecting |
//! | `request.rs` | work requests with their transport |

mod batch;
mod context;
mod cq;
mod memory;
mod qp;
mod request;

pub use crate::connect::{ConnectOptions, Endpoint};
pub use batch::{Batch, Destination};
pub use context::{AddressHandle, Context, ProtectionDomain, TakenEvent};
pub use cq::{CompletionChannel, CompletionQueue, CqRef};
pub use memory::MemoryRegion;
pub use qp::{
    QpControl, QpOptions, QueuePair, ReceiveQueue, SendQueue, SharedReceiveQueue, SrqRef,
};
pub use request::{Connected, Rc, TransportType, Uc, Ud, Wr};
