//! The crate `vervain-test`, as other people's tests use it.

use std::process::Stdio;

use vervain_test::{Rdma, Server, Vervain, free_port};

use crate::programs::{has, library};

fn host() -> Rdma {
    let vervain = Vervain::at(env!("CARGO_BIN_EXE_vervain")).library(library());
    Rdma::of(vervain).expect("a directory")
}

/// What the client of a pair says, and whether it succeeded; its server is over.
fn pingpong(server: &Rdma, client: &Rdma) -> (bool, String) {
    let port = free_port().expect("a port").to_string();
    let program = ["ibv_rc_pingpong", "-c", "-g", "0", "-n", "50", "-p", &port];
    let mut command = server.command(program);
    let mut server =
        Server::start(command.stdout(Stdio::null()).stderr(Stdio::null())).expect("it starts");
    let number = port.parse().expect("a port");
    server.until_listening(number).expect("it listens");
    let client = client.command(program).arg("127.0.0.1").output();
    let client = client.expect("it runs");
    if client.status.success() {
        assert!(server.wait().expect("it ends").success());
    }
    let said = [client.stdout, client.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (client.status.success(), said)
}

#[test]
fn hosts_reach_each_other_in_a_directory_of_their_own() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let here = host();
    let there = here.host("10.0.0.2");
    let (is_done, said) = pingpong(&here, &there);
    assert!(is_done, "{said}");
    for gid in ["GID ::ffff:10.0.0.2", "GID ::ffff:127.0.0.1"] {
        assert!(said.contains(gid), "{said}");
    }
    // Another address, or it would take itself for its peer.
    let elsewhere = host().host("10.0.0.3");
    assert_ne!(elsewhere.run_dir(), here.run_dir());
    let (is_done, said) = pingpong(&here, &elsewhere);
    assert!(!is_done, "{said}");
    let run_dir = here.run_dir().to_path_buf();
    drop(here);
    assert!(run_dir.exists(), "the other host still uses it");
    drop(there);
    assert!(!run_dir.exists());
}

#[test]
fn what_goes_wrong_and_what_is_traced_is_one_hosts() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let here = host();
    assert_eq!(
        here.trace().expect_err("nothing was traced").kind(),
        std::io::ErrorKind::NotFound
    );
    let there = here.host("10.0.0.2").faults("rc-error@7").seed(1).traced();
    let (is_done, said) = pingpong(&here, &there);
    assert!(!is_done, "{said}");
    assert!(said.contains("transport retry counter exceeded"), "{said}");
    let lines = there.trace().expect("a trace");
    let lines: Vec<serde_json::Value> = (lines.iter())
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    let posts = lines.iter().filter(|line| line["event"] == "post_send");
    assert_eq!(
        posts.count(),
        8,
        "those of the client, up to the one that failed"
    );
}

#[test]
fn a_server_ends_with_its_guard() {
    let here = host();
    let server = Server::start(&mut here.command(["sleep", "1000"])).expect("it starts");
    let process = format!("/proc/{}", server.id());
    assert!(std::path::Path::new(&process).exists());
    drop(server);
    assert!(
        !std::path::Path::new(&process).exists(),
        "killed and reaped"
    );
    let mut command = here.command(["no-such-program"]);
    let mut server = Server::start(command.stderr(Stdio::null())).expect("vervain starts");
    let port = free_port().expect("a port");
    let ended = server.until_listening(port).expect_err("nobody listens");
    assert!(
        ended.to_string().contains("ended before it listened"),
        "{ended}"
    );
}
