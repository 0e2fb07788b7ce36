//! A client whose server sends anything: at the door, as datagrams, and never what is wanted.
//!
//! Each command ends exactly once, and soon, whatever the server does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use cache::herd::{Client, ClientConfig, Command, Outcome, StoreMode};
use conformance::model::ModelNic;
use verbs::typed::Context;

use super::liar::{Answer, Liar, Lie, Line, Shared, VALUE_LEN_MAX, WINDOW};

const DEEDS_MAX: usize = 300;
/// Tags that are under way at once.
const TAGS_MAX: usize = 40;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Deed<'a> {
    Get(u8),
    Set(u8, u16),
    Add(u8, u16),
    Delete(u8),
    Incr(u8, u64),
    Touch(u8),
    /// Any datagram.
    Datagram {
        bytes: &'a [u8],
        stranger: bool,
    },
    /// An answer to something under way.
    Answer(Answer<'a>),
    /// The same answer to all that is under way.
    AnswerAll(Answer<'a>),
    Poll,
    Flush,
    Pass(u32),
    /// The server closes the control stream.
    Close,
    /// What it says from the next time on.
    Lie(Lie<'a>),
}

/// Carries out what the input spells.
///
/// # Panics
/// When a command ends twice or never, or with more than there may be.
pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let mut pds = ModelNic::fabric(2).into_iter().map(|nic| {
        let context = Context::new(Arc::new(nic));
        context.alloc_pd().expect("a domain")
    });
    let (pd, client_pd) = (pds.next().expect("one"), pds.next().expect("two"));
    let server: Shared<'_> = Rc::new(RefCell::new(Liar::new(pd)));
    // An input may lie from the start.
    if let Ok(lie) = input.arbitrary() {
        server.borrow_mut().lie = lie;
    }
    let dial_to = Rc::clone(&server);
    let dial = move || Line::dial(&dial_to);
    let config = ClientConfig {
        window: WINDOW,
        deadline_ns: 1_000_000,
        retry_ns: 20_000,
        lost_ns: 400_000,
        redial_ns: 10_000,
        control_check_ns: 50_000,
        ..ClientConfig::default()
    };
    let mut now_ns = 1_000_000;
    let connected = Client::connect(client_pd, config.clone(), dial, now_ns);
    let mut client = match connected {
        Ok(client) => client,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    // How often each tag has ended.
    let mut ends: BTreeMap<u64, u32> = BTreeMap::new();
    let note = |ends: &mut BTreeMap<u64, u32>, tag: u64, outcome: Outcome<'_>| {
        if let Outcome::Value { value, .. } = outcome {
            assert!(value.len() <= 1 << 20, "a value of {} bytes", value.len());
        }
        let count = ends.get_mut(&tag).expect("a tag that was given");
        *count += 1;
        assert_eq!(*count, 1, "command {tag} ended twice");
    };
    for _ in 0..DEEDS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(deed) = input.arbitrary::<Deed<'_>>() else {
            break;
        };
        let tag = ends.len() as u64;
        let value: Vec<u8>;
        let key_of = |number: u8| [b'k', number % 4];
        let key;
        let command = match deed {
            Deed::Get(number) => {
                key = key_of(number);
                Some(Command::Get { key: &key })
            }
            Deed::Set(number, len) | Deed::Add(number, len) => {
                key = key_of(number);
                value = vec![number; usize::from(len) % (VALUE_LEN_MAX as usize + 100)];
                let mode = match deed {
                    Deed::Set(..) => StoreMode::Set,
                    _ => StoreMode::Add,
                };
                Some(Command::Store {
                    mode,
                    key: &key,
                    value: &value,
                    flags: 0,
                    expiry_s: 0,
                })
            }
            Deed::Delete(number) => {
                key = key_of(number);
                Some(Command::Delete { key: &key })
            }
            Deed::Incr(number, delta) => {
                key = key_of(number);
                Some(Command::Incr { key: &key, delta })
            }
            Deed::Touch(number) => {
                key = key_of(number);
                Some(Command::Touch {
                    key: &key,
                    expiry_s: 5,
                })
            }
            Deed::Datagram { bytes, stranger } => {
                server
                    .borrow_mut()
                    .send(&bytes[..bytes.len().min(4096)], stranger);
                None
            }
            Deed::Answer(answer) => {
                let ids = server.borrow().ids();
                if let Some(id) = ids.get(usize::from(answer.ahead) % ids.len().max(1)) {
                    server.borrow_mut().send_answer(*id, &answer);
                }
                None
            }
            Deed::AnswerAll(answer) => {
                let ids = server.borrow().ids();
                for id in ids {
                    server.borrow_mut().send_answer(id, &answer);
                }
                None
            }
            Deed::Poll => {
                client.poll(now_ns, &mut |tag, outcome| note(&mut ends, tag, outcome));
                None
            }
            Deed::Flush => {
                client.flush(now_ns);
                None
            }
            Deed::Pass(ns) => {
                now_ns += u64::from(ns % 300_000);
                None
            }
            Deed::Close => {
                server.borrow_mut().stream += 1;
                None
            }
            Deed::Lie(lie) => {
                server.borrow_mut().lie = lie;
                None
            }
        };
        if let Some(command) = command {
            let open = ends.values().filter(|&&count| count == 0).count();
            if open < TAGS_MAX && client.submit(&command, tag.is_multiple_of(2), tag).is_ok() {
                ends.insert(tag, 0);
            }
        }
    }
    // From here on nobody is there any more.
    server.borrow_mut().refuses = true;
    for _ in 0..100 {
        client.poll(now_ns, &mut |tag, outcome| note(&mut ends, tag, outcome));
        now_ns += config.deadline_ns / 10;
    }
    let open: Vec<_> = ends.iter().filter(|(_, count)| **count == 0).collect();
    assert!(open.is_empty(), "commands that never ended: {open:?}");
    assert_eq!(client.waiting(), 0);
}
