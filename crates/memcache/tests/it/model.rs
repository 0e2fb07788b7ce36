//! A naive model of the protocol: commands as values, and the answer each should get.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::driver::NOW_S;

/// A well-formed command over few keys, so that commands meet.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Get {
        keys: Vec<u8>,
        unique: bool,
        touch: Option<i64>,
    },
    Store {
        verb: usize,
        key: u8,
        flags: u32,
        expiry: i64,
        value: Vec<u8>,
        unique: u64,
        quiet: bool,
    },
    Delete {
        key: u8,
        quiet: bool,
    },
    Arith {
        key: u8,
        up: bool,
        delta: u64,
        quiet: bool,
    },
    Touch {
        key: u8,
        expiry: i64,
        quiet: bool,
    },
    FlushAll {
        quiet: bool,
    },
}

const VERBS: [&str; 6] = ["set", "add", "replace", "append", "prepend", "cas"];

impl Command {
    /// The command as a client sends it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let end = |quiet: &bool| if *quiet { " noreply\r\n" } else { "\r\n" };
        match self {
            Self::Get {
                keys,
                unique,
                touch,
            } => {
                let s = if *unique { "s" } else { "" };
                let mut line = match touch {
                    Some(expiry) => format!("gat{s} {expiry}"),
                    None => format!("get{s}"),
                };
                for key in keys {
                    line += &format!(" k{key}");
                }
                (line + "\r\n").into_bytes()
            }
            Self::Store {
                verb,
                key,
                flags,
                expiry,
                value,
                unique,
                quiet,
            } => {
                let mut line = format!("{} k{key} {flags} {expiry} {}", VERBS[*verb], value.len());
                if VERBS[*verb] == "cas" {
                    line += &format!(" {unique}");
                }
                let mut bytes = (line + end(quiet)).into_bytes();
                bytes.extend(value);
                bytes.extend(b"\r\n");
                bytes
            }
            Self::Delete { key, quiet } => format!("delete k{key}{}", end(quiet)).into_bytes(),
            Self::Arith {
                key,
                up,
                delta,
                quiet,
            } => {
                let verb = if *up { "incr" } else { "decr" };
                format!("{verb} k{key} {delta}{}", end(quiet)).into_bytes()
            }
            Self::Touch { key, expiry, quiet } => {
                format!("touch k{key} {expiry}{}", end(quiet)).into_bytes()
            }
            Self::FlushAll { quiet } => format!("flush_all{}", end(quiet)).into_bytes(),
        }
    }
}

/// Any command.
pub(crate) fn command() -> impl Strategy<Value = Command> {
    let key = 0..4u8;
    let expiry = prop_oneof![
        4 => Just(0i64),
        1 => Just(-1i64),
        1 => Just(60i64),
        1 => Just(2_592_001i64),
        1 => Just(i64::MAX)
    ];
    let value = prop_oneof![
        2 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => any::<u64>().prop_map(|number| number.to_string().into_bytes()),
        1 => (0..200u64).prop_map(|number| number.to_string().into_bytes()),
        1 => Just(b"12 \r\n".to_vec()),
    ];
    let delta = prop_oneof![0..100u64, any::<u64>()];
    let quiet = proptest::bool::weighted(0.2);
    let store = (
        0..6usize,
        key.clone(),
        any::<u32>(),
        expiry.clone(),
        value,
        0..20u64,
        quiet,
    );
    prop_oneof![
        4 => (
            proptest::collection::vec(key.clone(), 1..6),
            any::<bool>(),
            proptest::option::weighted(0.3, expiry.clone())
        )
            .prop_map(|(keys, unique, touch)| Command::Get { keys, unique, touch }),
        6 => store.prop_map(|(verb, key, flags, expiry, value, unique, quiet)| Command::Store {
            verb, key, flags, expiry, value, unique, quiet
        }),
        1 => (key.clone(), quiet).prop_map(|(key, quiet)| Command::Delete { key, quiet }),
        3 => (key.clone(), any::<bool>(), delta, quiet)
            .prop_map(|(key, up, delta, quiet)| Command::Arith { key, up, delta, quiet }),
        1 => (key, expiry, quiet)
            .prop_map(|(key, expiry, quiet)| Command::Touch { key, expiry, quiet }),
        1 => quiet.prop_map(|quiet| Command::FlushAll { quiet }),
    ]
}

struct Item {
    value: Vec<u8>,
    flags: u32,
    unique: u64,
}

/// The items as a reader of the protocol's description would keep them, at one moment in time.
#[derive(Default)]
pub(crate) struct Model {
    items: HashMap<u8, Item>,
    writes: u64,
}

/// Whether an expiry lies in the past of `NOW_S`.
fn is_past(expiry: i64) -> bool {
    expiry < 0 || (expiry > 30 * 24 * 3600 && expiry as u64 <= NOW_S)
}

impl Model {
    /// Carries a command out and tells what the client should hear.
    pub(crate) fn answer(&mut self, command: &Command) -> Vec<u8> {
        let (line, quiet) = match command {
            Command::Get {
                keys,
                unique,
                touch,
            } => return self.get(keys, *unique, *touch),
            Command::Store { quiet, .. } => (self.store(command).to_owned(), *quiet),
            Command::Delete { key, quiet } => {
                let found = self.items.remove(key).is_some();
                (
                    if found { "DELETED" } else { "NOT_FOUND" }.to_owned(),
                    *quiet,
                )
            }
            Command::Arith {
                key,
                up,
                delta,
                quiet,
            } => (self.arith(*key, *up, *delta), *quiet),
            Command::Touch { key, expiry, quiet } => {
                let found = self.items.contains_key(key);
                if is_past(*expiry) {
                    self.items.remove(key);
                }
                (
                    if found { "TOUCHED" } else { "NOT_FOUND" }.to_owned(),
                    *quiet,
                )
            }
            Command::FlushAll { quiet } => {
                self.items.clear();
                ("OK".to_owned(), *quiet)
            }
        };
        if quiet {
            Vec::new()
        } else {
            (line + "\r\n").into_bytes()
        }
    }

    fn get(&mut self, keys: &[u8], with_unique: bool, touch: Option<i64>) -> Vec<u8> {
        let mut answer = Vec::new();
        for key in keys {
            if let Some(Item {
                value,
                flags,
                unique,
            }) = self.items.get(key)
            {
                let mut line = format!("VALUE k{key} {flags} {}", value.len());
                if with_unique {
                    line += &format!(" {unique}");
                }
                answer.extend((line + "\r\n").into_bytes());
                answer.extend(value);
                answer.extend(b"\r\n");
            }
            if touch.is_some_and(is_past) {
                self.items.remove(key);
            }
        }
        answer.extend(b"END\r\n");
        answer
    }

    fn store(&mut self, command: &Command) -> &'static str {
        let Command::Store {
            verb,
            key,
            flags,
            expiry,
            value,
            unique,
            ..
        } = command
        else {
            unreachable!("called with a store")
        };
        let verb = VERBS[*verb];
        let old = self.items.remove(key);
        let refusal = match (&old, verb) {
            (Some(_), "add") | (None, "replace" | "append" | "prepend") => Some("NOT_STORED"),
            (None, "cas") => Some("NOT_FOUND"),
            (Some(item), "cas") if item.unique != *unique => Some("EXISTS"),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.items.extend(old.map(|item| (*key, item)));
            return refusal;
        }
        self.writes += 1;
        let unique = self.writes;
        match (old, verb) {
            (Some(item), "append") => {
                let value = [&item.value[..], value].concat();
                self.items.insert(
                    *key,
                    Item {
                        value,
                        unique,
                        ..item
                    },
                );
            }
            (Some(item), "prepend") => {
                let value = [value, &item.value[..]].concat();
                self.items.insert(
                    *key,
                    Item {
                        value,
                        unique,
                        ..item
                    },
                );
            }
            _ if is_past(*expiry) => {}
            _ => {
                let item = Item {
                    value: value.clone(),
                    flags: *flags,
                    unique,
                };
                self.items.insert(*key, item);
            }
        }
        "STORED"
    }

    fn arith(&mut self, key: u8, up: bool, delta: u64) -> String {
        let Some(item) = self.items.get_mut(&key) else {
            return "NOT_FOUND".to_owned();
        };
        let text = String::from_utf8_lossy(&item.value).into_owned();
        let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        let word = text
            .split(|c: char| c.is_ascii_whitespace() || c == '\x0b' || c == '\0')
            .next();
        let Some(number) = word.and_then(|word| word.parse::<u64>().ok()) else {
            return "CLIENT_ERROR cannot increment or decrement non-numeric value".to_owned();
        };
        let number = if up {
            (u128::from(number) + u128::from(delta)) as u64
        } else {
            number - number.min(delta)
        };
        self.writes += 1;
        item.unique = self.writes;
        item.value = format!("{number:<width$}", width = item.value.len()).into_bytes();
        number.to_string()
    }
}
