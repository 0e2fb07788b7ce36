//! A request and an answer over TCP, by libc's functions alone: librspreload takes them over, where a program has it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use bench::measured::median;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrIn, accept, bind, connect,
    listen, recv, send, setsockopt, socket, sockopt,
};
use nix::unistd::close;
use programs::host::{Listens, RSPRELOAD};
use programs::{Host, free_port, library};

/// Bytes of a request, and of an answer.
const LEN: usize = 64;

/// `cargo lab tcp-echo`.
#[derive(clap::Args, Debug)]
pub struct EchoFlags {
    /// The port.
    port: u16,
    /// Ask so many times, and print the median in nanoseconds; without it, answer.
    #[arg(long)]
    ask: Option<usize>,
    /// The CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
}

/// Answers one client, or asks.
pub(crate) fn run(flags: &EchoFlags) -> anyhow::Result<bool> {
    if let Some(cpu) = flags.cpu {
        ensure!(bench::machine::pin(cpu), "CPU {cpu} is not ours");
    }
    // `SOCK_CLOEXEC` is what rsockets do not know.
    let ours = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::empty(),
        None,
    )?;
    // Whoever is accepted has it from the listener.
    setsockopt(&ours, sockopt::TcpNoDelay, &true)?;
    let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, flags.port));
    match flags.ask {
        None => {
            bind(ours.as_raw_fd(), &address)?;
            listen(&ours, Backlog::new(1)?)?;
            let client = accept(ours.as_raw_fd())?;
            let mut message = [0; LEN];
            while receive(client, &mut message)? {
                transmit(client, &message)?;
            }
            close(client)?;
        }
        Some(count) => {
            connect(ours.as_raw_fd(), &address)?;
            println!("{}", ask(ours.as_raw_fd(), count)?);
        }
    }
    Ok(true)
}

/// The median of so many requests with their answers, in nanoseconds, after some that do not count.
fn ask(server: RawFd, count: usize) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count + count / 4 {
        let (request, mut answer) = ([number as u8; LEN], [0; LEN]);
        let began = Instant::now();
        transmit(server, &request)?;
        ensure!(receive(server, &mut answer)?, "the server has gone");
        let time = began.elapsed();
        ensure!(answer == request, "another answer than was asked for");
        if number >= count / 4 {
            times.push(time.as_nanos() as f64);
        }
    }
    Ok(median(times))
}

/// A whole message; false at the end.
fn receive(from: RawFd, message: &mut [u8; LEN]) -> anyhow::Result<bool> {
    let mut have = 0;
    while have < LEN {
        match recv(from, &mut message[have..], MsgFlags::empty())? {
            0 if have == 0 => return Ok(false),
            0 => bail!("half a message"),
            more => have += more,
        }
    }
    Ok(true)
}

fn transmit(to: RawFd, message: &[u8; LEN]) -> anyhow::Result<()> {
    let mut sent = 0;
    while sent < LEN {
        sent += send(to, &message[sent..], MsgFlags::empty())?;
    }
    Ok(())
}

/// Starts a server and a client, and gives the median in microseconds; over rsockets or over TCP.
pub(crate) fn measure(cpus: [usize; 2], over_rsockets: bool, count: usize) -> anyhow::Result<f64> {
    let program = crate::program()?;
    let program = program.to_str().context("a path that is no text")?;
    let (host, port) = (Host::without_library(), free_port());
    let (host, listens) = match over_rsockets {
        true => {
            ensure!(
                Path::new(RSPRELOAD).exists(),
                "{RSPRELOAD} is missing (librdmacm1)"
            );
            library().context("libvervain_verbs.so is not beside this program")?;
            let host = Host::new().with_library(Path::new(RSPRELOAD));
            // Its servers are no listeners of TCP.
            (host, Listens::Manager)
        }
        false => (host, Listens::Tcp(port)),
    };
    let (port, count) = (port.to_string(), count.to_string());
    let [server_cpu, client_cpu] = cpus.map(|cpu| cpu.to_string());
    let words = [program, "tcp-echo", &port, "--cpu", &server_cpu];
    let server = host.serve(&words, listens);
    let words = [
        program,
        "tcp-echo",
        &port,
        "--cpu",
        &client_cpu,
        "--ask",
        &count,
    ];
    let client = host.call(&words);
    ensure!(client.status.success(), "the client: {}", client.text());
    let server = server.end();
    ensure!(server.status.success(), "the server: {}", server.text());
    let ns: f64 = client.out.trim().parse().context("no figure")?;
    Ok(ns / 1e3)
}
