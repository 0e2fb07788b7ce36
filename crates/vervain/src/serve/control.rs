//! The control thread: what may block, off the cores.
//!
//! Connecting a HERD client means making queue pairs and a first contact with the client's process,
//! which may be slow to answer. So a thread of its own does it; cores only get the finished
//! attachment, and give it back when the client has gone.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use cache::herd::server::ControlReply;
use cache::herd::{Acceptor, Attachment};
use rt::cross::{OneshotReceiver, OneshotSender, oneshot};
use rt::{Clock, SystemClock};

enum Job {
    /// A line of the handshake.
    Line(Vec<u8>, OneshotSender<ControlReply>),
    /// An attachment that its core has let go.
    Release(Box<Attachment>),
}

/// How cores reach the control thread. The thread ends with the last of these.
#[derive(Clone)]
pub(super) struct Control {
    jobs: mpsc::Sender<Job>,
}

/// Starts the thread.
pub(super) fn start(acceptor: Arc<Acceptor>) -> std::io::Result<(Control, JoinHandle<()>)> {
    let (jobs, todo) = mpsc::channel();
    let work = move || {
        for job in todo {
            let now_ns = SystemClock.now().as_ns();
            match job {
                Job::Line(line, reply) => reply.send(acceptor.answer(&line, now_ns)),
                Job::Release(attachment) => acceptor.release(*attachment, now_ns),
            }
        }
    };
    let thread = std::thread::Builder::new().name("control".into()).spawn(work)?;
    Ok((Control { jobs }, thread))
}

impl Control {
    /// Has a line of the handshake answered.
    pub(super) fn answer(&self, line: Vec<u8>) -> OneshotReceiver<ControlReply> {
        let (reply, answered) = oneshot();
        // A thread that has ended drops the sender with the job, which the receiver sees.
        drop(self.jobs.send(Job::Line(line, reply)));
        answered
    }

    /// Gives an attachment back.
    pub(super) fn release(&self, attachment: Box<Attachment>) {
        // Without the thread the process is ending, and the memory with it.
        drop(self.jobs.send(Job::Release(attachment)));
    }
}
