//! A client that keeps to no rules: it writes any bytes it likes into its slots.

use std::io::Write;

use cache::herd::local::LocalStream;
use cache::herd::slots::kick;
use cache::herd::wire::answer::Head;
use cache::herd::wire::handshake::{Accept, Connect, ConnectCore, Message, VERSION};
use std::io::Read;
use verbs::typed::{
    CompletionQueue, ConnectOptions, MemoryRegion, QpOptions, QueuePair, Uc, Ud, Wr,
};
use verbs::{Access, Qkey, QpNum, RecvWr, Wc};

use super::rig::Rig;

pub(crate) const QKEY: Qkey = Qkey(77);
const RECV_LEN: usize = 4096 + 40;

/// One core's worth of such a client.
pub(crate) struct Raw {
    pub(crate) accept: Accept,
    uc: QueuePair<Uc>,
    ud: QueuePair<Ud>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _line: LocalStream,
}

fn ask(line: &mut LocalStream, message: &Message) -> Message {
    line.write_all((message.to_line() + "\n").as_bytes())
        .unwrap();
    let mut answer = vec![0; 64 << 10];
    let len = line.read(&mut answer).unwrap();
    Message::from_line(&answer[..len]).unwrap()
}

impl Raw {
    /// Connects to the only core, with `recvs` RECVs posted.
    pub(crate) fn connect(rig: &Rig, recvs: usize) -> Raw {
        Raw::connect_for(rig, recvs, None)
    }

    /// The same, with the answers for another queue pair, which has this key.
    pub(crate) fn connect_for(rig: &Rig, recvs: usize, answers_to: Option<(QpNum, Qkey)>) -> Raw {
        let pd = rig.client_pd();
        let context = pd.context().clone();
        let mut line = (rig.dial())().unwrap();
        let Message::Info(info) = ask(&mut line, &Message::Hello(VERSION, VERSION)) else {
            panic!("no INFO");
        };
        assert_eq!(info.cores, 1);
        let cq = context.create_cq(1024).unwrap();
        let mut uc = pd.create_qp::<Uc>(&QpOptions::on(&cq)).unwrap();
        let mut ud = pd.create_qp::<Ud>(&QpOptions::on(&cq)).unwrap();
        ud.activate(QKEY).unwrap();
        let memory = pd
            .allocate(RECV_LEN * recvs.max(1), Access::LOCAL_WRITE)
            .unwrap();
        for recv in 0..recvs {
            let sges = [memory.sge(recv * RECV_LEN..(recv + 1) * RECV_LEN)];
            let id = recv as u64;
            ud.post_recv(&[RecvWr { id, sges: &sges }]).unwrap();
        }
        let (ud_qpn, qkey) = answers_to.unwrap_or((ud.num(), QKEY));
        let connect = Message::Connect(Connect {
            incarnation: info.incarnation,
            window: info.window_max,
            gid: context.gid().unwrap(),
            cores: vec![ConnectCore {
                uc: uc.endpoint().unwrap(),
                ud_qpn,
                qkey,
            }],
        });
        let Message::Accept(accept) = ask(&mut line, &connect) else {
            panic!("no ACCEPT");
        };
        let core = accept.cores[0];
        uc.connect(&core.uc, &ConnectOptions::default()).unwrap();
        Raw {
            accept,
            uc,
            ud,
            cq,
            memory,
            _line: line,
        }
    }

    /// Writes bytes to the end of the slot of `id`, in pieces of what can be inlined, the last
    /// bytes last.
    pub(crate) fn write(&mut self, id: u32, bytes: &[u8], kick: Option<u32>) {
        let slot = u64::from(id % self.accept.window);
        let end = slot * u64::from(self.accept.stride) + u64::from(self.accept.slot_len);
        let mut at = end - bytes.len() as u64;
        let mut pieces = bytes.chunks(200).peekable();
        while let Some(piece) = pieces.next() {
            let request = Wr::write_inline(piece, self.accept.cores[0].chunk.offset(at));
            let request = match kick {
                Some(imm) if pieces.peek().is_none() => request.imm(imm),
                _ => request,
            };
            self.uc.post_send(&[request]).unwrap();
            at += piece.len() as u64;
        }
    }

    /// Kicks without writing anything.
    pub(crate) fn kick_only(&mut self, id: u32) {
        let chunk = self.accept.cores[0].chunk;
        self.uc
            .post_send(&[Wr::write_inline(&[], chunk).imm(kick(id, true))])
            .unwrap();
    }

    /// The heads of the answers that have come. RECVs are not posted again.
    pub(crate) fn answers(&mut self) -> Vec<Head> {
        let answers = self.answers_with_bodies();
        answers.into_iter().map(|(head, _)| head).collect()
    }

    /// The answers that have come, each with its body.
    pub(crate) fn answers_with_bodies(&mut self) -> Vec<(Head, Vec<u8>)> {
        let mut answers = Vec::new();
        let mut completions = [Wc::default(); 16];
        loop {
            let count = self.cq.poll(&mut completions).unwrap();
            if count == 0 {
                return answers;
            }
            for completion in &completions[..count] {
                assert!(completion.is_ok());
                if completion.qpn != self.ud.num() {
                    continue;
                }
                let mut bytes = vec![0; completion.byte_len as usize - 40];
                self.memory
                    .read(completion.id as usize * RECV_LEN + 40, &mut bytes);
                let (head, body) = Head::parse(&bytes).expect("an answer");
                answers.push((head, body.to_vec()));
            }
        }
    }
}
