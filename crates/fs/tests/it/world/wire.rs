//! A client's connection: compounds there, results back, one at a time.

use nfs::compound::{CompoundCall, CompoundResults};
use nfs::rpc::{self, AuthSys, Call, Credential, Message, Outcome, Records};
use nfs::wire::*;
use nfs::xdr::{Decoder, Encoder};
use rt::net::{Addr, Stream};

/// Bytes of an answer at most.
const ANSWER_MAX: usize = 4 << 20;

/// A compound's results.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) status: Nfsstat4,
    bytes: Vec<u8>,
}

impl Done {
    /// The results, SEQUENCE's among them.
    pub(crate) fn results(&self) -> Vec<NfsResop4<'_>> {
        let results = CompoundResults::take(Decoder::new(&self.bytes)).expect("results");
        results
            .map(|result| result.expect("a result that can be read"))
            .collect()
    }

    /// The last result.
    pub(crate) fn last(&self) -> NfsResop4<'_> {
        self.results().pop().expect("a result at least")
    }

    /// Whether SEQUENCE itself was refused, which leaves the slot as it was.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(
            self.results().first(),
            Some(NfsResop4::Sequence(Err(_))) | None
        )
    }

    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, Nfsstat4::NFS4_OK, "{self:?}");
        self
    }
}

/// A connection.
pub(crate) struct Wire {
    stream: Stream,
    records: Records,
    xid: u32,
}

impl Wire {
    pub(crate) async fn connect(core: &rt::Handle, addr: &Addr) -> std::io::Result<Self> {
        Ok(Self {
            stream: Stream::connect(core, addr).await?,
            records: Records::new(ANSWER_MAX),
            xid: 0,
        })
    }

    /// Asks; none: the connection has ended, and whether the request was carried out is open.
    pub(crate) async fn call(&mut self, minor: u32, operations: &[NfsArgop4<'_>]) -> Option<Done> {
        let xid = self.ask(minor, operations).await?;
        self.answer(xid).await
    }

    /// Sends a compound; returns its number.
    pub(crate) async fn ask(&mut self, minor: u32, operations: &[NfsArgop4<'_>]) -> Option<u32> {
        self.xid += 1;
        let xid = self.xid;
        let mut out = Encoder::default();
        rpc::put_record(&mut out, |out| {
            let procedure = (rpc::NFS_PROGRAM, rpc::NFS_VERSION, rpc::PROC_COMPOUND);
            let user = Credential::Sys(AuthSys::default());
            Call::put(out, xid, procedure, &user);
            let mut call = CompoundCall::begin(out, "".into(), minor);
            for operation in operations {
                call.operation(out, operation);
            }
            call.finish(out);
        });
        let (sent, _) = self.stream.send_all(out.into_bytes()).await;
        sent.ok().map(|()| xid)
    }

    /// Waits for the answer to a compound.
    pub(crate) async fn answer(&mut self, xid: u32) -> Option<Done> {
        self.answers(&[xid]).await.pop().flatten()
    }

    /// Waits for the answers to compounds, in whatever order they come: those that came before the connection
    /// has ended.
    pub(crate) async fn answers(&mut self, xids: &[u32]) -> Vec<Option<Done>> {
        let mut all = vec![None; xids.len()];
        while all.iter().any(Option::is_none) {
            let Some((xid, done)) = self.next_answer().await else {
                break;
            };
            if let Some(at) = xids.iter().position(|one| *one == xid) {
                all[at] = Some(done);
            }
        }
        all
    }

    /// The next answer, and to which compound; none: the connection has ended.
    async fn next_answer(&mut self) -> Option<(u32, Done)> {
        loop {
            if let Some(record) = self.records.next_record().expect("a record") {
                let mut from = Decoder::new(record);
                let Message::Reply(reply) = Message::take(&mut from).expect("a message") else {
                    panic!("nobody is called back");
                };
                assert_eq!(reply.outcome, Outcome::Success);
                let bytes = from.rest().to_vec();
                let status = Decoder::new(&bytes).take().expect("a status");
                return Some((reply.xid, Done { status, bytes }));
            }
            let place = self.records.buffer();
            let mut buffer = std::mem::take(place);
            buffer.reserve(64 << 10);
            let (count, buffer) = self.stream.recv(buffer).await;
            *place = buffer;
            if !matches!(count, Ok(1..)) {
                return None;
            }
        }
    }
}
