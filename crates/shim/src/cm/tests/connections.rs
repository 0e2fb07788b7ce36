//! Connections from the call to the end.

use std::time::Duration;

use super::program::{Program, TCP, UDP, u32_at};
use crate::abi::qp_attr;
use crate::cm::abi::{Writer, event};

/// Two programs, connected: the identifiers of the caller and of the listener's side.
fn connected() -> (Program, u32, Program, u32) {
    let (server, client) = (Program::start(), Program::start());
    let (_, address) = server.listener(7, TCP);
    let caller = client.call(9, TCP, address);
    let request = server.event();
    assert_eq!(request.event, event::CONNECT_REQUEST);
    server.accept(request.id, 8, b"welcome").expect("accepted");
    assert_eq!(client.event().event, event::CONNECT_RESPONSE);
    client.establish(caller).expect("established");
    let established = server.event();
    assert_eq!(
        (established.event, established.uid),
        (event::ESTABLISHED, 8)
    );
    (client, caller, server, request.id)
}

#[test]
fn a_connection_is_made_and_ended() {
    let (server, client) = (Program::start(), Program::start());
    let (listener, address) = server.listener(7, TCP);
    let caller = client.call(9, TCP, address);

    let request = server.event();
    assert_eq!((request.event, request.uid), (event::CONNECT_REQUEST, 7));
    assert_eq!(request.qp_num(), 100 + caller);
    // Private data has the length of the message's field.
    assert_eq!(request.private().len(), 56);
    assert!(request.private().starts_with(b"please\0"));
    // Each side counts READs as its own: the caller's 4 at once are 4 to answer here.
    assert_eq!(request.param[266..268], [4, 3]);
    assert_eq!(server.address(request.id, false), address);
    assert_eq!(
        server.address(request.id, true),
        client.address(caller, false)
    );

    server.accept(request.id, 8, b"welcome").expect("accepted");
    let reply = client.event();
    assert_eq!((reply.event, reply.uid), (event::CONNECT_RESPONSE, 9));
    assert_eq!(reply.qp_num(), 200 + request.id);
    assert_eq!(reply.private().len(), 196);
    assert!(reply.private().starts_with(b"welcome\0"));
    client.establish(caller).expect("established");
    assert_eq!(server.event().event, event::ESTABLISHED);

    client.disconnect(caller).expect("disconnected");
    for (program, uid) in [(&server, 8), (&client, 9)] {
        for expected in [event::DISCONNECTED, event::TIMEWAIT_EXIT] {
            let heard = program.event();
            assert_eq!((heard.event, heard.uid), (expected, uid));
        }
    }
    // The program acknowledges its events before it lets go of an identifier.
    assert_eq!(client.destroy(caller), Ok(5));
    assert_eq!(server.destroy(request.id), Ok(3));
    assert_eq!(server.destroy(listener), Ok(1));
}

#[test]
fn a_side_that_is_destroyed_has_disconnected() {
    let (client, caller, server, called) = connected();
    server.destroy(called).expect("destroyed");
    let heard = client.event();
    assert_eq!((heard.event, heard.status), (event::DISCONNECTED, 0));
    client.disconnect(caller).expect("no harm");
}

#[test]
fn a_side_that_closes_its_channel_has_disconnected() {
    let (client, _, server, called) = connected();
    drop(client);
    let heard = server.event();
    assert_eq!((heard.event, heard.uid), (event::DISCONNECTED, 8));
    server.destroy(called).expect("destroyed");
}

#[test]
fn queue_pairs_get_the_attributes_of_their_states() {
    let (client, caller, server, called) = connected();
    let masks = [
        (
            1,
            qp_attr::ACCESS_FLAGS | qp_attr::PKEY_INDEX | qp_attr::PORT,
        ),
        (
            2,
            qp_attr::AV
                | qp_attr::PATH_MTU
                | qp_attr::DEST_QPN
                | qp_attr::RQ_PSN
                | qp_attr::MAX_DEST_RD_ATOMIC
                | qp_attr::MIN_RNR_TIMER,
        ),
        (
            3,
            qp_attr::SQ_PSN
                | qp_attr::TIMEOUT
                | qp_attr::RETRY_CNT
                | qp_attr::RNR_RETRY
                | qp_attr::MAX_QP_RD_ATOMIC,
        ),
    ];
    for (state, mask) in masks {
        for attributes in [
            client.attributes(caller, state).expect("attributes"),
            server.attributes(called, state).expect("attributes"),
        ] {
            assert_eq!(u32_at(&attributes, 0), (mask | qp_attr::STATE) as u32);
            assert_eq!(u32_at(&attributes, 4), state);
        }
    }
    let at = |program: &Program, id, state, at| {
        u32_at(&program.attributes(id, state).expect("attributes"), at)
    };
    // Where each leads, and that one side's first packet is the one that the other expects.
    assert_eq!(at(&client, caller, 2, 32), 200 + called);
    assert_eq!(at(&server, called, 2, 32), 100 + caller);
    assert_eq!(at(&client, caller, 2, 24), at(&server, called, 3, 28));
    assert_eq!(at(&server, called, 2, 24), at(&client, caller, 3, 28));
    // READs at once: 3 to answer and 4 of its own on either side, as each has said.
    let client_rts = client.attributes(caller, 3).expect("attributes");
    assert_eq!(
        (client_rts[130], client_rts[135], client_rts[136]),
        (3, 6, 5)
    );
    assert_eq!(client.attributes(caller, 2).expect("attributes")[131], 4);
}

#[test]
fn datagrams_get_a_destination() {
    let (server, client) = (Program::start(), Program::start());
    let (_, address) = server.listener(7, UDP);
    let caller = client.call(9, UDP, address);
    let request = server.event();
    assert_eq!(request.event, event::CONNECT_REQUEST);
    assert!(request.param[40..].starts_with(b"please\0"));
    assert_eq!(request.param[40 + 256], 180);
    server.accept(request.id, 8, b"here").expect("accepted");
    let found = client.event();
    assert_eq!((found.event, found.status), (event::ESTABLISHED, 0));
    assert_eq!(found.qp_num(), 200 + request.id);
    assert_eq!(u32_at(&found.param, 4), 0x0123_4567);
    // A route to the device's GID, ::ffff:127.0.0.1.
    assert_eq!(found.param[18..24], [0xff, 0xff, 127, 0, 0, 1]);
    assert_eq!(found.param[37..39], [1, 1]);
    // There is no connection to end.
    assert!(!server.has_event(Duration::ZERO));
    let attributes = client.attributes(caller, 1).expect("attributes");
    let mask = qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::QKEY;
    assert_eq!(u32_at(&attributes, 0), mask as u32);
}

#[test]
fn an_identifier_moves_with_its_events() {
    let (server, client) = (Program::start(), Program::start());
    let (listener, address) = server.listener(7, TCP);
    client.call(9, TCP, address);
    // Its request waits on the old channel.
    assert!(server.has_event(Duration::from_secs(20)));
    let other = Program::start();
    let body = Writer::default().u64(0).u32(listener);
    let mut answer = [0; 4];
    let body = body.u32(server.fd as u32).done();
    other.ask(18, &body, Some((0, &mut answer))).expect("moved");
    assert_eq!(u32::from_ne_bytes(answer), 0);
    assert!(!server.has_event(Duration::ZERO));
    assert_eq!(server.destroy(listener), Err(libc::EINVAL));
    let request = other.event();
    assert_eq!(request.event, event::CONNECT_REQUEST);
    other.accept(request.id, 8, b"").expect("accepted here");
    assert_eq!(other.destroy(listener), Ok(1));
}

#[test]
fn events_of_what_is_destroyed_are_gone() {
    let (client, caller, server, called) = connected();
    server.disconnect(called).expect("disconnected");
    assert!(client.has_event(Duration::from_secs(20)));
    client.destroy(caller).expect("destroyed");
    assert!(!client.has_event(Duration::ZERO));
}
