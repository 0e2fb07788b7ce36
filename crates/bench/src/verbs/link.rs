//! The conversation of the two processes beside the NIC: a JSON value a line.
//!
//! ```text
//! requester's or target's process        the other one
//!   hello ------------------------------->          (once: where to run)
//!   begin ------------------------------->          (each case)
//!   here  <------------------------------ here      what to connect to
//!   ready <------------------------------ ready     connected, RECVs posted
//!   finished (from the requester) / checked (from the target)
//! ```
//! A thread of its own reads, so that a loop that spins on memory learns of the other side's end
//! from a flag.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::error::VerbsRunError;
use super::outcome::{Arrived, Outcome};

/// How long a peer may take to answer: far longer than any case, so that only a hung one is
/// given up.
const PATIENCE: Duration = Duration::from_secs(90);
/// Bytes of a message at most, so that a peer that talks nonsense does not fill the memory.
const LINE_LEN_MAX: u64 = 4 << 20;

/// What a peer must know to reach this side's objects.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Here {
    pub(super) gid: [u8; 16],
    /// The queue pairs that requests go over.
    pub(super) requests: Vec<u32>,
    /// The queue pairs that answers go over.
    pub(super) answers: Vec<u32>,
    /// The queue pair for counters.
    pub(super) control: u32,
    /// The memory region.
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

/// A message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The peer's version and the CPU it is to run on.
    Hello { version: String, cpu: Option<usize> },
    /// A case begins; so long it measures.
    Begin { case: Case, each_us: u64 },
    /// What to connect to.
    Here(Here),
    /// Connected, RECVs posted.
    Ready,
    /// The requester is done.
    Finished(Outcome),
    /// The target has checked what arrived.
    Checked(Arrived),
    /// A side cannot go on.
    Failed { why: String },
}

/// One end of the conversation.
pub struct Link {
    messages: Receiver<Result<Message, String>>,
    out: Box<dyn Write + Send>,
    /// The other side has failed or gone.
    trouble: Arc<AtomicBool>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("trouble", &self.trouble)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// A conversation over a pair of streams: a child's pipes, or a socket. A thread reads until
    /// the stream ends.
    pub fn new(input: impl Read + Send + 'static, out: impl Write + Send + 'static) -> Self {
        let (sender, messages) = channel();
        let trouble = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&trouble);
        std::thread::spawn(move || {
            let mut input = BufReader::new(input);
            let mut line = String::new();
            loop {
                line.clear();
                let read = (&mut input).take(LINE_LEN_MAX).read_line(&mut line);
                let message = match read {
                    Ok(0) => break,
                    Ok(_) => serde_json::from_str(&line)
                        .map_err(|error| format!("it said something else: {error}")),
                    Err(error) => Err(error.to_string()),
                };
                let over =
                    !matches!(message, Ok(ref one) if !matches!(one, Message::Failed { .. }));
                if over {
                    flag.store(true, Ordering::Release);
                }
                let broken = message.is_err();
                if sender.send(message).is_err() || broken {
                    break;
                }
            }
            flag.store(true, Ordering::Release);
        });
        Link {
            messages,
            out: Box::new(out),
            trouble,
        }
    }

    /// Whether the other side has failed or gone.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.trouble.load(Ordering::Acquire)
    }

    pub(super) fn send(&mut self, message: &Message) -> Result<(), VerbsRunError> {
        let mut line = serde_json::to_vec(message).map_err(std::io::Error::from)?;
        line.push(b'\n');
        let sent = self.out.write_all(&line).and_then(|()| self.out.flush());
        // What the other side said before it went tells more than a broken pipe.
        sent.map_err(|_| match self.messages.try_recv() {
            Ok(Ok(Message::Failed { why })) => VerbsRunError::Peer(why),
            _ => VerbsRunError::PeerGone,
        })
    }

    /// The next message, when there is another case or the other side hangs up: then `None`.
    pub(super) fn next(&mut self) -> Result<Option<Message>, VerbsRunError> {
        match self.messages.recv() {
            Ok(Ok(message)) => Ok(Some(message)),
            Ok(Err(why)) => Err(VerbsRunError::Peer(why)),
            Err(_) => Ok(None),
        }
    }

    /// The next message, which must come soon.
    pub(super) fn receive(&mut self) -> Result<Message, VerbsRunError> {
        match self.messages.recv_timeout(PATIENCE) {
            Ok(Ok(Message::Failed { why })) | Ok(Err(why)) => Err(VerbsRunError::Peer(why)),
            Ok(Ok(message)) => Ok(message),
            Err(RecvTimeoutError::Timeout) => Err(VerbsRunError::Stalled("word from the peer")),
            Err(RecvTimeoutError::Disconnected) => Err(VerbsRunError::PeerGone),
        }
    }

    /// The error that explains the trouble.
    pub(super) fn trouble(&mut self) -> VerbsRunError {
        loop {
            match self.messages.try_recv() {
                Ok(Ok(Message::Failed { why })) | Ok(Err(why)) => return VerbsRunError::Peer(why),
                Ok(Ok(_)) => {}
                Err(_) => return VerbsRunError::PeerGone,
            }
        }
    }
}

/// Takes a message apart, or says that another one was expected.
macro_rules! hear {
    ($link:expr, $pattern:pat => $value:expr) => {
        match $link.receive()? {
            $pattern => Ok($value),
            other => Err($crate::verbs::error::VerbsRunError::Peer(format!(
                "it said {other:?} out of turn"
            ))),
        }
    };
}
pub(super) use hear;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn ends() -> (Link, UnixStream) {
        let (one, two) = UnixStream::pair().expect("a pair");
        let link = Link::new(one.try_clone().expect("cloned"), one);
        (link, two)
    }

    fn in_trouble(link: &Link) {
        while !link.is_in_trouble() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn failures_and_nonsense_and_hanging_up_are_errors() {
        let (mut link, mut other) = ends();
        let said = b"\"ready\"\n{\"failed\":{\"why\":\"no luck\"}}\n";
        other.write_all(said).expect("written");
        in_trouble(&link);
        assert!(matches!(link.receive(), Ok(Message::Ready)));
        let error = link.receive().expect_err("a failure").to_string();
        assert!(error.contains("no luck"), "{error}");
        let (mut link, mut other) = ends();
        other.write_all(b"hello?\n").expect("written");
        in_trouble(&link);
        assert!(matches!(link.receive(), Err(VerbsRunError::Peer(_))));
        let (mut link, other) = ends();
        drop(other);
        in_trouble(&link);
        assert!(matches!(link.receive(), Err(VerbsRunError::PeerGone)));
        assert!(matches!(link.next(), Ok(None)));
    }
}
