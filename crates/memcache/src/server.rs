//! One connection over a socket of `rt`.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use rt::Handle;
use rt::net::{RecvHalf, SendHalf, Sending, Stream};

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
/// Cost: a system call (or a submission) for each piece of input and one for the answers to it, and
/// one wake-up for both; no allocation once the buffers have grown to the client's habits. The engine
/// is borrowed only while requests are carried out, never across a wait.
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
    let mut output = Output::default();
    loop {
        // A client that does not read its answers gets no more of them.
        output.sent().await?;
        let step = poll_fn(|context| {
            let now_s = core.unix_s();
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
        output.begin(&mut connection, &mut sender);
        match step {
            Step::Drain | Step::Wait => {}
            Step::Close => {
                output.sent().await?;
                return Ok(Ended::Closed);
            }
            Step::Upgrade => {
                output.sent().await?;
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
                            output.sent().await?;
                            output.begin(&mut connection, &mut sender);
                        }
                        Event::Input(result, buffer) => {
                            input = buffer;
                            if result? == 0 {
                                send_rest(&mut connection, &mut sender, engine, output).await?;
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
    mut output: Output,
) -> io::Result<()> {
    output.sent().await?;
    while !connection.is_caught_up() {
        poll_fn(|context| {
            connection.fetch_answers(&mut *engine.borrow_mut(), context);
            if connection.output().is_empty() && !connection.is_caught_up() {
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        output.begin(connection, sender);
        output.sent().await?;
    }
    Ok(())
}

/// The output on its way. It goes while the client's next input is awaited, and nobody is woken
/// when it has gone: that is found out before more is sent.
#[derive(Default)]
struct Output {
    sending: Option<Sending>,
    /// The buffer to swap in for the one to send.
    spare: Vec<u8>,
}

impl Output {
    /// Waits until what was begun has gone.
    async fn sent(&mut self) -> io::Result<()> {
        if let Some(sending) = self.sending.take() {
            let (result, buffer) = sending.await;
            self.spare = buffer;
            result?;
        }
        Ok(())
    }

    /// Begins to send all output there is. What was begun before has gone.
    fn begin<T>(&mut self, connection: &mut Connection<T>, sender: &mut SendHalf) {
        debug_assert!(self.sending.is_none(), "two sends at once get mixed up");
        if !connection.output().is_empty() {
            let buffer = connection.swap_output(std::mem::take(&mut self.spare));
            self.sending = Some(sender.begin_send_all(buffer));
        }
    }
}
