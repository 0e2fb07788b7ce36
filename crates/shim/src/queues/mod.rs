//! Queues: what is posted to them, and what completes.
//!
//! | file | what |
//! | --- | --- |
//! | `cq` | completion channels, completion queues, polling |
//! | `cq_ex` | polling by `ibv_start_poll` and its like |
//! | `srq` | shared receive queues |
//! | `qp` | queue pairs: making, changing, asking |
//! | `attributes` | a queue pair's attributes, there and back |
//! | `address` | address handles |
//! | `post` | posting lists of work requests |
//! | `compose` | posting by `ibv_wr_*` |

pub(crate) mod address;
pub(crate) mod attributes;
pub(crate) mod compose;
pub(crate) mod cq;
pub(crate) mod cq_ex;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod srq;
