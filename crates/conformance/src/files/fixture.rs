//! What a case runs on: a file system, its clock, and a way to run futures to their end.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use files::{
    Answer, Attributes, Caller, CreateHow, Error, Event, FileSystem, Handle, Mode, Name, New,
    Range, ReadDone, Request, SetAttributes, Stability, Timestamp, VolumeId, WriteDone,
};

/// How often a future that waits is polled before the case gives it up.
const POLLS_MAX: u32 = 1_000_000;

/// The time that a file system is to go by: the case sets it.
#[derive(Clone, Debug, Default)]
pub struct Clock(Rc<Cell<Timestamp>>);

impl Clock {
    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.get()
    }

    /// Lets a second pass.
    pub fn advance(&self) {
        let mut now = self.0.get();
        now.seconds += 1;
        self.0.set(now);
    }
}

/// Runs a future to its end where the file system's tasks run.
type Runner = Box<dyn Fn(Pin<Box<dyn Future<Output = ()> + '_>>)>;

/// A file system that is empty: volume 1 without a quota, volume 2 with room for 16 objects (its root
/// among them) and 1 MiB.
pub struct Fixture {
    fs: Rc<dyn FileSystem>,
    clock: Clock,
    runner: Runner,
}

impl Fixture {
    /// The volume of most cases.
    pub const VOLUME: VolumeId = VolumeId(1);
    /// The volume with a quota.
    pub const SMALL: VolumeId = VolumeId(2);
    /// Objects that the small volume has room for, with the root.
    pub const SMALL_FILES: u64 = 16;
    /// Bytes that it has room for.
    pub const SMALL_BYTES: u64 = 1 << 20;

    /// A file system that goes by the clock. `turn` lets its tasks run on; it is called between the
    /// polls of a future that waits.
    pub fn new(fs: Rc<dyn FileSystem>, clock: Clock, turn: impl Fn() + 'static) -> Self {
        Self::run_by(fs, clock, move |mut future| {
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..POLLS_MAX {
                if future.as_mut().poll(&mut context).is_ready() {
                    return;
                }
                turn();
            }
            panic!("what was asked is not answered");
        })
    }

    /// The same where futures have to be polled by something else, such as a core's task.
    pub fn run_by(
        fs: Rc<dyn FileSystem>,
        clock: Clock,
        runner: impl Fn(Pin<Box<dyn Future<Output = ()> + '_>>) + 'static,
    ) -> Self {
        clock.advance();
        let runner = Box::new(runner);
        Self { fs, clock, runner }
    }

    /// The file system.
    #[must_use]
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Its time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The root of the volume of most cases.
    #[must_use]
    pub fn root(&self) -> Handle {
        Handle::root(Self::VOLUME)
    }

    /// Runs a future to its end.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut done = None;
        (self.runner)(Box::pin(async { done = Some(future.await) }));
        done.expect("the runner runs to the end")
    }

    /// Asks, a second after everything before.
    ///
    /// # Errors
    /// The file system's.
    pub fn call(&self, caller: &Caller, request: Request) -> Result<Answer, Error> {
        self.clock.advance();
        self.run(self.fs.call(caller, request))
    }

    /// Reads.
    ///
    /// # Errors
    /// The file system's.
    pub fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        len: u64,
    ) -> Result<(Vec<u8>, ReadDone), Error> {
        self.clock.advance();
        let mut out = b"before".to_vec();
        let range = Range { offset, len };
        let done = self.run(self.fs.read(caller, file, range, &mut out))?;
        assert_eq!(out.len(), 6 + done.len, "what is read is appended, as told");
        assert_eq!(&out[..6], b"before", "what was there stays");
        Ok((out.split_off(6), done))
    }

    /// Writes.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        data: &[u8],
    ) -> Result<WriteDone, Error> {
        self.clock.advance();
        let stability = Stability::FileSync;
        self.run(self.fs.write(caller, file, offset, data, stability))
    }

    /// What the file system has to tell by now.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        self.run(async {
            let mut event = pin!(self.fs.event());
            std::future::poll_fn(|context| match event.as_mut().poll(context) {
                Poll::Ready(event) => Poll::Ready(Some(event)),
                Poll::Pending => Poll::Ready(None),
            })
            .await
        })
    }

    /// An object's attributes.
    #[track_caller]
    #[must_use]
    pub fn stat(&self, object: Handle) -> Attributes {
        match self.call(&Caller::ROOT, Request::GetAttributes(object)) {
            Ok(Answer::Attributes(attributes)) => attributes,
            other => panic!("attributes of {object:?}: {other:?}"),
        }
    }

    /// A new file with a mode.
    #[track_caller]
    pub fn file(&self, caller: &Caller, directory: Handle, name: &str, mode: u32) -> Handle {
        let request = create_file(directory, name, CreateHow::Guarded, mode);
        created(self.call(caller, request)).0
    }

    /// A new directory with a mode.
    #[track_caller]
    pub fn directory(&self, caller: &Caller, directory: Handle, name: &str, mode: u32) -> Handle {
        let request = create(directory, name, New::Directory, mode);
        created(self.call(caller, request)).0
    }

    /// What a name leads to.
    ///
    /// # Errors
    /// The file system's.
    pub fn look(&self, directory: Handle, at: &str) -> Result<Handle, Error> {
        match self.call(&Caller::ROOT, Request::Lookup(directory, name(at)))? {
            Answer::Found(handle, _) => Ok(handle),
            other => panic!("an answer to another request: {other:?}"),
        }
    }

    /// Changes a mode.
    #[track_caller]
    pub fn chmod(&self, object: Handle, mode: u32) {
        let set = SetAttributes {
            mode: Some(Mode::new(mode)),
            ..SetAttributes::default()
        };
        let request = Request::SetAttributes(object, set);
        self.call(&Caller::ROOT, request).expect("chmod by root");
    }
}

/// A name.
#[must_use]
pub fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

/// A request for a file with a mode.
#[must_use]
pub fn create_file(directory: Handle, at: &str, how: CreateHow, mode: u32) -> Request {
    Request::CreateFile {
        directory,
        name: name(at),
        how,
        attributes: with_mode(mode),
    }
}

/// A request for another object with a mode.
#[must_use]
pub fn create(directory: Handle, at: &str, new: New, mode: u32) -> Request {
    Request::Create {
        directory,
        name: name(at),
        new,
        attributes: with_mode(mode),
    }
}

/// A request to remove a name, whatever it leads to.
#[must_use]
pub fn remove(directory: Handle, at: &str) -> Request {
    Request::Remove {
        directory,
        name: name(at),
        directory_only: None,
    }
}

/// A request to rename.
#[must_use]
pub fn rename(from: Handle, from_name: &str, to: Handle, to_name: &str) -> Request {
    Request::Rename {
        from,
        from_name: name(from_name),
        to,
        to_name: name(to_name),
    }
}

/// A request for one more name.
#[must_use]
pub fn link(object: Handle, directory: Handle, at: &str) -> Request {
    Request::Link {
        object,
        directory,
        name: name(at),
    }
}

/// A mode and nothing else.
#[must_use]
pub fn with_mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(Mode::new(mode)),
        ..SetAttributes::default()
    }
}

/// A size and nothing else.
#[must_use]
pub fn with_size(size: u64) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    }
}

/// What a creation answers: the object, whether it is new.
#[track_caller]
#[must_use]
pub fn created(answer: Result<Answer, Error>) -> (Handle, bool) {
    match answer {
        Ok(Answer::Created { handle, is_new, .. }) => (handle, is_new),
        other => panic!("a creation answers {other:?}"),
    }
}
