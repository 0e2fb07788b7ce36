//! A `get` through a socket of the loopback, client and core taking turns in one thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::task::Poll;

use anyhow::{Context, bail, ensure};
use gates::Mark;
use memcache::Limits;
use rt::net::{Addr, ListenOptions, Listener};
use rt::{Config, Core, IdleMode, IoKind};

use crate::ROUNDS_BEFORE;
use crate::codec::{Ask, Trivial};
use crate::tell::{begin, mark};

/// Runs rounds of one `get` each; the last ones are watched.
pub(crate) fn run(io: IoKind, rounds: usize) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.io = Some(io);
    // A traced core is slow: it would go to sleep at each look.
    config.idle = IdleMode::Poll;
    let mut core = Core::new(config).context("opening the core's I/O")?;
    let handle = core.handle();
    core.block_on(async {
        let any = Addr::Tcp(([127, 0, 0, 1], 0).into());
        let mut listener = Listener::bind(&handle, &any, ListenOptions::default())?;
        let Addr::Tcp(address) = listener.local_addr()? else {
            bail!("a TCP listener has a TCP address");
        };
        let mut client = TcpStream::connect(address)?;
        client.set_nodelay(true)?;
        client.set_nonblocking(true)?;
        let stream = listener.accept().await?;
        let served = handle.clone();
        let _task = handle.spawn(async move {
            let engine = RefCell::new(Trivial::new());
            memcache::serve(&served, stream, &engine, Limits::default()).await
        });
        let (request, answer) = Ask::Get.lines();
        let mut buffer = vec![0; 4096];
        for number in 0..ROUNDS_BEFORE + rounds {
            if number == ROUNDS_BEFORE {
                begin(1)?;
            }
            client.write_all(&request)?;
            let mut size = 0;
            mark(Mark::Server);
            poll_fn(|context| {
                mark(Mark::Nobody);
                let got = client.read(&mut buffer[size..]);
                match got {
                    Ok(count) => size += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
                if size >= answer.len() {
                    return Poll::Ready(Ok(()));
                }
                mark(Mark::Server);
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await?;
            ensure!(buffer[..size] == answer, "a wrong answer");
            if number >= ROUNDS_BEFORE {
                mark(Mark::Round);
            }
        }
        mark(Mark::End);
        Ok(())
    })
}
