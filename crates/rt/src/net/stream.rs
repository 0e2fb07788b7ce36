//! A connection.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use super::{Addr, Socket};
use crate::handle::Handle;
use crate::io::{Completion, Op, OpKey};

/// Room that a receive makes in a buffer that has none.
const RECV_ROOM: usize = 4096;
/// How long a connect to a Unix socket with a full backlog waits before it tries again.
const BACKLOG_RETRY: Duration = Duration::from_millis(1);

/// A connected TCP or Unix socket. Closed when it is dropped.
pub struct Stream {
    recv: RecvHalf,
    send: SendHalf,
}

/// The receiving half of a connection, which closes when both halves are dropped.
pub struct RecvHalf(Rc<Socket>);

/// The sending half of a connection, which closes when both halves are dropped.
pub struct SendHalf(Rc<Socket>);

impl Stream {
    /// Connects to `addr`; TCP connections send small writes at once (TCP_NODELAY), and
    /// find out about a peer whose machine has gone (SO_KEEPALIVE).
    pub async fn connect(core: &Handle, addr: &Addr) -> io::Result<Self> {
        let any = Rc::new(addr.to_any()?);
        loop {
            let socket = Socket::open(core, &any)?;
            let connected = socket.run(Op::Connect(any.clone())).await;
            match (connected.result, addr) {
                (Ok(_), _) => return Self::new(socket, matches!(addr, Addr::Tcp(_))),
                // Only a non-blocking Unix socket says so; there is nothing to wait for.
                (Err(Errno::AGAIN), Addr::Unix(_)) => core.sleep(BACKLOG_RETRY).await,
                (Err(error), _) => return Err(error.into()),
            }
        }
    }

    pub(super) fn new(socket: Socket, tcp: bool) -> io::Result<Self> {
        if tcp {
            socket.fd.tune()?;
        }
        let socket = Rc::new(socket);
        Ok(Self {
            recv: RecvHalf(socket.clone()),
            send: SendHalf(socket),
        })
    }

    /// See [`RecvHalf::recv`].
    pub async fn recv(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.recv.recv(buf).await
    }

    /// See [`SendHalf::send`].
    pub async fn send(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.send.send(buf).await
    }

    /// See [`SendHalf::send_all`].
    pub async fn send_all(&mut self, buf: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        self.send.send_all(buf).await
    }

    /// Ends one direction or both; the peer reads the end of the stream after what was sent.
    pub fn shutdown(&mut self, how: std::net::Shutdown) -> io::Result<()> {
        self.send.0.fd.shutdown(how)
    }

    /// The peer's address; an unnamed Unix socket has an empty path.
    pub fn peer_addr(&self) -> io::Result<Addr> {
        self.recv.0.fd.peer_addr()
    }

    /// Two halves, for one task that receives and one that sends.
    #[must_use]
    pub fn into_split(self) -> (RecvHalf, SendHalf) {
        (self.recv, self.send)
    }
}

impl RecvHalf {
    /// Appends what has arrived to the buffer's spare capacity, waiting for the first byte, and
    /// returns how many bytes that were; zero at the end of the stream. A buffer without spare
    /// capacity grows by 4 KiB.
    pub async fn recv(&mut self, mut buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        if buf.len() == buf.capacity() {
            buf.reserve(RECV_ROOM);
        }
        let completion = self.0.run(Op::Recv(buf)).await;
        let Op::Recv(buf) = completion.op else {
            unreachable!("an operation comes back as it was started");
        };
        (completion.result.map_err(io::Error::from), buf)
    }
}

impl SendHalf {
    /// Sends from the buffer's start, perhaps not all of it, and returns how many bytes went.
    pub async fn send(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let (at, whole) = (0, false);
        let completion = self.0.run(Op::Send { buf, at, whole }).await;
        let (result, buf) = sent(completion);
        (result.map_err(io::Error::from), buf)
    }

    /// Sends the whole buffer. After an error an unknown part of it has gone.
    pub async fn send_all(&mut self, buf: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        self.begin_send_all(buf).await
    }

    /// Begins to send the whole buffer, and returns at once. The core carries on by itself, in its
    /// next turn together with what else was begun by then; who awaits the result later, with
    /// other work done, spares its task a wake-up. What is sent before the result is there may
    /// get between this buffer's bytes.
    pub fn begin_send_all(&mut self, buf: Vec<u8>) -> Sending {
        let size = buf.len();
        let (begun, empty) = if buf.is_empty() {
            (None, buf)
        } else {
            let (at, whole) = (0, true);
            let key = self.0.start(Op::Send { buf, at, whole });
            (Some(key), Vec::new())
        };
        Sending {
            socket: Rc::clone(&self.0),
            size,
            begun,
            empty,
        }
    }
}

/// A send under way, and a future of its end. Dropping it gives the send up: an unknown part of the
/// buffer has gone then.
#[must_use = "a dropped send is given up"]
pub struct Sending {
    socket: Rc<Socket>,
    size: usize,
    begun: Option<OpKey>,
    /// A buffer with nothing to send.
    empty: Vec<u8>,
}

impl Future for Sending {
    type Output = (io::Result<()>, Vec<u8>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(key) = self.begun else {
            return Poll::Ready((Ok(()), std::mem::take(&mut self.empty)));
        };
        let polled = self.socket.inner.io.borrow_mut().poll(key, context.waker());
        polled.map(|completion| {
            self.begun = None;
            let (result, buf) = sent(completion);
            let result = match result {
                Ok(count) if count < self.size => Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            };
            (result, buf)
        })
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(key) = self.begun {
            self.socket.inner.io.borrow_mut().cancel(key);
        }
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sending").field(&self.socket.fd).finish()
    }
}

/// The end of a send, and its buffer.
fn sent(completion: Completion) -> (Result<usize, Errno>, Vec<u8>) {
    match completion.op {
        Op::Send { buf, .. } => (completion.result, buf),
        // The core has ended and kept the buffer.
        _ => (completion.result, Vec::new()),
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.recv.0.fd).finish()
    }
}

impl fmt::Debug for RecvHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecvHalf").field(&self.0.fd).finish()
    }
}

impl fmt::Debug for SendHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendHalf").field(&self.0.fd).finish()
    }
}

/// A connection needs nothing of its address but the family.
pub(super) fn is_tcp(addr: &SocketAddrAny) -> bool {
    addr.address_family() != rustix::net::AddressFamily::UNIX
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::*;
    use crate::net::{ListenOptions, Listener};
    use crate::{Config, Core};

    #[test]
    fn both_ends_of_a_connection_send_at_once_and_notice_a_peer_that_has_gone() {
        let mut core = Core::new(Config::default()).expect("a core");
        let handle = core.handle();
        core.block_on(async {
            let loopback = Addr::Tcp(([127, 0, 0, 1], 0).into());
            let mut listener =
                Listener::bind(&handle, &loopback, ListenOptions::default()).expect("bound");
            let addr = listener.local_addr().expect("an address");
            let dialled = Stream::connect(&handle, &addr).await.expect("connected");
            let accepted = listener.accept().await.expect("accepted");
            for stream in [dialled, accepted] {
                let fd = &stream.recv.0.fd;
                assert!(sockopt::tcp_nodelay(fd).expect("an option"));
                assert!(sockopt::socket_keepalive(fd).expect("an option"));
            }
        });
    }
}
