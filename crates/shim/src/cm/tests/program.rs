//! A program with an event channel.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Once;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::errno::Errno;
use crate::cm::abi::{ConnParam, Private, Writer};
use crate::cm::{addresses, interpose};

/// No test waits longer for what has to come.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const TCP: u16 = 0x0106;
pub(super) const UDP: u16 = 0x0111;

/// An event channel, and what is asked on it.
pub(super) struct Program {
    pub(super) fd: RawFd,
}

/// `struct rdma_ucm_event_resp`.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) uid: u64,
    pub(super) id: u32,
    pub(super) event: u32,
    pub(super) status: i32,
    pub(super) param: Vec<u8>,
}

impl Heard {
    /// Of a connection.
    pub(super) fn private(&self) -> &[u8] {
        &self.param[8..8 + self.param[264] as usize]
    }

    pub(super) fn qp_num(&self) -> u32 {
        u32_at(&self.param, 0)
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn in_a_directory_of_the_tests() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let dir = tempfile::tempdir().expect("a directory").keep();
        // SAFETY: the tests read the environment only after this.
        unsafe { std::env::set_var("VERVAIN_RUN_DIR", dir) };
    });
}

impl Program {
    pub(super) fn start() -> Program {
        in_a_directory_of_the_tests();
        let path = c"/dev/infiniband/rdma_cm".as_ptr();
        // SAFETY: a path.
        let fd = unsafe { crate::discovery::paths::open(path, libc::O_RDWR, 0) };
        assert!(fd >= 0, "no channel");
        Program { fd }
    }

    /// Asks, with room for an answer whose address is put at `answer_at`.
    pub(super) fn ask(
        &self,
        number: u32,
        body: &[u8],
        answer: Option<(usize, &mut [u8])>,
    ) -> Result<(), Errno> {
        let mut body = body.to_vec();
        let mut room = 0;
        if let Some((at, answer)) = answer {
            body[at..at + 8].copy_from_slice(&(answer.as_mut_ptr() as u64).to_ne_bytes());
            room = answer.len();
        }
        let bytes = Writer::default()
            .u32(number)
            .u16(body.len() as u16)
            .u16(room as u16)
            .bytes(&body)
            .done();
        // SAFETY: the bytes, and the room for the answer, are there.
        let written = unsafe { interpose::write(self.fd, bytes.as_ptr().cast(), bytes.len()) };
        if written < 0 {
            let error = std::io::Error::last_os_error();
            return Err(error.raw_os_error().expect("an errno"));
        }
        assert_eq!(written as usize, bytes.len());
        Ok(())
    }

    pub(super) fn create(&self, uid: u64, port_space: u16) -> u32 {
        let body = Writer::default().u64(uid).u64(0).u16(port_space).up_to(24);
        let mut answer = [0; 4];
        self.ask(0, &body.done(), Some((8, &mut answer)))
            .expect("an identifier");
        u32::from_ne_bytes(answer)
    }

    /// Returns how many events the program was given.
    pub(super) fn destroy(&self, id: u32) -> Result<u32, Errno> {
        let body = Writer::default().u64(0).u32(id).u32(0).done();
        let mut answer = [0; 4];
        self.ask(1, &body, Some((0, &mut answer)))?;
        Ok(u32::from_ne_bytes(answer))
    }

    pub(super) fn bind(&self, id: u32, address: &str) -> Result<(), Errno> {
        let address: SocketAddr = address.parse().expect("an address");
        let body = Writer::default().u64(0).bytes(&addresses::emit(address));
        self.ask(2, &body.up_to(36).u32(id).done(), None)
    }

    pub(super) fn set_flag(&self, id: u32, option: u32) {
        let on = 1i32;
        let at = &raw const on as u64;
        let body = Writer::default().u64(at).u32(id).u32(0).u32(option).u32(4);
        self.ask(14, &body.done(), None).expect("set");
    }

    /// Its own address, or that of the other side.
    pub(super) fn address(&self, id: u32, of_peer: bool) -> SocketAddr {
        let body = Writer::default().u64(0).u32(id).u32(0).done();
        let mut answer = [0; 208];
        self.ask(5, &body, Some((0, &mut answer))).expect("a route");
        let at = if of_peer { 164 } else { 136 };
        addresses::parse(&answer[at..at + 28]).expect("an address")
    }

    pub(super) fn listen(&self, id: u32, backlog: u32) -> Result<(), Errno> {
        self.ask(7, &Writer::default().u32(id).u32(backlog).done(), None)
    }

    /// Listens at a port that is free.
    pub(super) fn listener(&self, uid: u64, port_space: u16) -> (u32, SocketAddr) {
        let id = self.create(uid, port_space);
        self.bind(id, "127.0.0.1:0").expect("bound");
        self.listen(id, 16).expect("it listens");
        (id, self.address(id, false))
    }

    /// Resolves an address and a route, as far as the call.
    pub(super) fn resolve(&self, id: u32, to: SocketAddr) {
        let body = Writer::default().up_to(28).bytes(&addresses::emit(to));
        let body = body.up_to(56).u32(id).u32(2000).done();
        self.ask(3, &body, None).expect("asked");
        assert_eq!((self.event().event, id), (0, id));
        self.ask(4, &Writer::default().u32(id).u32(2000).done(), None)
            .expect("asked");
        assert_eq!(self.event().event, 2);
    }

    pub(super) fn connect(&self, id: u32, private: &[u8]) -> Result<(), Errno> {
        let body = Writer::default().conn_param(&param(100 + id, private));
        self.ask(6, &body.u32(id).u32(0).up_to(288).done(), None)
    }

    /// A new identifier that calls a listener.
    pub(super) fn call(&self, uid: u64, port_space: u16, to: SocketAddr) -> u32 {
        let id = self.create(uid, port_space);
        self.resolve(id, to);
        self.connect(id, b"please").expect("called");
        id
    }

    pub(super) fn accept(&self, id: u32, uid: u64, private: &[u8]) -> Result<(), Errno> {
        let body = Writer::default()
            .u64(uid)
            .conn_param(&param(200 + id, private));
        self.ask(8, &body.u32(id).u32(0).up_to(296).done(), None)
    }

    /// Says that the queue pair is ready.
    pub(super) fn establish(&self, id: u32) -> Result<(), Errno> {
        let body = Writer::default().up_to(8 + 272).u32(id);
        self.ask(8, &body.up_to(296).done(), None)
    }

    pub(super) fn reject(&self, id: u32, private: &[u8]) -> Result<(), Errno> {
        let body = Writer::default().u32(id).u8(private.len() as u8);
        self.ask(9, &body.up_to(8).bytes(private).up_to(264).done(), None)
    }

    pub(super) fn disconnect(&self, id: u32) -> Result<(), Errno> {
        self.ask(10, &Writer::default().u32(id).done(), None)
    }

    /// `struct ib_uverbs_qp_attr` for a state.
    pub(super) fn attributes(&self, id: u32, state: u32) -> Result<Vec<u8>, Errno> {
        let body = Writer::default().u64(0).u32(id).u32(state).done();
        let mut answer = vec![0; 144];
        self.ask(11, &body, Some((0, &mut answer)))?;
        Ok(answer)
    }

    pub(super) fn has_event(&self, patience: Duration) -> bool {
        // SAFETY: open as long as the program.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let patience = Timespec::try_from(patience).expect("not long");
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).expect("polled") == 1
    }

    pub(super) fn event(&self) -> Heard {
        assert!(self.has_event(PATIENCE), "no event");
        let mut answer = vec![0; 336];
        self.ask(12, &[0; 8], Some((0, &mut answer)))
            .expect("an event");
        Heard {
            uid: u64::from_ne_bytes(answer[..8].try_into().expect("eight bytes")),
            id: u32_at(&answer, 8),
            event: u32_at(&answer, 12),
            status: u32_at(&answer, 16) as i32,
            param: answer[20..].to_vec(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        interpose::close(self.fd);
    }
}

fn param(qp_num: u32, private: &[u8]) -> ConnParam {
    ConnParam {
        qp_num,
        private: Private::new(private),
        responder_resources: 3,
        initiator_depth: 4,
        retry_count: 6,
        rnr_retry_count: 5,
        ..ConnParam::default()
    }
}
