//! Answers as bytes of the text protocol.

use engine::{Answer, Failure, Segments, StatsPage};

use crate::{Event, Host};

/// How an engine's answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
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
    /// Lines of counters.
    Stats,
    /// That counters start anew.
    Reset,
}

/// The engine answered a command with what answers another.
const UNEXPECTED: Failure = Failure::Busy("unexpected answer");
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// The same answer, but a failure for want of memory in place of a value longer than `size_max`.
#[inline]
pub(crate) const fn up_to(answer: Answer<'_>, size_max: usize) -> Answer<'_> {
    match answer {
        Answer::Item { value, .. } if value.len() > size_max => {
            Answer::Failed(Failure::OutOfMemory)
        }
        answer => answer,
    }
}

/// Writes the answer to a command. Returns the failure of a `get`'s key, which its end line reports, or
/// of a command whose client had asked for silence, which nothing reports.
#[inline]
pub(crate) fn write_answer(
    out: &mut Vec<u8>,
    form: Form,
    key: &[u8],
    answer: Answer<'_>,
) -> Option<Failure> {
    match (form, answer) {
        (Form::Value { cas: with_cas }, Answer::Item { value, flags, cas }) => {
            write_value(out, key, value, flags, with_cas.then_some(cas));
        }
        (Form::Value { .. }, Answer::Failed(failure)) => return Some(failure),
        (Form::Value { .. }, Answer::Miss) => {}
        (Form::Value { .. }, _) => return Some(UNEXPECTED),
        (Form::Line, answer) => write_line(out, answer),
        // A client that asked for silence still has to learn that its writes find no room.
        (Form::Silent, Answer::Failed(Failure::OutOfMemory)) => write_line(out, answer),
        (Form::Silent, Answer::Failed(failure)) => return Some(failure),
        (Form::Silent, _) => {}
        // The old item may still be there.
        (Form::TooLarge | Form::NoRoom, Answer::Failed(_)) => write_line(out, answer),
        (Form::TooLarge, _) => out.extend_from_slice(TOO_LARGE),
        (Form::NoRoom, _) => write_line(out, Answer::Failed(Failure::OutOfMemory)),
        (Form::Stats, Answer::Stats(page)) => write_stats(out, page),
        (Form::Stats, Answer::Failed(Failure::Unsupported)) => {
            out.extend_from_slice(crate::text::UNKNOWN);
        }
        (Form::Reset, Answer::Done) => out.extend_from_slice(b"RESET\r\n"),
        (Form::Stats | Form::Reset, answer) => write_line(out, answer),
    }
    None
}

/// Has a failure that [`write_answer`] returned counted. Whether the end line of a `get` reports it.
#[cold]
pub(crate) fn note<E: Host>(engine: &mut E, form: Form, failure: Failure) -> bool {
    if form == Form::Silent {
        engine.note(Event::FailedInSilence);
        return false;
    }
    if failure == Failure::OutOfMemory {
        engine.note(Event::OutOfMemory);
    }
    true
}

/// Writes the line that ends a `get`.
pub(crate) fn write_end(out: &mut Vec<u8>, failure: Option<Failure>) {
    match failure {
        None => out.extend_from_slice(b"END\r\n"),
        Some(Failure::OutOfMemory) => {
            out.extend_from_slice(b"SERVER_ERROR out of memory writing get response\r\n");
        }
        Some(failure) => write_server_error(out, failure),
    }
}

#[inline]
fn write_value(out: &mut Vec<u8>, key: &[u8], value: Segments<'_>, flags: u32, cas: Option<u64>) {
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
    value.append_to(out);
    out.extend_from_slice(b"\r\n");
}

fn write_stats(out: &mut Vec<u8>, page: &StatsPage) {
    for (name, value) in page.iter() {
        for part in ["STAT ", name, " ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"END\r\n");
}

fn write_line(out: &mut Vec<u8>, answer: Answer<'_>) {
    let line: &[u8] = match answer {
        Answer::Stored { .. } => b"STORED\r\n",
        Answer::NotStored | Answer::TooLong => b"NOT_STORED\r\n",
        Answer::Exists => b"EXISTS\r\n",
        Answer::NotFound | Answer::Miss => b"NOT_FOUND\r\n",
        Answer::Deleted => b"DELETED\r\n",
        Answer::Touched => b"TOUCHED\r\n",
        Answer::Done => b"OK\r\n",
        Answer::NotANumber => b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Answer::Failed(Failure::TooLarge) => TOO_LARGE,
        Answer::Failed(Failure::OutOfMemory) => b"SERVER_ERROR out of memory storing object\r\n",
        Answer::Failed(failure) => return write_server_error(out, failure),
        Answer::Number { value, .. } => {
            out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
            b"\r\n"
        }
        // A command that is answered with one of these has a form of its own.
        Answer::Item { .. } | Answer::Stats(_) => return write_server_error(out, UNEXPECTED),
    };
    out.extend_from_slice(line);
}

fn write_server_error(out: &mut Vec<u8>, failure: Failure) {
    out.extend_from_slice(b"SERVER_ERROR ");
    out.extend_from_slice(failure.text().as_bytes());
    out.extend_from_slice(b"\r\n");
}
