//! A server that sends anything: at the door, and as answers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;

use arbitrary::Arbitrary;
use cache::herd::ServerInfo;
use cache::herd::client::Control;
use cache::herd::slots::GAP;
use cache::herd::wire::answer::{Head, Status};
use cache::herd::wire::handshake::{Accept, AcceptCore, Connect, Message};
use verbs::typed::{
    AddressHandle, CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, Uc, Ud, Wr,
};
use verbs::{Access, Qkey, Wc};

/// Requests of a client under way.
pub(super) const WINDOW: u32 = 8;
const SLOT_LEN: u32 = 512;
const STRIDE: u32 = SLOT_LEN + GAP as u32;
/// Bytes of a value at most, as the server says.
pub(super) const VALUE_LEN_MAX: u32 = 20_000;
/// Ids wrap soon.
const FIRST_ID: u32 = u32::MAX - 5;

/// What the server says of itself that is not so.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Lie<'a> {
    None,
    /// Another number in INFO.
    Info {
        field: u8,
        value: u64,
    },
    /// Another number in ACCEPT.
    Accept {
        field: u8,
        value: u64,
    },
    /// Any bytes instead of the first or the second answer.
    Bytes {
        second: bool,
        bytes: &'a [u8],
    },
    /// Any text instead.
    Text {
        second: bool,
        text: &'a [u8],
    },
    /// A no, and why.
    Refuse {
        second: bool,
        why: u16,
    },
    /// The stream ends.
    End {
        second: bool,
    },
}

/// A status, and whether it is any number.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    /// Which of the ids under way.
    pub(super) ahead: u8,
    status: u8,
    item_flags: u32,
    total_len: u32,
    cas: Option<u64>,
    is_number: bool,
    body: &'a [u8],
    /// The body is so long, whatever the bytes.
    body_len: Option<u16>,
}

/// What the server has made for a client.
struct Side {
    /// Kept, so that they live.
    _uc: QueuePair<Uc>,
    ah: AddressHandle,
    connect: Connect,
}

/// A server with one core that does nothing but speak.
pub(super) struct Liar<'a> {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// Answers come from here.
    ud: QueuePair<Ud>,
    stranger: QueuePair<Ud>,
    chunk: MemoryRegion,
    side: Option<Side>,
    pub(super) lie: Lie<'a>,
    /// Which stream is open, and whether any may be.
    pub(super) stream: u64,
    pub(super) refuses: bool,
}

pub(super) type Shared<'a> = Rc<RefCell<Liar<'a>>>;

/// The control stream.
pub(super) struct Line<'a> {
    server: Shared<'a>,
    number: u64,
    sent: Vec<u8>,
    received: VecDeque<u8>,
}

impl<'a> Line<'a> {
    /// The next stream to a server; none while nobody is there.
    pub(super) fn dial(server: &Shared<'a>) -> io::Result<Line<'a>> {
        let mut liar = server.borrow_mut();
        if liar.refuses {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        liar.stream += 1;
        Ok(Line {
            number: liar.stream,
            server: Rc::clone(server),
            sent: Vec::new(),
            received: VecDeque::new(),
        })
    }
}

impl std::fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line {}", self.number)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.extend_from_slice(bytes);
        while let Some(end) = self.sent.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.sent.drain(..=end).collect();
            let message = Message::from_line(&line).expect("a client keeps to the rules");
            let answer = self.server.borrow_mut().answer(&message);
            self.received.extend(answer);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Line<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // In small pieces.
        let len = bytes.len().min(100);
        self.received.read(&mut bytes[..len])
    }
}

impl Control for Line<'_> {
    fn is_closed(&mut self) -> bool {
        self.server.borrow().stream != self.number
    }
}

impl Liar<'_> {
    pub(super) fn new(pd: ProtectionDomain) -> Self {
        let cq = pd.context().create_cq(1024).expect("a queue");
        let queue_pair = || {
            let mut ud = pd
                .create_qp::<Ud>(&QpOptions::on(&cq))
                .expect("a queue pair");
            ud.activate(Qkey(7)).expect("it is fresh");
            ud
        };
        let (ud, stranger) = (queue_pair(), queue_pair());
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let chunk = pd
            .allocate((WINDOW * STRIDE) as usize, access)
            .expect("memory");
        Liar {
            cq,
            ud,
            stranger,
            chunk,
            side: None,
            lie: Lie::None,
            stream: 0,
            refuses: false,
            pd,
        }
    }

    /// What the door says, as bytes of the stream.
    fn answer(&mut self, message: &Message) -> Vec<u8> {
        let second = matches!(message, Message::Connect(_));
        let hex = |bytes: &[u8]| {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("vervain {hex}\n").into_bytes()
        };
        let answer = match message {
            Message::Connect(connect) => {
                let accept = self.accept(connect);
                Message::Accept(accept)
            }
            _ => Message::Info(self.info()),
        };
        match self.lie {
            Lie::Bytes { second: at, bytes } if at == second => hex(bytes),
            Lie::Text { second: at, text } if at == second => [text, b"\n"].concat(),
            Lie::Refuse { second: at, why } if at == second => {
                let head = [
                    b"VRVN",
                    &1u16.to_le_bytes()[..],
                    &5u16.to_le_bytes(),
                    &why.to_le_bytes(),
                ];
                hex(&head.concat())
            }
            Lie::End { second: at } if at == second => Vec::new(),
            _ => (answer.to_line() + "\r\n").into_bytes(),
        }
    }

    fn info(&self) -> ServerInfo {
        let mut info = ServerInfo {
            incarnation: 3,
            route_seed: 5,
            idle_ns: 10_000,
            cores: 1,
            window_max: WINDOW,
            slot_len: SLOT_LEN,
            answer_len_max: 512,
            value_len_max: VALUE_LEN_MAX,
        };
        if let Lie::Info { field, value } = self.lie {
            let short = value as u32;
            match field % 8 {
                0 => info.incarnation = value,
                1 => info.route_seed = value,
                2 => info.idle_ns = value,
                3 => info.cores = short,
                4 => info.window_max = short,
                5 => info.slot_len = short,
                6 => info.answer_len_max = short,
                _ => info.value_len_max = short,
            }
        }
        info
    }

    fn accept(&mut self, connect: &Connect) -> Accept {
        let cq = &self.cq;
        let mut uc = self
            .pd
            .create_qp::<Uc>(&QpOptions::on(cq))
            .expect("a queue pair");
        let options = ConnectOptions {
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            ..ConnectOptions::default()
        };
        uc.connect(&connect.cores[0].uc, &options)
            .expect("the client is there");
        let core = AcceptCore {
            uc: uc.endpoint().expect("an endpoint"),
            chunk: self.chunk.remote(0),
            ud_qpn: self.ud.num(),
        };
        let mut accept = Accept {
            client: 9,
            window: WINDOW.min(connect.window),
            slot_len: SLOT_LEN,
            stride: STRIDE,
            first_id: FIRST_ID,
            cores: vec![core; connect.cores.len()],
        };
        if let Lie::Accept { field, value } = self.lie {
            let (short, last) = (value as u32, accept.cores.last_mut().expect("a core"));
            match field % 9 {
                0 => accept.window = short,
                1 => accept.slot_len = short,
                2 => accept.stride = short,
                3 => accept.first_id = short,
                4 => last.chunk.addr = value,
                5 => last.chunk.rkey.0 = short,
                6 => last.ud_qpn.0 = short & 0xff_ffff,
                7 => last.uc.qpn.0 = short & 0xff_ffff,
                _ => drop(accept.cores.pop()),
            }
        }
        self.side = Some(Side {
            _uc: uc,
            ah: self.pd.create_ah(connect.gid).expect("the client is there"),
            connect: connect.clone(),
        });
        accept
    }

    /// Sends a datagram to the client.
    pub(super) fn send(&mut self, bytes: &[u8], stranger: bool) {
        let Some(side) = &self.side else { return };
        let core = side.connect.cores[0];
        let region = self
            .pd
            .allocate(bytes.len().max(1), Access::empty())
            .expect("memory");
        region.write(0, bytes);
        let sges = [region.sge(0..bytes.len())];
        let request = Wr::send_to(&side.ah, core.ud_qpn, core.qkey, &sges);
        let ud = if stranger {
            &mut self.stranger
        } else {
            &mut self.ud
        };
        // A datagram that cannot be sent is one that was lost.
        let _ = ud.post_send(&[request]);
        let mut completions = [Wc::default(); 16];
        while matches!(self.cq.poll(&mut completions), Ok(1..)) {}
    }

    pub(super) fn send_answer(&mut self, id: u32, answer: &Answer<'_>) {
        let mut body = answer.body.to_vec();
        if let Some(len) = answer.body_len {
            body.resize(usize::from(len) % 4000, 0x77);
        }
        body.truncate(4000);
        let head = Head {
            id,
            status: Status::from_code(answer.status % 13).expect("a status"),
            item_flags: answer.item_flags,
            total_len: answer.total_len,
            cas: answer.cas,
            is_number: answer.is_number,
        };
        let mut bytes = vec![0; head.len() + body.len()];
        head.emit(&body, &mut bytes);
        self.send(&bytes, false);
    }

    /// The ids that lie in the slots.
    pub(super) fn ids(&self) -> Vec<u32> {
        let word = |slot: u32| {
            let mut id = [0; 4];
            self.chunk
                .read((slot * STRIDE + SLOT_LEN) as usize - 4, &mut id);
            u32::from_le_bytes(id)
        };
        (0..WINDOW).map(word).filter(|&id| id != 0).collect()
    }
}
