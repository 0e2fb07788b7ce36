//! A file system that is wrong: it loses one write of a few.

use std::cell::Cell;
use std::rc::Rc;

use conformance::files::{Clock, Fixture};
use files::model::ModelFs;
use files::{
    Answer, Caller, Error, Event, FileSystem, Handle, Pending, Range, ReadDone, Request, Stability,
    WriteDone,
};

struct Forgetful {
    fs: ModelFs,
    writes: Cell<u32>,
}

/// One with a clock of its own.
pub(super) fn fixture() -> Fixture {
    let clock = Clock::default();
    let time = clock.clone();
    let fs = ModelFs::with_clock(move || time.now());
    let writes = Cell::new(0);
    Fixture::new(Rc::new(Forgetful { fs, writes }), clock, || {})
}

impl FileSystem for Forgetful {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>> {
        self.fs.call(caller, request)
    }

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        out: &'a mut Vec<u8>,
    ) -> Pending<'a, Result<ReadDone, Error>> {
        self.fs.read(caller, file, range, out)
    }

    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        offset: u64,
        data: &'a [u8],
        stability: Stability,
    ) -> Pending<'a, Result<WriteDone, Error>> {
        self.writes.set(self.writes.get() + 1);
        let is_lost = self.writes.get().is_multiple_of(3);
        let kept = if is_lost { &data[..0] } else { data };
        Box::pin(async move {
            let done = self.fs.write(caller, file, offset, kept, stability).await?;
            let len = data.len();
            Ok(WriteDone { len, ..done })
        })
    }

    fn event(&self) -> Pending<'_, Event> {
        self.fs.event()
    }

    fn secret(&self) -> [u8; 32] {
        self.fs.secret()
    }
}
