//! Servers of the Memcache protocol: one that works, and one that says whatever a test wants.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::thread::{self, JoinHandle};

use bench::cache::Address;
use engine::MapEngine;
use memcache::Limits;
use rt::net::{Addr, ListenOptions, Listener};
use rt::{Config, Core};

/// Serves so many connections from a thread, which ends with the last of them.
pub(crate) fn serve(addr: Addr, connections: usize) -> (Address, JoinHandle<()>) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let mut core = Core::new(Config::default()).expect("a core");
        let handle = core.handle();
        core.block_on(async {
            let mut listener =
                Listener::bind(&handle, &addr, ListenOptions::default()).expect("bound");
            tell.send(listener.local_addr().expect("an address"))
                .expect("a test");
            let engine = Rc::new(RefCell::new(MapEngine::default()));
            let mut tasks = Vec::new();
            for _ in 0..connections {
                let stream = listener.accept().await.expect("a connection");
                let (core, engine) = (handle.clone(), Rc::clone(&engine));
                tasks.push(handle.spawn(async move {
                    memcache::serve(&core, stream, &engine, Limits::default()).await
                }));
            }
            for task in tasks {
                task.await
                    .expect("no panic")
                    .expect("the connection ends well");
            }
        });
    });
    let address = match told.recv().expect("the server starts") {
        Addr::Tcp(addr) => Address::Tcp(addr),
        Addr::Unix(path) => Address::Unix(path),
    };
    (address, thread)
}

/// A free port of the loopback.
pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Takes one connection; reads requests and says what `speak` says to each one's first line,
/// until that is nothing.
pub(crate) fn pretend(speak: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static) -> Address {
    let listener = TcpListener::bind(loopback()).expect("bound");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut requests = BufReader::new(stream.try_clone().expect("cloned"));
        let mut line = String::new();
        while requests.read_line(&mut line).is_ok_and(|count| count > 0) {
            if line.starts_with("set") {
                let len = line.trim_end().rsplit(' ').next().expect("a length");
                let mut value = vec![0; len.parse::<usize>().expect("a number") + 2];
                requests.read_exact(&mut value).expect("a value");
            }
            match speak(line.trim_end()) {
                Some(answer) => stream.write_all(&answer).expect("the client reads"),
                None => return,
            }
            line.clear();
        }
    });
    Address::Tcp(address)
}
