//! One connection over a socket of `rt`.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use rt::Handle;
use rt::net::{RecvHalf, SendHalf, Sending, Stream};
use rt::sync::Notify;

use crate::sequence::BUFFER_SMALL;
use crate::{Account, Connection, Event, Host, Limits, Pool, Pressure, Step};

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
enum Happened {
    Input(io::Result<usize>, Vec<u8>),
    Output,
}

/// Serves one client until it goes, by itself: with memory of its own.
///
/// # Errors
/// As [`serve_accounted`].
pub async fn serve<E: Host>(
    core: &Handle,
    stream: Stream,
    engine: &RefCell<E>,
    limits: Limits,
) -> io::Result<Ended> {
    let pool = Arc::new(Pool::new(usize::MAX));
    let account = Account::new(pool, Notify::new(), core.now());
    serve_accounted(core, stream, engine, limits, &account).await
}

/// Serves one client until it goes.
///
/// Cost: a system call (or a submission) for each piece of input and one for the answers to it, and
/// one wake-up for both; no allocation once the buffers have grown to the client's habits. The engine
/// is borrowed only while requests are carried out, never across a wait.
///
/// A client that does not read its answers is not read from: what it is held for is bounded by the
/// limits, which shrink as the account's pool runs short. Dropping the future closes the connection.
///
/// # Errors
/// What the socket says, a client that vanished among it.
pub async fn serve_accounted<E: Host>(
    core: &Handle,
    stream: Stream,
    engine: &RefCell<E>,
    limits: Limits,
    account: &Account,
) -> io::Result<Ended> {
    let (mut receiver, mut sender) = stream.into_split();
    let mut connection: Connection<E::Ticket> = Connection::new(limits);
    connection.set_number(account.number());
    let mut pressure = Pressure::None;
    let mut input = Input::new();
    let mut output = Output::default();
    loop {
        // A client that does not read its answers gets no more of them.
        if output.sent().await? {
            account.got_on(core.now());
        }
        let step = poll_fn(|context| {
            // Each time: while it waits for an answer, others may use memory up.
            let pressure_now = account.pool().pressure();
            if pressure_now != pressure {
                pressure = pressure_now;
                connection.set_limits(limits.under(pressure));
            }
            let now_s = core.unix_s();
            let mut engine = engine.borrow_mut();
            let progress = connection.advance(&mut *engine, now_s, context, &input.bytes);
            input.bytes.drain(..progress.consumed);
            let must_wait = progress.step == Step::Wait && connection.output().is_empty();
            if must_wait {
                account.set_owes(true);
                // What is at hand is held until the answer before it comes.
                account.settle(held(&connection, input.bytes.capacity(), &output));
                return Poll::Pending;
            }
            Poll::Ready(progress.step)
        })
        .await;
        account.settle(held(&connection, input.bytes.capacity(), &output));
        if step == Step::Yield {
            engine.borrow_mut().note(Event::Yielded);
            core.yield_now().await;
            continue;
        }
        if !connection.is_caught_up() || !connection.output().is_empty() {
            account.set_owes(true);
        }
        output.begin(&mut connection, &mut sender);
        match step {
            Step::Drain | Step::Wait | Step::Yield => {}
            Step::Close => {
                output.sent().await?;
                return Ok(Ended::Closed);
            }
            Step::Upgrade => {
                output.sent().await?;
                account.settle(input.bytes.capacity());
                let line = connection.take_upgrade().unwrap_or_default();
                return Ok(Ended::Upgraded {
                    line,
                    stream: (receiver, sender),
                    input: input.bytes,
                });
            }
            Step::Input => {
                let size = input.bytes.len();
                let memory = input.make_room(pressure);
                let mut receiving = pin!(receiver.recv(std::mem::take(&mut input.bytes)));
                let mut shrinks = false;
                // Promised answers go out while more input is awaited; what is being received must
                // not be dropped meanwhile, or bytes would be lost.
                loop {
                    let event = poll_fn(|context| {
                        if !connection.is_caught_up() {
                            connection.fetch_answers(&mut *engine.borrow_mut(), context);
                            if !connection.output().is_empty() {
                                return Poll::Ready(Ok(Happened::Output));
                            }
                        }
                        let received = receiving.as_mut().poll(context);
                        if received.is_pending() && (shrinks || account.takes_less()) {
                            match output.shrink(context) {
                                Ok(under_way) => {
                                    if shrinks && !under_way {
                                        account.got_on(core.now());
                                    }
                                    shrinks = under_way;
                                    account.set_owes(under_way || !connection.is_caught_up());
                                }
                                Err(error) => return Poll::Ready(Err(error)),
                            }
                            connection.shrink();
                            account.settle(held(&connection, memory, &output));
                        }
                        received.map(|(result, buffer)| Ok(Happened::Input(result, buffer)))
                    })
                    .await?;
                    match event {
                        Happened::Output => {
                            if output.sent().await? {
                                account.got_on(core.now());
                            }
                            account.set_owes(true);
                            output.begin(&mut connection, &mut sender);
                            account.settle(held(&connection, memory, &output));
                        }
                        Happened::Input(result, buffer) => {
                            account.got_on(core.now());
                            input.received(buffer, size);
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

/// All that is held for a connection.
#[inline]
fn held<T>(connection: &Connection<T>, input: usize, output: &Output) -> usize {
    connection.memory() + connection.promised() + input + output.memory()
}

/// Sends what is still to be said to a client that has said all it wanted.
async fn send_rest<E: Host>(
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

/// What has arrived and is not dealt with.
struct Input {
    bytes: Vec<u8>,
    /// Room that would have suited the last piece.
    wanted: usize,
}

impl Input {
    fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(INPUT_START),
            wanted: INPUT_START,
        }
    }

    /// Makes room for more; the memory in all. Who sends much has much room, which cannot be taken
    /// back while the client is waited for.
    fn make_room(&mut self, pressure: Pressure) -> usize {
        if self.bytes.len() == self.bytes.capacity() {
            let room = self.bytes.capacity().clamp(INPUT_START, INPUT_MAX);
            self.bytes.reserve(room);
        } else if self.bytes.is_empty() {
            let most = if pressure == Pressure::None {
                INPUT_MAX
            } else {
                INPUT_START
            };
            let capacity = self.wanted.clamp(INPUT_START, most);
            if self.bytes.capacity() != capacity {
                self.bytes = Vec::with_capacity(capacity);
            }
        }
        self.bytes.capacity()
    }

    /// Takes in what was received into the room behind the first `before` bytes.
    fn received(&mut self, buffer: Vec<u8>, before: usize) {
        let (capacity, size) = (buffer.capacity(), buffer.len() - before);
        self.wanted = if buffer.len() == capacity {
            2 * capacity
        } else if size < capacity / 8 {
            capacity / 2
        } else {
            capacity
        };
        self.bytes = buffer;
    }
}

/// The output on its way. It goes while the client's next input is awaited, and nobody is woken
/// when it has gone: that is found out before more is sent.
#[derive(Default)]
struct Output {
    sending: Option<Sending>,
    /// The memory of what is being sent.
    sending_memory: usize,
    /// The buffer to swap in for the one to send.
    spare: Vec<u8>,
}

impl Output {
    /// Waits until what was begun has gone. Whether there was something.
    async fn sent(&mut self) -> io::Result<bool> {
        let Some(sending) = self.sending.take() else {
            return Ok(false);
        };
        let (result, buffer) = sending.await;
        self.sending_memory = 0;
        self.spare = buffer;
        result?;
        Ok(true)
    }

    /// Begins to send all output there is. What was begun before has gone.
    fn begin<T>(&mut self, connection: &mut Connection<T>, sender: &mut SendHalf) {
        debug_assert!(self.sending.is_none(), "two sends at once get mixed up");
        if !connection.output().is_empty() {
            let buffer = connection.swap_output(std::mem::take(&mut self.spare));
            self.sending_memory = buffer.capacity();
            self.sending = Some(sender.begin_send_all(buffer));
        }
    }

    fn memory(&self) -> usize {
        self.sending_memory + self.spare.capacity()
    }

    /// Gives back what is not needed while the client is waited for. Whether a part of it is still
    /// being sent: the waker is called when that has gone.
    fn shrink(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if let Some(sending) = &mut self.sending
            && let Poll::Ready((result, _)) = Pin::new(sending).poll(context)
        {
            self.sending = None;
            self.sending_memory = 0;
            result?;
        }
        if self.spare.capacity() > BUFFER_SMALL {
            self.spare = Vec::new();
        }
        Ok(self.sending.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room that a client gets who fills it twice.
    fn room_after_much(pressure: Pressure) -> usize {
        let mut input = Input::new();
        for _ in 0..2 {
            let room = input.make_room(Pressure::None);
            input.received(vec![0; room], 0);
            input.bytes.clear();
        }
        input.make_room(pressure)
    }

    #[test]
    fn who_sends_much_has_much_room_while_there_is_memory() {
        assert_eq!(room_after_much(Pressure::None), 4 * INPUT_START);
        assert_eq!(room_after_much(Pressure::Short), INPUT_START);
        assert_eq!(room_after_much(Pressure::Out), INPUT_START);
    }
}
