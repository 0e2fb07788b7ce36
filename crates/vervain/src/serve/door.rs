//! The doors of one core: accepting, serving Memcache, and handing HERD clients on.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use cache::herd::wire::handshake::LINE_WORD;
use memcache::{Ended, Limits};
use rt::Handle;
use rt::net::{Listener, RecvHalf, SendHalf, Stream};

use super::control::Control;
use super::engine::CoreEngine;
use super::mail::{Mail, Post};
use super::stats::Board;

/// Bytes of a handshake line at most: room for 256 cores.
const LINE_LEN_MAX: usize = 64 << 10;

/// What every connection of a core needs.
pub(super) struct Door {
    pub(super) core: Handle,
    pub(super) engine: RefCell<CoreEngine>,
    pub(super) post: Rc<Post>,
    pub(super) control: Control,
    pub(super) board: Arc<Board>,
}

/// Accepts for ever.
pub(super) async fn accept(door: Rc<Door>, mut listener: Listener) {
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let door = Rc::clone(&door);
                let core = door.core.clone();
                core.spawn(async move { connection(&door, stream).await });
            }
            Err(error) => {
                tracing::error!(%error, "a door is broken and closes");
                return;
            }
        }
    }
}

/// Counts a connection while it lives.
struct Counted<'a>(&'a Board);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

async fn connection(door: &Door, stream: Stream) {
    door.board.connected();
    let _counted = Counted(&door.board);
    match memcache::serve(&door.core, stream, &door.engine, Limits::default()).await {
        Ok(Ended::Closed) => {}
        Ok(Ended::Upgraded {
            line,
            stream,
            input,
        }) => herd_client(door, line, stream, input).await,
        Err(error) => tracing::debug!(%error, "a connection broke"),
    }
}

/// A HERD client's control stream: the handshake, then nothing until the client has gone.
async fn herd_client(
    door: &Door,
    arguments: Vec<u8>,
    (mut receiver, mut sender): (RecvHalf, SendHalf),
    mut input: Vec<u8>,
) {
    let mut line = [LINE_WORD.as_bytes(), b" ", &arguments].concat();
    let mut client = Client { door, number: None };
    loop {
        let Some(reply) = door.control.answer(line).await else {
            return;
        };
        if let Some((number, attachments)) = reply.attached {
            client.leave();
            client.number = Some(number);
            for attachment in attachments {
                let core = attachment.core() as usize;
                door.post.send(core, Mail::Attach(Box::new(attachment)));
            }
        }
        let (sent, _) = sender.send_all(format!("{}\r\n", reply.line).into_bytes()).await;
        if sent.is_err() || reply.close {
            return;
        }
        line = loop {
            if let Some(end) = input.iter().position(|byte| *byte == b'\n') {
                break input.drain(..=end).collect();
            }
            if input.len() > LINE_LEN_MAX {
                return;
            }
            let (received, buffer) = receiver.recv(std::mem::take(&mut input)).await;
            input = buffer;
            match received {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
    }
}

/// Detaches a client from all cores when its stream has ended.
struct Client<'a> {
    door: &'a Door,
    number: Option<u32>,
}

impl Client<'_> {
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            for core in 0..self.door.post.cores() {
                self.door.post.send(core, Mail::Detach(number));
            }
        }
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
