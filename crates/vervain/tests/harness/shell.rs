//! A `vervain shell` that is kept.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use super::{Guard, LIMIT};

/// A process that takes a line and answers with lines of JSON.
pub(crate) struct Shell {
    pub(crate) child: Guard,
    input: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
}

impl Shell {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Self {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting a shell");
        let mut child = Guard(child);
        let input = child.0.stdin.take();
        let stdout = child.0.stdout.take().expect("a pipe");
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // The end of the pipe, or of whoever listens.
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Shell {
            child,
            input,
            answers,
        }
    }

    /// Writes lines without waiting for answers.
    #[track_caller]
    pub(crate) fn tell(&mut self, lines: &str) {
        let input = self.input.as_mut().expect("an open shell");
        input.write_all(lines.as_bytes()).expect("a living shell");
        input.write_all(b"\n").expect("a living shell");
    }

    /// The next answer.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Value {
        match self.answers.recv_timeout(LIMIT) {
            Ok(line) => serde_json::from_str(&line)
                .unwrap_or_else(|error| panic!("{line:?} is no JSON: {error}")),
            Err(error) => panic!("no answer from a shell: {error}"),
        }
    }

    /// A command and its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.tell(line);
        self.answer()
    }

    /// Ends its input; its exit code.
    pub(crate) fn finish(mut self) -> Option<i32> {
        self.input = None;
        self.child.wait_end()
    }
}
