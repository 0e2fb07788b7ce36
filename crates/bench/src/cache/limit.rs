//! The limit that a run is up against, measured in the same run.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::limit::{BetweenCores, between_cores};
use crate::machine::pin;

/// What a run could reach at best.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Over a NIC: what two cores exchange through shared memory.
    Exchange(BetweenCores),
    /// Over a socket: the same bytes without a protocol.
    Socket(SocketLimit),
}

/// The bytes of a request there and those of its answer back, by one thread that writes and reads
/// and another that reads and writes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SocketLimit {
    /// `tcp` or `unix`.
    pub transport: &'static str,
    /// Bytes there.
    pub request_len: usize,
    /// Bytes back.
    pub answer_len: usize,
    /// The CPUs of the load and of the echo.
    pub cpus: Option<[usize; 2]>,
    /// The mean, in nanoseconds.
    pub there_and_back_ns: f64,
}

impl Limit {
    /// What two cores exchange, with the windows that a client may have. The first of `cpus` is
    /// the load's.
    pub fn exchange(cpus: Option<[usize; 2]>, each: Duration) -> Limit {
        let windows = [1, 16, 32, 64];
        Limit::Exchange(between_cores(cpus, each, &windows, &mut |_| {}))
    }

    /// What a get of a key and its value costs over TCP or a Unix socket. The first of `cpus` is
    /// the load's.
    ///
    /// # Errors
    /// What the system says of its sockets.
    pub fn socket(
        tcp: bool,
        key_len: usize,
        value_len: usize,
        cpus: Option<[usize; 2]>,
        each: Duration,
    ) -> std::io::Result<Limit> {
        let request_len = "get \r\n".len() + key_len;
        let announced = "VALUE  0 \r\n".len() + key_len + value_len.to_string().len();
        let answer_len = announced + value_len + "\r\nEND\r\n".len();
        let there_and_back_ns = if tcp {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            pingpong(near, far, [request_len, answer_len], cpus, each)?
        } else {
            let (near, far) = UnixStream::pair()?;
            pingpong(near, far, [request_len, answer_len], cpus, each)?
        };
        Ok(Limit::Socket(SocketLimit {
            transport: if tcp { "tcp" } else { "unix" },
            request_len,
            answer_len,
            cpus,
            there_and_back_ns,
        }))
    }
}

/// Bytes there and bytes back, in nanoseconds. Both sides sleep in the kernel while they wait.
fn pingpong<S: Read + Write + Send>(
    mut near: S,
    mut far: S,
    [request_len, answer_len]: [usize; 2],
    cpus: Option<[usize; 2]>,
    each: Duration,
) -> std::io::Result<f64> {
    // A CPU that the kernel refuses makes the limit no worse than the run.
    let place = |side: usize| cpus.is_none_or(|cpus| pin(cpus[side]));
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> std::io::Result<()> {
            place(1);
            let (mut request, answer) = (vec![0; request_len], vec![b'a'; answer_len]);
            loop {
                match far.read_exact(&mut request) {
                    Ok(()) => far.write_all(&answer)?,
                    // The end of the connection is the end of the measurement.
                    Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
        });
        let measured = scope.spawn(move || -> std::io::Result<f64> {
            place(0);
            let (request, mut answer) = (vec![b'r'; request_len], vec![0; answer_len]);
            let (began, mut done) = (Instant::now(), 0u64);
            while done == 0 || began.elapsed() < each {
                near.write_all(&request)?;
                near.read_exact(&mut answer)?;
                done += 1;
            }
            Ok(began.elapsed().as_nanos() as f64 / done as f64)
        });
        match (measured.join(), echo.join()) {
            (Ok(measured), Ok(echoed)) => echoed.and(measured),
            (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}
