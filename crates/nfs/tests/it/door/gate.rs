//! A file system whose answers can be held back, to have requests overtake each other.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use files::model::ModelFs;
use files::{
    Answer, Caller, Error, Event, FileSystem, Handle, Pending, Range, ReadDone, Request, Stability,
    WriteDone,
};
use rt::sync::Notify;

type Which = Rc<dyn Fn(&Request) -> bool>;

/// The model between two gates: a request that is chosen waits before it is carried out, or its answer
/// waits; or it fails.
#[derive(Default)]
pub(super) struct Gate {
    pub(super) model: ModelFs,
    which: RefCell<Option<Which>>,
    delayed: RefCell<Option<Which>>,
    waiting: Cell<usize>,
    begun: Notify,
    held: Cell<usize>,
    opened: Notify,
    failing: RefCell<Option<Which>>,
    fails: Cell<usize>,
    how: Cell<Option<Error>>,
    failed: Cell<usize>,
}

impl Gate {
    /// The answers to such requests wait from now on.
    pub(super) fn hold(&self, which: impl Fn(&Request) -> bool + 'static) {
        *self.which.borrow_mut() = Some(Rc::new(which));
    }

    /// Such requests wait from now on before they are carried out.
    pub(super) fn delay(&self, which: impl Fn(&Request) -> bool + 'static) {
        *self.delayed.borrow_mut() = Some(Rc::new(which));
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// All requests that wait are carried out, and none waits any more.
    pub(super) fn begin(&self) {
        *self.delayed.borrow_mut() = None;
        self.begun.notify_all();
    }

    /// How many answers wait.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// So many such requests fail from now on, and are not carried out.
    pub(super) fn fail(&self, times: usize, which: impl Fn(&Request) -> bool + 'static) {
        *self.failing.borrow_mut() = Some(Rc::new(which));
        self.fails.set(times);
        self.failed.set(0);
        self.how.set(None);
    }

    /// The same, with an error of its own.
    pub(super) fn fail_with(
        &self,
        times: usize,
        how: Error,
        which: impl Fn(&Request) -> bool + 'static,
    ) {
        self.fail(times, which);
        self.how.set(Some(how));
    }

    /// How many have failed.
    pub(super) fn failed(&self) -> usize {
        self.failed.get()
    }

    fn is_to_fail(&self, request: &Request) -> bool {
        let which = self.failing.borrow();
        let is_it = which.as_ref().is_some_and(|which| which(request));
        let fails = is_it && self.failed.get() < self.fails.get();
        self.failed.set(self.failed.get() + usize::from(fails));
        fails
    }

    /// All answers that wait go on, and none waits any more.
    pub(super) fn release(&self) {
        *self.which.borrow_mut() = None;
        self.opened.notify_all();
    }
}

impl FileSystem for Gate {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        request: Request,
    ) -> Pending<'a, Result<Answer, Error>> {
        Box::pin(async move {
            if self.is_to_fail(&request) {
                return Err(self.how.get().unwrap_or(Error::Io));
            }
            let delayed = self.delayed.borrow().clone();
            if delayed.is_some_and(|which| which(&request)) {
                self.waiting.set(self.waiting.get() + 1);
                self.begun.notified().await;
                self.waiting.set(self.waiting.get() - 1);
            }
            let which = self.which.borrow().clone();
            let is_held = which.is_some_and(|which| which(&request));
            let answer = self.model.call(caller, request).await;
            if is_held {
                self.held.set(self.held.get() + 1);
                self.opened.notified().await;
                self.held.set(self.held.get() - 1);
            }
            answer
        })
    }

    fn read<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        range: Range,
        out: &'a mut Vec<u8>,
    ) -> Pending<'a, Result<ReadDone, Error>> {
        self.model.read(caller, file, range, out)
    }

    fn write<'a>(
        &'a self,
        caller: &'a Caller,
        file: Handle,
        offset: u64,
        data: &'a [u8],
        stability: Stability,
    ) -> Pending<'a, Result<WriteDone, Error>> {
        self.model.write(caller, file, offset, data, stability)
    }

    fn event(&self) -> Pending<'_, Event> {
        self.model.event()
    }

    fn secret(&self) -> [u8; 32] {
        self.model.secret()
    }
}
