//! Answers as bytes of the text protocol.

use crate::Reply;

/// What becomes of an engine's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One key of a `get`: a `VALUE` block, or nothing on a miss.
    Value { cas: bool },
    /// The one line of any other command.
    Line,
    /// Nothing: the client said `noreply`.
    Silent,
    /// The refusal of a value too large, after the item it would have replaced was deleted.
    TooLarge,
    /// The refusal of a value there is no memory for, after the same.
    NoRoom,
}

/// Text of a failure that ends a `get` in place of `END`.
pub(crate) type Failure = &'static str;

pub(crate) const OUT_OF_MEMORY: Failure = "out of memory writing get response";
/// The engine answered a request with what answers another.
const UNEXPECTED: Failure = "unexpected answer";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// Writes the answer to a request. Returns the failure of a `get`'s key, which its end line reports.
#[inline]
pub(crate) fn write_reply(
    out: &mut Vec<u8>,
    answer: Answer,
    key: &[u8],
    reply: Reply<'_>,
) -> Option<Failure> {
    match (answer, reply) {
        (Answer::Value { cas: with_cas }, Reply::Value { value, flags, cas }) => {
            write_value(out, key, value, flags, with_cas.then_some(cas));
        }
        (Answer::Value { .. }, Reply::OutOfMemory) => return Some(OUT_OF_MEMORY),
        (Answer::Value { .. }, Reply::Busy(why)) => return Some(why),
        (Answer::Value { .. }, Reply::Miss) => {}
        (Answer::Value { .. }, _) => return Some(UNEXPECTED),
        (Answer::Line, reply) => write_line(out, reply),
        // A client that asked for silence still has to learn that its writes find no room.
        (Answer::Silent, Reply::OutOfMemory) => write_line(out, reply),
        (Answer::Silent, _) => {}
        // The old item may still be there.
        (Answer::TooLarge | Answer::NoRoom, Reply::OutOfMemory | Reply::Busy(_)) => {
            write_line(out, reply);
        }
        (Answer::TooLarge, _) => out.extend_from_slice(TOO_LARGE),
        (Answer::NoRoom, _) => write_line(out, Reply::OutOfMemory),
    }
    None
}

/// Writes the line that ends a `get`.
pub(crate) fn write_end(out: &mut Vec<u8>, failure: Option<Failure>) {
    match failure {
        None => out.extend_from_slice(b"END\r\n"),
        Some(why) => write_server_error(out, why),
    }
}

#[inline]
fn write_value(out: &mut Vec<u8>, key: &[u8], value: &[u8], flags: u32, cas: Option<u64>) {
    // Room for the words, the key, three numbers of at most 20 digits, and the value.
    out.reserve(key.len() + value.len() + 80);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    if flags == 0 {
        out.extend_from_slice(b" 0 ");
    } else {
        out.push(b' ');
        out.extend_from_slice(digits.format(flags).as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(digits.format(value.len()).as_bytes());
    if let Some(cas) = cas {
        out.push(b' ');
        out.extend_from_slice(digits.format(cas).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_line(out: &mut Vec<u8>, reply: Reply<'_>) {
    let line: &[u8] = match reply {
        Reply::Stored => b"STORED\r\n",
        Reply::NotStored => b"NOT_STORED\r\n",
        Reply::Exists => b"EXISTS\r\n",
        Reply::NotFound | Reply::Miss => b"NOT_FOUND\r\n",
        Reply::Deleted => b"DELETED\r\n",
        Reply::Touched => b"TOUCHED\r\n",
        Reply::Flushed => b"OK\r\n",
        Reply::NotANumber => b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Reply::TooLarge => TOO_LARGE,
        Reply::OutOfMemory => b"SERVER_ERROR out of memory storing object\r\n",
        Reply::Number(number) => {
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            b"\r\n"
        }
        Reply::Busy(why) => return write_server_error(out, why),
        // No request but a `get` has a value for its answer.
        Reply::Value { .. } => return write_server_error(out, UNEXPECTED),
    };
    out.extend_from_slice(line);
}

fn write_server_error(out: &mut Vec<u8>, why: &str) {
    out.extend_from_slice(b"SERVER_ERROR ");
    out.extend_from_slice(why.as_bytes());
    out.extend_from_slice(b"\r\n");
}
