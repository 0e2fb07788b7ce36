//! What only the model can be made to do: restarts, and events that somebody waits for. The rest is in
//! the conformance suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::{
    Answer, Caller, CreateHow, Delegation, Error, Event, FileSystem, Handle, Holder, Name, Request,
    SetAttributes, Share, Stability, VolumeId,
};

use super::ModelFs;

const HOLDER: Holder = Holder {
    client: 1,
    owner: 1,
};
const ROOT: Handle = Handle::root(VolumeId(1));

fn now<T>(mut future: crate::Pending<'_, T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the model waits for nothing but events"),
    }
}

fn ask(fs: &ModelFs, request: Request) -> Result<Answer, Error> {
    now(fs.call(&Caller::ROOT, request))
}

fn file(fs: &ModelFs, name: &str) -> Handle {
    let request = Request::CreateFile {
        directory: ROOT,
        name: Name::new(name).expect("a name"),
        how: CreateHow::Guarded,
        attributes: SetAttributes::default(),
    };
    match ask(fs, request) {
        Ok(Answer::Created { handle, .. }) => handle,
        other => panic!("a new file: {other:?}"),
    }
}

fn open(file: Handle, reclaim: bool) -> Request {
    Request::Open {
        file,
        holder: HOLDER,
        access: Share::READ,
        deny: Share::empty(),
        reclaim,
    }
}

fn remove(name: &str) -> Request {
    Request::Remove {
        directory: ROOT,
        name: Name::new(name).expect("a name"),
        directory_only: None,
    }
}

#[test]
fn what_was_open_can_be_claimed_during_the_grace_period() {
    let fs = ModelFs::new();
    let (claimed, other) = (file(&fs, "a"), file(&fs, "b"));
    let write = |caller: &Caller| {
        let write = fs.write(caller, claimed, 0, b"x", Stability::Unstable);
        now(write).map(|done| done.verifier)
    };
    let before = write(&Caller::ROOT).expect("nothing is in the way");
    ask(&fs, open(claimed, false)).expect("an open");
    for name in ["a", "b"] {
        ask(&fs, remove(name)).expect("a removal");
    }
    assert_eq!(ask(&fs, Request::GetAttributes(other)), Err(Error::Stale));

    fs.restart();
    assert_eq!(ask(&fs, open(claimed, false)), Err(Error::Grace));
    assert_eq!(write(&Caller::ROOT), Err(Error::Grace));
    let removed_now = file(&fs, "c");
    ask(&fs, remove("c")).expect("a removal");
    ask(&fs, Request::GetAttributes(removed_now)).expect("it may be claimed yet");
    ask(&fs, open(claimed, true)).expect("a claim");
    ask(&fs, Request::EndGrace).expect("the end");

    assert_eq!(ask(&fs, open(claimed, true)), Err(Error::NoGrace));
    assert_eq!(
        ask(&fs, Request::GetAttributes(removed_now)),
        Err(Error::Stale)
    );
    let after = write(&Caller::ROOT).expect("nothing is in the way");
    assert_ne!(before, after, "unstable writes may have been lost");
}

/// Counts how often it was woken.
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_for_an_event_is_woken_by_it() {
    let fs = ModelFs::new();
    let file = file(&fs, "a");
    let kind = Delegation::Write;
    let give = Request::Delegate {
        file,
        client: 2,
        kind,
        reclaim: false,
    };
    ask(&fs, give).expect("nobody is in the way");
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let mut event = fs.event();
    assert!(event.as_mut().poll(&mut context).is_pending());
    assert_eq!(ask(&fs, open(file, false)), Err(Error::Delay));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    let recall = Event::Recall {
        client: 2,
        file,
        kind,
    };
    assert_eq!(event.as_mut().poll(&mut context), Poll::Ready(recall));
}
