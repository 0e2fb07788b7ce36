//! A server in one thread, and clients that keep to no rules.

use std::sync::Arc;

use cache::herd::slots::kick;
use cache::herd::wire::answer::Head;
use cache::herd::wire::handshake::{Accept, Connect, ConnectCore, Message};
use cache::herd::{Acceptor, Attachment, Server, ServerConfig};
use cache::mica::{Options, PagePolicy, Partition};
use conformance::model::ModelNic;
use verbs::typed::{
    CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    Uc, Ud, Wr,
};
use verbs::wr::GRH_LEN;
use verbs::{Access, Qkey, RecvWr, Wc};

/// Bytes of a datagram, its route header among them.
const RECV_LEN: usize = 4096 + GRH_LEN;
/// RECVs of a client.
const RECVS: usize = 4;
/// Bytes that are written at once.
const PIECE_LEN: usize = 200;
const QKEY: Qkey = Qkey(77);

/// The server, core by core, and its NIC's other side.
pub(super) struct Machine {
    pub(super) servers: Vec<Server>,
    pub(super) partitions: Vec<Partition>,
    pub(super) acceptor: Acceptor,
    pub(super) config: ServerConfig,
    pub(super) clients_pd: ProtectionDomain,
    pub(super) now_ns: u64,
    pub(super) now_s: u32,
}

impl Machine {
    pub(super) fn new(config: ServerConfig, partition_bytes: usize) -> Machine {
        let mut pds = ModelNic::fabric(2).into_iter().map(|nic| {
            let context = Context::new(Arc::new(nic));
            context.alloc_pd().expect("a domain")
        });
        let (pd, clients_pd) = (pds.next().expect("one"), pds.next().expect("two"));
        let made = (0..config.cores).map(|core| Server::new(&pd, core, &config).expect("a server"));
        let (servers, ports) = made.unzip();
        let mut options = Options::new(partition_bytes);
        options.pages = PagePolicy::Plain;
        let partition = |_| Partition::new(&options).expect("a partition");
        Machine {
            servers,
            partitions: (0..config.cores).map(partition).collect(),
            acceptor: Acceptor::new(pd, &config, ports).expect("an acceptor"),
            config,
            clients_pd,
            now_ns: 1_000_000,
            now_s: 1000,
        }
    }

    /// Gives attachments to their cores.
    pub(super) fn attach(&mut self, attachments: Vec<Attachment>) {
        for attachment in attachments {
            self.servers[attachment.core() as usize].attach(attachment);
        }
    }

    /// Lets a client go, as when its control stream ends.
    pub(super) fn detach(&mut self, client: u32) {
        for server in &mut self.servers {
            if let Some(attachment) = server.detach(client) {
                self.acceptor.release(attachment, self.now_ns);
            }
        }
    }

    /// Lets each core poll once. Returns what they did.
    pub(super) fn poll(&mut self, budget: usize) -> usize {
        self.now_ns += 1000;
        let (now_ns, now_s) = (self.now_ns, self.now_s);
        let cores = self.servers.iter_mut().zip(&mut self.partitions);
        cores
            .map(|(server, partition)| server.poll(partition, now_ns, now_s, budget))
            .sum()
    }
}

/// The client's objects for one core.
struct Core {
    uc: QueuePair<Uc>,
    ud: QueuePair<Ud>,
    /// The id of the next request that keeps to the rules.
    next: u32,
}

/// A client that writes what it likes.
pub(super) struct Raw {
    pub(super) accept: Accept,
    cores: Vec<Core>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

/// Objects that wait for the server's consent.
pub(super) struct Offer {
    cores: Vec<Core>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pub(super) connect: Connect,
}

impl Offer {
    pub(super) fn new(machine: &Machine, window: u32) -> Offer {
        let pd = &machine.clients_pd;
        let cq = pd.context().create_cq(1024).expect("a queue");
        let memory = pd
            .allocate(RECV_LEN * RECVS, Access::LOCAL_WRITE)
            .expect("memory");
        let cores: Vec<Core> = (0..machine.config.cores)
            .map(|core| {
                let uc = pd
                    .create_qp::<Uc>(&QpOptions::on(&cq))
                    .expect("a queue pair");
                let mut ud = pd
                    .create_qp::<Ud>(&QpOptions::on(&cq))
                    .expect("a queue pair");
                ud.activate(QKEY).expect("it is fresh");
                let recvs =
                    (0..RECVS).filter(|recv| recv % machine.config.cores as usize == core as usize);
                for recv in recvs {
                    post(&mut ud, &memory, recv);
                }
                Core { uc, ud, next: 0 }
            })
            .collect();
        let connect = Connect {
            incarnation: machine.config.incarnation,
            window,
            gid: pd.context().gid().expect("an address"),
            cores: cores
                .iter()
                .map(|core| ConnectCore {
                    uc: core.uc.endpoint().expect("an endpoint"),
                    ud_qpn: core.ud.num(),
                    qkey: QKEY,
                })
                .collect(),
        };
        Offer {
            cores,
            cq,
            memory,
            connect,
        }
    }

    /// What the server's answer makes of it; nothing after a refusal.
    pub(super) fn accepted(mut self, answer: &str) -> Option<Raw> {
        let Ok(Message::Accept(accept)) = Message::from_line(answer.as_bytes()) else {
            return None;
        };
        for (core, peer) in self.cores.iter_mut().zip(&accept.cores) {
            let connected = core.uc.connect(&peer.uc, &ConnectOptions::default());
            connected.expect("the server's queue pair is there");
            core.next = accept.first_id;
        }
        Some(Raw {
            accept,
            cores: self.cores,
            cq: self.cq,
            memory: self.memory,
        })
    }
}

fn post(ud: &mut QueuePair<Ud>, memory: &MemoryRegion, recv: usize) {
    let sges = [memory.sge(recv * RECV_LEN..(recv + 1) * RECV_LEN)];
    let id = recv as u64;
    ud.post_recv(&[RecvWr { id, sges: &sges }])
        .expect("there is room");
}

impl Raw {
    /// Connects as the rules say; nothing when the server is full.
    pub(super) fn connect(machine: &mut Machine, window: u32) -> Option<Raw> {
        let offer = Offer::new(machine, window);
        let line = Message::Connect(offer.connect.clone()).to_line();
        let reply = machine.acceptor.answer(line.as_bytes(), machine.now_ns);
        let raw = offer.accepted(&reply.line);
        if let Some((_, attachments)) = reply.attached {
            machine.attach(attachments);
        }
        raw
    }

    /// Bytes of the client's slots on a core.
    pub(super) fn chunk_len(&self) -> u64 {
        u64::from(self.accept.window) * u64::from(self.accept.stride)
    }

    /// The id of the next request to a core that keeps to the rules.
    pub(super) fn next(&mut self, core: usize) -> &mut u32 {
        &mut self.cores[core].next
    }

    /// Where the slot of an id ends.
    pub(super) fn slot_end(&self, id: u32) -> u64 {
        u64::from(id % self.accept.window) * u64::from(self.accept.stride)
            + u64::from(self.accept.slot_len)
    }

    /// Writes bytes so that they end at `end` of the chunk, the last ones last. The NIC refuses what
    /// lies outside.
    pub(super) fn write(&mut self, core: usize, end: u64, bytes: &[u8], imm: Option<u32>) {
        let chunk = self.accept.cores[core].chunk;
        let mut at = end.wrapping_sub(bytes.len() as u64);
        let mut pieces = bytes.chunks(PIECE_LEN).peekable();
        let mut requests = Vec::new();
        while let Some(piece) = pieces.next() {
            let request = Wr::write_inline(piece, chunk.offset(at));
            requests.push(match imm {
                Some(imm) if pieces.peek().is_none() => request.imm(imm),
                _ => request,
            });
            at = at.wrapping_add(piece.len() as u64);
        }
        if let (true, Some(imm)) = (bytes.is_empty(), imm) {
            requests.push(Wr::write_inline(&[], chunk).imm(imm));
        }
        for request in requests {
            // A queue that has failed, or is full, takes no more: the client's own trouble.
            let _ = self.cores[core].uc.post_send(&[request]);
            self.drain(&mut |_, _| {});
        }
    }

    /// Kicks as a repeat does.
    pub(super) fn kick(&mut self, core: usize, id: u32) {
        self.write(core, 0, &[], Some(kick(id, true)));
    }

    /// Takes what has come, and posts the RECVs again.
    pub(super) fn drain(&mut self, sink: &mut dyn FnMut(Head, &[u8])) {
        let mut completions = [Wc::default(); 16];
        while let Ok(count @ 1..) = self.cq.poll(&mut completions) {
            for completion in &completions[..count] {
                let core = self
                    .cores
                    .iter_mut()
                    .find(|core| core.ud.num() == completion.qpn);
                let Some(core) = core.filter(|_| completion.is_ok()) else {
                    continue;
                };
                let recv = completion.id as usize;
                let mut bytes = vec![0; completion.byte_len as usize - GRH_LEN];
                self.memory.read(recv * RECV_LEN + GRH_LEN, &mut bytes);
                let (head, body) = Head::parse(&bytes).expect("a server sends answers");
                sink(head, body);
                post(&mut core.ud, &self.memory, recv);
            }
        }
    }
}
