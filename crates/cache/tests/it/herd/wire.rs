//! The formats take back what they gave, and any bytes without harm.

use cache::herd::wire::answer::{Head, Status};
use cache::herd::wire::handshake::{
    Accept, AcceptCore, Connect, ConnectCore, Message, Refusal, ServerInfo,
};
use cache::herd::wire::request::{Command, Request, StoreMode};
use proptest::prelude::*;
use verbs::typed::Endpoint;
use verbs::{Gid, Psn, Qkey, QpNum, RemoteAddr, Rkey};

fn mode(code: u8, cas: u64) -> StoreMode {
    match code % 6 {
        0 => StoreMode::Set,
        1 => StoreMode::Add,
        2 => StoreMode::Replace,
        3 => StoreMode::Append,
        4 => StoreMode::Prepend,
        _ => StoreMode::Cas(cas),
    }
}

fn request<'a>(
    kind: u8,
    key: &'a [u8],
    value: &'a [u8],
    (a, b, c): (u32, u32, u32),
    long: u64,
) -> Request<'a> {
    Request::Command(match kind % 11 {
        0 => Command::Get { key },
        1 => Command::GetAndTouch { key, expiry_s: a },
        2 | 3 => Command::Store {
            mode: mode(a as u8, long),
            key,
            value,
            flags: b,
            expiry_s: c,
        },
        4 => Command::Delete { key },
        5 => Command::Incr { key, delta: long },
        6 => Command::Decr { key, delta: long },
        7 => Command::Touch { key, expiry_s: a },
        8 => {
            return Request::GetRange {
                key,
                offset: a,
                len: b,
                cas: long,
            };
        }
        9 => {
            return Request::PutPart {
                transfer: a,
                offset: b,
                total: c,
                bytes: value,
            };
        }
        _ => {
            return Request::PutCommit {
                mode: mode(a as u8, long),
                key,
                transfer: a,
                total: b,
                flags: c,
                expiry_s: !a,
            };
        }
    })
}

fn endpoint(seed: u32) -> Endpoint {
    Endpoint {
        gid: Gid([seed as u8; 16]),
        qpn: QpNum(seed & 0xff_ffff),
        psn: Psn(!seed & 0xff_ffff),
    }
}

proptest! {
    #[test]
    fn requests_come_back(
        kind: u8,
        key in prop::collection::vec(any::<u8>(), 1..=250),
        value in prop::collection::vec(any::<u8>(), 0..600),
        words: (u32, u32, u32),
        long: u64,
        id: u32,
        want_cas: bool,
    ) {
        let request = request(kind, &key, &value, words, long);
        let mut slot = [0x5a; 1024];
        let len = request.emit(id, want_cas, &mut slot).unwrap();
        prop_assert_eq!(len, request.len());
        prop_assert_eq!(Request::parse(&slot), Ok(request));
        prop_assert_eq!(Request::parse(&slot[1024 - len..]), Ok(request));
        prop_assert_eq!(Request::wants_cas(&slot), want_cas);
        prop_assert_eq!(&slot[1020..], &id.to_le_bytes());
        prop_assert!(Request::parse(&slot[1024 - len + 1..]).is_err());
    }

    #[test]
    fn any_bytes_are_a_request_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        if let Ok(request) = Request::parse(&bytes) {
            let mut slot = [0; 128];
            prop_assert!(request.emit(0, false, &mut slot).is_some());
        }
    }

    #[test]
    fn answers_come_back(
        id: u32,
        status in 0u8..13,
        item_flags: u32,
        total_len: u32,
        cas: Option<u64>,
        is_number: bool,
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let status = Status::from_code(status).unwrap();
        let head = Head { id, status, item_flags, total_len, cas, is_number };
        let body = if is_number { &[7; 8][..] } else { &body };
        let mut datagram = [0; 512];
        let len = head.emit(body, &mut datagram);
        prop_assert_eq!(Head::parse(&datagram[..len]), Some((head, body)));
        prop_assert_eq!(Head::parse(&datagram[..len - 1]), None);
    }

    #[test]
    fn any_bytes_are_an_answer_or_none(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        if let Some((_, body)) = Head::parse(&bytes) {
            prop_assert!(body.len() <= bytes.len());
        }
    }

    #[test]
    fn messages_come_back(kind in 0u8..5, seed: u32, long: u64, count in 1usize..9) {
        let cores = 0..count as u32;
        let message = match kind {
            0 => Message::Hello(1, seed as u16),
            1 => Message::Info(ServerInfo {
                incarnation: long,
                route_seed: !long,
                idle_ns: long / 3,
                cores: seed,
                window_max: !seed,
                slot_len: seed / 2,
                answer_len_max: seed / 3,
                value_len_max: seed / 4,
            }),
            2 => Message::Connect(Connect {
                incarnation: long,
                window: seed,
                gid: Gid([3; 16]),
                cores: cores.map(|core| ConnectCore {
                    uc: endpoint(seed ^ core),
                    ud_qpn: QpNum(core),
                    qkey: Qkey(seed),
                }).collect(),
            }),
            3 => Message::Accept(Accept {
                client: seed,
                window: !seed,
                slot_len: 5,
                stride: 6,
                first_id: !seed,
                cores: cores.map(|core| AcceptCore {
                    uc: endpoint(seed ^ core),
                    chunk: RemoteAddr { addr: long, rkey: Rkey(seed) },
                    ud_qpn: QpNum(core),
                }).collect(),
            }),
            _ => Message::Refuse(Refusal::Full),
        };
        prop_assert_eq!(Message::parse(&message.emit()), Ok(message.clone()));
        let line = message.to_line() + "\r\n";
        prop_assert_eq!(Message::from_line(line.as_bytes()), Ok(message.clone()));
        let bytes = message.emit();
        for end in 0..bytes.len() {
            prop_assert!(Message::parse(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn any_line_is_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut line = b"vervain ".to_vec();
        line.extend_from_slice(&bytes);
        let _ = Message::from_line(&bytes);
        prop_assert!(Message::from_line(&line).is_err() || bytes.is_ascii());
        let mut message = b"VRVN\x01\x00".to_vec();
        message.extend_from_slice(&bytes);
        if let Ok(message) = Message::parse(&message) {
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }
    }
}
