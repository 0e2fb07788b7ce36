//! Where a serving process tells what it does, over HTTP: a socket in its directory, for its user alone, and an
//! address if `--metrics` gives one.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /status` | all figures, as JSON |
//! | `GET /metrics` | the same, as Prometheus reads it |
//! | `POST /volume` | makes a volume or sets its bounds; over the socket alone |

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use fs::Local;
use nfs::server::Door;
use rt::net::{Addr, ListenOptions, Listener, Stream};
use rt::sync::Semaphore;

use super::place::SocketPath;
use super::status::Status;
use super::volumes::{self, Change};

/// Bytes of a request at most.
const REQUEST_MAX: usize = 16 << 10;

/// Headers of a request at most.
const HEADERS_MAX: usize = 64;

/// Requests that are carried out at a time.
const AT_A_TIME: usize = 16;

/// Connections at a time. Whoever comes next takes the place of the oldest one, so that those who ask nothing keep nobody
/// out.
const CONNECTIONS_MAX: usize = 64;

/// How long whoever asks has for it, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is served.
pub(super) struct Served {
    pub(super) core: rt::Handle,
    pub(super) fs: Local,
    pub(super) door: Rc<Door>,
    pub(super) data: String,
    /// Where NFS is served: one address or more.
    pub(super) listen: Vec<SocketAddr>,
    pub(super) started: rt::Instant,
}

/// The socket in a directory; its name goes with this.
pub(super) struct Control {
    pub(super) listener: Listener,
    name: Name,
}

/// The name of a socket.
pub(super) struct Name(SocketPath);

impl Drop for Name {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0.path) {
            tracing::debug!(%error, "the control socket's name stays");
        }
    }
}

impl Control {
    /// Listens in a directory that this process alone has open.
    pub(super) fn listen(core: &rt::Handle, data: &Path) -> anyhow::Result<Self> {
        let path = SocketPath::of(data)?;
        match std::fs::remove_file(&path.path) {
            // What a killed process has left.
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("the control socket of before"),
        }
        let addr = Addr::Unix(path.path.clone());
        let listener = Listener::bind(core, &addr, ListenOptions::default());
        let listener =
            listener.with_context(|| format!("a control socket in {}", data.display()))?;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path.path, private).context("the control socket")?;
        Ok(Self {
            listener,
            name: Name(path),
        })
    }

    pub(super) fn into_parts(self) -> (Listener, Name) {
        (self.listener, self.name)
    }
}

/// Answers for ever.
pub(super) async fn serve(served: Rc<Served>, mut listener: Listener, may_change: bool) {
    let at_a_time = Semaphore::new(AT_A_TIME);
    let mut connections = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                connections.retain(|one: &rt::JoinHandle<()>| !one.is_finished());
                if connections.len() >= CONNECTIONS_MAX
                    && let Some(oldest) = connections.pop_front()
                {
                    oldest.abort();
                }
                let (served, at_a_time) = (Rc::clone(&served), at_a_time.clone());
                let core = served.core.clone();
                connections.push_back(core.spawn(async move {
                    let answered = answer(&served, stream, may_change, &at_a_time);
                    if served.core.timeout(PATIENCE, answered).await.is_err() {
                        tracing::debug!("somebody who asked did not take the answer");
                    }
                }));
            }
            Err(error) => {
                tracing::debug!(%error, "a question was not accepted");
                served.core.sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn answer(served: &Served, mut stream: Stream, may_change: bool, at_a_time: &Semaphore) {
    let mut buffer = Vec::with_capacity(1024);
    let request = loop {
        match Request::of(&buffer) {
            Parsed::Whole(request) => break Some(request),
            Parsed::Bad => break None,
            Parsed::Part => {}
        }
        let (result, back) = stream.recv(buffer).await;
        buffer = back;
        match result {
            Ok(1..) => {}
            // Who goes in the middle of a question wants no answer.
            Ok(0) | Err(_) => return,
        }
    };
    let (status, kind, body) = match request {
        Some(request) => {
            let _one = at_a_time.acquire().await;
            respond(served, &request, may_change).await
        }
        None => (
            "400 Bad Request",
            TEXT,
            "no request that is understood\n".into(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let (sent, _) = stream.send_all((head + &body).into_bytes()).await;
    if let Err(error) = sent {
        tracing::debug!(%error, "an answer was not taken");
    }
}

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

/// A request that was read.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Whole(Request),
    /// There is more to come.
    Part,
    Bad,
}

impl Request {
    fn of(bytes: &[u8]) -> Parsed {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let part = || match bytes.len() < REQUEST_MAX {
            true => Parsed::Part,
            false => Parsed::Bad,
        };
        let head = match request.parse(bytes) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) => return part(),
            Err(_) => return Parsed::Bad,
        };
        let length = request.headers.iter();
        let mut length = length.filter(|header| header.name.eq_ignore_ascii_case("content-length"));
        let len = match length.next() {
            None => 0,
            Some(header) => {
                let len = std::str::from_utf8(header.value).ok();
                match len.and_then(|len| len.trim().parse::<usize>().ok()) {
                    Some(len) if len <= REQUEST_MAX => len,
                    _ => return Parsed::Bad,
                }
            }
        };
        match bytes.get(head..head + len) {
            Some(body) => Parsed::Whole(Self {
                method: request.method.unwrap_or_default().to_string(),
                path: request.path.unwrap_or_default().to_string(),
                body: body.to_vec(),
            }),
            None => part(),
        }
    }
}

async fn respond(
    served: &Served,
    request: &Request,
    may_change: bool,
) -> (&'static str, &'static str, String) {
    let refused = |error: anyhow::Error| {
        let why = format!("{}\n", crate::cli::explain(&error));
        ("409 Conflict", TEXT, why)
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/status") => match served.status().await {
            Ok(status) => ("200 OK", JSON, serde_json::json!(status).to_string() + "\n"),
            Err(error) => refused(error),
        },
        ("GET", "/metrics") => match served.status().await {
            Ok(status) => ("200 OK", TEXT, status.prometheus()),
            Err(error) => refused(error),
        },
        ("POST", "/volume") if may_change => {
            let done = match serde_json::from_slice::<Change>(&request.body) {
                Ok(change) => volumes::change(&served.fs, &change).await,
                Err(error) => Err(error.into()),
            };
            match done {
                Ok(()) => ("200 OK", JSON, "{}\n".into()),
                Err(error) => refused(error),
            }
        }
        (_, "/status" | "/metrics") => ("405 Method Not Allowed", TEXT, "GET alone\n".into()),
        _ => (
            "404 Not Found",
            TEXT,
            "/metrics and /status are here\n".into(),
        ),
    }
}

impl Served {
    async fn status(&self) -> anyhow::Result<Status> {
        let uptime = self.core.now() - self.started;
        Ok(Status {
            pid: std::process::id(),
            data: self.data.clone(),
            listen: self.listen[0].to_string(),
            also: self.listen[1..].iter().map(SocketAddr::to_string).collect(),
            uptime_ms: uptime.as_millis() as u64,
            ..Status::of(&self.fs, &self.door).await?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_piece_by_piece_and_refused_if_they_are_none() {
        let whole = b"POST /volume HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
        for len in 0..whole.len() {
            assert_eq!(Request::of(&whole[..len]), Parsed::Part, "{len}");
        }
        let request = Request {
            method: "POST".into(),
            path: "/volume".into(),
            body: b"abc".to_vec(),
        };
        assert_eq!(Request::of(whole), Parsed::Whole(request));
        for bad in [
            &b"\x00\x01\x02\x03"[..],
            b"GET / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            &[b'a'; REQUEST_MAX],
        ] {
            assert_eq!(Request::of(bad), Parsed::Bad);
        }
    }
}
