//! Decorators: NICs around a NIC. Each is a [`Nic`](crate::nic::Nic) itself, so that they stack.
//!
//! | decorator | what it adds |
//! | --- | --- |
//! | [`Traced`] | tells a [`Sink`] of every post, completion and state change |
//! | [`Counted`] | counts requests, bytes, polls and completions by status |
//! | [`Faulty`] | loses, repeats and delays requests, and lets some fail, from a seed |
//!
//! [`Wrap`] holds what wrapping takes: it forwards every call, and a decorator is a [`Layer`] that
//! overrides the ones it is about.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use conformance::model::ModelNic;
//! use verbs::decorate::Counted;
//! use verbs::nic::Nic;
//! use verbs::{CqInit, Polled};
//!
//! let nic = Counted::new(Arc::new(ModelNic::fabric(1).remove(0)));
//! let mut cq = nic.create_cq(&CqInit::new(8)).unwrap();
//! cq.poll(&mut Polled::new(1)).unwrap();
//! assert_eq!(nic.counts().polls_empty, 1);
//! ```

mod count;
mod faulty;
mod trace;
mod wrap;

pub use count::{Count, Counted, Counts, Kept, Object};
pub use faulty::{
    Chance, ConnectionFaults, Fault, FaultPlan, Faults, Faulty, Held, Outside, Scripted, Small,
    Token,
};
pub use trace::{Event, Printer, Receiver, Sink, Trace, Traced};
pub use wrap::{Control, Layer, Made, Wrap};
