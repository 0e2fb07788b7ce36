//! What doors ask of it.

use filelayer::{Fid, Stability as Durability};
use files::{
    Answer, Caller, Error, Event, FileSystem, Handle, Pending, Range, ReadDone, Request, Stability,
    WriteDone,
};
use index::Written;

use crate::Local;
use crate::blocks::{mark, of_data};

impl FileSystem for Local {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>> {
        self.inner.index.call(caller, request)
    }

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        out: &'a mut Vec<u8>,
    ) -> Pending<'a, Result<ReadDone, Error>> {
        Box::pin(async move {
            let begin = out.len();
            let plan = self.inner.index.begin_read(caller, file, range).await?;
            for piece in &plan.pieces {
                let Some(span) = piece.span else {
                    out.resize(out.len() + piece.len as usize, 0);
                    continue;
                };
                let unit = &self.inner.blocks.unit;
                let read = unit.read(Fid(span.block.0), span.from, span.len, out).await;
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
            let range = Range {
                offset,
                len: data.len() as u64,
            };
            let durability = match stability {
                Stability::Unstable => Durability::Unstable,
                Stability::DataSync | Stability::FileSync => Durability::Stable,
            };
            let plan = self.inner.index.begin_write(caller, file, range).await?;
            let unit = &self.inner.blocks.unit;
            let (mut rest, mut grown, mut len) = (data, 0, 0);
            let mut verifier = None;
            let mut failed = None;
            for piece in &plan.pieces {
                let (part, after) = rest.split_at(piece.len as usize);
                rest = after;
                let Some(span) = piece.span else {
                    failed = Some(Error::Io);
                    break;
                };
                let fid = Fid(span.block.0);
                let growing = self.inner.growth.begin(fid, u64::from(unit.used(fid)));
                let done = unit
                    .write(fid, span.from, part, mark(plan.mark), durability)
                    .await;
                grown += growing.grown(u64::from(unit.used(fid)));
                match done {
                    Ok(done) => verifier = Some(done.verifier),
                    Err(error) => {
                        failed = Some(of_data(error));
                        break;
                    }
                }
                len += part.len();
            }
            plan.end(Written {
                len: len as u64,
                grown,
            });
            match (failed, verifier) {
                // What was written so far counts.
                (Some(error), _) if len == 0 => Err(error),
                (_, Some(verifier)) => Ok(WriteDone {
                    len,
                    verifier: verifier.to_be_bytes(),
                }),
                _ => {
                    // Nothing to write: the verifier alone.
                    let done = unit.commit(&[]).await.map_err(of_data)?;
                    Ok(WriteDone {
                        len,
                        verifier: done.verifier.to_be_bytes(),
                    })
                }
            }
        })
    }

    fn event(&self) -> Pending<'_, Event> {
        Box::pin(self.inner.index.event())
    }

    fn secret(&self) -> [u8; 32] {
        self.inner.index.secret()
    }
}
