//! A store on flash behind the Memcache door.

use rustix::process::Signal;

use crate::harness::{Place, Server, run, vervain};

fn serve(place: &Place, more: &[&str]) -> Server {
    let store = place.path("my.store");
    let store = store.to_str().expect("a plain path");
    let flags = ["--engine", "store", "--store", store, "--store-size", "32M"];
    place.start(&[&flags[..], more].concat())
}

#[test]
fn a_store_is_served_killed_and_served_again() {
    let place = Place::new();
    let server = serve(&place, &["--cores", "2"]);
    assert_eq!(server.hello["keys"], 0);
    let mut client = server.raw();
    // Pipelined, so that each command finds the one before it under way.
    client.ask(
        "set a 7 0 5\r\nhello\r\nget a\r\nappend a 0 0 6\r\n world\r\nget a b\r\nset n 0 0 1\r\n9\r\n\
         incr n 1\r\nget n\r\nadd a 0 0 1\r\nx\r\nreplace b 0 0 1\r\nx\r\ndelete n\r\nget n\r\n\
         set big 0 0 3 noreply\r\nbig\r\nget big\r\ntouch big 100\r\ngat 200 big\r\n",
        "STORED\r\nVALUE a 7 5\r\nhello\r\nEND\r\nSTORED\r\nVALUE a 7 11\r\nhello world\r\nEND\r\n\
         STORED\r\n10\r\nVALUE n 0 2\r\n10\r\nEND\r\nNOT_STORED\r\nNOT_STORED\r\nDELETED\r\nEND\r\n\
         VALUE big 0 3\r\nbig\r\nEND\r\nTOUCHED\r\nVALUE big 0 3\r\nbig\r\nEND\r\n",
    );
    client.ask("flush_all\r\n", "SERVER_ERROR not supported\r\n");
    client.ask("stats nothing\r\n", "ERROR\r\n");
    // Answered changes survive the server, whatever becomes of those under way.
    for at in 0..200 {
        client.ask(&format!("set key{at} 0 0 4\r\n{at:04}\r\n"), "STORED\r\n");
    }
    client.send(b"set a 7 0 5\r\nother\r\nset late 0 0 1\r\nx\r\n");
    server.child.signal(Signal::KILL);
    drop(server);

    let server = serve(&place, &[]);
    let mut client = server.raw();
    for at in 0..200 {
        let answer = format!("VALUE key{at} 0 4\r\n{at:04}\r\nEND\r\n");
        client.ask(&format!("get key{at}\r\n"), &answer);
    }
    client.send(b"get a\r\n");
    let (value, flags) = client.try_item().expect("an answer").expect("an item");
    assert!(value == b"hello world" || value == b"other", "{value:?}");
    assert_eq!(flags, 7);
    client.ask("get n\r\n", "END\r\n");
    let stats = server.stats("");
    assert_eq!(stats["get_misses"], "1", "{stats:?}");
    assert_eq!(stats["curr_connections"], "2", "{stats:?}");
    let (code, said) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");

    let path = place.path("my.store");
    let check = run(vervain().args(["store", "check"]).arg(&path), b"");
    assert_eq!(check.code, Some(0), "{}{}", check.text(), check.err);
    let inspect = run(vervain().args(["store", "inspect"]).arg(&path), b"");
    assert!(
        inspect.text().contains("closed     yes"),
        "{}",
        inspect.text()
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let said = run(&mut place.serve(&["--engine", "store"]), b"");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("--store <FILE>"), "{}", said.err);
    let path = place.path("precious");
    std::fs::write(&path, vec![b'p'; 4 << 20]).expect("a file");
    let flags = [
        "--engine",
        "store",
        "--store",
        path.to_str().expect("a path"),
    ];
    let said = run(&mut place.serve(&flags), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("precious"), "{}", said.err);
    assert_eq!(
        std::fs::read(&path).expect("still there"),
        vec![b'p'; 4 << 20]
    );
    let said = run(&mut place.serve(&flags[2..]), b"");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("--engine store"), "{}", said.err);
}
