//! Misuse of verbs, found: by programs that make one mistake each, and by Debian's.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use programs::free_port;

use crate::pair::{Host, Listens, alone, has, text};
use crate::programs::{can_compile, compile};

/// What a program with errors exits with.
const ERRORS: i32 = 99;

/// `misuse.c`, compiled once; `None` where that cannot be done.
fn misuse() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let compiled = PROGRAM.get_or_init(|| {
        if !can_compile() {
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let program = compile("misuse", dir.path(), &["-g", "-libverbs"]);
        Some((dir, program))
    });
    compiled.as_ref().map(|(_, program)| program.as_path())
}

/// Makes a mistake, or does the same without it: the exit code, and what was said on standard error.
fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let host = Host::new();
    let mut command = host.command(program.to_str().expect("a path"), arguments);
    command
        .env("VERVAIN_CHECK", "-")
        .envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), complained)
}

/// The mistake is found with these words, and nothing is without it.
#[track_caller]
fn finds(mistake: &str, code: i32, words: &[&str]) {
    let Some(program) = misuse() else {
        return;
    };
    let (status, said) = run(program, &[mistake], &[]);
    assert_eq!(status, Some(code), "{mistake}: {said}");
    for word in words {
        assert!(said.contains(word), "{mistake}: no {word:?} in {said}");
    }
    let (status, said) = run(program, &[mistake, "right"], &[]);
    assert_eq!(
        (status, said.as_str()),
        (Some(0), ""),
        "{mistake}, without the mistake"
    );
}

#[test]
fn bytes_that_change_under_way_are_an_error_if_nobody_else_can_have_changed_them() {
    let places = ["changed_bytes (misuse.c:", "posted:", "completion polled:"];
    let words = [
        &["error: changed-buffer: qp 0x2: the bytes of WRITE 7 changed"],
        &places[..],
    ]
    .concat();
    finds("changed-buffer", ERRORS, &words);
    let words = [
        &["warning: changed-buffer: qp 0x2: the bytes of WRITE 7 changed"],
        &places[..],
    ]
    .concat();
    finds("changed-by-somebody", 0, &words);
    // It may have been by way of another region.
    finds("changed-by-another-key", 0, &words[..1]);
}

#[test]
fn a_failed_request_is_explained_by_what_both_sides_know() {
    finds(
        "failed-local",
        ERRORS,
        &[
            "error: failed-request: qp 0x2: WRITE 8 of 8200 bytes failed: local protection error",
            "It ends 8 bytes behind the region.",
            "failed_local (misuse.c:",
            "the region was registered:",
            "make (misuse.c:",
        ],
    );
    finds(
        "failed-deregistered",
        ERRORS,
        &[
            "WRITE 8 of 64 bytes failed: local protection error",
            "was deregistered: 0x",
            "and deregistered:",
            "failed_deregistered (misuse.c:",
        ],
    );
    finds(
        "failed-remote",
        ERRORS,
        &[
            "error: failed-request: qp 0x2: WRITE 9 of 64 bytes failed: remote access error",
            "The range is not inside the region there.",
            "The other side's region with this rkey is 0x",
            "failed_remote (misuse.c:",
        ],
    );
    finds(
        "no-recv",
        0,
        &[
            "warning: failed-request: qp 0x2: SEND 10 of 64 bytes failed: receiver-not-ready",
            "it has never posted one of its own",
            "no_recv (misuse.c:",
        ],
    );
}

#[test]
fn room_that_two_requests_have_is_told() {
    let words = [
        "warning: overlapping-recvs: RECV 2 has room",
        "overlapping_recvs (misuse.c:",
    ];
    finds("overlapping-recvs", 0, &words);
    let words = [
        "warning: send-from-recv: WRITE 2 uses the room",
        "send_from_recv (misuse.c:",
    ];
    finds("send-from-recv", 0, &words);
}

#[test]
fn memory_that_goes_while_it_is_registered_is_told() {
    let words = [
        "warning: lost-memory: munmap took memory away",
        "registered:",
        "unmapped (misuse.c:",
    ];
    finds("unmapped", 0, &words);
    let words = [
        "warning: lost-memory: the memory of a region was freed",
        "freed (misuse.c:",
    ];
    finds("freed", 0, &words);
    let words = [
        "warning: lost-memory: the memory of a region was freed",
        "resized (misuse.c:",
    ];
    finds("resized", 0, &words);
    let words = [
        "warning: lost-memory: the memory of a region is not mapped any more",
        "unmapped_unseen (misuse.c:",
    ];
    finds("unmapped-unseen", 0, &words);
    let words = [
        "error: lost-memory: munmap",
        "Requests that are under way name it.",
    ];
    finds("unmapped-in-use", ERRORS, &words);
    let words = [
        "warning: deregistered-in-use: qp 0x2: the region of RECV 3",
        "deregistered_in_use (misuse.c:",
    ];
    finds("deregistered-in-use", 0, &words);
}

#[test]
fn what_is_right_but_odd_is_let_be() {
    let Some(program) = misuse() else {
        return;
    };
    for odd in ["nowhere", "same-iova", "freed-by-child", "at-exit"] {
        let (status, said) = run(program, &[odd], &[]);
        assert_eq!((status, said.as_str()), (Some(0), ""), "{odd}");
    }
    // What it leaves behind is told if it was interrupted elsewhere.
    let (status, said) = run(program, &["on-signal"], &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(!said.contains("error: "), "{said}");
}

#[test]
fn a_process_that_is_interrupted_in_the_allocator_ends() {
    let Some(program) = misuse() else {
        return;
    };
    let (status, said) = run(program, &["in-malloc"], &[]);
    assert_eq!(status, Some(ERRORS), "{said}");
    assert!(said.contains("error: changed-buffer"), "{said}");
    assert!(said.contains("1 error, 0 warnings"), "{said}");
}

#[test]
fn a_programs_own_alarms_do_not_cut_its_end_short_and_go_on() {
    if !can_compile() {
        return;
    }
    let host = Host::new();
    let program = compile("alarms", host.run_dir(), &["-libverbs"]);
    for _ in 0..5 {
        let mut command = host.command(program.to_str().expect("a path"), &[]);
        let output = command.env("VERVAIN_CHECK", "-").output().expect("it runs");
        let said = text(&output);
        assert!(output.status.success(), "{}: {said}", output.status);
        for words in [
            "warning: left-behind: the process ends with 40 queue pairs, 1 CQs",
            "0 errors, 1 warning\n",
            "its alarms go on\n",
        ] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
    }
}

#[test]
fn sleeping_while_completions_wait_is_told() {
    let words = [
        "warning: undrained-sleep",
        "armed:",
        "sleeping:",
        "undrained_sleep (misuse.c:",
    ];
    finds("undrained-sleep", 0, &words);
}

#[test]
fn queues_that_are_too_full_are_told() {
    let words = [
        "error: starved-send-queue: qp 0x2: the send queue is full, and none of its 8 requests is signaled",
        "starved (misuse.c:",
    ];
    finds("starved", ERRORS, &words);
    let words = [
        "warning: cq-depth: a completion queue of 4 entries may have to hold 5",
        "cq_depth (misuse.c:",
    ];
    finds("cq-depth", 0, &words);
}

#[test]
fn destroying_too_early_and_using_too_late_are_told() {
    let words = [
        "warning: destroy-undrained: qp 0x2: destroyed with 1 requests",
        "undrained_destroy (misuse.c:",
    ];
    finds("undrained-destroy", 0, &words);
    let words = [
        "error: use-after-destroy: ibv_post_send of a queue pair",
        "error: use-after-destroy: ibv_destroy_qp of a queue pair",
        "use_after_destroy (misuse.c:",
        "2 errors, 0 warnings",
    ];
    finds("use-after-destroy", ERRORS, &words);
    let words = [
        "warning: busy: ibv_destroy_cq was refused",
        "busy (misuse.c:",
    ];
    finds("busy", 0, &words);
    let words = [
        "warning: left-behind: the process ends with 2 queue pairs",
        "left_behind (misuse.c:",
    ];
    finds("left-behind", 0, &words);
}

#[test]
fn destroying_in_the_middle_of_a_post_is_told() {
    let words = [
        "error: destroy-race: qp 0x4: destroyed while another thread posts to it",
        "destroy_race (misuse.c:",
    ];
    finds("destroy-race", ERRORS, &words);
}

#[test]
fn a_process_that_a_signal_ends_keeps_its_end() {
    const TERMINATED: i32 = 128 + 15;
    let Some(program) = misuse() else {
        return;
    };
    let (status, said) = run(program, &["killed"], &[]);
    // As a shell would tell it, or a process that ends itself so too.
    assert!(status.is_none_or(|code| code == TERMINATED), "{said}");
    assert!(said.contains("error: changed-buffer"), "{said}");
}

#[test]
fn processes_that_begin_at_once_find_their_places_and_leave_none() {
    if !can_compile() {
        return;
    }
    let host = Host::new();
    let program = compile("stays", host.run_dir(), &["-libverbs"]);
    let checks = host.run_dir().join("checks");
    let files = || {
        let files = std::fs::read_dir(&checks).expect("the directory").flatten();
        files.map(|file| file.file_name().into_string().expect("text"))
    };
    for round in 0..5 {
        let start = |_| {
            let mut command = host.command(program.to_str().expect("a path"), &[]);
            command.env("VERVAIN_CHECK", "-");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("it starts")
        };
        let mut all: Vec<Child> = (0..12).map(start).collect();
        let mut numbers: Vec<String> = (all.iter_mut())
            .map(|child| {
                let mut line = String::new();
                let said = child.stdout.as_mut().expect("a pipe");
                BufReader::new(said).read_line(&mut line).expect("read");
                line.trim().to_owned()
            })
            .collect();
        let mut there: Vec<String> = files().collect();
        numbers.sort();
        there.sort();
        assert_eq!(there, numbers, "round {round}");
        for mut child in all {
            drop(child.stdin.take());
            assert!(child.wait().expect("it ends").success());
        }
        assert_eq!(files().count(), 0, "round {round}");
    }
}

#[test]
fn a_run_directory_that_is_full_is_told_and_ends_nobody() {
    let Some(program) = misuse() else {
        return;
    };
    let host = Host::new();
    let inner = host.command(program.to_str().expect("a path"), &["use-after-destroy"]);
    // Room for the NIC's names, and not for what checks tell each other.
    let script = format!(
        "mount -t tmpfs -o size=128k,mode=700 none {} && exec \"$@\"",
        host.run_dir().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.env("VERVAIN_CHECK", "-").output();
    let output = output.expect("unshare");
    let said = text(&output);
    if said.contains("unshare:") || said.contains("mount:") {
        return eprintln!("left out: namespaces are not allowed here: {said}");
    }
    assert_eq!(output.status.code(), Some(1), "{}: {said}", output.status);
    let sentence = format!("{}/checks: No space left", host.run_dir().display());
    assert!(said.contains(&sentence), "{said}");
}

#[test]
fn ends_in_different_processes_are_compared() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let host = Host::new().with_variable("VERVAIN_CHECK", "-");
    let _alone = alone();
    let port = free_port();
    let port_text = port.to_string();
    let words = [
        "ibv_rc_pingpong",
        "-g",
        "0",
        "-n",
        "10",
        "-p",
        &port_text,
        "-m",
    ];
    let server = [&words[..], &["1024"]].concat();
    let server = host.serve(&server, Listens::Tcp(port));
    let client = [&words[..], &["2048", "127.0.0.1"]].concat();
    let client = host.call(&client).into_output();
    let server = server.end().into_output();
    // Whichever is connected last sees both.
    let said = [&server, &client].map(text).concat();
    let codes = [server.status.code(), client.status.code()];
    assert!(codes.contains(&Some(ERRORS)), "{codes:?} {said}");
    let expected = [
        "error: peer-mismatch: qp 0x",
        " has an MTU of ",
        " of process ",
    ];
    assert!(expected.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn ends_may_use_different_addresses_of_a_host() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let host = Host::new().with_variable("VERVAIN_CHECK", "-");
    let devices = host.say("ibv_devinfo", &["-v"]);
    let gids = devices.matches("GID[").count();
    assert!(gids > 0, "{devices}");
    let last = (gids - 1).to_string();
    let _alone = alone();
    let port = free_port();
    let port_text = port.to_string();
    let words = ["ibv_rc_pingpong", "-n", "10", "-p", &port_text, "-g"];
    let server = host.serve(&[&words[..], &["0"]].concat(), Listens::Tcp(port));
    let client = host.call(&[&words[..], &[&last, "127.0.0.1"]].concat());
    for output in [client.into_output(), server.end().into_output()] {
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("peer-mismatch"), "{said}");
    }
}

#[test]
fn ends_that_do_not_fit_are_told() {
    let words = [
        "error: peer-mismatch: qp 0x3 has an MTU of 4096 bytes",
        "1 error, 0 warnings",
    ];
    finds("mtu", ERRORS, &words);
    let words = [
        "warning: peer-mismatch: qp 0x3 sends the PSN 0x8 first",
        "0 errors, 1 warning",
    ];
    finds("psn", 0, &words);
    // The other side is connected anew after this one.
    let words = [
        "warning: peer-mismatch: qp 0x2 expects the PSN",
        "1 error, 2 warnings",
    ];
    finds("connected-anew", ERRORS, &words);
}

#[test]
fn posts_that_are_refused_or_flushed_are_told() {
    let words = [
        "error: wrong-state: qp 0x2",
        "state Reset",
        "wrong_state (misuse.c:",
    ];
    finds("wrong-state", ERRORS, &words);
    let words = [
        "error: bad-request: qp 0x2",
        "more inline bytes",
        "warning: ignored-bad-wr: qp 0x2: 2 requests were refused",
        "ignored_bad_wr (misuse.c:",
    ];
    finds("ignored-bad-wr", ERRORS, &words);
    let words = [
        "error: bad-request: qp 0x",
        "more inline bytes",
        "refused_extended (misuse.c:",
        "ibv_wr_complete has posted none",
        "2 requests were refused and never posted again",
        "1 error, 1 warning",
    ];
    finds("refused-extended", ERRORS, &words);
    let words = [
        "error: starved-send-queue: qp 0x",
        "none of its 8 requests is signaled",
        "starved_extended (misuse.c:",
    ];
    finds("starved-extended", ERRORS, &words);
    let words = [
        "warning: post-after-error: qp 0x2",
        "post_after_error (misuse.c:",
    ];
    finds("post-after-error", ERRORS, &words);
}

#[test]
fn what_the_program_has_not_seen_yet_counts_for_nothing() {
    finds(
        "changed-extended",
        ERRORS,
        &["error: changed-buffer: qp ", "the bytes of WRITE 7 changed"],
    );
    finds(
        "undrained-event",
        0,
        &["warning: destroy-undrained", "undrained_event (misuse.c:"],
    );
    let Some(program) = misuse() else {
        return;
    };
    // An error completion that was there before the post, and one that was polled.
    for (words, is_told) in [
        (&["error-extended"][..], true),
        (&["error-extended", "right"], false),
    ] {
        let (status, said) = run(program, words, &[]);
        assert_eq!(status, Some(ERRORS), "{said}");
        assert!(said.contains("error: failed-request"), "{said}");
        assert_eq!(said.contains("post-after-error"), is_told, "{said}");
    }
}

#[test]
fn a_child_that_uses_what_its_parent_has_opened_is_told() {
    finds(
        "forked",
        ERRORS,
        &[
            "error: fork: a child process uses",
            "used in the child:",
            "forked (misuse.c:",
        ],
    );
}

#[test]
fn findings_go_to_a_file_and_the_exit_code_can_be_chosen() {
    let Some(program) = misuse() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("findings.json");
    let variables = [
        ("VERVAIN_CHECK", file.to_str().expect("a path")),
        ("VERVAIN_CHECK_EXIT", "17"),
    ];
    let (status, said) = run(program, &["ignored-bad-wr"], &variables);
    assert_eq!(status, Some(17), "{said}");
    let lines = std::fs::read_to_string(&file).expect("findings");
    let findings: Vec<serde_json::Value> = (lines.lines())
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    let name = |one: &serde_json::Value| format!("{} {}", one["severity"], one["check"]);
    let checks: Vec<_> = findings.iter().map(name).collect();
    let expected = [r#""error" "bad-request""#, r#""warning" "ignored-bad-wr""#];
    assert_eq!(checks, expected);
    let frame = findings[0]["places"][0]["frames"][0]
        .as_str()
        .expect("a frame");
    assert!(frame.starts_with("ignored_bad_wr (misuse.c:"), "{frame}");
}

#[test]
fn a_program_without_checks_is_let_alone() {
    let Some(program) = misuse() else {
        return;
    };
    let (status, said) = run(program, &["changed-buffer"], &[("VERVAIN_CHECK", "")]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
}

/// Runs a server and its client with checks: neither makes an error, and all warnings are of these checks.
#[track_caller]
fn makes_no_error(program: &str, arguments: &[&str], warnings: &[&str]) {
    if !has(program) {
        return;
    }
    let host = Host::new().with_variable("VERVAIN_CHECK", "-");
    for said in host.pair(program, arguments) {
        for line in said.lines().filter(|line| line.starts_with("vervain[")) {
            assert!(
                !line.contains("]: error: "),
                "{program} {arguments:?}: {said}"
            );
            let warning = line.split_once("]: warning: ").map(|(_, rest)| rest);
            let is_known = |rest: &str| warnings.iter().any(|check| rest.starts_with(check));
            assert!(
                warning.is_none_or(is_known),
                "{program} {arguments:?}: {said}"
            );
        }
    }
}

#[test]
fn debians_programs_make_no_errors() {
    // They receive all messages into one place, and send from there.
    let pingpongs = ["overlapping-recvs", "send-from-recv"];
    makes_no_error(
        "ibv_rc_pingpong",
        &["-g", "0", "-n", "100", "-c", "-e"],
        &pingpongs,
    );
    makes_no_error("ibv_ud_pingpong", &["-g", "0", "-n", "100"], &pingpongs);
    // It has had all answers that it wants before its last messages are known to have gone.
    let of_srq = [&pingpongs[..], &["destroy-undrained"]].concat();
    makes_no_error("ibv_srq_pingpong", &["-g", "0", "-n", "100"], &of_srq);
    makes_no_error("ib_write_lat", &["-n", "100", "-s", "4096"], &[]);
    makes_no_error("ib_read_bw", &["-n", "100"], &[]);
    // It takes an event for each completion, and so sleeps where it might find one.
    let events = ["overlapping-recvs", "undrained-sleep"];
    makes_no_error("ib_send_lat", &["-n", "100", "-e"], &events);
}
