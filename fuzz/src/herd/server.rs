//! A server whose clients write anything into their slots, at any time, and say anything at the door.
//!
//! The partitions stay sound, another client is answered, and what a client held is free when it
//! has gone.

use arbitrary::{Arbitrary, Unstructured};
use cache::herd::wire::answer::{Head, Status};
use cache::herd::wire::handshake::Message;
use cache::herd::wire::request::{Command, Header, Request, StoreMode};
use cache::herd::{Attachment, ServerConfig};
use checker::partition::check_accounts;

use super::ask::{Ask, Key, VALUE_LEN_MAX};
use super::rig::{Machine, Offer, Raw};
use crate::{cuts, spelt};

/// Deeds of an input.
const DEEDS_MAX: usize = 200;
/// Clients that keep to no rules.
const HOSTILE_MAX: usize = 3;
/// Polls after which a server must have answered one client, whatever the others do.
const POLLS_MAX: usize = 200;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Deed<'a> {
    /// Any line at the door.
    Say(&'a [u8]),
    /// Any message at the door.
    SayHex(&'a [u8]),
    /// A client comes.
    Come { window: u8 },
    /// A client comes, with some bytes of its wishes changed.
    ComeOddly { window: u8, changes: [(u8, u8); 2] },
    /// A client goes.
    Go,
    /// Any bytes anywhere.
    Write {
        end: u16,
        bytes: &'a [u8],
        imm: Option<u32>,
    },
    /// A header of any numbers over what lies in the slot.
    Header {
        ahead: i8,
        op: u8,
        key_len: u8,
        value_len: u16,
        kick: bool,
    },
    /// A request, in turn (0), ahead or late.
    Ask {
        ahead: i8,
        ask: Ask,
        key: Key<'a>,
        value: &'a [u8],
        number: u32,
        want_cas: bool,
        kick: bool,
    },
    /// A kick without a request.
    Kick(i8),
    /// The server polls.
    Poll { budget: u8 },
    /// Time passes.
    Pass { ns: u32, s: u8 },
    /// The client that keeps to the rules writes and reads.
    Work,
}

/// A client that keeps to the rules.
struct Honest {
    raw: Raw,
    key: [u8; 16],
    written: Option<Vec<u8>>,
    random: fastrand::Rng,
}

struct Scene {
    machine: Machine,
    honest: Honest,
    hostile: Vec<Raw>,
    /// Attached at the door under wishes that were changed; nobody writes there.
    ghosts: Vec<u32>,
}

/// Carries out what the input spells.
///
/// # Panics
/// When the server is harmed by it.
pub fn run(input: &[u8]) {
    let random = cuts::random_of(input);
    let mut input = Unstructured::new(input);
    let Ok(cores) = input.int_in_range(1..=2u32) else {
        return;
    };
    let mut scene = Scene::new(cores, random);
    for (who, core, deed) in spelt(&mut input, DEEDS_MAX) {
        scene.deed(who, core, &deed);
    }
    scene.finish();
}

impl Scene {
    fn new(cores: u32, mut random: fastrand::Rng) -> Scene {
        let config = ServerConfig {
            cores,
            clients_max: 6,
            window_max: 8,
            slot_len: 512,
            value_len_max: VALUE_LEN_MAX,
            staging_count: 3,
            // Ids wrap soon.
            first_id: Some(u32::MAX - 3),
            batch_max: 8,
            ..ServerConfig::default()
        };
        let mut machine = Machine::new(config, 64 << 10);
        let raw = Raw::connect(&mut machine, 4).expect("there is room");
        let mut scene = Scene {
            machine,
            honest: Honest {
                raw,
                // Nobody guesses it.
                key: std::array::from_fn(|_| random.u8(..)),
                written: None,
                random,
            },
            hostile: Vec::new(),
            ghosts: Vec::new(),
        };
        scene.hostile.extend(Raw::connect(&mut scene.machine, 8));
        scene
    }

    fn take(&mut self, attached: Option<(u32, Vec<Attachment>)>, ours: bool) {
        if let Some((client, attachments)) = attached {
            self.machine.attach(attachments);
            if !ours {
                self.ghosts.push(client);
            }
        }
    }

    fn deed(&mut self, who: u8, core: bool, deed: &Deed<'_>) {
        let core = usize::from(core) % self.machine.servers.len();
        match *deed {
            Deed::Say(line) => self.say(line),
            Deed::SayHex(bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.say(format!("vervain {hex}").as_bytes());
            }
            Deed::Come { window } => {
                if self.hostile.len() < HOSTILE_MAX {
                    let raw = Raw::connect(&mut self.machine, u32::from(window));
                    self.hostile.extend(raw);
                }
            }
            Deed::ComeOddly { window, changes } => self.come_oddly(u32::from(window), changes),
            Deed::Go => {
                if self.hostile.len() > 1 {
                    let gone = self.hostile.remove(usize::from(who) % self.hostile.len());
                    self.machine.detach(gone.accept.client);
                } else if let Some(ghost) = self.ghosts.pop() {
                    self.machine.detach(ghost);
                }
            }
            Deed::Poll { budget } => {
                let done = self.machine.poll(usize::from(budget));
                let most = self.machine.servers.len() * (usize::from(budget) + 64);
                assert!(done <= most, "{done} done in one poll");
            }
            Deed::Pass { ns, s } => {
                self.machine.now_ns += u64::from(ns);
                self.machine.now_s += u32::from(s);
            }
            Deed::Work => self.work(),
            _ => {
                if !self.hostile.is_empty() {
                    let index = usize::from(who) % self.hostile.len();
                    write(&mut self.hostile[index], core, deed);
                }
            }
        }
        for raw in &mut self.hostile {
            raw.drain(&mut |_, _| {});
        }
    }

    fn say(&mut self, line: &[u8]) {
        let reply = self.machine.acceptor.answer(line, self.machine.now_ns);
        let answer = Message::from_line(reply.line.as_bytes()).expect("the door answers");
        assert_eq!(reply.close, matches!(answer, Message::Refuse(_)));
        self.take(reply.attached, false);
    }

    fn come_oddly(&mut self, window: u32, changes: [(u8, u8); 2]) {
        let offer = Offer::new(&self.machine, window);
        let mut bytes = Message::Connect(offer.connect.clone()).emit();
        for (at, change) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= change;
        }
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("vervain {hex}");
        let reply = self
            .machine
            .acceptor
            .answer(line.as_bytes(), self.machine.now_ns);
        let whole = Message::parse(&bytes) == Ok(Message::Connect(offer.connect.clone()));
        let raw = offer.accepted(&reply.line).filter(|_| whole);
        let ours = raw.is_some() && self.hostile.len() < HOSTILE_MAX;
        self.take(reply.attached, ours);
        if ours {
            self.hostile.extend(raw);
        }
    }

    /// A request of the honest client, and its answer.
    fn ask(&mut self, core: usize, request: &Request<'_>) -> (Head, Vec<u8>) {
        let raw = &mut self.honest.raw;
        let id = *raw.next(core);
        *raw.next(core) = id.wrapping_add(1).max(1);
        let mut slot = vec![0; 512];
        let len = request.emit(id, false, &mut slot).expect("it fits");
        let end = raw.slot_end(id);
        raw.write(core, end, &slot[512 - len..], None);
        let mut answer = None;
        for _ in 0..POLLS_MAX {
            self.machine.poll(64);
            self.honest.raw.drain(&mut |head, body| {
                assert_eq!(head.id, id, "an answer to another request");
                assert!(answer.is_none(), "two answers");
                answer = Some((head, body.to_vec()));
            });
            // The hostile ones take their answers as well, or leave them.
            if let Some(answer) = answer {
                return answer;
            }
        }
        panic!("the honest client got no answer");
    }

    /// The honest client reads what it wrote, or nothing, and writes again.
    fn work(&mut self) {
        let key = self.honest.key;
        let core = self.machine.config.route().core(&key) as usize;
        let (head, body) = self.ask(core, &Request::Command(Command::Get { key: &key }));
        match head.status {
            Status::Ok => assert_eq!(Some(body), self.honest.written, "a foreign value"),
            // Forgotten, which a cache may.
            status => assert_eq!(status, Status::NotFound),
        }
        let len = self.honest.random.usize(..200);
        let byte = self.honest.random.u8(..);
        let value = vec![byte; len];
        let store = Request::Command(Command::Store {
            mode: StoreMode::Set,
            key: &key,
            value: &value,
            flags: 0,
            expiry_s: 0,
        });
        let (head, _) = self.ask(core, &store);
        assert_eq!(head.status, Status::Ok);
        self.honest.written = Some(value);
    }

    fn finish(mut self) {
        self.work();
        self.work();
        for partition in &self.machine.partitions {
            check_accounts(partition);
        }
        for server in &self.machine.servers {
            let stats = server.stats();
            assert!(stats.answers <= stats.requests + stats.replays, "{stats:?}");
            assert!(server.staging_in_use() <= 3);
        }
        for ghost in std::mem::take(&mut self.ghosts) {
            self.machine.detach(ghost);
        }
        for gone in std::mem::take(&mut self.hostile) {
            self.machine.detach(gone.accept.client);
        }
        self.machine.detach(self.honest.raw.accept.client);
        for server in &self.machine.servers {
            assert_eq!((server.clients(), server.staging_in_use()), (0, 0));
        }
        // What was held is free: as many as there may be come again.
        assert_eq!(self.machine.acceptor.usage().registered_bytes, 0);
        let come = |scene: &mut Scene| Raw::connect(&mut scene.machine, 1);
        let most = self.machine.config.clients_max;
        let all: Vec<Raw> = (0..most).filter_map(|_| come(&mut self)).collect();
        assert_eq!(all.len(), most as usize, "what clients held is not free");
        let one_more = come(&mut self);
        assert!(one_more.is_none(), "more than there may be");
    }
}

/// What a hostile client does to its slots.
fn write(raw: &mut Raw, core: usize, deed: &Deed<'_>) {
    let next = *raw.next(core);
    match *deed {
        Deed::Write { end, bytes, imm } => {
            // Sometimes a little outside.
            let end = u64::from(end) % (raw.chunk_len() + 64);
            raw.write(core, end, bytes, imm);
        }
        Deed::Header {
            ahead,
            op,
            key_len,
            value_len,
            kick,
        } => {
            let id = next.wrapping_add_signed(ahead.into());
            let header = Header {
                op,
                key_len,
                value_len,
                id,
            };
            raw.write(core, raw.slot_end(id), &header.emit(), None);
            went(raw, core, id, ahead, kick);
        }
        Deed::Ask {
            ahead,
            ask,
            key,
            value,
            number,
            want_cas,
            kick,
        } => {
            let id = next.wrapping_add_signed(ahead.into());
            let key = key.to_vec();
            let mut slot = vec![0; 512];
            let request = ask.request(&key, value, number);
            if let Some(len) = request.emit(id, want_cas, &mut slot) {
                raw.write(core, raw.slot_end(id), &slot[512 - len..], None);
                went(raw, core, id, ahead, kick);
            }
        }
        Deed::Kick(ahead) => raw.kick(core, next.wrapping_add_signed(ahead.into())),
        _ => {}
    }
}

/// Counts a request in turn, and repeats it.
fn went(raw: &mut Raw, core: usize, id: u32, ahead: i8, kick: bool) {
    if ahead == 0 {
        *raw.next(core) = id.wrapping_add(1).max(1);
    }
    if kick {
        raw.kick(core, id);
    }
}
