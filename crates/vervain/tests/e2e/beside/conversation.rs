//! What is said to a server, and how it is made smaller while it still fails.

use std::fmt;

/// A piece of a command.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    /// The token that the server told last for a key, or 1.
    LastToken(Vec<u8>),
    /// The token that it told first.
    FirstToken(Vec<u8>),
}

/// A command with its value, or what was made of one.
pub(super) type Command = Vec<Part>;

/// What one connection says.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) commands: Vec<Command>,
    /// Where it is cut into pieces; not at all without one.
    pub(super) cuts: Option<u64>,
}

/// Sessions, one after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    pub(super) sessions: Vec<Session>,
}

impl Conversation {
    /// The same without the commands in which one of these words comes.
    pub(super) fn without(mut self, words: &[&[u8]]) -> Conversation {
        let has_one = |part: &Part| match part {
            Part::Bytes(bytes) => words
                .iter()
                .any(|word| bytes.windows(word.len()).any(|piece| piece == *word)),
            Part::LastToken(_) | Part::FirstToken(_) => false,
        };
        for session in &mut self.sessions {
            session
                .commands
                .retain(|command| !command.iter().any(has_one));
        }
        self
    }

    /// The smallest conversation, made by leaving things out, that still fails.
    pub(super) fn minimise(&self, fails: impl Fn(&Conversation) -> bool) -> Conversation {
        let mut best = self.clone();
        loop {
            let before = best.size();
            best.leave_sessions_out(&fails);
            best.leave_commands_out(&fails);
            best.join(&fails);
            best.shorten(&fails);
            if best.size() == before {
                return best;
            }
        }
    }

    fn size(&self) -> (usize, usize, usize) {
        let commands = self.sessions.iter().map(|one| one.commands.len()).sum();
        let cuts = self
            .sessions
            .iter()
            .filter(|one| one.cuts.is_some())
            .count();
        (self.sessions.len() + cuts, commands, self.to_string().len())
    }

    /// Takes a changed conversation over if it fails as well.
    fn attempt(
        &mut self,
        fails: &impl Fn(&Conversation) -> bool,
        change: impl FnOnce(&mut Conversation),
    ) -> bool {
        let mut smaller = self.clone();
        change(&mut smaller);
        let fits = fails(&smaller);
        if fits {
            *self = smaller;
        }
        fits
    }

    fn leave_sessions_out(&mut self, fails: &impl Fn(&Conversation) -> bool) {
        for at in (0..self.sessions.len()).rev() {
            self.attempt(fails, |smaller| drop(smaller.sessions.remove(at)));
        }
    }

    fn leave_commands_out(&mut self, fails: &impl Fn(&Conversation) -> bool) {
        for session in 0..self.sessions.len() {
            let mut count = self.sessions[session].commands.len().next_power_of_two();
            while count > 0 {
                let mut at = 0;
                while at < self.sessions[session].commands.len() {
                    let end = (at + count).min(self.sessions[session].commands.len());
                    let without = |smaller: &mut Conversation| {
                        drop(smaller.sessions[session].commands.drain(at..end));
                    };
                    if !self.attempt(fails, without) {
                        at = end;
                    }
                }
                count /= 2;
            }
        }
    }

    fn join(&mut self, fails: &impl Fn(&Conversation) -> bool) {
        for session in 0..self.sessions.len() {
            if self.sessions[session].cuts.is_some() {
                self.attempt(fails, |smaller| smaller.sessions[session].cuts = None);
            }
        }
    }

    /// Leaves bytes out of what is short.
    fn shorten(&mut self, fails: &impl Fn(&Conversation) -> bool) {
        for session in 0..self.sessions.len() {
            for command in 0..self.sessions[session].commands.len() {
                for part in 0..self.sessions[session].commands[command].len() {
                    let Part::Bytes(bytes) = &self.sessions[session].commands[command][part] else {
                        continue;
                    };
                    if bytes.len() > 120 {
                        continue;
                    }
                    // Numbers and line ends stay: what they would become may be read differently on purpose.
                    let may_go = |at: &usize| {
                        !bytes[*at].is_ascii_digit() && !bytes[*at].is_ascii_whitespace()
                    };
                    let places: Vec<usize> = (0..bytes.len()).rev().filter(may_go).collect();
                    for at in places {
                        self.attempt(fails, |smaller| {
                            let parts = &mut smaller.sessions[session].commands[command];
                            if let Part::Bytes(bytes) = &mut parts[part] {
                                bytes.remove(at);
                            }
                        });
                    }
                }
            }
        }
    }
}

impl fmt::Display for Conversation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, session) in self.sessions.iter().enumerate() {
            match session.cuts {
                Some(seed) => writeln!(out, "  session {number}, cut by {seed}:")?,
                None => writeln!(out, "  session {number}:")?,
            }
            for command in &session.commands {
                write!(out, "    ")?;
                for part in command {
                    match part {
                        Part::Bytes(bytes) => write!(out, "{}", show(bytes))?,
                        Part::LastToken(key) => write!(out, "<last token of {}>", show(key))?,
                        Part::FirstToken(key) => write!(out, "<first token of {}>", show(key))?,
                    }
                }
                writeln!(out)?;
            }
        }
        Ok(())
    }
}

/// Bytes as text, without the middle of what is long.
pub(super) fn show(bytes: &[u8]) -> String {
    if bytes.len() <= 400 {
        return bytes.escape_ascii().to_string();
    }
    let (head, tail) = (&bytes[..150], &bytes[bytes.len() - 150..]);
    let between = bytes.len() - 300;
    format!(
        "{}[.. {between} more ..]{}",
        head.escape_ascii(),
        tail.escape_ascii()
    )
}
