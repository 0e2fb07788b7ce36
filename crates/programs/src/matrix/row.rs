//! A row of the matrix: a program, its options, and what it has to say.

/// A row of the matrix.
#[derive(Clone, Debug)]
pub struct Row {
    /// The Debian package that has the program.
    pub package: &'static str,
    /// The program. Rows of one program differ in their options.
    pub program: &'static str,
    /// What is told to it.
    pub options: String,
    /// How it is run.
    pub(crate) play: Play,
    /// What both sides have to say.
    pub(crate) check: Check,
    /// What neither side may say.
    pub(crate) never: Option<&'static str>,
    /// The program's own race, after which it is run again.
    pub(crate) again_if: Option<&'static str>,
    /// With librdmacm's library that makes TCP sockets rsockets.
    pub(crate) over_rsockets: bool,
    /// Whether tests run it, or only the whole matrix.
    pub in_tests: bool,
    /// Why it does not work yet; it has to fail then.
    pub missing: Option<&'static str>,
}

/// Command lines. `{port}` is a port of TCP that nobody has, `{dir}` a directory.
#[derive(Clone, Debug)]
pub(crate) enum Play {
    /// To its end.
    Alone(String),
    /// A server, and then its client.
    Pair {
        server: String,
        client: String,
        meets: Meets,
    },
}

/// How a server shows that clients may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meets {
    /// It listens on its port of TCP.
    Tcp,
    /// It listens at the connection manager.
    Manager,
    /// It has said this.
    Says(&'static str),
}

/// What makes a run a good one.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// The client succeeds and says `client`; the server succeeds and says `server`, unless it is one that serves on.
    Says {
        client: &'static [&'static str],
        server: Option<&'static [&'static str]>,
    },
    /// perftest: a row of this size, with so many iterations and a positive figure behind them.
    Figures { size: u32, iterations: u32 },
    /// perftest's `-a`: such a row for each power of two from 2 bytes to this.
    Sizes { up_to: u32, iterations: u32 },
    /// perftest's `--run_infinitely`: rows until it is ended.
    Endless { rows: usize },
    /// The server writes `file`, which is afterwards equal to `from` in the directory.
    Copies {
        from: &'static str,
        file: &'static str,
    },
    /// It fails by itself, and says this.
    Refused(&'static str),
}

impl Check {
    /// What is looked at, in a few words.
    pub(crate) fn show(&self) -> String {
        match self {
            Check::Says {
                client,
                server: Some(_),
            } => format!("both succeed; \"{}\"", last_line(client)),
            Check::Says {
                client,
                server: None,
            } => format!("\"{}\"", last_line(client)),
            Check::Figures { size, iterations } => {
                format!("both succeed; {iterations} of {size} bytes are measured")
            }
            Check::Sizes { up_to, iterations } => {
                format!("both succeed; {iterations} of each size up to {up_to} bytes are measured")
            }
            Check::Endless { rows } => format!("{rows} rows of figures, until it is ended"),
            Check::Copies { .. } => "the copy has the same bytes".to_string(),
            Check::Refused(words) => format!("fails with \"{}\"", words.trim()),
        }
    }
}

/// The words that come last, on one line.
fn last_line(words: &[&str]) -> String {
    let last = words.last().copied().unwrap_or_default();
    last.trim().replace('\n', " / ").replace('\t', " ")
}

impl Row {
    fn new(package: &'static str, program: &'static str, options: &str, play: Play) -> Row {
        Row {
            package,
            program,
            options: options.to_string(),
            play,
            check: Check::Refused(""),
            never: None,
            again_if: None,
            over_rsockets: false,
            in_tests: false,
            missing: None,
        }
    }

    /// A program that needs no other.
    pub(crate) fn alone(package: &'static str, program: &'static str, options: &str) -> Row {
        let play = Play::Alone(line(&[program, options]));
        Row::new(package, program, options, play)
    }

    /// A program that is a server, and a client if it is told an address; both are told a port of TCP by `-p`.
    pub(crate) fn by_tcp(package: &'static str, program: &'static str, options: &str) -> Row {
        let server = line(&[program, options, "-p {port}"]);
        let play = Play::Pair {
            client: line(&[&server, "127.0.0.1"]),
            server,
            meets: Meets::Tcp,
        };
        Row::new(package, program, options, play)
    }

    /// A server and a client that meet by the connection manager.
    pub(crate) fn by_manager(
        package: &'static str,
        options: &str,
        server: (&'static str, &str),
        client: (&'static str, &str),
    ) -> Row {
        let play = Play::Pair {
            server: line(&[server.0, server.1, options]),
            client: line(&[client.0, client.1, options]),
            meets: Meets::Manager,
        };
        Row::new(package, client.0, options, play)
    }

    /// Whether the right answer is an error.
    pub fn is_refused(&self) -> bool {
        matches!(self.check, Check::Refused(_))
    }

    /// A server that shows otherwise that clients may come.
    pub(crate) fn meets(mut self, how: Meets) -> Row {
        if let Play::Pair { meets, .. } = &mut self.play {
            *meets = how;
        }
        self
    }

    /// With these variables, `NAME=VALUE` each.
    pub(crate) fn with_variables(mut self, variables: &str) -> Row {
        let with = |words: &str| line(&["env", variables, words]);
        self.play = match self.play {
            Play::Alone(words) => Play::Alone(with(&words)),
            Play::Pair {
                server,
                client,
                meets,
            } => Play::Pair {
                server: with(&server),
                client: with(&client),
                meets,
            },
        };
        self.options = line(&[&self.options, variables]);
        self
    }

    /// With this check.
    pub(crate) fn check(mut self, check: Check) -> Row {
        self.check = check;
        self
    }

    /// Both sides succeed, and say these.
    pub(crate) fn says(
        self,
        client: &'static [&'static str],
        server: &'static [&'static str],
    ) -> Row {
        self.check(Check::Says {
            client,
            server: Some(server),
        })
    }

    /// The client succeeds and says these; the server serves on.
    pub(crate) fn client_says(self, client: &'static [&'static str]) -> Row {
        self.check(Check::Says {
            client,
            server: None,
        })
    }

    /// Neither side may say this.
    pub(crate) fn never(mut self, words: &'static str) -> Row {
        self.never = Some(words);
        self
    }

    /// It is run again if it fails with this.
    pub(crate) fn again_if(mut self, words: &'static str) -> Row {
        self.again_if = Some(words);
        self
    }

    /// It fails by itself with these words.
    pub(crate) fn refused(self, words: &'static str) -> Row {
        self.check(Check::Refused(words))
    }

    /// Over rsockets.
    pub(crate) fn over_rsockets(mut self) -> Row {
        self.over_rsockets = true;
        self
    }

    /// One that tests run, too.
    pub(crate) fn tested(mut self) -> Row {
        self.in_tests = true;
        self
    }

    /// One that does not work yet.
    pub(crate) fn waits_for(mut self, what: &'static str) -> Row {
        self.missing = Some(what);
        self
    }
}

/// Words behind one another.
fn line(parts: &[&str]) -> String {
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.copied().collect::<Vec<_>>().join(" ")
}
