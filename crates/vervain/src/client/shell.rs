//! `vervain shell`: a connection that is kept, and a command a line.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Context as _;
use cache::herd::StoreMode;

use super::meeting::meeting;
use super::{Ask, Connection, Storing, answer, complain, expiry_soon_s, say};
use crate::cli::{ShellFlags, duration, explain};

const HELP: &str = "\
get KEY [KEY...]
set KEY VALUE           the value goes on to the end of the line
add KEY VALUE           only if there is no such item
replace KEY VALUE       only if there is such an item
setex KEY TIME VALUE    expires after TIME: 250ms, 90s, 5m, 1h
del KEY [KEY...]
incr KEY [DELTA]
touch KEY TIME
help, quit";

/// Takes commands until the end of standard input. A command that fails is reported and the next
/// one is taken; the exit code says whether all answers were yes.
pub(crate) fn shell(flags: &ShellFlags, as_json: bool) -> anyhow::Result<bool> {
    let mut connection = meeting(&flags.client, || Connection::open(&flags.client))?;
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if interactive {
        say("connected; `help` lists the commands")?;
    }
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    let mut all = true;
    loop {
        if interactive {
            let mut out = bench::print::output();
            write!(out, "> ")?;
            out.flush()?;
        }
        line.clear();
        if input.read_line(&mut line).context("reading a command")? == 0 {
            return Ok(all);
        }
        match carry_out(
            &mut connection,
            line.trim_end_matches(['\r', '\n']),
            as_json,
        ) {
            Ok(Next::Quit) => return Ok(all),
            Ok(Next::More(yes)) => all &= yes,
            Err(error) if error.downcast_ref::<std::io::Error>().is_some() => return Err(error),
            Err(error) => {
                all = false;
                let error = explain(&error);
                if as_json {
                    say(&serde_json::json!({ "error": error }).to_string())?;
                } else {
                    complain(&error);
                }
            }
        }
        bench::print::output().flush()?;
    }
}

enum Next {
    Quit,
    More(bool),
}

/// The first word and the rest behind one space.
fn word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn carry_out(connection: &mut Connection, line: &str, as_json: bool) -> anyhow::Result<Next> {
    let (command, rest) = word(line);
    let mut yes = true;
    match command {
        "" => {}
        "quit" | "exit" => return Ok(Next::Quit),
        "help" if as_json => say(&serde_json::json!({ "help": HELP }).to_string())?,
        "help" => say(HELP)?,
        "get" | "del" => {
            anyhow::ensure!(!rest.is_empty(), "{command} needs a key");
            for key in rest.split(' ').filter(|key| !key.is_empty()) {
                let ask = if command == "get" {
                    Ask::Get(key)
                } else {
                    Ask::Del(key)
                };
                yes &= answer(connection, &ask, as_json)?;
            }
        }
        "set" | "add" | "replace" | "setex" => {
            let (key, mut value) = word(rest);
            anyhow::ensure!(!key.is_empty(), "{command} needs a key and a value");
            let mut expiry_s = 0;
            if command == "setex" {
                let (time, behind) = word(value);
                expiry_s = expiry_soon_s(duration(time).map_err(anyhow::Error::msg)?);
                value = behind;
            }
            let (mode, word) = match command {
                "add" => (StoreMode::Add, "add"),
                "replace" => (StoreMode::Replace, "replace"),
                _ => (StoreMode::Set, "set"),
            };
            let storing = Storing {
                mode,
                word,
                key,
                value: value.as_bytes(),
                flags: 0,
                expiry_s,
            };
            yes = answer(connection, &Ask::Store(storing), as_json)?;
        }
        "incr" => {
            let (key, delta) = word(rest);
            anyhow::ensure!(!key.is_empty(), "incr needs a key");
            let delta = if delta.is_empty() { "1" } else { delta };
            let delta = delta
                .parse()
                .with_context(|| format!("`{delta}` is no number"))?;
            yes = answer(connection, &Ask::Incr(key, delta), as_json)?;
        }
        "touch" => {
            let (key, time) = word(rest);
            let ahead = duration(time).map_err(anyhow::Error::msg)?;
            yes = answer(connection, &Ask::Touch(key, ahead), as_json)?;
        }
        other => anyhow::bail!("`{other}` is no command; `help` lists them"),
    }
    Ok(Next::More(yes))
}
