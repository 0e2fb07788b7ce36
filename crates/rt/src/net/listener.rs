//! A socket that accepts connections.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, SocketFlags, SocketType, sockopt};

use super::stream::is_tcp;
use super::{Addr, Socket, Stream};
use crate::handle::Handle;
use crate::io::{Descriptor, Op, OpKey};

/// The first and the longest pause after an accept that failed for want of resources.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(200);

/// How to listen.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Connections that the kernel holds until they are accepted.
    pub backlog: i32,
    /// Lets several cores listen on one TCP port, the kernel spreading connections over them.
    pub reuse_port: bool,
}

impl Default for ListenOptions {
    /// A backlog of 1024; the port is not shared.
    fn default() -> Self {
        Self {
            backlog: 1024,
            reuse_port: false,
        }
    }
}

/// A listening TCP or Unix socket.
pub struct Listener {
    socket: Socket,
    core: Handle,
    tcp: bool,
    /// The accept in flight. It belongs to the listener, not to the future that waits for it, so
    /// that a dropped future loses no connection.
    accept: Option<OpKey>,
    backoff: Duration,
    on_pause: Option<Box<dyn FnMut(Duration)>>,
}

/// A listening socket of no core yet, so that what is wrong with an address shows before a core is
/// started. A TCP port in TIME_WAIT may be taken over (SO_REUSEADDR); a Unix path must not exist
/// yet, and stays after the listener.
pub fn bind(addr: &Addr, options: ListenOptions) -> io::Result<OwnedFd> {
    let any = addr.to_any()?;
    let (family, kind) = (any.address_family(), SocketType::STREAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if is_tcp(&any) {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, options.reuse_port)?;
    }
    net::bind(&socket, &any)?;
    net::listen(&socket, options.backlog)?;
    Ok(socket)
}

impl Listener {
    /// Listens on `addr`; see [`bind`].
    pub fn bind(core: &Handle, addr: &Addr, options: ListenOptions) -> io::Result<Self> {
        match core.sockets() {
            Some(sockets) => {
                let num = sockets.listen(addr)?;
                let socket = Socket::new(core, Descriptor::simulated(sockets, num));
                Ok(Self::new(core, socket, matches!(addr, Addr::Tcp(_))))
            }
            None => Self::adopt(core, bind(addr, options)?),
        }
    }

    /// Accepts on a socket that [`bind`] has made. Several cores may accept on duplicates of one
    /// socket: each connection goes to one of them.
    pub fn adopt(core: &Handle, socket: OwnedFd) -> io::Result<Self> {
        let tcp = is_tcp(&net::getsockname(&socket)?);
        Ok(Self::new(core, Socket::adopt(core, socket)?, tcp))
    }

    fn new(core: &Handle, socket: Socket, tcp: bool) -> Self {
        Self {
            socket,
            core: core.clone(),
            tcp,
            accept: None,
            backoff: BACKOFF_MIN,
            on_pause: None,
        }
    }

    /// The address it listens on, with the port that the kernel has chosen for port 0.
    pub fn local_addr(&self) -> io::Result<Addr> {
        self.socket.fd.local_addr()
    }

    /// Has each pause of [`Listener::accept`] told when it is over, with its length.
    pub fn on_pause(&mut self, tell: impl FnMut(Duration) + 'static) {
        self.on_pause = Some(Box::new(tell));
    }

    /// The next connection, with TCP_NODELAY and SO_KEEPALIVE set. Dropping the future loses none.
    ///
    /// When the process or the system has no descriptors or memory left, it pauses, longer each
    /// time, and goes on accepting: only errors of the listener itself are returned.
    pub async fn accept(&mut self) -> io::Result<Stream> {
        loop {
            match self.accept_once().await {
                Ok(socket) => {
                    self.backoff = BACKOFF_MIN;
                    // A peer that has gone already shows at the first receive.
                    match Stream::new(socket, self.tcp) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => tracing::debug!(%error, "dropped a connection"),
                    }
                }
                // Connections that ended before they were accepted, as accept(2) lists them.
                Err(
                    Errno::CONNABORTED
                    | Errno::INTR
                    | Errno::AGAIN
                    | Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::NETUNREACH
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH
                    | Errno::NOPROTOOPT
                    | Errno::NONET,
                ) => {}
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    let pause = self.backoff;
                    if pause == BACKOFF_MIN {
                        tracing::warn!(%error, "cannot accept, pausing");
                    }
                    self.backoff = (pause * 2).min(BACKOFF_MAX);
                    let began = self.core.now();
                    self.core.sleep(pause).await;
                    if let Some(tell) = &mut self.on_pause {
                        tell(self.core.now() - began);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn accept_once(&mut self) -> Result<Socket, Errno> {
        let key = match self.accept {
            Some(key) => key,
            None => *self.accept.insert(self.socket.start(Op::Accept)),
        };
        let completion = poll_fn(|cx| {
            let mut io = self.socket.inner.io.borrow_mut();
            io.poll(key, cx.waker())
        })
        .await;
        self.accept = None;
        let connection = self.socket.fd.accepted(completion.result?);
        Ok(Socket::new(&self.core, connection))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(key) = self.accept {
            self.socket.inner.io.borrow_mut().cancel(key);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.socket.fd).finish()
    }
}
