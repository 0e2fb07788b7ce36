//! What requests cost behind the door: device requests, commits, and the system calls of the core that serves.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;

use conformance::files::Clock;
use files::{Answer, Caller, FileSystem as _, Handle, Name, Range, Request};
use fs::{Figures, Local, LocalOptions};
use nfs::client::{Client, ClientError, Files, OpenFile, OpenHow, Options as OfClient};
use nfs::server::{Door, Export, Options, Squash};
use nfs::wire::*;
use nfs::xdr::Opaque;
use rt::cross::{OneshotSender, oneshot};
use rt::net::{Addr, ListenOptions, Listener};
use rt::{Config, Core, IdleMode};

use crate::rig;

/// Requests that are counted together: so few that no extent gets half full, upon which the next one is made.
const MANY: u64 = 16;
/// Bytes of a request.
const PAGE: usize = 4096;

/// Does something with a client and a file of some pages, on a core of its own.
type Work = Box<dyn AsyncWork + Send>;

/// An async closure that a box can hold.
trait AsyncWork {
    fn run(self: Box<Self>, core: &mut Core, client: &Client, file: &OpenFile);
}

impl<F: AsyncFnOnce(&Client, &OpenFile) -> Result<(), ClientError>> AsyncWork for F {
    fn run(self: Box<Self>, core: &mut Core, client: &Client, file: &OpenFile) {
        core.block_on((*self)(client, file)).expect("no error");
    }
}

/// A server on this thread, and a client on another one.
struct Pair {
    core: Core,
    fs: Local,
    work: Sender<(Work, OneshotSender<()>)>,
    _door: rt::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

/// What some requests have cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    reads: u64,
    writes: u64,
    flushes: u64,
    commits: u64,
    system_calls: u64,
}

impl Pair {
    fn new(cache_bytes: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        // Otherwise sleeping and waking are system calls of their own.
        config.idle = IdleMode::Poll;
        let mut core = Core::new(config).expect("a core");
        let clock = Clock::default();
        rig::make(&mut core, dir.path(), 3).expect("an empty directory");
        let mut options = LocalOptions::new(Rc::new(move || clock.now()), 7);
        options.cache_bytes = cache_bytes;
        options.grace = false;
        let handle = core.handle();
        let (fs, address, door) = core.block_on(async {
            let fs = Local::open(&handle, dir.path(), &options).await;
            let fs = fs.expect("it was made");
            let mut export = Export::new("/", Local::VOLUME);
            export.squash = Squash::None;
            let of_door = Options::new(vec![export]);
            let door = Door::open(&handle, Rc::new(fs.clone()), of_door).await;
            let any = Addr::Tcp(([127, 0, 0, 1], 0).into());
            let listener = Listener::bind(&handle, &any, ListenOptions::default());
            let listener = listener.expect("a free port");
            let Ok(Addr::Tcp(address)) = listener.local_addr() else {
                panic!("a TCP listener has a TCP address");
            };
            let door = handle.spawn(door.expect("a door").serve(listener));
            (fs, address, door)
        });
        let (work, works) = channel();
        std::thread::spawn(move || serve_client(address, works));
        let mut pair = Self {
            core,
            fs,
            work,
            _door: door,
            _dir: dir,
        };
        // The first write of a file takes a block and marks the file.
        pair.cost(async |_, file| {
            for page in 0..MANY {
                write(file, page).await?;
            }
            Ok(())
        });
        pair
    }

    /// Has the client do something, and says what it has cost the server.
    fn cost(
        &mut self,
        work: impl AsyncFnOnce(&Client, &OpenFile) -> Result<(), ClientError> + Send + 'static,
    ) -> Cost {
        let (done, waits) = oneshot();
        let before = self.counts();
        self.work.send((Box::new(work), done)).expect("a client");
        self.core.block_on(waits).expect("the client does not fail");
        let after = self.counts();
        let (Figures { rows, device, .. }, calls) = after;
        let (was, calls_before) = before;
        Cost {
            reads: device.reads - was.device.reads,
            writes: device.writes - was.device.writes,
            flushes: device.flushes - was.device.flushes,
            commits: rows.committed - was.rows.committed,
            system_calls: calls - calls_before,
        }
    }

    fn find(&mut self, name: &str) -> Handle {
        let name = Name::new(name).expect("a name");
        let request = Request::Lookup(Handle::root(Local::VOLUME), name);
        match self.core.block_on(self.fs.call(&Caller::ROOT, request)) {
            Ok(Answer::Found(handle, _)) => handle,
            other => panic!("{other:?}"),
        }
    }

    fn counts(&mut self) -> (Figures, u64) {
        let figures = self.core.block_on(self.fs.figures()).expect("figures");
        (figures, self.core.handle().monitor().system_calls())
    }
}

fn serve_client(address: SocketAddr, works: Receiver<(Work, OneshotSender<()>)>) {
    let mut core = Core::new(Config::default()).expect("a core");
    let handle = core.handle();
    let (client, file) = core.block_on(async {
        let mut options = OfClient::new("costs", 1);
        options.slots = 16;
        let client = Client::connect(&handle, &Addr::Tcp(address), options).await;
        let client = client.expect("a server");
        let file = open(&client, "file").await.expect("a file");
        (client, file)
    });
    for (work, done) in works {
        work.run(&mut core, &client, &file);
        done.send(());
    }
}

async fn open(client: &Client, name: &str) -> Result<OpenFile, ClientError> {
    let how = OpenHow {
        owner: b"costs",
        read: true,
        write: true,
        create: Some(0o644),
    };
    let root = Files::new(client.clone()).find("/").await?;
    OpenFile::open(client, &root.handle, name, &how).await
}

async fn write(file: &OpenFile, page: u64) -> Result<(), ClientError> {
    let data = [page as u8; PAGE];
    let written = file.write_at(page * PAGE as u64, &data, StableHow4::FILE_SYNC4);
    assert_eq!(written.await?.0, PAGE);
    Ok(())
}

async fn read_all(file: &OpenFile) -> Result<(), ClientError> {
    for page in 0..MANY {
        let is_right = async |bytes: &[u8]| {
            assert_eq!(bytes, [page as u8; PAGE]);
            Ok::<(), ClientError>(())
        };
        let offset = page * PAGE as u64;
        file.read_at(offset, PAGE as u32, is_right).await?;
    }
    Ok(())
}

#[test]
fn a_stable_overwrite_is_one_write_of_the_device_and_no_commit() {
    let mut pair = Pair::new(1 << 20);
    let cost = pair.cost(async |_, file| {
        for page in 0..MANY {
            write(file, page).await?;
        }
        Ok(())
    });
    assert_eq!((cost.writes, cost.commits), (MANY, 0), "{cost:?}");
    assert_eq!((cost.reads, cost.flushes), (0, 0), "{cost:?}");
}

#[test]
fn of_writes_that_come_together_the_device_has_the_first_before_the_last_are_looked_at() {
    let mut pair = Pair::new(1 << 20);
    let cost = pair.cost(async |_, file| {
        let mut writes: Vec<_> = (0..MANY).map(|page| Box::pin(write(file, page))).collect();
        // All of them are sent together.
        for write in &mut writes {
            let polled = poll_fn(|context| Poll::Ready(write.as_mut().poll(context)));
            assert!(polled.await.is_pending());
        }
        for write in writes {
            write.await?;
        }
        Ok(())
    });
    assert!(cost.writes > 1, "{cost:?}");
    assert_eq!(cost.commits, 0, "{cost:?}");
}

#[test]
fn a_read_that_is_cached_asks_the_device_for_nothing_and_another_for_one_read() {
    let mut pair = Pair::new(1 << 20);
    let cached = pair.cost(async |_, file| read_all(file).await);
    assert_eq!((cached.reads, cached.commits), (0, 0), "{cached:?}");
    let mut pair = Pair::new(0);
    let cold = pair.cost(async |_, file| read_all(file).await);
    assert_eq!((cold.reads, cold.commits), (MANY, 0), "{cold:?}");
    assert_eq!((cold.writes, cold.flushes), (0, 0), "{cold:?}");
}

#[test]
fn a_create_is_one_commit_and_a_close_is_none() {
    let mut pair = Pair::new(1 << 20);
    let cost = pair.cost(async |client, _| {
        for number in 0..MANY {
            let made = open(client, &format!("{number}")).await?;
            made.close().await?;
        }
        Ok(())
    });
    assert_eq!((cost.commits, cost.writes), (MANY, 0), "{cost:?}");
}

#[test]
fn attributes_cost_the_core_three_system_calls() {
    let mut pair = Pair::new(1 << 20);
    let cost = pair.cost(async |client, file| {
        for _ in 0..MANY {
            let operations = [
                NfsArgop4::Putfh(Putfh4Args {
                    object: Opaque(file.handle()),
                }),
                NfsArgop4::Getattr(Getattr4Args {
                    attr_request: Bitmap4::of(&[FATTR4_SIZE, FATTR4_MODE]),
                }),
            ];
            client.call(&operations).await?.ok()?;
        }
        Ok(())
    });
    assert_eq!((cost.commits, cost.reads, cost.writes), (0, 0, 0));
    // One that finds what was received, one that sends, and one that finds that it was sent.
    assert!(cost.system_calls <= 3 * MANY, "{cost:?}");
}

#[test]
fn a_clone_is_two_commits_and_one_write_of_the_device() {
    let mut pair = Pair::new(1 << 20);
    pair.cost(async |client, _| open(client, "clone").await?.close().await);
    let [from, to] = ["file", "clone"].map(|name| pair.find(name));
    let (before, _) = pair.counts();
    let request = Request::Clone {
        from,
        range: Range { offset: 0, len: 0 },
        to,
        offset: 0,
    };
    // The client here speaks 4.1, which has no CLONE.
    let caller = Caller::ROOT;
    let call = pair.fs.call(&caller, request);
    pair.core.block_on(call).expect("there is room");
    let (after, _) = pair.counts();
    // The new block's number, and the block in its place; what it shares.
    assert_eq!(after.rows.committed - before.rows.committed, 2);
    assert_eq!(after.device.writes - before.device.writes, 1);
    assert_eq!(after.device.reads, before.device.reads);
    assert_eq!(after.device.flushes, before.device.flushes);
}
