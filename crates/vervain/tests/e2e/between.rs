//! Who stands between a client and an NFS server, and breaks the n-th call: what it was for is not the point, only that
//! each of them is broken once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// It is told to come again, and nothing is done (NFS4ERR_DELAY).
    Delay,
    /// The connection ends before the server has it.
    Before,
    /// The server carries it out, and the connection ends before the answer.
    After,
    /// As `After`, and nobody is behind it from then on.
    Gone,
    /// The server carries it out, and the answer does not come.
    Silent,
}

/// Calls between a client and a server.
pub(crate) struct Between {
    pub(crate) address: SocketAddr,
    calls: Arc<AtomicUsize>,
}

/// What is yet to come.
#[derive(Default)]
struct Plan {
    /// The call that is broken, and how; those after it are not.
    call: Option<(usize, Break)>,
    is_gone: bool,
}

impl Between {
    /// Listens, and breaks the call with this number, if any.
    pub(crate) fn new(server: SocketAddr, plan: Option<(usize, Break)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let calls = Arc::new(AtomicUsize::new(0));
        let plan = Plan {
            call: plan,
            is_gone: false,
        };
        let (counted, plan) = (Arc::clone(&calls), Arc::new(Mutex::new(plan)));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (counted, plan) = (Arc::clone(&counted), Arc::clone(&plan));
                std::thread::spawn(move || {
                    // A connection that breaks is what is wanted.
                    drop(relay(client, server, &counted, &plan));
                });
            }
        });
        Self { address, calls }
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn relay(
    mut client: TcpStream,
    server: SocketAddr,
    calls: &AtomicUsize,
    plan: &Mutex<Plan>,
) -> std::io::Result<()> {
    if plan.lock().expect("no panic").is_gone {
        return Ok(());
    }
    let mut server = TcpStream::connect(server)?;
    loop {
        let mut call = record(&mut client)?;
        let number = calls.fetch_add(1, Ordering::SeqCst);
        let how = {
            let mut plan = plan.lock().expect("no panic");
            let is_now = |(at, _): &mut (usize, Break)| *at == number;
            plan.call.take_if(is_now).map(|(_, how)| how)
        };
        if how == Some(Break::Before) {
            return Ok(());
        }
        let is_delayed = how == Some(Break::Delay) && delay(&mut call);
        send(&mut server, &call)?;
        let mut answer = record(&mut server)?;
        match how {
            Some(Break::After) => return Ok(()),
            Some(Break::Gone) => {
                plan.lock().expect("no panic").is_gone = true;
                return Ok(());
            }
            Some(Break::Silent) => {
                // Until the client has had enough.
                while record(&mut client).is_ok() {}
                return Ok(());
            }
            _ => {}
        }
        if is_delayed {
            // XID, reply, accepted, no verifier, success; then the compound's status.
            answer[24..28].copy_from_slice(&10_008_u32.to_be_bytes());
        }
        send(&mut client, &answer)?;
    }
}

/// Numbers of operations (RFC 8881, section 16.2.3).
const SEQUENCE: usize = 53;
const RESTOREFH: u32 = 31;

/// Makes a compound one that only uses its slot, and fails; false if it has none.
fn delay(call: &mut Vec<u8>) -> bool {
    let word = |call: &[u8], at: usize| {
        let bytes = call[at..at + 4].try_into().expect("four");
        u32::from_be_bytes(bytes) as usize
    };
    // XID, call, RPC's version, program, version, procedure; credential, verifier, tag, minor version.
    let mut at = 24;
    for opaque in [4, 4, 0] {
        at += opaque;
        at += 4 + word(call, at).next_multiple_of(4);
    }
    at += 4;
    if word(call, at + 4) != SEQUENCE {
        return false;
    }
    call[at..at + 4].copy_from_slice(&2_u32.to_be_bytes());
    call.truncate(at + 8 + 16 + 4 * 4);
    // There is no handle to restore.
    call.extend(RESTOREFH.to_be_bytes());
    true
}

/// A record of RPC over TCP (RFC 5531, section 11).
fn record(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let head = u32::from_be_bytes(head);
        let at = whole.len();
        whole.resize(at + (head & 0x7fff_ffff) as usize, 0);
        from.read_exact(&mut whole[at..])?;
        if head >> 31 == 1 {
            return Ok(whole);
        }
    }
}

fn send(to: &mut TcpStream, record: &[u8]) -> std::io::Result<()> {
    let head = (1 << 31) | u32::try_from(record.len()).expect("a record");
    to.write_all(&[&head.to_be_bytes()[..], record].concat())
}
