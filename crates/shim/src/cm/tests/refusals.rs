//! Calls that are refused, requests that make no sense, and peers that are none.

use std::time::Duration;

use rustix::net::SendFlags;

use super::program::{Program, TCP, UDP};
use crate::cm::abi::{Writer, event};
use crate::cm::{addresses, interpose, names};

/// `IB_CM_REJ_CONSUMER_DEFINED`.
const CONSUMER: i32 = 28;

fn nowhere() -> std::net::SocketAddr {
    let program = Program::start();
    let id = program.create(1, TCP);
    program.bind(id, "127.0.0.1:0").expect("bound");
    // Bound and let go again.
    program.address(id, false)
}

#[test]
fn a_call_to_nobody_is_refused() {
    let client = Program::start();
    client.call(9, TCP, nowhere());
    let heard = client.event();
    assert_eq!((heard.event, heard.status), (event::REJECTED, 8));
    client.call(9, UDP, nowhere());
    let heard = client.event();
    assert_eq!((heard.event, heard.status), (event::UNREACHABLE, 1));
}

#[test]
fn a_listener_that_was_there_may_listen_again() {
    let (server, client) = (Program::start(), Program::start());
    let (first, address) = server.listener(7, TCP);
    client.call(1, TCP, address);
    assert_eq!(server.event().event, event::CONNECT_REQUEST);
    server.destroy(first).expect("destroyed");
    // In vain: the call goes on for a while.
    client.call(2, TCP, address);
    let second = server.create(8, TCP);
    server.bind(second, &address.to_string()).expect("bound");
    server.listen(second, 1).expect("it listens");
    let request = server.event();
    assert_eq!((request.event, request.uid), (event::CONNECT_REQUEST, 8));
    server.destroy(second).expect("destroyed");
    // For a while, and not for ever.
    client.call(3, TCP, address);
    let heard = client.event();
    assert_eq!(
        (heard.event, heard.uid, heard.status),
        (event::REJECTED, 3, 8)
    );
}

#[test]
fn a_rejection_says_why() {
    let (server, client) = (Program::start(), Program::start());
    let (_, address) = server.listener(7, TCP);
    client.call(9, TCP, address);
    let request = server.event();
    server.reject(request.id, b"not you").expect("rejected");
    let heard = client.event();
    assert_eq!((heard.event, heard.status), (event::REJECTED, CONSUMER));
    assert_eq!(heard.private().len(), 148);
    assert!(heard.private().starts_with(b"not you\0"));
    assert_eq!(server.accept(request.id, 8, b""), Err(libc::EINVAL));
}

#[test]
fn what_nobody_has_seen_is_refused_with_its_listener() {
    let (server, client) = (Program::start(), Program::start());
    let (listener, address) = server.listener(7, TCP);
    client.call(9, TCP, address);
    assert!(server.has_event(Duration::from_secs(20)));
    assert_eq!(server.destroy(listener), Ok(0));
    let heard = client.event();
    assert_eq!((heard.event, heard.status), (event::REJECTED, CONSUMER));
    assert!(!server.has_event(Duration::ZERO));
}

#[test]
fn a_listener_takes_no_more_than_it_said() {
    let (server, client) = (Program::start(), Program::start());
    let id = server.create(7, TCP);
    server.bind(id, "127.0.0.1:0").expect("bound");
    server.listen(id, 1).expect("it listens");
    let address = server.address(id, false);
    client.call(1, TCP, address);
    assert!(server.has_event(Duration::from_secs(20)));
    client.call(2, TCP, address);
    let heard = client.event();
    assert_eq!(
        (heard.event, heard.uid, heard.status),
        (event::REJECTED, 2, CONSUMER)
    );
    // Once the program has seen one, there is room for another.
    server.event();
    client.call(3, TCP, address);
    assert_eq!(server.event().event, event::CONNECT_REQUEST);
}

#[test]
fn a_caller_that_leaves_is_accepted_no_more() {
    let (server, client) = (Program::start(), Program::start());
    let (_, address) = server.listener(7, TCP);
    let caller = client.call(9, TCP, address);
    let request = server.event();
    client.destroy(caller).expect("destroyed");
    let accepted = server.accept(request.id, 8, b"");
    // It may not have been heard yet; then the answer finds nobody.
    if accepted.is_ok() {
        let heard = server.event();
        assert_eq!(
            (heard.event, heard.status),
            (event::UNREACHABLE, -libc::ETIMEDOUT)
        );
    } else {
        assert_eq!(accepted, Err(libc::EINVAL));
    }
}

#[test]
fn private_data_has_limits() {
    let (server, client) = (Program::start(), Program::start());
    let (_, address) = server.listener(7, TCP);
    let id = client.create(9, TCP);
    client.resolve(id, address);
    assert_eq!(client.connect(id, &[1; 57]), Err(libc::EINVAL));
    client.connect(id, &[1; 56]).expect("called");
    let request = server.event();
    assert_eq!(request.private(), [1; 56]);
    assert_eq!(server.accept(request.id, 8, &[2; 197]), Err(libc::EINVAL));
    server.accept(request.id, 8, &[2; 196]).expect("accepted");
    assert_eq!(client.event().private(), [2; 196]);
}

#[test]
fn steps_are_taken_in_order() {
    let program = Program::start();
    let id = program.create(1, TCP);
    assert_eq!(program.connect(id, b""), Err(libc::EINVAL));
    assert_eq!(program.accept(id, 1, b""), Err(libc::EINVAL));
    assert_eq!(program.reject(id, b""), Err(libc::EINVAL));
    assert_eq!(program.disconnect(id), Err(libc::EINVAL));
    assert_eq!(program.attributes(id, 1), Err(libc::EINVAL));
    program.bind(id, "127.0.0.1:0").expect("bound");
    assert_eq!(program.bind(id, "127.0.0.1:0"), Err(libc::EINVAL));
    program.attributes(id, 1).expect("it has a device");
    assert_eq!(program.attributes(id, 2), Err(libc::EINVAL));
}

#[test]
fn identifiers_are_their_channels() {
    let (one, other) = (Program::start(), Program::start());
    let id = one.create(1, TCP);
    assert_eq!(other.destroy(id), Err(libc::EINVAL));
    assert_eq!(other.destroy(77_777), Err(libc::ENOENT));
    assert_eq!(one.destroy(id), Ok(0));
    assert_eq!(one.destroy(id), Err(libc::ENOENT));
}

#[test]
fn infiniband_addresses_are_refused() {
    let program = Program::start();
    let id = program.create(1, TCP);
    let address = addresses::emit_gid(verbs::Gid([0; 16]));
    let body = Writer::default().u32(id).u16(address.len() as u16).u16(0);
    let body = body.bytes(&address).up_to(136).done();
    assert_eq!(program.ask(20, &body, None), Err(libc::EINVAL));
}

#[test]
fn bad_addresses_and_little_room_are_refused() {
    let program = Program::start();
    let body = Writer::default().u64(1).u64(0).u16(TCP).up_to(24).done();
    // No room for an answer, and none at its address.
    assert_eq!(program.ask(0, &body, None), Err(libc::ENOSPC));
    let bytes = Writer::default().u32(0).u16(24).u16(4).bytes(&body).done();
    // SAFETY: the bytes are there; the address in them is what this is about.
    let written = unsafe { interpose::write(program.fd, bytes.as_ptr().cast(), bytes.len()) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((written, error), (-1, Some(libc::EFAULT)));
    let id = program.create(1, TCP);
    let option = Writer::default().u64(8).u32(id).u32(0).u32(1).u32(4).done();
    assert_eq!(program.ask(14, &option, None), Err(libc::EFAULT));
}

#[test]
fn a_caller_that_speaks_otherwise_is_hung_up_on() {
    let (server, client) = (Program::start(), Program::start());
    let (_, address) = server.listener(7, TCP);
    let place = names::Place {
        device: addresses::own_gid().expect("a GID"),
        port_space: TCP,
    };
    let silent = names::socket().expect("a socket");
    place.call(&silent, address).expect("called");
    for said in [&b"hello"[..], b"VCM1\x01", b"VCM1\x04", &[0xff; 512]] {
        let socket = names::socket().expect("a socket");
        place.call(&socket, address).expect("called");
        rustix::net::send(&socket, said, SendFlags::NOSIGNAL).expect("said");
        let fd = rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN);
        rustix::event::poll(&mut [fd], None).expect("polled");
        let mut answer = [0u8; 8];
        let end = rustix::net::recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty());
        assert!(
            matches!(end, Ok((0, _)) | Err(rustix::io::Errno::CONNRESET)),
            "{end:?}"
        );
    }
    // The others are heard all the same.
    client.call(9, TCP, address);
    assert_eq!(server.event().event, event::CONNECT_REQUEST);
}
