//! One connection over a socket of `rt`.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use rt::Handle;
use rt::net::{RecvHalf, SendHalf, Stream};

use crate::{Connection, Engine, Limits, Step};

/// Room for input that a new connection starts with.
const INPUT_START: usize = 4096;
/// Room for input that a busy connection grows to; a longer line or value goes piece by piece.
const INPUT_MAX: usize = 64 * 1024;

/// How a connection ended.
#[derive(Debug)]
pub enum Ended {
    /// The client has gone, or was told to.
    Closed,
    /// The client left the protocol: the arguments of its line, the socket, and what it has sent
    /// behind the line.
    Upgraded {
        /// The arguments.
        line: Vec<u8>,
        /// The socket.
        stream: (RecvHalf, SendHalf),
        /// Input behind the line.
        input: Vec<u8>,
    },
}

/// What the driver waits for turned up.
enum Event {
    Input(io::Result<usize>, Vec<u8>),
    Output,
}

/// Serves one client until it goes.
///
/// Cost: a system call (or a submission) for each piece of input and one for the answers to it; no
/// allocation once the buffers have grown to the client's habits. The engine is borrowed only while
/// requests are carried out, never across a wait.
///
/// # Errors
/// What the socket says, a client that vanished among it.
pub async fn serve<E: Engine>(
    core: &Handle,
    stream: Stream,
    engine: &RefCell<E>,
    limits: Limits,
) -> io::Result<Ended> {
    let (mut receiver, mut sender) = stream.into_split();
    let mut connection: Connection<E::Ticket> = Connection::new(limits);
    let mut input = Vec::with_capacity(INPUT_START);
    let mut spare = Vec::new();
    loop {
        let step = poll_fn(|context| {
            let now_s = core.clock().unix_s();
            let mut engine = engine.borrow_mut();
            let progress = connection.advance(&mut *engine, now_s, context, &input);
            input.drain(..progress.consumed);
            let must_wait = progress.step == Step::Wait && connection.output().is_empty();
            if must_wait {
                return Poll::Pending;
            }
            Poll::Ready(progress.step)
        })
        .await;
        spare = send_output(&mut connection, &mut sender, spare).await?;
        match step {
            Step::Drain | Step::Wait => {}
            Step::Close => return Ok(Ended::Closed),
            Step::Upgrade => {
                let line = connection.take_upgrade().unwrap_or_default();
                return Ok(Ended::Upgraded {
                    line,
                    stream: (receiver, sender),
                    input,
                });
            }
            Step::Input => {
                if input.len() == input.capacity() {
                    let room = input.capacity().clamp(INPUT_START, INPUT_MAX);
                    input.reserve(room);
                }
                let mut receiving = pin!(receiver.recv(std::mem::take(&mut input)));
                // Promised answers go out while more input is awaited; what is being received must
                // not be dropped meanwhile, or bytes would be lost.
                loop {
                    let event = poll_fn(|context| {
                        if !connection.is_caught_up() {
                            connection.fetch_answers(&mut *engine.borrow_mut(), context);
                            if !connection.output().is_empty() {
                                return Poll::Ready(Event::Output);
                            }
                        }
                        let received = receiving.as_mut().poll(context);
                        received.map(|(result, buffer)| Event::Input(result, buffer))
                    })
                    .await;
                    match event {
                        Event::Output => {
                            spare = send_output(&mut connection, &mut sender, spare).await?;
                        }
                        Event::Input(result, buffer) => {
                            input = buffer;
                            if result? == 0 {
                                send_rest(&mut connection, &mut sender, engine, spare).await?;
                                return Ok(Ended::Closed);
                            }
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// Sends what is still to be said to a client that has said all it wanted.
async fn send_rest<E: Engine>(
    connection: &mut Connection<E::Ticket>,
    sender: &mut SendHalf,
    engine: &RefCell<E>,
    mut spare: Vec<u8>,
) -> io::Result<()> {
    while !connection.is_caught_up() {
        poll_fn(|context| {
            connection.fetch_answers(&mut *engine.borrow_mut(), context);
            if connection.output().is_empty() && !connection.is_caught_up() {
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        spare = send_output(connection, sender, spare).await?;
    }
    Ok(())
}

/// Sends all output there is; gives back the buffer to swap in next time.
async fn send_output<T>(
    connection: &mut Connection<T>,
    sender: &mut SendHalf,
    spare: Vec<u8>,
) -> io::Result<Vec<u8>> {
    if connection.output().is_empty() {
        return Ok(spare);
    }
    let (result, buffer) = sender.send_all(connection.swap_output(spare)).await;
    result.map(|()| buffer)
}
