//! A client whose server sends anything: at the door, as datagrams, and never what is wanted.
//!
//! Each command ends exactly once, and soon, whatever the server does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use cache::herd::{Client, ClientConfig, Outcome, StoreMode};
use checker::history::Action;
use conformance::model::ModelNic;
use verbs::typed::Context;

use crate::spelt;

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

impl Deed<'_> {
    /// What is asked of which key, if anything is.
    fn command(&self) -> Option<([u8; 2], Action)> {
        let store = |mode, number, len: u16| Action::Store {
            mode,
            value: vec![number; usize::from(len) % (VALUE_LEN_MAX as usize + 100)],
            flags: 0,
            expiry_s: 0,
        };
        let (number, action) = match *self {
            Deed::Get(number) => (number, Action::Get),
            Deed::Set(number, len) => (number, store(StoreMode::Set, number, len)),
            Deed::Add(number, len) => (number, store(StoreMode::Add, number, len)),
            Deed::Delete(number) => (number, Action::Delete),
            Deed::Incr(number, delta) => (number, Action::Incr { delta }),
            Deed::Touch(number) => (number, Action::Touch { expiry_s: 5 }),
            _ => return None,
        };
        Some(([b'k', number % 4], action))
    }
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
        seed: Some(0),
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
    for deed in spelt::<Deed<'_>>(&mut input, DEEDS_MAX) {
        if let Some((key, action)) = deed.command() {
            let tag = ends.len() as u64;
            let open = ends.values().filter(|&&count| count == 0).count();
            let want_cas = tag.is_multiple_of(2);
            if open < TAGS_MAX && client.submit(&action.command(&key), want_cas, tag).is_ok() {
                ends.insert(tag, 0);
            }
            continue;
        }
        match deed {
            Deed::Datagram { bytes, stranger } => {
                server
                    .borrow_mut()
                    .send(&bytes[..bytes.len().min(4096)], stranger);
            }
            Deed::Answer(answer) => {
                let ids = server.borrow().ids();
                if let Some(id) = ids.get(usize::from(answer.ahead) % ids.len().max(1)) {
                    server.borrow_mut().send_answer(*id, &answer);
                }
            }
            Deed::AnswerAll(answer) => {
                let ids = server.borrow().ids();
                for id in ids {
                    server.borrow_mut().send_answer(id, &answer);
                }
            }
            Deed::Poll => {
                client.poll(now_ns, &mut |tag, outcome| note(&mut ends, tag, outcome));
            }
            Deed::Flush => client.flush(now_ns),
            Deed::Pass(ns) => now_ns += u64::from(ns % 300_000),
            Deed::Close => server.borrow_mut().stream += 1,
            Deed::Lie(lie) => server.borrow_mut().lie = lie,
            // A command.
            _ => {}
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
