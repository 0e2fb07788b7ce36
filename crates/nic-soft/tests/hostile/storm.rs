//! The storm: a hostile process writes whatever it likes wherever it can, while the victim works
//! with two honest peers, over and over, and dies in the midst of it.
//!
//! `VERVAIN_HOSTILE_INPUTS` says how many inputs are tried (10000), `VERVAIN_HOSTILE_SEED` with which
//! seed.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::SealFlags;
use verbs::Transport;

use crate::host::{Host, publish_credits, publish_qp, publish_region};
use crate::layout::{Inbox, LANE_LINES, LANES, MRS, Published, STAGE_LEN, STAGES};
use crate::pair::Process;
use crate::speaker::{
    ATOMIC, COPY, HELLO, LANE, MESSAGE_LEN, Message, Met, NO_SUCH, OK, OTHER_VERSION, REFUSED,
    REGION, SWEEP, Segments, Speaker, memfd, plain_file, qpn, send,
};

/// Tells a child process that it is to storm: run directory, seed, the victim's queue pairs.
const STORM: &str = "NIC_SOFT_TEST_STORM";
/// The hostile NIC's instance number.
pub(crate) const INSTANCE: u32 = 100;
/// Its queue pairs: RC, UC and UD.
pub(crate) const QPS: [(u32, Transport); 3] =
    [(2, Transport::Rc), (3, Transport::Uc), (4, Transport::Ud)];
/// Its regions' keys, and their length.
pub(crate) const KEYS: [u32; 3] = [1 << 16 | 7, 2 << 16 | 7, 17 << 16 | 9];
pub(crate) const REGION_LEN: u64 = 64 << 10;

/// Writes a line's first word.
pub(crate) fn write_line(inbox: &Inbox, lane: usize, line: usize, kind: u64, flags: u64, len: u64) {
    let word = 1 | kind << 16 | flags << 24 | len << 32;
    inbox.lines[lane].0[line]
        .word
        .store(word, Ordering::Release);
}

/// A hostile process.
pub(crate) struct Hostile {
    pub(crate) process: Process,
    control: UnixStream,
    told: u64,
    done: u64,
}

impl Hostile {
    /// Starts it; it listens when this returns, and storms once it is told to.
    pub(crate) fn start(run_dir: &Path, seed: u64, victims: [u32; 3]) -> Self {
        let path = run_dir.join("storm.sock");
        // The one before it left its socket.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("bound");
        let [rc, uc, ud] = victims;
        let process = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "storm::hostile_process", "--nocapture"])
            .env(
                STORM,
                format!("{seed} {rc} {uc} {ud} {}", run_dir.display()),
            )
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        let process = Process(process);
        let (mut control, _) = listener.accept().expect("the child connects");
        let mut ready = [0];
        control.read_exact(&mut ready).expect("the child is ready");
        control.set_nonblocking(true).expect("set");
        Hostile {
            process,
            control,
            told: 0,
            done: 0,
        }
    }

    /// Has it try some more inputs, unless it is far behind, and says how many it has tried by
    /// now.
    pub(crate) fn spur(&mut self, inputs: usize) -> u64 {
        if self.told - self.done < 64 {
            let told = self
                .control
                .write(&vec![1; inputs])
                .expect("the child listens");
            self.told += told as u64;
        }
        let mut ticks = [0; 256];
        match self.control.read(&mut ticks) {
            Ok(0) => panic!("the hostile process has failed"),
            Ok(read) => self.done += read as u64,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => panic!("the hostile process has failed: {e}"),
        }
        self.done
    }
}

/// What the child process does: nothing, when it is not one.
#[test]
fn hostile_process() {
    let Some(told) = std::env::var_os(STORM) else {
        return;
    };
    let told = told.to_string_lossy().into_owned();
    let mut parts = told.splitn(5, ' ');
    let mut next = || parts.next().expect("five parts");
    let seed: u64 = next().parse().expect("a seed");
    let victims: [u32; 3] = std::array::from_fn(|_| next().parse().expect("a number"));
    let run_dir = Path::new(next()).to_path_buf();
    let mut control = UnixStream::connect(run_dir.join("storm.sock")).expect("a parent");
    let mut attacker = Attacker::new(&run_dir, seed, victims);
    control.write_all(&[1]).expect("the parent listens");
    // One byte for each input, until the parent hangs up.
    while control.read_exact(&mut [0]).is_ok() {
        attacker.attack();
        if control.write_all(&[1]).is_err() {
            return;
        }
    }
}

/// Answers to REGION: the right file, or another thing.
static MOOD: AtomicU32 = AtomicU32::new(0);

struct Attacker {
    random: fastrand::Rng,
    speaker: Arc<Speaker>,
    _host: Host,
    segments: Arc<Segments>,
    victims: [u32; 3],
    met: Option<Met>,
    /// Lanes opened in the inbox of now: lane, position.
    lanes: Vec<(usize, u64)>,
    generation: u32,
    strays: Vec<OwnedFd>,
}

/// Values that are at an edge of something.
const EDGES: [u64; 28] = [
    0,
    1,
    2,
    3,
    15,
    16,
    17,
    47,
    48,
    49,
    63,
    64,
    65,
    255,
    256,
    1023,
    1024,
    2047,
    2048,
    4095,
    4096,
    4097,
    65535,
    65536,
    1 << 30,
    1 << 31,
    u32::MAX as u64,
    u64::MAX,
];

impl Attacker {
    fn new(run_dir: &Path, seed: u64, victims: [u32; 3]) -> Self {
        let speaker = Arc::new(Speaker::new(run_dir, INSTANCE));
        let segments = Arc::new(speaker.segments());
        let host = {
            let (speaker, segments) = (Arc::clone(&speaker), Arc::clone(&segments));
            let whole = SealFlags::SHRINK | SealFlags::GROW;
            let region = memfd(REGION_LEN, whole);
            let (unsealed, short) = (memfd(REGION_LEN, SealFlags::empty()), memfd(4096, whole));
            let plain = plain_file(REGION_LEN);
            Host::start(&Arc::clone(&speaker), move |socket, request| {
                let mood = MOOD.load(Ordering::Relaxed);
                let fds = match (request.code, mood) {
                    (HELLO, 1) => vec![segments.inbox_file.as_fd(), plain.as_fd()],
                    (HELLO, 2) => vec![],
                    (HELLO, _) => {
                        vec![segments.published_file.as_fd(), segments.inbox_file.as_fd()]
                    }
                    (REGION, 2) => vec![unsealed.as_fd()],
                    (REGION, 3) => vec![short.as_fd()],
                    (REGION, 4) => vec![plain.as_fd(), region.as_fd()],
                    (REGION, 5) => vec![speaker.listener.as_fd()],
                    (REGION, 6) => vec![],
                    (REGION, 7) => return,
                    (REGION, _) => vec![region.as_fd()],
                    _ => return,
                };
                // The victim may have hung up.
                let _ = send(socket, &speaker.answer(OK), &fds);
                // What can be cut short is, once it may be mapped.
                let _ = rustix::fs::ftruncate(&unsealed, 0);
                let _ = rustix::fs::ftruncate(&plain, 0);
                let _ = rustix::fs::ftruncate(&region, 0);
            })
        };
        let mut attacker = Attacker {
            random: fastrand::Rng::with_seed(seed),
            speaker,
            _host: host,
            segments,
            victims,
            met: None,
            lanes: Vec::new(),
            generation: 1,
            strays: Vec::new(),
        };
        attacker.behave();
        attacker
    }

    /// Publishes what an honest adapter would, so that the victim comes as far as it can.
    fn behave(&mut self) {
        self.generation += 1;
        MOOD.store(0, Ordering::Relaxed);
        let published = &self.segments.published;
        for ((index, transport), peer) in QPS.into_iter().zip(self.victims) {
            publish_credits(published, index as usize);
            publish_qp(
                &published.qps[index as usize],
                transport,
                peer,
                self.generation,
            );
        }
        for key in KEYS {
            publish_region(&published.mrs[(key >> 16) as usize], key, REGION_LEN);
        }
    }

    fn edge(&mut self) -> u64 {
        let edge = EDGES[self.random.usize(..EDGES.len())];
        match self.random.u32(..4) {
            0 => self.random.u64(..),
            1 => edge.wrapping_add(1),
            2 => edge.wrapping_sub(1),
            _ => edge,
        }
    }

    /// Tries one input.
    fn attack(&mut self) {
        match self.random.u32(..100) {
            0..45 => self.write_messages(),
            45..60 => self.scribble_inbox(),
            60..75 => self.scribble_published(),
            75..80 => self.behave(),
            80..85 => self.announce(),
            85..90 => self.request(),
            90..93 => self.leave(),
            93..96 => self.ring(),
            96..98 => self.stray(),
            _ => MOOD.store(self.random.u32(..40), Ordering::Relaxed),
        }
    }

    /// The connection of now, or a new one with a lane to each of the victim's queue pairs.
    fn meet(&mut self) -> bool {
        if self.met.is_none() {
            self.lanes.clear();
            self.met = self.speaker.meet(0).ok();
            for lane in 0..3 {
                self.open(lane, lane);
            }
        }
        self.met.is_some()
    }

    fn open(&mut self, lane: usize, victim: usize) {
        let Some(met) = &self.met else { return };
        let epoch = 1 + self.random.u64(..4) / 3;
        let to = u64::from(self.victims[victim]) | epoch << 32;
        let from = qpn(INSTANCE, QPS[victim].0);
        let announcement = Message::new(LANE, lane as u32, from, to);
        if send(&met.socket, &announcement.bytes(), &[]).is_ok() {
            self.lanes.push((lane, 0));
        } else {
            self.met = None;
        }
    }

    /// Messages in a lane: mostly as they should be but for one thing.
    fn write_messages(&mut self) {
        if !self.meet() || self.lanes.is_empty() {
            return;
        }
        let which = self.random.usize(..self.lanes.len());
        let (lane, mut position) = self.lanes[which];
        for _ in 0..self.random.u32(1..20) {
            let at = (position % LANE_LINES as u64) as usize;
            let lap = (position / LANE_LINES as u64 % 0xffff) + 1;
            let lap = match self.random.u32(..10) {
                0 => lap + 1,
                1 => lap - 1,
                _ => lap,
            };
            let kind = match self.random.u32(..10) {
                0 => self.edge() & 0xff,
                1..4 => u64::from(self.random.u8(1..=7)),
                _ => 2,
            };
            let flags = if self.random.u32(..4) == 0 {
                u64::from(self.random.u8(..))
            } else {
                3
            };
            let len = match self.random.u32(..4) {
                0 => self.edge() & 0xffff_ffff,
                1 => self.random.u64(..4096),
                _ => self.random.u64(..48),
            };
            let Some(met) = &self.met else { return };
            let line = &met.inbox.lines[lane].0[at];
            for word in &line.payload {
                word.store(self.random.u64(..), Ordering::Relaxed);
            }
            line.imm.store(self.random.u32(..), Ordering::Relaxed);
            let word = lap | kind << 16 | flags << 24 | len << 32;
            line.word.store(word, Ordering::Release);
            // And otherwise, while the victim may be reading it.
            if self.random.u32(..8) == 0 {
                line.word
                    .store(word ^ self.random.u64(..) << 16, Ordering::Release);
            }
            position += match kind {
                2 => (16 + len.min(4096)).div_ceil(64),
                _ => 1,
            };
        }
        self.lanes[which].1 = position;
    }

    /// Random words anywhere in the inbox.
    fn scribble_inbox(&mut self) {
        if !self.meet() {
            return;
        }
        for _ in 0..self.random.u32(1..64) {
            let value = self.edge();
            let Some(met) = &self.met else { return };
            let lane = if self.random.bool() {
                self.random.usize(..4)
            } else {
                self.random.usize(..LANES)
            };
            match self.random.u32(..8) {
                0 => met.inbox.heads[lane]
                    .consumed
                    .store(value, Ordering::Relaxed),
                1 => met.inbox.heads[lane]
                    .released
                    .store(value as u32, Ordering::Relaxed),
                2 => met.inbox.tails[lane]
                    .closed
                    .store(value as u32, Ordering::Relaxed),
                3 => {
                    // The header and what follows it.
                    let words = met.inbox.words();
                    words[self.random.usize(..1024)].store(value as u32, Ordering::Relaxed);
                }
                _ => {
                    let line = self.random.usize(..LANE_LINES.min(256));
                    met.inbox.lines[lane].0[line]
                        .word
                        .store(value, Ordering::Release);
                }
            }
        }
    }

    /// Random values in what the victim reads of us.
    fn scribble_published(&mut self) {
        for _ in 0..self.random.u32(1..16) {
            let value = self.edge();
            let word = value as u32;
            let segments = Arc::clone(&self.segments);
            let published: &Published = &segments.published;
            let qp = &published.qps[self.random.usize(2..5)];
            let key = KEYS[self.random.usize(..KEYS.len())];
            let mr = &published.mrs[(key >> 16) as usize];
            match self.random.u32(..20) {
                0 => qp.word.store(value, Ordering::Release),
                1 => qp.peer_qpn.store(word, Ordering::Relaxed),
                2 => qp.recv_cq.store(word, Ordering::Relaxed),
                3 => qp.srq.store(word, Ordering::Relaxed),
                4 => qp.channel.store(word, Ordering::Relaxed),
                5 => qp.recv_depth.store(word, Ordering::Relaxed),
                6 => qp.pd.store(word, Ordering::Relaxed),
                7 => qp.epoch_and_timer.store(word, Ordering::Relaxed),
                8 => qp.qkey.store(word, Ordering::Relaxed),
                9 => mr.len.store(value, Ordering::Release),
                10 => mr.addr.store(value, Ordering::Release),
                11 => mr.access.store(word, Ordering::Release),
                12 => {
                    // Private memory is wherever its owner says that it is.
                    let start = u64::MAX - self.random.u64(..2 * REGION_LEN);
                    mr.start.store(start, Ordering::Relaxed);
                    mr.kind.store(self.random.u32(..4), Ordering::Release);
                }
                13 => mr.key.store(word, Ordering::Release),
                14 => mr.pd.store(word, Ordering::Release),
                15 => published.cqs[self.random.usize(..4)]
                    .armed
                    .store(word % 4, Ordering::Relaxed),
                16 => {
                    let srq = &published.srqs[self.random.usize(..4)];
                    srq.posted.store(value, Ordering::Relaxed);
                    srq.consumed.store(self.random.u64(..4), Ordering::Relaxed);
                }
                17 => {
                    // Another generation with the fields as they are now: the victim looks again.
                    self.generation += 1;
                    let old = qp.word.load(Ordering::Relaxed) & 0xffff_ffff;
                    let word = u64::from(self.generation) << 32 | old;
                    qp.word.store(word, Ordering::Release);
                }
                _ => {
                    let slot = self.random.usize(..64);
                    published.credits[self.random.usize(2..4)][slot]
                        .store(value, Ordering::Relaxed);
                }
            }
        }
    }

    /// Lanes for anybody, from anybody.
    fn announce(&mut self) {
        if !self.meet() {
            return;
        }
        let (lane, from) = match self.random.u32(..4) {
            0 => (self.edge() as u32, qpn(INSTANCE, 2)),
            1 => (self.random.u32(..LANES as u32), self.edge() as u32),
            2 => (
                self.random.u32(..LANES as u32),
                qpn(self.random.u32(..3), 2),
            ),
            _ => (
                self.random.u32(3..LANES as u32),
                qpn(INSTANCE, self.random.u32(..8)),
            ),
        };
        // Any queue pair of the victim, the honest peers' among them.
        let to = u64::from(self.random.u32(..16)) | self.random.u64(..4) << 32;
        let Some(met) = &self.met else { return };
        let announcement = Message::new(LANE, lane, from, to);
        if send(&met.socket, &announcement.bytes(), &[]).is_err() {
            self.met = None;
        }
    }

    /// An atomic on any region of the victim, or a copy, over any of its queue pairs.
    fn spoil_operation(&mut self, message: &mut Message) {
        let kind = self.random.u32(..4);
        message.b = kind << 24 | self.random.u32(..16);
        if let (Some(met), true) = (&self.met, self.random.bool()) {
            let entry = &met.published.mrs[self.random.usize(1..64)];
            message.a = entry.key.load(Ordering::Acquire);
            message.c = entry.addr.load(Ordering::Relaxed) + self.random.u64(..8192);
        }
        if let (Some(met), true) = (&self.met, self.random.u32(..4) > 0) {
            *message = message.over(met.epoch_of(message.b));
        }
        message.gid.0.fill_with(|| self.random.u8(..));
        if message.code == COPY && self.random.u32(..4) > 0 {
            // A stage that there is, or the one behind the last, and so many bytes.
            let stage = self.random.u32(..=STAGES as u32);
            let len = self.random.u32(..=STAGE_LEN as u32 + 1);
            message.gid.0[..4].copy_from_slice(&stage.to_le_bytes());
            message.gid.0[4..8].copy_from_slice(&len.to_le_bytes());
        }
    }

    /// Requests that nobody answers well, with lengths and descriptors that do not belong there.
    fn request(&mut self) {
        let socket = match (&self.met, self.random.bool()) {
            (Some(met), true) => met.socket.try_clone(),
            _ => self.speaker.dial(0).map_err(std::io::Error::from),
        };
        let Ok(socket) = socket else { return };
        let (code, key) = (self.random.u32(..8), self.edge() as u32);
        let mut message = Message::new(code, key, 0, self.edge());
        if matches!(code, ATOMIC | COPY) {
            self.spoil_operation(&mut message);
        }
        if self.random.u32(..4) == 0 {
            message.version = self.edge() as u32;
        }
        if self.random.u32(..4) == 0 {
            message.code = self.edge() as u32;
        }
        let mut bytes = message.bytes().to_vec();
        if self.random.u32(..3) == 0 {
            bytes.resize(self.random.usize(..2 * MESSAGE_LEN), 0xff);
        }
        let fds = if self.random.u32(..4) == 0 {
            vec![socket.as_fd(); self.random.usize(1..8)]
        } else {
            vec![]
        };
        // Refused, or the connection was ended: all the same.
        let _ = send(&socket, &bytes, &fds);
        let _ = send(&socket, &Message::new(SWEEP, 0, 0, 0).bytes(), &[]);
        if self.random.bool() {
            self.strays.push(socket);
        }
        self.strays.truncate(20);
        // Every region there may be, from those that are not ours.
        let mut asked = Vec::new();
        if let Some(met) = &self.met {
            for index in 1..MRS.min(64) {
                let key = met.published.mrs[index].key.load(Ordering::Acquire);
                asked.extend((key != 0).then_some(key));
            }
            for key in asked {
                let request = Message::new(REGION, key, 0, 0);
                match crate::speaker::ask(&met.socket, &request) {
                    // Refused; what was sent here before may be answered first, a greeting of
                    // another version and atomics among it.
                    Ok((answer, fds)) if fds.is_empty() => {
                        let may_be = [NO_SUCH, OTHER_VERSION, OK, REFUSED];
                        assert!(may_be.contains(&answer.code));
                    }
                    // Ours to have: a queue pair of its protection domain leads here.
                    Ok(_) => {}
                    Err(_) => {
                        self.met = None;
                        break;
                    }
                }
            }
        }
    }

    /// Goes without a word, or in the middle of one.
    fn leave(&mut self) {
        if let (Some(met), true) = (&self.met, self.random.bool()) {
            write_line(&met.inbox, 0, self.random.usize(..64), 2, 1, 4096);
        }
        self.met = None;
    }

    fn ring(&mut self) {
        let len = self.random.usize(..9);
        let bytes: Vec<u8> = (0..len).map(|_| self.random.u8(..4)).collect();
        for _ in 0..50 {
            self.speaker.ring(0, &bytes);
        }
    }

    /// Connections that say nothing.
    fn stray(&mut self) {
        for _ in 0..self.random.u32(1..20) {
            self.strays.extend(self.speaker.dial(0).ok());
        }
        if self.random.u32(..3) == 0 {
            self.strays.clear();
        }
    }
}
