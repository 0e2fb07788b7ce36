//! Control streams that break: at either side first, whenever the run says so.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::rc::Rc;

use cache::herd::client::{Control, Dial};
use cache::herd::local::{LocalDoor, LocalStream};

/// The number of a stream.
pub type WireNum = u64;

/// A control stream, as the run sees it.
#[derive(Debug)]
pub struct Wire {
    /// The server's side; its end tells the server that the client has gone.
    stream: Option<LocalStream>,
    /// Which client made it.
    pub owner: usize,
    /// The client sees it closed.
    broken: bool,
    /// The client has closed it.
    pub hung_up: bool,
}

impl Wire {
    /// The number that the server gave the client.
    pub fn client(&self) -> Option<u32> {
        self.stream.as_ref().and_then(LocalStream::client)
    }
}

/// All control streams, and the door they lead to.
#[derive(Debug, Default)]
pub struct Exchange {
    door: Option<LocalDoor>,
    wires: BTreeMap<WireNum, Wire>,
    wire_next: WireNum,
}

/// The exchange, shared between the run and the streams.
pub type Exchanged = Rc<RefCell<Exchange>>;

impl Exchange {
    /// From now on new streams lead to this door.
    pub fn lead_to(&mut self, door: LocalDoor) {
        self.door = Some(door);
    }

    /// Breaks a stream at the client's side.
    pub fn break_at_client(&mut self, wire: WireNum) {
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.broken = true;
        }
    }

    /// Breaks a stream at the server's side: the client has gone, as far as the server knows.
    pub fn break_at_server(&mut self, wire: WireNum) {
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.stream = None;
        }
    }

    /// Streams that one side has closed, or sees closed, and the other one does not.
    pub fn half_open(&self) -> Vec<WireNum> {
        let is_half = |wire: &Wire| (wire.hung_up || wire.broken) == wire.stream.is_some();
        let found = self.wires.iter().filter(|(_, wire)| is_half(wire));
        found.map(|(number, _)| *number).collect()
    }

    /// Ends all streams, as the death of the server does, and lets nobody in; returns the number that the next one
    /// will have.
    pub fn end_all(&mut self) -> WireNum {
        for wire in self.wires.values_mut() {
            wire.stream = None;
            wire.broken = true;
        }
        self.door = None;
        self.wire_next
    }

    /// Streams that are whole.
    pub fn whole(&self) -> Vec<WireNum> {
        let is_whole = |wire: &Wire| !wire.hung_up && !wire.broken && wire.stream.is_some();
        let found = self.wires.iter().filter(|(_, wire)| is_whole(wire));
        found.map(|(number, _)| *number).collect()
    }

    /// A stream by its number.
    pub fn wire(&self, number: WireNum) -> Option<&Wire> {
        self.wires.get(&number)
    }

    /// The last stream that a client made.
    pub fn last_of(&self, owner: usize) -> Option<WireNum> {
        let mut newest = self.wires.iter().rev();
        newest
            .find(|(_, wire)| wire.owner == owner)
            .map(|(number, _)| *number)
    }
}

/// Makes streams for a client.
#[derive(Debug)]
pub struct Dialer {
    /// The exchange.
    pub exchange: Exchanged,
    /// For whom.
    pub owner: usize,
}

impl Dial for Dialer {
    type Stream = Line;

    fn dial(&mut self) -> io::Result<Line> {
        let mut exchange = self.exchange.borrow_mut();
        let Some(door) = &mut exchange.door else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let stream = door.dial()?;
        let number = exchange.wire_next;
        exchange.wire_next += 1;
        let wire = Wire {
            stream: Some(stream),
            owner: self.owner,
            broken: false,
            hung_up: false,
        };
        exchange.wires.insert(number, wire);
        Ok(Line {
            exchange: Rc::clone(&self.exchange),
            number,
        })
    }
}

/// The client's side of a stream.
#[derive(Debug)]
pub struct Line {
    exchange: Exchanged,
    number: WireNum,
}

impl Line {
    fn with<T>(&self, call: impl FnOnce(&mut LocalStream) -> io::Result<T>) -> io::Result<T> {
        let mut exchange = self.exchange.borrow_mut();
        let wire = exchange.wires.get_mut(&self.number);
        match wire
            .filter(|wire| !wire.broken)
            .and_then(|wire| wire.stream.as_mut())
        {
            Some(stream) => call(stream),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(Write::flush)
    }
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.with(|stream| stream.read(bytes))
    }
}

impl Control for Line {
    fn is_closed(&mut self) -> bool {
        // A stream that the server sees ended looks whole until word of it gets here.
        let mut exchange = self.exchange.borrow_mut();
        exchange.wires.get_mut(&self.number).is_none_or(|wire| {
            let stream = wire.stream.as_mut();
            wire.broken || stream.is_some_and(|stream| stream.is_closed())
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(wire) = self.exchange.borrow_mut().wires.get_mut(&self.number) {
            wire.hung_up = true;
        }
    }
}
