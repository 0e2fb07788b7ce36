//! Ports: who may have which.

use super::program::{Program, TCP, UDP};

const REUSEADDR: u32 = 1;
const AFONLY: u32 = 2;

/// Binds a new identifier.
fn bind(program: &Program, address: &str) -> Result<u32, i32> {
    let id = program.create(1, TCP);
    program.bind(id, address).map(|()| id)
}

#[test]
fn a_port_is_taken_once_and_freed_with_its_holder() {
    let program = Program::start();
    let first = bind(&program, "127.0.0.1:0").expect("bound");
    let address = program.address(first, false);
    assert_ne!(address.port(), 0);
    let address = address.to_string();
    assert_eq!(bind(&program, &address), Err(libc::EADDRINUSE));
    let datagrams = program.create(1, UDP);
    program
        .bind(datagrams, &address)
        .expect("a space of its own");
    program.destroy(first).expect("destroyed");
    bind(&program, &address).expect("free");
}

#[test]
fn any_address_overlaps_each() {
    let program = Program::start();
    let one = bind(&program, "127.0.0.1:0").expect("bound");
    let port = program.address(one, false).port();
    for any in ["0.0.0.0", "[::]"] {
        let any = format!("{any}:{port}");
        assert_eq!(bind(&program, &any), Err(libc::EADDRINUSE));
    }
    let any = program.create(1, TCP);
    program.set_flag(any, AFONLY);
    program
        .bind(any, &format!("[::]:{port}"))
        .expect("IPv6 alone");
    program.destroy(one).expect("destroyed");
    let any = bind(&program, &format!("0.0.0.0:{port}")).expect("free");
    let one = format!("127.0.0.1:{port}");
    assert_eq!(bind(&program, &one), Err(libc::EADDRINUSE));
    program.destroy(any).expect("destroyed");
}

#[test]
fn who_listens_everywhere_is_called_anywhere() {
    let (server, client) = (Program::start(), Program::start());
    let id = bind(&server, "[::]:0").expect("bound");
    server.listen(id, 0).expect("it listens");
    let port = server.address(id, false).port();
    for ip in ["127.0.0.1", "[::1]"] {
        let to = format!("{ip}:{port}").parse().expect("an address");
        client.call(2, TCP, to);
        let request = server.event();
        assert_eq!(server.address(request.id, false), to);
    }
}

#[test]
fn a_port_used_again_waits_for_its_holder() {
    let program = Program::start();
    let first = bind(&program, "127.0.0.1:0").expect("bound");
    let address = program.address(first, false).to_string();
    let second = program.create(1, TCP);
    program.set_flag(second, REUSEADDR);
    program.bind(second, &address).expect("both are bound");
    assert_eq!(program.listen(second, 1), Err(libc::EADDRINUSE));
    program.destroy(first).expect("destroyed");
    program.listen(second, 1).expect("it is free now");
}

#[test]
fn only_addresses_of_this_host_are_bound_to() {
    let program = Program::start();
    assert_eq!(bind(&program, "192.0.2.1:0"), Err(libc::EADDRNOTAVAIL));
}
