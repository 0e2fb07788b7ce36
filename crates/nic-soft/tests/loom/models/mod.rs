//! The models, one file a piece of code: who wakes a queue, and through which channel; credits,
//! the handover, segments' headers, lanes, the peer epoch, queue pairs' entries, quiescence, queues of RECVs, polled
//! completions and how they come to the poller, regions' entries, shared
//! receive queues' counters, what waits for a poller.

mod arming;
mod bounded;
mod channel;
mod credit;
mod handover;
mod header;
mod lane;
mod mr_entry;
mod peer_epoch;
mod qp_entry;
mod quiescence;
mod recv_queue;
mod released;
mod srq_entry;
mod work_list;
