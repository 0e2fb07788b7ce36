//! Why a run ended without a report.

use verbs::{CqError, PostError, VerbsError, WcStatus};

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum VerbsRunError {
    /// A setting makes no sense, or the device cannot do it.
    #[error("{0}")]
    Setting(String),
    /// The NIC refused on the control path.
    #[error(transparent)]
    Nic(#[from] VerbsError),
    /// The NIC did not take a work request.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A completion queue has failed.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// A work request failed.
    #[error("a work request ended with: {0}")]
    Completion(WcStatus),
    /// The other process failed, in its words.
    #[error("the peer process failed: {0}")]
    Peer(String),
    /// The other process has gone.
    #[error("the peer process has gone")]
    PeerGone,
    /// Nothing happened for long.
    #[error("waited in vain for {0}")]
    Stalled(&'static str),
    /// Messages did not arrive.
    #[error("{lost} of {sent} messages were lost; throughput is measured without losses only")]
    Lost {
        /// Messages sent.
        sent: u64,
        /// Messages that never arrived.
        lost: u64,
    },
    /// What arrived is not what was sent.
    #[error("{wrong} messages arrived with the wrong contents")]
    Wrong {
        /// How many.
        wrong: u64,
    },
    /// The system refused.
    #[error("talking to the peer process: {0}")]
    Io(#[from] std::io::Error),
    /// Something went wrong in one of the measurements.
    #[error("{case}: {error}")]
    Case {
        /// Which one.
        case: String,
        /// What went wrong.
        error: Box<VerbsRunError>,
    },
    /// A thread panicked.
    #[error("a thread of the measurement panicked")]
    Panicked,
}
