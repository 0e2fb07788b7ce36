//! Queues: what is posted to them, and what completes.
//!
//! | file | what |
//! | --- | --- |
//! | `channel` | completion channels |
//! | `cq` | completion queues: making, changing, arming, polling |
//! | `cq_ex` | polling by `ibv_start_poll` and its like |
//! | `cq_event` | waiting for completions on a channel |
//! | `completion` | completions, as the NIC gives them and as programs read them |
//! | `address` | address handles |
//! | `request` | what work requests consist of |
//! | `srq` | shared receive queues |
//! | `sender` | a send queue, and what is composed for it |
//! | `attributes` | a queue pair's attributes, there and back |
//! | `qp` | queue pairs: making, changing, asking |
//! | `qp_ex` | those that are made by `ibv_create_qp_ex` |
//! | `post` | posting lists of work requests |
//! | `compose` | posting by `ibv_wr_*` |
//! | `bind` | binding windows by `ibv_bind_mw` |

mod address;
mod attributes;
pub(crate) mod bind;
mod channel;
mod completion;
mod compose;
pub(crate) mod cq;
mod cq_event;
pub(crate) mod cq_ex;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod qp_ex;
mod request;
mod sender;
pub(crate) mod srq;
