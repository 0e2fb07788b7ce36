//! Making a lost connection again: by the client's own thread, or apart from it.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};

use verbs::Qkey;
use verbs::typed::ProtectionDomain;

use super::ClientConfig;
use super::dial::{ConnectError, Control, Dial};
use super::link::Link;

/// Work that may block, for a thread that may.
pub type Job = Box<dyn FnOnce() + Send>;

/// What an attempt needs.
pub(super) struct Attempt {
    pub(super) pd: ProtectionDomain,
    pub(super) config: ClientConfig,
    pub(super) qkey: Qkey,
    pub(super) now_ns: u64,
}

impl Attempt {
    pub(super) fn make<D: Dial>(&self, dial: &mut D) -> Result<Link<D::Stream>, ConnectError> {
        let stream = dial.dial()?;
        Link::connect(&self.pd, &self.config, stream, self.qkey, self.now_ns)
    }
}

type Made<S> = Result<Link<S>, ConnectError>;

/// How connections are made again.
pub(super) enum Redial<D: Dial> {
    /// By the client's thread, which blocks as long as the dial and the handshake do.
    Here(D),
    /// By whoever runs the job. The receiver is there while an attempt is under way.
    Apart {
        start: Box<dyn FnMut(Attempt) -> Receiver<Made<D::Stream>> + Send>,
        under_way: Option<Receiver<Made<D::Stream>>>,
    },
}

impl<D: Dial> Redial<D> {
    /// Attempts are given to `run`.
    pub(super) fn apart(dial: D, mut run: impl FnMut(Job) + Send + 'static) -> Self
    where
        D: Send + 'static,
        D::Stream: Control + Send + 'static,
    {
        let dial = Arc::new(Mutex::new(dial));
        Redial::Apart {
            start: Box::new(move |attempt| {
                let (made, under_way) = channel();
                let dial = Arc::clone(&dial);
                run(Box::new(move || {
                    // One that panicked has left no connection behind.
                    let mut dial = dial.lock().unwrap_or_else(PoisonError::into_inner);
                    // A client that has gone takes none: then it ends here.
                    drop(made.send(attempt.make(&mut *dial)));
                }));
                under_way
            }),
            under_way: None,
        }
    }

    /// Whether an attempt has begun and not ended.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, Redial::Apart { under_way, .. } if under_way.is_some())
    }

    /// Makes an attempt, or begins one. `None` if it has not ended.
    pub(super) fn begin(&mut self, attempt: Attempt) -> Option<Made<D::Stream>> {
        match self {
            Redial::Here(dial) => Some(attempt.make(dial)),
            Redial::Apart { start, under_way } => {
                *under_way = Some(start(attempt));
                self.take()
            }
        }
    }

    /// What has come of the attempt under way; `None` if there is none, or it has not ended.
    pub(super) fn take(&mut self) -> Option<Made<D::Stream>> {
        let Redial::Apart { under_way, .. } = self else {
            return None;
        };
        let made = match under_way.as_ref()?.try_recv() {
            Ok(made) => made,
            Err(TryRecvError::Empty) => return None,
            // The job was dropped, or has panicked.
            Err(TryRecvError::Disconnected) => {
                Err(std::io::Error::other("nobody has made the connection").into())
            }
        };
        *under_way = None;
        Some(made)
    }
}

impl<D: Dial> std::fmt::Debug for Redial<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redial")
            .field("is_under_way", &self.is_under_way())
            .finish_non_exhaustive()
    }
}
