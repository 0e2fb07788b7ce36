//! Kernels and policies that refuse something, and both ways of socket I/O.
//!
//! A seccomp filter, which a process may put on itself and its children without being root, plays
//! the container that forbids a system call.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Place, Server, Shell, run};

/// Has the kernel refuse these system calls to the command, with EPERM.
fn refuse(command: &mut Command, calls: &[libc::c_long]) {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The call's number is the first field of what the filter looks at.
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        let number = u32::try_from(*call).expect("a call's number");
        program.push(step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            number,
        ));
        let verdict = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, verdict));
    }
    program.push(step(
        libc::BPF_RET | libc::BPF_K,
        0,
        0,
        libc::SECCOMP_RET_ALLOW,
    ));
    let install = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: prctl with plain numbers, and with a program that outlives the call; the kernel
        // copies it.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                    0,
                    0,
                ) != 0
        };
        if refused {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor locks.
    unsafe { command.pre_exec(install) };
}

/// Uses a server by all ways.
fn use_all(server: &Server) {
    server.ask(&["set", "k", "v"]).expect(0, "stored\n");
    let mut raw = server.raw();
    let keys: Vec<String> = (0..32).map(|key| format!("k{key}")).collect();
    for key in &keys {
        raw.ask(&format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    let values: String = keys
        .iter()
        .map(|key| format!("VALUE {key} 0 1\r\nx\r\n"))
        .collect();
    raw.ask(
        &format!("get {}\r\n", keys.join(" ")),
        &format!("{values}END\r\n"),
    );
    let mut shell = server.shell();
    assert_eq!(shell.ask("get k")["value"], json!("v"));
    assert_eq!(shell.finish(), Some(0));
}

#[test]
fn both_ways_of_socket_io_serve() {
    for io in ["epoll", "uring"] {
        let place = Place::new();
        if io == "uring" && !has_io_uring() {
            eprintln!("not applicable: this kernel refuses io_uring");
            continue;
        }
        let server = place.start(&["--io", io, "--cores", "2"]);
        assert_eq!(server.stats("settings")["io"], io);
        use_all(&server);
        assert_eq!(server.stop(Signal::TERM), (Some(0), String::new()));
    }
}

fn has_io_uring() -> bool {
    // SAFETY: no parameters where the kernel wants some: it fails, with EFAULT if it may be used.
    unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null_mut::<u8>()) };
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

#[test]
fn epoll_takes_over_where_io_uring_is_refused() {
    let place = Place::new();
    let mut command = place.serve(&["--cores", "2"]);
    refuse(&mut command, &[libc::SYS_io_uring_setup]);
    let server = Server::start(&place, command);
    use_all(&server);
    let (code, stderr) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0));
    assert_eq!(stderr.lines().count(), 1, "said once: {stderr}");
    assert!(
        stderr.contains("io_uring is not available, sockets use epoll"),
        "{stderr}"
    );

    let mut command = place.serve(&["--io", "uring"]);
    refuse(&mut command, &[libc::SYS_io_uring_setup]);
    let said = run(&mut command, b"");
    said.expect(1, "");
    assert!(said.err.contains("io_uring"), "{}", said.err);
}

#[test]
fn files_take_over_where_memfd_create_is_refused() {
    let place = Place::new();
    let mut command = place.serve(&["--cores", "2"]);
    refuse(&mut command, &[libc::SYS_memfd_create]);
    let server = Server::start(&place, command);
    // Its shared memory has no seals; who has them insists on them, and goes over the socket.
    let said = server.ask(&["set", "k", "v"]);
    said.expect(1, "");
    assert!(said.err.contains("not sealed"), "{}", said.err);
    server
        .ask(&["set", "k", "v", "--socket"])
        .expect(0, "stored\n");
    // A client on the same terms goes over the NIC.
    let mut command = server.command(&["--json", "shell"]);
    refuse(&mut command, &[libc::SYS_memfd_create]);
    // It says the same as its server.
    command.stderr(Stdio::null());
    let mut shell = Shell::start(command);
    assert_eq!(shell.ask("get k")["value"], json!("v"));
    let large = "x".repeat(300_000);
    assert_eq!(
        shell.ask(&format!("set large {large}"))["stored"],
        json!(true)
    );
    assert_eq!(shell.ask("get large")["value"], json!(large));
    assert_eq!(shell.finish(), Some(0));
    let (code, stderr) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0));
    assert_eq!(stderr.matches("no memfd").count(), 1, "said once: {stderr}");
}
