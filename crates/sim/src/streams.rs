//! Sockets between the nodes: streams over a network that takes its time.
//!
//! A stream keeps its order and loses nothing, as TCP's does, but bytes come in pieces of any size and
//! as late as the network likes. A link that is cut holds what is under way until it is mended. The
//! death of a node resets its connections, and what gets to a socket that has gone is answered with a
//! reset; news of either takes the network's time like everything else, and comes behind what was sent
//! before. What has arrived before a reset can still be read.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::{replace, take};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use conformance::model::Network;
use rt::net::Addr;
use rt::{Instant, SocketNum, Sockets};

use crate::chance::stream;
use crate::timeline::Timeline;

/// How the network between the nodes is.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// What is sent arrives after this at the earliest.
    pub delay_min: Duration,
    /// And after this at the latest, unless something sent before it is later.
    pub delay_max: Duration,
    /// Bytes that a connection holds between its ends, each way.
    pub window: usize,
    /// Sends and receives take as many bytes as chance says, not all that they could.
    pub in_pieces: bool,
}

impl Default for Links {
    /// A data centre's: 10 to 50 us, windows of 64 KiB, in pieces.
    fn default() -> Self {
        Self {
            delay_min: Duration::from_micros(10),
            delay_max: Duration::from_micros(50),
            window: 64 << 10,
            in_pieces: true,
        }
    }
}

/// The address of a node.
#[must_use]
pub fn ip_of(node: usize) -> IpAddr {
    let [.., high, low] = (node as u32 + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
}

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Port(usize, u16),
    Path(usize, PathBuf),
}

#[derive(Debug)]
enum State {
    /// Connected to nobody.
    Fresh,
    Connecting,
    Refused,
    Listening {
        name: Name,
        backlog: VecDeque<usize>,
    },
    Connected(Connection),
    /// Its peer, or its node, has died. What had arrived before can still be read.
    Reset {
        arrived: VecDeque<u8>,
        has_ended: bool,
    },
}

#[derive(Debug)]
struct Connection {
    /// The socket at the other end, which may have gone.
    peer: End,
    peer_addr: Addr,
    arrived: VecDeque<u8>,
    /// Nothing comes behind what has arrived.
    has_ended: bool,
    /// Bytes on the way to the peer, or there and not taken.
    held: usize,
    /// Nothing is sent any more.
    is_shut: bool,
    /// When the last thing sent arrives.
    last_at: Instant,
}

#[derive(Debug)]
struct Socket {
    node: usize,
    addr: Option<Addr>,
    state: State,
}

/// What gets to a socket.
#[derive(Debug)]
enum Event {
    Connect {
        to: Name,
    },
    Accepted {
        peer: usize,
        addr: Addr,
    },
    Refused,
    Bytes(Vec<u8>),
    /// So many bytes were taken: there is room for others.
    Taken(usize),
    End,
    Reset,
}

/// An event under way: from a socket to a socket.
#[derive(Debug)]
struct Flying {
    from: End,
    /// For a connect the listener is not known yet: it is the socket that asks.
    to: End,
    event: Event,
}

/// A socket and its node, which stays known when the socket has gone.
#[derive(Clone, Copy, Debug)]
struct End {
    node: usize,
    socket: usize,
}

#[derive(Debug)]
struct Net {
    links: Links,
    random: fastrand::Rng,
    now: Instant,
    /// By numbers that are used once: what is under way to a socket that has gone gets to nobody.
    sockets: BTreeMap<usize, Socket>,
    socket_next: usize,
    listeners: BTreeMap<Name, usize>,
    under_way: Timeline<Flying>,
    /// Knows which nodes are cut off from each other.
    fabric: Network,
    /// What waits for a link that is cut, in order.
    held: Vec<Flying>,
    /// What was held until a link was mended. It arrives before everything that is due at the same time,
    /// which was sent behind it.
    released: VecDeque<Flying>,
    /// When the last thing arrives that was sent by a socket which has gone, while that is to come.
    sent_by_gone: BTreeMap<usize, Instant>,
    port_next: u16,
}

/// The sockets of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Streams(Rc<RefCell<Net>>);

/// The address of a socket that has no name.
fn nameless() -> Addr {
    Addr::Unix(PathBuf::new())
}

impl Streams {
    pub(crate) fn new(seed: u64, links: Links, fabric: Network) -> Self {
        Self(Rc::new(RefCell::new(Net {
            links,
            random: stream(seed, "streams"),
            now: Instant::ZERO,
            sockets: BTreeMap::new(),
            socket_next: 0,
            listeners: BTreeMap::new(),
            under_way: Timeline::default(),
            fabric,
            held: Vec::new(),
            released: VecDeque::new(),
            sent_by_gone: BTreeMap::new(),
            port_next: 32_768,
        })))
    }

    /// The sockets of a node.
    pub(crate) fn of(&self, node: usize) -> Rc<dyn Sockets> {
        Rc::new(NodeSockets {
            node,
            streams: self.clone(),
        })
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        let net = self.0.borrow();
        match net.released.is_empty() {
            true => net.under_way.next(),
            false => Some(net.now),
        }
    }

    /// Lets everything happen that is due by then. Returns how much that was.
    pub(crate) fn advance(&self, now: Instant) -> usize {
        let mut net = self.0.borrow_mut();
        let mut count = 0;
        while let Some((at, flying)) = net.take_by(now) {
            net.now = at;
            net.arrive(flying);
            count += 1;
        }
        net.now = now;
        count
    }

    /// What was held at links that have been mended goes on its way.
    pub(crate) fn let_go(&self) {
        let mut net = self.0.borrow_mut();
        let held = take(&mut net.held);
        net.released.extend(held);
    }

    /// A node has died: its sockets are gone.
    pub(crate) fn kill(&self, node: usize) {
        let mut net = self.0.borrow_mut();
        let is_here =
            |name: &Name| matches!(name, Name::Port(at, _) | Name::Path(at, _) if *at == node);
        net.listeners.retain(|name, _| !is_here(name));
        let mine = |(key, socket): (&usize, &Socket)| (socket.node == node).then_some(*key);
        let mine: Vec<usize> = net.sockets.iter().filter_map(mine).collect();
        for key in mine {
            net.reset_peer(key);
            net.remove(key);
        }
    }
}

impl Net {
    fn delay(&mut self) -> Duration {
        let (min, max) = (self.links.delay_min, self.links.delay_max);
        let spread = max.saturating_sub(min).as_nanos() as u64;
        min + Duration::from_nanos(self.random.u64(0..=spread))
    }

    /// Takes the next thing that is due by then.
    fn take_by(&mut self, now: Instant) -> Option<(Instant, Flying)> {
        match self.released.pop_front() {
            Some(flying) => Some((self.now, flying)),
            None => self.under_way.take_by(now),
        }
    }

    /// Sends something from a socket to another, behind what it sent there before it went, if it has gone.
    fn send(&mut self, from: End, to: End, event: Event) {
        let at = self.now + self.delay();
        let sent_at = self.sent_by_gone.get(&from.socket);
        let at = sent_at.map_or(at, |sent_at| at.max(*sent_at));
        self.under_way.add(at, Flying { from, to, event });
    }

    /// Sends something to the peer of a connection, behind what was sent before.
    fn send_behind(&mut self, key: usize, event: Event) {
        let at = self.now + self.delay();
        let Some(socket) = self.sockets.get_mut(&key) else {
            return;
        };
        let from = End {
            node: socket.node,
            socket: key,
        };
        let State::Connected(connection) = &mut socket.state else {
            return;
        };
        let at = at.max(connection.last_at);
        connection.last_at = at;
        let to = connection.peer;
        self.under_way.add(at, Flying { from, to, event });
    }

    /// Tells the peer of a socket, or who waits for it to accept, that there is nobody any more.
    fn reset_peer(&mut self, key: usize) {
        match self.sockets.get_mut(&key).map(|socket| &mut socket.state) {
            Some(State::Connected(_)) => self.send_behind(key, Event::Reset),
            Some(State::Listening { backlog, .. }) => {
                for waiting in take(backlog) {
                    self.reset_peer(waiting);
                    self.remove(waiting);
                }
            }
            _ => {}
        }
    }

    /// A socket is there no more.
    fn remove(&mut self, key: usize) {
        let now = self.now;
        self.sent_by_gone.retain(|_, last_at| *last_at > now);
        if let Some(Socket {
            state: State::Connected(connection),
            ..
        }) = self.sockets.remove(&key)
            && connection.last_at > now
        {
            self.sent_by_gone.insert(key, connection.last_at);
        }
    }

    fn connection(&mut self, key: usize) -> Option<&mut Connection> {
        match &mut self.sockets.get_mut(&key)?.state {
            State::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// What can be read at a socket, whether nothing comes behind it, and who sends, unless it was reset.
    fn arrived(&mut self, key: usize) -> Option<(&mut VecDeque<u8>, bool, Option<End>)> {
        match &mut self.sockets.get_mut(&key)?.state {
            State::Connected(it) => Some((&mut it.arrived, it.has_ended, Some(it.peer))),
            State::Reset { arrived, has_ended } => Some((arrived, *has_ended, None)),
            _ => None,
        }
    }

    fn add(&mut self, node: usize, addr: Option<Addr>, state: State) -> usize {
        let key = self.socket_next;
        self.socket_next += 1;
        self.sockets.insert(key, Socket { node, addr, state });
        key
    }

    fn name(&mut self, key: usize, addr: Addr) {
        if let Some(socket) = self.sockets.get_mut(&key) {
            socket.addr = Some(addr);
        }
    }

    fn arrive(&mut self, flying: Flying) {
        if !self.fabric.reaches(flying.from.node, flying.to.node) {
            self.held.push(flying);
            return;
        }
        let Flying { from, to, event } = flying;
        let now = self.now;
        if let Event::Connect { to } = event {
            self.meet(from, &to);
            return;
        }
        let Some(socket) = self.sockets.get_mut(&to.socket) else {
            // Who asked, or what was sent to, has gone meanwhile.
            if matches!(event, Event::Accepted { .. } | Event::Bytes(_)) {
                self.send(to, from, Event::Reset);
            }
            return;
        };
        match (event, &mut socket.state) {
            (Event::Bytes(bytes), State::Connected(connection)) => {
                connection.arrived.extend(bytes);
            }
            (Event::Taken(count), State::Connected(connection)) => connection.held -= count,
            (Event::End, State::Connected(connection)) => connection.has_ended = true,
            (Event::Reset, State::Connected(connection)) => {
                let (arrived, has_ended) = (take(&mut connection.arrived), connection.has_ended);
                socket.state = State::Reset { arrived, has_ended };
            }
            (Event::Refused, State::Connecting) => socket.state = State::Refused,
            (Event::Accepted { peer, addr }, State::Connecting) => {
                let peer = End {
                    node: from.node,
                    socket: peer,
                };
                socket.state = State::Connected(Connection::new(peer, addr, now));
            }
            _ => {}
        }
    }

    /// A connect has got to where it leads.
    fn meet(&mut self, from: End, to: &Name) {
        let Some(caller) = self.sockets.get(&from.socket) else {
            return;
        };
        let (Name::Port(node, _) | Name::Path(node, _)) = *to;
        let caller_addr = caller.addr.clone().unwrap_or_else(nameless);
        let Some(&listener) = self.listeners.get(to) else {
            let nobody = End {
                node,
                socket: usize::MAX,
            };
            self.send(nobody, from, Event::Refused);
            return;
        };
        let addr = self.sockets.get(&listener).and_then(|it| it.addr.clone());
        let addr = addr.unwrap_or_else(nameless);
        let at = self.now + self.delay();
        let mut connection = Connection::new(from, caller_addr, self.now);
        // What the listener's side sends comes behind its answer.
        connection.last_at = at;
        let peer = self.add(node, Some(addr.clone()), State::Connected(connection));
        if let Some(Socket {
            state: State::Listening { backlog, .. },
            ..
        }) = self.sockets.get_mut(&listener)
        {
            backlog.push_back(peer);
        }
        let flying = Flying {
            from: End { node, socket: peer },
            to: from,
            event: Event::Accepted { peer, addr },
        };
        self.under_way.add(at, flying);
    }

    /// A port of a node that nobody listens on.
    fn free_port(&mut self, node: usize) -> u16 {
        loop {
            let port = self.port_next;
            self.port_next = port.checked_add(1).unwrap_or(32_768);
            if !self.listeners.contains_key(&Name::Port(node, port)) {
                return port;
            }
        }
    }

    /// How many of so many bytes a call takes.
    fn piece(&mut self, len: usize) -> usize {
        match self.links.in_pieces && len > 1 && self.random.bool() {
            true => self.random.usize(1..=len),
            false => len,
        }
    }

    fn close(&mut self, key: usize) {
        let Some(socket) = self.sockets.get(&key) else {
            return;
        };
        match &socket.state {
            State::Listening { name, .. } => {
                let name = name.clone();
                self.listeners.remove(&name);
                self.reset_peer(key);
            }
            State::Connected(connection) if connection.arrived.is_empty() => {
                if !connection.is_shut {
                    self.send_behind(key, Event::End);
                }
            }
            // As TCP does when what has arrived was not read.
            _ => self.reset_peer(key),
        }
        self.remove(key);
    }
}

impl Connection {
    fn new(peer: End, peer_addr: Addr, now: Instant) -> Self {
        Self {
            peer,
            peer_addr,
            arrived: VecDeque::new(),
            has_ended: false,
            held: 0,
            is_shut: false,
            last_at: now,
        }
    }
}

/// The sockets of one node.
#[derive(Debug)]
struct NodeSockets {
    node: usize,
    streams: Streams,
}

impl NodeSockets {
    fn name(&self, addr: &Addr) -> io::Result<Name> {
        match addr {
            Addr::Unix(path) => Ok(Name::Path(self.node, path.clone())),
            Addr::Tcp(addr) if addr.ip().is_loopback() || addr.ip().is_unspecified() => {
                Ok(Name::Port(self.node, addr.port()))
            }
            Addr::Tcp(addr) => match addr.ip() {
                IpAddr::V4(ip) if ip.octets()[..2] == [10, 0] => {
                    let [_, _, high, low] = ip.octets();
                    let number = usize::from(u16::from_be_bytes([high, low]));
                    let node = number
                        .checked_sub(1)
                        .ok_or(io::ErrorKind::AddrNotAvailable)?;
                    Ok(Name::Port(node, addr.port()))
                }
                _ => Err(io::ErrorKind::AddrNotAvailable.into()),
            },
        }
    }

    fn end(&self, socket: usize) -> End {
        End {
            node: self.node,
            socket,
        }
    }

    fn net(&self) -> std::cell::RefMut<'_, Net> {
        self.streams.0.borrow_mut()
    }
}

impl Sockets for NodeSockets {
    fn open(&self) -> SocketNum {
        SocketNum(self.net().add(self.node, None, State::Fresh))
    }

    fn listen(&self, addr: &Addr) -> io::Result<SocketNum> {
        let mut net = self.net();
        let (addr, name) = match (addr, self.name(addr)?) {
            (_, Name::Port(node, _) | Name::Path(node, _)) if node != self.node => {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            (Addr::Tcp(addr), Name::Port(node, 0)) => {
                let port = net.free_port(node);
                let addr = SocketAddr::new(addr.ip(), port);
                (Addr::Tcp(addr), Name::Port(node, port))
            }
            (addr, name) => (addr.clone(), name),
        };
        if net.listeners.contains_key(&name) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let state = State::Listening {
            name: name.clone(),
            backlog: VecDeque::new(),
        };
        let key = net.add(self.node, Some(addr), state);
        net.listeners.insert(name, key);
        Ok(SocketNum(key))
    }

    fn connect(&self, SocketNum(key): SocketNum, to: &Addr) -> Poll<io::Result<()>> {
        let to = self.name(to)?;
        let (Name::Port(node, _) | Name::Path(node, _)) = to;
        let mut net = self.net();
        let Some(socket) = net.sockets.get_mut(&key) else {
            return gone();
        };
        match &socket.state {
            State::Fresh => {
                socket.state = State::Connecting;
                if let Name::Port(..) = to {
                    let addr = SocketAddr::new(ip_of(self.node), net.free_port(self.node));
                    net.name(key, Addr::Tcp(addr));
                }
                let (me, asked) = (self.end(key), End { node, socket: key });
                let flying = Event::Connect { to };
                net.send(me, asked, flying);
                Poll::Pending
            }
            State::Connecting => Poll::Pending,
            State::Connected(_) => Poll::Ready(Ok(())),
            State::Reset { .. } => gone(),
            State::Refused | State::Listening { .. } => {
                Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()))
            }
        }
    }

    fn accept(&self, SocketNum(key): SocketNum) -> Poll<io::Result<SocketNum>> {
        match self.net().sockets.get_mut(&key).map(|it| &mut it.state) {
            Some(State::Listening { backlog, .. }) => match backlog.pop_front() {
                Some(connection) => Poll::Ready(Ok(SocketNum(connection))),
                None => Poll::Pending,
            },
            _ => gone(),
        }
    }

    fn recv(&self, SocketNum(key): SocketNum, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut net = self.net();
        let Some((arrived, has_ended, sender)) = net.arrived(key) else {
            return gone();
        };
        let room = arrived.len().min(into.len());
        if room == 0 {
            return match (has_ended || into.is_empty(), sender) {
                (true, _) => Poll::Ready(Ok(0)),
                (false, Some(_)) => Poll::Pending,
                (false, None) => gone(),
            };
        }
        let count = net.piece(room);
        if let Some((arrived, ..)) = net.arrived(key) {
            for (to, byte) in into.iter_mut().zip(arrived.drain(..count)) {
                *to = byte;
            }
        }
        if let Some(sender) = sender {
            net.send(self.end(key), sender, Event::Taken(count));
        }
        Poll::Ready(Ok(count))
    }

    fn send(&self, SocketNum(key): SocketNum, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut net = self.net();
        let window = net.links.window;
        let Some(connection) = net.connection(key) else {
            return gone();
        };
        if connection.is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = window.saturating_sub(connection.held).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Poll::Pending;
        }
        let count = net.piece(room);
        if let Some(connection) = net.connection(key) {
            connection.held += count;
        }
        net.send_behind(key, Event::Bytes(bytes[..count].to_vec()));
        Poll::Ready(Ok(count))
    }

    fn shutdown(&self, SocketNum(key): SocketNum, how: Shutdown) -> io::Result<()> {
        let mut net = self.net();
        let Some(connection) = net.connection(key) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if how != Shutdown::Write {
            connection.has_ended = true;
        }
        if how != Shutdown::Read && !replace(&mut connection.is_shut, true) {
            net.send_behind(key, Event::End);
        }
        Ok(())
    }

    fn local_addr(&self, SocketNum(key): SocketNum) -> io::Result<Addr> {
        let net = self.net();
        let addr = net.sockets.get(&key).and_then(|it| it.addr.clone());
        addr.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn peer_addr(&self, SocketNum(key): SocketNum) -> io::Result<Addr> {
        match self.net().connection(key) {
            Some(connection) => Ok(connection.peer_addr.clone()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn close(&self, SocketNum(key): SocketNum) {
        self.net().close(key);
    }
}

fn gone<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
}
