//! Asking a serving process about itself.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::place::{SocketPath, process_of};
use super::status::Status;
use super::volumes::Change;
use crate::cli::FsAbout;

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer at most.
const ANSWER_MAX: u64 = 16 << 20;

/// What a served file system does and holds.
pub(super) fn status(about: &FsAbout) -> anyhow::Result<Status> {
    match (&about.data, about.from) {
        (Some(data), _) => status_of_directory(data)?.with_context(|| {
            let data = data.display();
            format!("nobody serves {data} (`vervain fs serve --data {data}`)")
        }),
        (None, Some(address)) => parse(&get(of_address(address)?, "/status")?),
        (None, None) => bail!("neither a directory nor an address was given"),
    }
}

/// Has the process that serves a directory change a volume; false if nobody serves it.
pub(super) fn change(data: &Path, change: &Change) -> anyhow::Result<bool> {
    let Some(stream) = of_directory(data)? else {
        return Ok(false);
    };
    let body = serde_json::to_string(change)?;
    let head = format!(
        "POST /volume HTTP/1.0\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    match exchange(stream, &(head + &body)) {
        Ok(_) => Ok(true),
        Err(error) if is_no(&error) => Err(error),
        Err(error) => Err(silent(data, error).context("it may have been carried out or not")),
    }
}

/// The status of who serves a directory, if somebody does.
pub(super) fn status_of_directory(data: &Path) -> anyhow::Result<Option<Status>> {
    let Some(stream) = of_directory(data)? else {
        return Ok(None);
    };
    match get(stream, "/status") {
        Ok(answer) => Ok(Some(parse(&answer)?)),
        // It was killed a moment ago: the kernel took the call for it.
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) if is_no(&error) => Err(error),
        Err(error) => Err(silent(data, error)),
    }
}

fn parse(answer: &[u8]) -> anyhow::Result<Status> {
    serde_json::from_slice(answer).context("the server's answer makes no sense")
}

/// The server says that it cannot be done, and why.
#[derive(Debug)]
struct No(String);

impl fmt::Display for No {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for No {}

fn is_no(error: &anyhow::Error) -> bool {
    error.is::<No>()
}

fn kind(error: &anyhow::Error) -> Option<ErrorKind> {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.map(std::io::Error::kind)
}

/// It went away before it answered.
fn is_gone(error: &anyhow::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(
        kind(error),
        Some(BrokenPipe | ConnectionReset | UnexpectedEof)
    )
}

/// Why there is no answer.
fn silent(data: &Path, error: anyhow::Error) -> anyhow::Error {
    let data = data.display();
    let what = match kind(&error) {
        Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let patience = PATIENCE.as_secs();
            format!("the process that serves {data} has not answered for {patience} s")
        }
        _ if is_gone(&error) => format!("the process that serves {data} ended before it answered"),
        _ => format!("the process that serves {data} does not answer"),
    };
    error.context(what)
}

/// A connection to the process that serves a directory, if there is one. An error: a process has it open, and does
/// not serve.
fn of_directory(data: &Path) -> anyhow::Result<Option<UnixStream>> {
    let path = SocketPath::of(data)?;
    let stream = match UnixStream::connect(&path.path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            let Some(pid) = process_of(data) else {
                return Ok(None);
            };
            let data = data.display();
            bail!(
                "process {pid} has {data} open and does not serve it: it starts, it ends, or it is another command; come again"
            );
        }
        Err(error) => {
            let what = format!(
                "the control socket of {} (only its owner may)",
                data.display()
            );
            return Err(error).context(what);
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(Some(stream))
}

fn of_address(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE);
    let stream = stream
        .with_context(|| format!("nobody answers at {address} (`vervain fs serve --metrics`)"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn get(stream: impl Read + Write, path: &str) -> anyhow::Result<Vec<u8>> {
    exchange(stream, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

/// Asks, and returns the answer's body if it is a good one.
fn exchange(mut stream: impl Read + Write, request: &str) -> anyhow::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(&answer).context("the answer is no HTTP")?;
    let httparse::Status::Complete(head) = parsed else {
        let early = std::io::Error::new(ErrorKind::UnexpectedEof, "the answer ends too early");
        return Err(early.into());
    };
    let code = response.code;
    let body = answer.split_off(head);
    if code != Some(200) {
        let why = String::from_utf8_lossy(&body).trim_end().to_string();
        return Err(No(why).into());
    }
    Ok(body)
}
