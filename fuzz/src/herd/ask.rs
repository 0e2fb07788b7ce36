//! Requests that are well-formed, whatever they ask.

use arbitrary::Arbitrary;
use cache::herd::wire::request::{Command, KEY_LEN_MAX, Request, StoreMode};

/// Bytes of a value at most.
pub(super) const VALUE_LEN_MAX: u32 = 5000;

/// A key: one of a few, or any bytes.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Key<'a> {
    Few(u8),
    Any(&'a [u8]),
}

impl Key<'_> {
    pub(super) fn to_vec(self) -> Vec<u8> {
        match self {
            Key::Few(number) => vec![number; [1, 16, 41, 61][usize::from(number % 4)]],
            Key::Any(bytes) => bytes[..bytes.len().min(KEY_LEN_MAX)].to_vec(),
        }
    }
}

/// A request that is well-formed, whatever it asks.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Ask {
    Get,
    GetAndTouch,
    Store {
        mode: u8,
        cas: u64,
    },
    Delete,
    Incr(u64),
    Decr(u64),
    Touch,
    GetRange {
        offset: u32,
        len: u16,
        cas: u64,
    },
    PutPart {
        transfer: u8,
        offset: u32,
        total: u32,
    },
    PutCommit {
        transfer: u8,
        total: u32,
        mode: u8,
        cas: u64,
    },
    Noop,
}

fn mode(number: u8, cas: u64) -> StoreMode {
    match number % 6 {
        0 => StoreMode::Set,
        1 => StoreMode::Add,
        2 => StoreMode::Replace,
        3 => StoreMode::Append,
        4 => StoreMode::Prepend,
        _ => StoreMode::Cas(cas),
    }
}

impl Ask {
    /// The request, with what the other fields of a deed say.
    pub(super) fn request<'a>(self, key: &'a [u8], value: &'a [u8], number: u32) -> Request<'a> {
        let command = match self {
            Ask::Get => Command::Get { key },
            Ask::GetAndTouch => Command::GetAndTouch {
                key,
                expiry_s: number,
            },
            Ask::Store { mode: by, cas } => Command::Store {
                mode: mode(by, cas),
                key,
                value,
                flags: number,
                expiry_s: number % 4 * 1001,
            },
            Ask::Delete => Command::Delete { key },
            Ask::Incr(delta) => Command::Incr { key, delta },
            Ask::Decr(delta) => Command::Decr { key, delta },
            Ask::Touch => Command::Touch {
                key,
                expiry_s: number,
            },
            Ask::GetRange { offset, len, cas } => {
                return Request::GetRange {
                    key,
                    offset,
                    len: len.into(),
                    cas,
                };
            }
            Ask::PutPart {
                transfer,
                offset,
                total,
            } => {
                return Request::PutPart {
                    transfer: transfer.into(),
                    offset,
                    total: total % (VALUE_LEN_MAX + 100),
                    bytes: value,
                };
            }
            Ask::PutCommit {
                transfer,
                total,
                mode: by,
                cas,
            } => {
                return Request::PutCommit {
                    mode: mode(by, cas),
                    key,
                    transfer: transfer.into(),
                    total: total % (VALUE_LEN_MAX + 100),
                    flags: number,
                    expiry_s: 0,
                };
            }
            Ask::Noop => return Request::Noop,
        };
        Request::Command(command)
    }
}
