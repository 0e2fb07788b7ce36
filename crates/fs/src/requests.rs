//! What doors ask of it.

use std::future::{pending, ready};

use filelayer::{Fid, Stability as Durability};
use files::waits::{Wait, waiting};
use files::{
    Answer, Caller, Error, Event, FileSystem, Handle, Pending, Range, ReadDone, Request, Stability,
    WriteDone,
};
use index::{WritePlan, Written};

use crate::Local;
use crate::blocks::{mark, of_data};
use crate::gate::Pass;
use crate::local::Inner;

impl Inner {
    /// Lets a request in, and takes note that there was one.
    fn begin_request(&self) -> Option<Pass> {
        self.asked_at.set(self.core.now());
        self.gate.enter()
    }
}

impl FileSystem for Local {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>> {
        match self.inner.begin_request() {
            // What goes on when this future is dropped is at work as long.
            Some(pass) => self.inner.index.call_with(caller, request, pass),
            // It may be the repeat of one that was carried out before a restart, whose answer is kept: who is told to come
            // again asks for something new. It comes again when the connection ends with the process.
            None if caller.once.is_some() && request.is_durable_change() => Box::pin(pending()),
            None => Box::pin(ready(Err(Error::Delay))),
        }
    }

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        out: &'a mut Vec<u8>,
    ) -> Pending<'a, Result<ReadDone, Error>> {
        Box::pin(async move {
            let _pass = self.inner.begin_request().ok_or(Error::Delay)?;
            let begin = out.len();
            let plan = self.inner.index.begin_read(caller, file, range).await?;
            for piece in &plan.pieces {
                let Some(span) = piece.span else {
                    out.resize(out.len() + piece.len as usize, 0);
                    continue;
                };
                let unit = &self.inner.blocks.unit;
                let read = unit.read(Fid(span.block.0), span.from, span.len, out);
                let read = waiting(Wait::Read, read).await;
                if let Err(error) = read {
                    out.truncate(begin);
                    return Err(of_data(error));
                }
            }
            Ok(ReadDone {
                len: out.len() - begin,
                is_end: plan.is_end,
            })
        })
    }

    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        offset: u64,
        data: &'a [u8],
        stability: Stability,
    ) -> Pending<'a, Result<WriteDone, Error>> {
        Box::pin(async move {
            let pass = self.inner.begin_request().ok_or(Error::Delay)?;
            let range = Range {
                offset,
                len: data.len() as u64,
            };
            let durability = match stability {
                Stability::Unstable => Durability::Unstable,
                Stability::DataSync | Stability::FileSync => Durability::Stable,
            };
            let index = &self.inner.index;
            let plan = index.begin_write_with(caller, file, range, pass.clone());
            let plan = plan.await?;
            let stored = self.store(&plan, data, durability).await;
            plan.end(Written {
                len: stored.len as u64,
                grown: stored.grown,
                is_whole: stored.failed.is_none(),
            });
            let verifier = match (stored.failed, stored.verifier) {
                // What was written so far counts.
                (Some(error), _) if stored.len == 0 => return Err(error),
                (_, Some(verifier)) => verifier,
                // Nothing to write: the verifier alone.
                (_, None) => {
                    let done = self.inner.blocks.unit.commit(&[]).await;
                    done.map_err(of_data)?.verifier
                }
            };
            Ok(WriteDone {
                len: stored.len,
                verifier: verifier.to_be_bytes(),
            })
        })
    }

    fn event(&self) -> Pending<'_, Event> {
        Box::pin(self.inner.index.event())
    }

    fn secret(&self) -> [u8; 32] {
        self.inner.index.secret()
    }
}

/// What was stored of a write.
#[derive(Default)]
struct Stored {
    len: usize,
    grown: u64,
    /// The first piece's: what is lost later, a commit tells by another one.
    verifier: Option<u64>,
    /// Why it is not all.
    failed: Option<Error>,
}

impl Local {
    /// Stores a write's data, piece by piece, until one fails.
    async fn store(&self, plan: &WritePlan, data: &[u8], durability: Durability) -> Stored {
        let unit = &self.inner.blocks.unit;
        let (mut rest, mut stored) = (data, Stored::default());
        for piece in &plan.pieces {
            let (part, after) = rest.split_at(piece.len as usize);
            rest = after;
            let Some(span) = piece.span else {
                stored.failed = Some(Error::Io);
                break;
            };
            let fid = Fid(span.block.0);
            let growing = self.inner.growth.begin(fid, u64::from(unit.used(fid)));
            let mark = mark(plan.mark_of(piece));
            let done = unit.write(fid, span.from, part, mark, durability);
            let done = waiting(Wait::Write, done).await;
            stored.grown += growing.grown(u64::from(unit.used(fid)));
            match done {
                Ok(done) => stored.verifier = stored.verifier.or(Some(done.verifier)),
                Err(error) => {
                    stored.failed = Some(of_data(error));
                    break;
                }
            }
            stored.len += part.len();
        }
        stored
    }
}
