//! Runs a row and looks at what was said.

use std::path::Path;
use std::time::{Duration, Instant};

use super::row::{Check, Meets, Play, Row};
use crate::host::{Host, Listens, PATIENCE_S, RSPRELOAD, alone, find, until_listening};
use crate::listening::free_port;
use crate::running::{Running, Said};

/// How a row went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it has to.
    Passed,
    /// Otherwise: why, and what was said.
    Failed(String),
    /// It failed, as it is known to.
    Waits(&'static str),
    /// This program is not installed.
    Absent(String),
}

/// A row that was run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How it went.
    pub outcome: Outcome,
    /// What was looked at.
    pub checked: String,
    /// How long it took.
    pub time: Duration,
}

impl Row {
    /// Runs it, alone as far as this process goes, in bounded time.
    ///
    /// # Panics
    /// Coreutils or room for files are missing, or there is no [`library`](crate::library).
    pub fn run(&self) -> Ran {
        let _alone = alone();
        let began = Instant::now();
        let outcome = match (self.absent(), self.missing) {
            (Some(program), _) => Outcome::Absent(program),
            (None, None) => match self.play() {
                Ok(()) => Outcome::Passed,
                Err(why) => Outcome::Failed(why),
            },
            (None, Some(missing)) => match self.play() {
                Ok(()) => Outcome::Failed(format!("it works, although it waits for {missing}")),
                Err(_) => Outcome::Waits(missing),
            },
        };
        Ran {
            outcome,
            checked: self.check.show(),
            time: began.elapsed(),
        }
    }

    /// The first program that is not installed.
    fn absent(&self) -> Option<String> {
        let lines = match &self.play {
            Play::Alone(line) => vec![line],
            Play::Pair { server, client, .. } => vec![server, client],
        };
        let programs = lines
            .iter()
            .filter_map(|line| line.split_whitespace().next());
        let mut absent = programs.filter(|program| find(program).is_none());
        if self.over_rsockets && !Path::new(RSPRELOAD).exists() {
            return Some(RSPRELOAD.to_string());
        }
        absent.next().map(str::to_string)
    }

    fn play(&self) -> Result<(), String> {
        const AGAIN_MAX: u32 = 10;
        let mut went = self.play_once();
        for _ in 0..AGAIN_MAX {
            let is_race = |why: &String| self.again_if.is_some_and(|words| why.contains(words));
            if !went.as_ref().is_err_and(is_race) {
                break;
            }
            went = self.play_once();
        }
        went
    }

    fn play_once(&self) -> Result<(), String> {
        let mut host = Host::new();
        if self.missing.is_some() {
            // It is known not to work: some hang.
            host = host.with_patience(10);
        }
        if self.over_rsockets {
            host = host.with_library(Path::new(RSPRELOAD));
        }
        if let Check::Copies { from, .. } = &self.check {
            let bytes: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
            let written = std::fs::write(host.run_dir().join(from), bytes);
            written.map_err(|error| format!("{from}: {error}"))?;
        }
        match &self.play {
            Play::Alone(line) => {
                let said = host.call(&words(line));
                judge(self, &host, None, &said)
            }
            Play::Pair {
                server,
                client,
                meets,
            } => self.pair(&host, (server, client), *meets),
        }
    }

    fn pair(&self, host: &Host, sides: (&str, &str), meets: Meets) -> Result<(), String> {
        let port = free_port();
        let dir = host.run_dir().display().to_string();
        let fill = |line: &str| {
            line.replace("{port}", &port.to_string())
                .replace("{dir}", &dir)
        };
        let (server_line, client_line) = (fill(sides.0), fill(sides.1));
        let mut server = host.start(&words(&server_line));
        let waited = match meets {
            Meets::Tcp => until_listening(&mut server, Listens::Tcp(port)),
            Meets::Manager => until_listening(&mut server, Listens::Manager),
            Meets::Says(words) => until_said(&mut server, words),
        };
        if let Err(why) = waited {
            if let Check::Refused(_) = self.check {
                let server = server.end();
                return judge(self, host, None, &server);
            }
            return Err(format!("the server: {why}:\n{}", server.text()));
        }
        if let Check::Endless { rows } = self.check {
            let client = host.start(&words(&client_line));
            return endless(rows, server, client);
        }
        let client = host.call(&words(&client_line));
        let serves_on = matches!(
            self.check,
            Check::Says { server: None, .. } | Check::Copies { .. }
        );
        if serves_on || !client.status.success() {
            // It may wait for its client for ever.
            server.terminate();
        }
        let server = server.end();
        judge(self, host, Some(&server), &client)
    }
}

/// Waits until a program has said something.
fn until_said(program: &mut Running, words: &str) -> Result<(), &'static str> {
    let began = Instant::now();
    while !program.text().contains(words) {
        if program.is_over() {
            return Err("it has ended");
        }
        if began.elapsed() > Duration::from_secs(PATIENCE_S.into()) {
            return Err("it takes too long");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// `timeout` says so when it has ended a program.
const TIMED_OUT: Option<i32> = Some(124);

/// Looks at what was said; `server` is what both sides' check needs.
fn judge(row: &Row, host: &Host, server: Option<&Said>, client: &Said) -> Result<(), String> {
    let check = &row.check;
    let all = || {
        let server = server.map(|said| format!("server: {}\n{}\n", said.status, said.text()));
        let client = format!("client: {}\n{}", client.status, client.text());
        server.unwrap_or_default() + &client
    };
    let ensure = |is_so: bool, why: &str| match is_so {
        true => Ok(()),
        false => Err(format!("{why}:\n{}", all())),
    };
    if let Check::Refused(words) = check {
        ensure(!client.status.success(), "it is not refused")?;
        ensure(client.status.code() != TIMED_OUT, "it hangs")?;
        return ensure(client.text().contains(words), "the wrong words");
    }
    if let Some(words) = row.never {
        let mut said = [Some(client), server].into_iter().flatten();
        ensure(!said.any(|said| said.text().contains(words)), words)?;
    }
    ensure(client.status.success(), "the client fails")?;
    let serves_on = matches!(
        check,
        Check::Says { server: None, .. } | Check::Copies { .. }
    );
    if let Some(server) = server.filter(|_| !serves_on) {
        ensure(server.status.success(), "the server fails")?;
    }
    let rows = figures(&client.text());
    let is_measured = |size: u32, iterations: u32| {
        let (size, iterations) = (f64::from(size), f64::from(iterations));
        rows.iter().any(|row| {
            (row[0], row[1]) == (size, iterations) && row[2..].iter().any(|figure| *figure > 0.0)
        })
    };
    match check {
        Check::Says {
            client: words,
            server: more,
        } => {
            let has =
                |said: &Said, words: &[&str]| words.iter().all(|words| said.text().contains(words));
            ensure(has(client, words), "the client does not say it")?;
            let server = server.zip(*more);
            let is_said = server.is_none_or(|(server, words)| has(server, words));
            ensure(is_said, "the server does not say it")
        }
        Check::Figures { size, iterations } => {
            ensure(is_measured(*size, *iterations), "no such figures")
        }
        Check::Sizes { up_to, iterations } => {
            let mut sizes = (1..32).map(|bit| 1 << bit).take_while(|size| size <= up_to);
            let all = sizes.all(|size| is_measured(size, *iterations));
            ensure(all, "a size is missing")
        }
        Check::Copies { from, file } => {
            let read = |name: &str| std::fs::read(host.run_dir().join(name));
            let is_same = read(from).is_ok_and(|bytes| read(file).is_ok_and(|copy| copy == bytes));
            ensure(is_same, "the copy differs")
        }
        // Handled before.
        Check::Endless { .. } | Check::Refused(_) => Ok(()),
    }
}

/// Waits for rows of figures, and ends both sides.
fn endless(rows: usize, server: Running, mut client: Running) -> Result<(), String> {
    let waited = wait_for_rows(rows, &mut client);
    client.terminate();
    server.terminate();
    let (client, server) = (client.end(), server.end());
    waited.map_err(|why| {
        format!(
            "{why}:\nclient: {}\nserver: {}",
            client.text(),
            server.text()
        )
    })
}

fn wait_for_rows(rows: usize, client: &mut Running) -> Result<(), &'static str> {
    let began = Instant::now();
    while figures(&client.text()).len() < rows {
        if client.is_over() {
            return Err("it has ended");
        }
        if began.elapsed() > Duration::from_secs(60) {
            return Err("no rows of figures");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// perftest's rows: all lines of four numbers and more.
pub fn figures(said: &str) -> Vec<Vec<f64>> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let all = line.split_whitespace().map(str::parse);
        let all: Result<Vec<f64>, _> = all.collect();
        all.ok().filter(|all| all.len() >= 4)
    };
    said.lines().filter_map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    fn said(code: i32, out: &str) -> Said {
        Said {
            status: ExitStatus::from_raw(code << 8),
            out: out.to_string(),
            err: String::new(),
        }
    }

    #[test]
    fn what_is_not_said_is_no_success() {
        let host = Host::without_library();
        let judge = |check: &Check, server: i32, client: i32, words: &str| {
            let (server, client) = (said(server, "served"), said(client, words));
            let row = Row::alone("none", "none", "")
                .check(check.clone())
                .never("nonsense");
            judge(&row, &host, Some(&server), &client)
        };
        let check = Check::Says {
            client: &["all", "well"],
            server: Some(&["served"]),
        };
        assert_eq!(judge(&check, 0, 0, "all is well"), Ok(()));
        for (server, client, words) in [
            (0, 0, "all"),
            (1, 0, "all is well"),
            (0, 1, "all is well"),
            (0, 0, "all is well, nonsense"),
        ] {
            assert!(judge(&check, server, client, words).is_err());
        }
        let check = Check::Figures {
            size: 64,
            iterations: 100,
        };
        assert_eq!(judge(&check, 0, 0, " 64   100   0.00   1.5\n"), Ok(()));
        for row in [
            " 64  100  0.00  0.00",
            " 64  99  1  1",
            " 65  100  1  1",
            "64  100 1",
            "",
        ] {
            assert!(judge(&check, 0, 0, row).is_err(), "{row}");
        }
        let check = Check::Refused("no such thing");
        assert_eq!(judge(&check, 0, 1, "no such thing"), Ok(()));
        for (code, words) in [(0, "no such thing"), (124, "no such thing"), (1, "nothing")] {
            assert!(judge(&check, 0, code, words).is_err(), "{code} {words}");
        }
    }
}
