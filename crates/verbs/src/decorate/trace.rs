//! Telling of every post, completion and state change.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::wrap::{Layer, Made, Wrap};
use crate::attr::{CqInit, QpAttr, QpInit, QpState, SrqInit};
use crate::batch::{RecvBatch, SendBatch};
use crate::error::{CqError, PostError, VerbsError};
use crate::names::{CqNum, QpNum, SrqNum};
use crate::nic::{Nic, NicCq, NicSrq, QpCtl, QpParts, RecvHalf, SendHalf};
use crate::polled::Polled;
use crate::wc::Wc;
use crate::wr::{Op, RecvWr, SendFlags};

/// A NIC that tells a [`Sink`] what passes through it.
pub type Traced<S> = Wrap<Trace<S>>;

impl<S: Sink> Traced<S> {
    /// Traces a NIC.
    pub fn new(nic: Arc<dyn Nic>, sink: S) -> Self {
        Wrap::around(nic, Trace { sink })
    }

    /// Where the events go.
    pub fn sink(&self) -> &S {
        &self.layer().sink
    }
}

/// Something that passed through a NIC. It carries no time: the sink has a clock, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A send work request was accepted.
    Send {
        /// Its queue pair.
        qp: QpNum,
        /// Its number.
        id: u64,
        /// What it does.
        op: Op,
        /// Bytes of its payload.
        len: u32,
        /// How.
        flags: SendFlags,
    },
    /// A RECV was accepted.
    Recv {
        /// Its queue pair.
        qp: QpNum,
        /// Its number.
        id: u64,
        /// Bytes of room.
        len: u32,
    },
    /// A RECV of a shared receive queue was accepted.
    SharedRecv {
        /// Its queue.
        srq: SrqNum,
        /// Its number.
        id: u64,
        /// Bytes of room.
        len: u32,
    },
    /// A batch of requests stopped at one that was not accepted.
    Refused {
        /// The queue pair; `None` for a shared receive queue.
        qp: Option<QpNum>,
        /// Where and why.
        error: PostError,
    },
    /// A completion was polled.
    Completion {
        /// The queue it came from.
        cq: CqNum,
        /// The completion.
        wc: Wc,
    },
    /// A completion queue said that it has overrun.
    Overrun {
        /// The queue.
        cq: CqNum,
    },
    /// A queue pair was asked to change.
    Modify {
        /// The queue pair.
        qp: QpNum,
        /// Its state before.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// Whether it changed.
        done: bool,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Send {
                qp,
                id,
                op,
                len,
                flags,
            } => write!(f, "qp {qp}: post {id}: {op:?}, {len} bytes, {flags:?}"),
            Event::Recv { qp, id, len } => write!(f, "qp {qp}: post {id}: RECV, {len} bytes"),
            Event::SharedRecv { srq, id, len } => {
                write!(f, "srq {srq}: post {id}: RECV, {len} bytes")
            }
            Event::Refused {
                qp: Some(qp),
                error,
            } => write!(f, "qp {qp}: refused: {error}"),
            Event::Refused { qp: None, error } => write!(f, "srq: refused: {error}"),
            Event::Completion { cq, wc } if wc.is_ok() => write!(
                f,
                "cq {cq}: qp {}: {} done: {:?}, {} bytes",
                wc.qpn, wc.id, wc.opcode, wc.byte_len
            ),
            Event::Completion { cq, wc } => {
                write!(
                    f,
                    "cq {cq}: qp {}: {} failed: {} (vendor error {})",
                    wc.qpn, wc.id, wc.status, wc.vendor_err
                )
            }
            Event::Overrun { cq } => write!(f, "cq {cq}: overrun"),
            Event::Modify { qp, from, to, done } => {
                let refused = if *done { "" } else { " refused" };
                write!(f, "qp {qp}: {from:?} -> {to:?}{refused}")
            }
        }
    }
}

/// Where events go. It is called in the middle of the data path, on whichever thread that is.
pub trait Sink: Send + Sync + 'static {
    /// Takes an event.
    fn event(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync + 'static> Sink for F {
    fn event(&self, event: Event) {
        self(event);
    }
}

/// A sink that prints a line an event. It locks and formats: for looking, not for measuring.
#[derive(Debug)]
pub struct Printer<W> {
    state: Mutex<(W, Option<io::Error>)>,
}

impl<W: Write> Printer<W> {
    /// Prints to a writer.
    pub fn new(writer: W) -> Self {
        Printer {
            state: Mutex::new((writer, None)),
        }
    }

    /// The first error of writing, after which nothing more was printed.
    pub fn take_error(&self) -> Option<io::Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.take()
    }
}

impl<W: Write + Send + 'static> Sink for Printer<W> {
    fn event(&self, event: Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (writer, error) = &mut *state;
        if error.is_none() {
            *error = writeln!(writer, "{event}").err();
        }
    }
}

/// The layer of [`Traced`].
pub struct Trace<S> {
    sink: S,
}

impl<S> fmt::Debug for Trace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

/// How many requests of a batch were accepted.
pub(super) fn accepted(count: usize, posted: &Result<(), PostError>) -> usize {
    posted.map_or_else(|error| error.index, |()| count)
}

/// Bytes of room in a RECV.
pub(super) fn room(wr: &RecvWr<'_>) -> u32 {
    let room: u64 = wr.sges.iter().map(|sge| u64::from(sge.len)).sum();
    u32::try_from(room).unwrap_or(u32::MAX)
}

/// Which queue RECVs are posted to.
#[derive(Clone, Copy, Debug)]
pub enum Receiver {
    /// A queue pair's own.
    Qp(QpNum),
    /// A shared receive queue.
    Srq(SrqNum),
}

impl<S: Sink> Layer for Trace<S> {
    type Ctl = ();
    type Send = QpNum;
    type Recv = Receiver;
    type Cq = ();

    fn make_qp(
        &self,
        nic: &dyn Nic,
        init: &QpInit,
    ) -> Result<(QpParts, ((), QpNum, Receiver)), VerbsError> {
        let qp = nic.create_qp(init)?;
        let num = qp.num();
        Ok((qp, ((), num, Receiver::Qp(num))))
    }

    fn make_cq(&self, nic: &dyn Nic, init: &CqInit) -> Result<Made<dyn NicCq, ()>, VerbsError> {
        Ok((nic.create_cq(init)?, ()))
    }

    fn make_srq(
        &self,
        nic: &dyn Nic,
        init: &SrqInit,
    ) -> Result<Made<dyn NicSrq, Receiver>, VerbsError> {
        let srq = nic.create_srq(init)?;
        let receiver = Receiver::Srq(srq.num());
        Ok((srq, receiver))
    }

    fn modify(&self, (): &(), ctl: &dyn QpCtl, attr: &QpAttr) -> Result<(), VerbsError> {
        let from = ctl.query().state.unwrap_or(QpState::Reset);
        let modified = ctl.modify(attr);
        self.sink.event(Event::Modify {
            qp: ctl.num(),
            from,
            to: attr.state.unwrap_or(from),
            done: modified.is_ok(),
        });
        modified
    }

    fn post_send(
        &self,
        qp: &mut QpNum,
        half: &mut dyn SendHalf,
        batch: &SendBatch,
    ) -> Result<(), PostError> {
        let (posted, qp) = (half.post(batch), *qp);
        for wqe in &batch.wqes()[..accepted(batch.len(), &posted)] {
            self.sink.event(Event::Send {
                qp,
                id: wqe.id(),
                op: wqe.op(),
                len: wqe.len(),
                flags: wqe.flags(),
            });
        }
        if let Err(error) = posted {
            let qp = Some(qp);
            self.sink.event(Event::Refused { qp, error });
        }
        posted
    }

    fn post_recv(
        &self,
        receiver: &mut Receiver,
        half: &mut dyn RecvHalf,
        batch: &RecvBatch,
    ) -> Result<(), PostError> {
        let posted = half.post(batch);
        for wr in batch.iter().take(accepted(batch.len(), &posted)) {
            let (id, len) = (wr.id, room(&wr));
            self.sink.event(match *receiver {
                Receiver::Qp(qp) => Event::Recv { qp, id, len },
                Receiver::Srq(srq) => Event::SharedRecv { srq, id, len },
            });
        }
        if let Err(error) = posted {
            let qp = match *receiver {
                Receiver::Qp(qp) => Some(qp),
                Receiver::Srq(_) => None,
            };
            self.sink.event(Event::Refused { qp, error });
        }
        posted
    }

    fn poll(&self, (): &mut (), cq: &mut dyn NicCq, out: &mut Polled) -> Result<usize, CqError> {
        let (polled, cq) = (cq.poll(out), cq.num());
        match polled {
            Ok(_) => {
                for wc in out.completions() {
                    self.sink.event(Event::Completion { cq, wc: *wc });
                }
            }
            Err(CqError::Overrun) => self.sink.event(Event::Overrun { cq }),
        }
        polled
    }
}
