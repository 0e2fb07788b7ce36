//! The models, one file a piece of code: who wakes a queue, and through which channel; credits,
//! departures, the handover, segments' headers, lanes, queue pairs' entries, quiescence, queues of RECVs, regions' entries, shared
//! receive queues' counters, what waits for a poller.

mod arming;
mod channel;
mod credit;
mod departures;
mod handover;
mod header;
mod lane;
mod pair_entry;
mod quiescence;
mod recv_queue;
mod region;
mod srq_entry;
mod todo;
