//! A process that uses the NIC alone: all transports, shared receive queues, atomics, channels,
//! memory of its own, registering and deregistering. What HERD does not use dies here.
//!
//! The victim and its peer speak over the victim's standard input and output, in lines of numbers.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nic_soft::{SoftNic, SoftOptions, Usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::typed::{
    AddressHandle, CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint,
    MemoryRegion, ProtectionDomain, QpOptions, QueuePair, Rc, SharedReceiveQueue, Uc, Ud, Wr,
};
use verbs::{Access, Psn, Qkey, QpNum, RecvWr, RemoteAddr, Rkey, Sge, Wc};

use crate::calls::Call;
use crate::clients::for_each_step;
use crate::harness::{Guard, LIMIT, eventually};
use crate::plan::{Plan, Spread, Windows, behind_marks};
use crate::step::Step;
use crate::tracer::{Standing, Traced, mark, stopped_first};
use crate::victim;

const QKEY: Qkey = Qkey(11);
/// Bytes of a region.
const LEN: usize = 8192;
/// Lines of the conversation begin so; what the test's harness prints does not.
const SIGN: &str = "@";
/// RECVs of each kind on each side.
const RECVS: usize = 2;

/// Queue pairs of every kind, and memory.
struct Side {
    memory: MemoryRegion,
    rc: QueuePair<Rc>,
    uc: QueuePair<Uc>,
    ud: QueuePair<Ud>,
    /// Takes its RECVs from `srq`.
    shared: QueuePair<Rc>,
    srq: SharedReceiveQueue,
    ah: AddressHandle,
    cq: CompletionQueue,
    channel: CompletionChannel,
    pd: ProtectionDomain,
    context: Context,
}

type Failed = Box<dyn std::error::Error>;

/// What a side must know of the other: four queue pairs, and two regions.
#[derive(Clone, Copy)]
struct Other {
    qpns: [u32; 4],
    regions: [RemoteAddr; 2],
}

impl Other {
    fn parse(line: &str) -> Result<Other, Failed> {
        let numbers = line.split(' ').map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
        let [a, b, c, d, addr, rkey, addr2, rkey2] = numbers[..] else {
            return Err(format!("`{line}` does not tell of a side").into());
        };
        let region = |addr, rkey: u64| RemoteAddr {
            addr,
            rkey: Rkey(rkey as u32),
        };
        Ok(Other {
            qpns: [a, b, c, d].map(|qpn| qpn as u32),
            regions: [region(addr, rkey), region(addr2, rkey2)],
        })
    }
}

impl Side {
    fn new(context: Context) -> Result<Side, Failed> {
        let pd = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq_on(64, &channel)?;
        let options = QpOptions::on(&cq);
        let srq = pd.create_srq(8, 1)?;
        let mut side = Side {
            rc: pd.create_qp(&options)?,
            uc: pd.create_qp(&options)?,
            ud: pd.create_qp(&options)?,
            shared: pd.create_qp(&QpOptions {
                srq: Some(srq.handle()),
                ..options
            })?,
            memory: pd.allocate(LEN, Access::EVERYTHING)?,
            ah: pd.create_ah(context.gid()?)?,
            srq,
            cq,
            channel,
            pd,
            context,
        };
        side.ud.activate(QKEY)?;
        Ok(side)
    }

    fn tell(&self, second: RemoteAddr) -> String {
        let first = self.memory.remote(0);
        let qpns = [
            self.rc.num(),
            self.uc.num(),
            self.ud.num(),
            self.shared.num(),
        ];
        let [a, b, c, d] = qpns.map(|qpn| qpn.0);
        format!(
            "{a} {b} {c} {d} {} {} {} {}",
            first.addr, first.rkey.0, second.addr, second.rkey.0
        )
    }

    fn connect(&mut self, other: &Other) -> Result<(), Failed> {
        let gid = self.context.gid()?;
        let end = |qpn: u32| Endpoint {
            gid,
            qpn: QpNum(qpn),
            psn: Psn(qpn & 0x00ff_ffff),
        };
        let options = ConnectOptions::default();
        self.rc.connect(&end(other.qpns[0]), &options)?;
        self.uc.connect(&end(other.qpns[1]), &options)?;
        self.shared.connect(&end(other.qpns[3]), &options)?;
        Ok(())
    }

    fn sges(&self) -> [Sge; 1] {
        [self.memory.sge(4096..4096 + 512)]
    }

    /// RECVs for those who are not connected.
    fn post_open_recvs(&mut self) -> Result<(), Failed> {
        let sges = self.sges();
        for id in 0..RECVS as u64 {
            let recv = RecvWr { id, sges: &sges };
            self.ud.post_recv(&[recv])?;
            self.srq.post_recv(&[recv])?;
        }
        Ok(())
    }

    /// RECVs for those who are.
    fn post_connected_recvs(&mut self) -> Result<(), Failed> {
        let sges = self.sges();
        for id in 0..RECVS as u64 {
            let recv = RecvWr { id, sges: &sges };
            self.rc.post_recv(&[recv])?;
            self.uc.post_recv(&[recv])?;
        }
        Ok(())
    }

    /// Everything that a side can do to the other.
    fn do_all(&mut self, other: &Other) -> Result<u32, Failed> {
        let [first, second] = other.regions;
        let large = [self.memory.sge(0..3000)];
        let word = [self.memory.sge(4096 - 8..4096)];
        self.rc.post_send(&[
            Wr::write_inline(b"inline", first),
            Wr::write(&large, second.offset(16)),
            Wr::read(&large, first),
            Wr::fetch_add(&word, first.offset(4096), 3),
            Wr::compare_swap(&word, first.offset(4096), 3, 4),
            Wr::send_inline(b"a message").solicited(),
        ])?;
        self.uc.post_send(&[
            Wr::write_inline(b"unreliable", second),
            Wr::write_inline(b"and told", first.offset(64)).imm(5),
            Wr::send(&[self.memory.sge(0..200)]),
        ])?;
        self.shared
            .post_send(&[Wr::send_inline(b"one for the shared queue")])?;
        let peer = QpNum(other.qpns[2]);
        self.ud.post_send(&[
            Wr::send_inline_to(&self.ah, peer, QKEY, b"a datagram"),
            Wr::send_to(&self.ah, peer, QKEY, &[self.memory.sge(0..400)]),
        ])?;
        Ok(6 + 3 + 1 + 2)
    }

    /// Takes so many completions, whichever they are, for a limited time; how many came.
    fn take(&mut self, count: u32, patience: Duration) -> Result<u32, Failed> {
        let give_up = Instant::now() + patience;
        let (mut taken, mut looks) = (0, 0u32);
        let mut out = [Wc::default(); 8];
        while taken < count {
            taken += self.cq.poll(&mut out)? as u32;
            looks += 1;
            if looks.is_multiple_of(1 << 14) {
                if Instant::now() > give_up {
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            std::hint::spin_loop();
        }
        Ok(taken)
    }

    /// Sleeps on the channel until there is a completion, for a limited time.
    fn sleep(&mut self) -> Result<(), Failed> {
        self.cq.arm(false)?;
        if self.cq.poll(&mut [Wc::default()])? > 0 {
            return Ok(());
        }
        let fd = self.channel.as_fd();
        let limit = Timespec::try_from(LIMIT)?;
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit))?;
        self.channel.event()?;
        Ok(())
    }
}

/// Pages of this process, to be registered where they are.
struct Pages(NonNull<u8>);

impl Pages {
    const LAYOUT: Layout = match Layout::from_size_align(LEN, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a layout"),
    };

    fn new() -> Pages {
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(Self::LAYOUT) };
        Pages(NonNull::new(start).expect("memory"))
    }

    fn register(&self, pd: &ProtectionDomain, offset: usize) -> Result<MemoryRegion, Failed> {
        let start = self.0.as_ptr().wrapping_add(offset);
        let start = NonNull::new(start).ok_or("no address")?;
        // Memory that is not whole pages stays where it is, where nobody else has atomics.
        let access = if offset == 0 {
            Access::EVERYTHING
        } else {
            Access::EVERYTHING - Access::REMOTE_ATOMIC
        };
        // SAFETY: the pages are dropped after the region, and nobody here looks at them.
        Ok(unsafe { pd.register(start, LEN - offset, access)? })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) };
    }
}

fn say(line: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{SIGN}{line}")?;
    out.flush()?;
    Ok(())
}

fn hear() -> Result<String, Failed> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some("sorry") => Err("the peer could not connect".into()),
        Some(line) => Ok(line.to_string()),
        None => Err("the peer went".into()),
    }
}

/// The victim's part.
pub(crate) fn play(run_dir: &Path) -> Result<(), String> {
    play_all(run_dir).map_err(|error| error.to_string())
}

fn play_all(run_dir: &Path) -> Result<(), Failed> {
    let context = Context::new(SoftNic::open(
        &SoftOptions::new(run_dir).contact_timeout(LIMIT),
    )?);
    let mut side = Side::new(context)?;
    let pages = Pages::new();
    let own = pages.register(&side.pd, 0)?;
    side.post_open_recvs()?;
    say(&side.tell(own.remote(0)))?;
    let other = Other::parse(&hear()?)?;
    side.connect(&other)?;
    side.post_connected_recvs()?;
    mark(true);
    let posted = side.do_all(&other);
    let completions = posted.and_then(|count| side.take(count, LIMIT));
    mark(false);
    if completions? < 12 {
        return Err("not all that was posted completes".into());
    }
    // Now the other one, while this one sleeps.
    say("now you")?;
    side.sleep()?;
    mark(true);
    let received = side.take(5, LIMIT);
    mark(false);
    received?;
    hear()?;
    // Regions that come and go, while the peer writes to them or not.
    say("write on")?;
    drop(own);
    for round in 0..3 {
        let own = pages.register(&side.pd, if round == 1 { 64 } else { 0 })?;
        let other = side.pd.allocate(LEN << round, Access::EVERYTHING)?;
        drop(own);
        drop(other);
    }
    hear()?;
    side.rc.drain()?;
    side.rc.resume()?;
    let Side {
        rc, uc, ud, shared, ..
    } = side;
    drop(uc);
    drop(shared);
    say("gone soon")?;
    drop(rc);
    drop(ud);
    Ok(())
}

/// The victim's peer, in this process.
struct Peer {
    nic: Arc<SoftNic>,
    before: Usage,
}

impl Peer {
    /// Talks with a victim until it hangs up, and leaves.
    fn talk(&self, mut input: ChildStdin, output: ChildStdout) {
        let mut lines = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| line.split_once(SIGN).map(|(_, line)| line.to_string()));
        // A victim that dies takes no answer.
        let mut answer = |line: &str| drop(writeln!(input, "{line}"));
        let Some(other) = lines.next() else { return };
        // What it told before it died may be half a line.
        let Ok(other) = Other::parse(&other) else {
            return;
        };
        let mut side = Side::new(Context::new(self.nic.clone())).expect("our own side");
        side.post_open_recvs().expect("our own RECVs");
        if side.connect(&other).is_err() {
            return answer("sorry");
        }
        side.post_connected_recvs().expect("our own RECVs");
        answer(&side.tell(side.memory.remote(4096)));
        for line in lines {
            match &*line {
                "now you" => {
                    // To a dead peer they fail, in completions or at once.
                    drop(side.do_all(&other));
                    drop(side.take(12 + 5, Duration::from_millis(200)));
                    answer("done");
                }
                "write on" => {
                    for _ in 0..50 {
                        let [first, second] = other.regions;
                        // To a dead peer that fails, or not: it is unreliable.
                        let _ = side.uc.post_send(&[
                            Wr::write_inline(b"to a region that goes", second),
                            Wr::write_inline(b"and one that stays", first),
                        ]);
                        drop(side.take(2, Duration::from_millis(20)));
                    }
                    answer("done");
                }
                _ => {}
            }
        }
    }

    /// Waits until nothing of a victim is left.
    #[track_caller]
    fn expect_as_before(&self) {
        let give_up = Instant::now() + LIMIT;
        loop {
            let now = self.nic.usage();
            if now == self.before {
                return;
            }
            assert!(
                Instant::now() < give_up,
                "the peer's NIC holds {now:?}, and not as before {:?}",
                self.before
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Two adapters that work together all the time; one of them is the victim's peer.
struct Undisturbed {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Undisturbed {
    fn start(nic: &Arc<SoftNic>, run_dir: &Path) -> Undisturbed {
        let (over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let thread = {
            let (over, rounds) = (Arc::clone(&over), Arc::clone(&rounds));
            let nic = Arc::clone(nic);
            let other = SoftNic::open(&SoftOptions::new(run_dir).contact_timeout(LIMIT))
                .expect("an adapter");
            let mut near = Side::new(Context::new(other)).expect("a side");
            let mut far = Side::new(Context::new(nic)).expect("a side");
            let of =
                |side: &Side| Other::parse(&side.tell(side.memory.remote(4096))).expect("a side");
            let (of_near, of_far) = (of(&near), of(&far));
            near.connect(&of_far).expect("connected");
            far.connect(&of_near).expect("connected");
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    Self::round(&mut near, &mut far, &of_far, &rounds);
                    std::thread::sleep(Duration::from_micros(100));
                }
            })
        };
        Undisturbed {
            over,
            rounds,
            thread: Some(thread),
        }
    }

    /// Counts on a word over there, and sends a message.
    fn round(near: &mut Side, far: &mut Side, of_far: &Other, rounds: &AtomicU64) {
        let count = rounds.load(Ordering::Relaxed);
        let sges = [far.memory.sge(0..64)];
        let recv = RecvWr { id: 1, sges: &sges };
        far.rc.post_recv(&[recv]).expect("posted");
        let word = [near.memory.sge(0..8)];
        let text = count.to_le_bytes();
        let batch = [
            Wr::fetch_add(&word, of_far.regions[1], 1),
            Wr::send_inline(&text),
        ];
        near.rc.post_send(&batch).expect("posted");
        let mut out = [Wc::default(); 2];
        let mut taken = 0;
        eventually("an undisturbed pair works", || {
            taken += near.cq.poll(&mut out[taken..]).expect("no overrun");
            taken == 2
        });
        assert!(out.iter().all(Wc::is_ok), "{out:?}");
        eventually("a message arrives", || {
            far.cq.poll(&mut out[..1]).expect("no overrun") == 1
        });
        assert!(out[0].is_ok(), "{out:?}");
        let mut got = [[0; 8]; 2];
        near.memory.read(0, &mut got[0]);
        far.memory.read(0, &mut got[1]);
        assert_eq!(got.map(u64::from_le_bytes), [count, count]);
        rounds.store(count + 1, Ordering::Relaxed);
    }

    #[track_caller]
    fn go_on(&self, rounds: u64) {
        let goal = self.rounds.load(Ordering::Relaxed) + rounds;
        eventually("an undisturbed pair goes on", || {
            self.rounds.load(Ordering::Relaxed) >= goal
        });
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed, and `go_on` has failed for it.
            drop(thread.join());
        }
    }
}

/// How far a victim runs.
#[derive(Clone, Copy)]
enum Run {
    To(Step),
    ToEnd,
    /// To its end, its data path stepped through.
    Stepped,
}

/// Has a victim play its part up to a step, or to its end, with a peer; then `then` decides over it.
fn cut<T: Send>(
    peer: &Peer,
    run_dir: &Path,
    run: Run,
    then: impl FnOnce(Standing, Traced) -> T + Send,
) -> T {
    let mut command = stopped_first(&victim::bare(run_dir));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    std::thread::scope(|scope| {
        let (tell, pipes) = std::sync::mpsc::channel();
        let tracing = scope.spawn(move || {
            let mut victim = Traced::start(command);
            let child = victim.child();
            let pipes = (child.stdin.take(), child.stdout.take());
            tell.send(pipes).expect("a peer");
            let standing = match run {
                Run::To(step) => victim.run_to(step),
                Run::ToEnd => victim.run_to_end(),
                Run::Stepped => victim.step_to_end(),
            };
            then(standing, victim)
        });
        let (input, output) = pipes.recv().expect("a victim");
        peer.talk(input.expect("a pipe"), output.expect("a pipe"));
        tracing.join().expect("a victim")
    })
}

struct Scene {
    undisturbed: Undisturbed,
    peer: Peer,
    run_dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let run_dir = tempfile::tempdir().expect("a directory");
        let nic = SoftNic::open(&SoftOptions::new(run_dir.path()).contact_timeout(LIMIT))
            .expect("an adapter");
        let undisturbed = Undisturbed::start(&nic, run_dir.path());
        undisturbed.go_on(10);
        let before = nic.usage();
        Scene {
            undisturbed,
            peer: Peer { nic, before },
            run_dir,
        }
    }

    fn census(&self) -> (Vec<Vec<Call>>, Windows) {
        let alone = |stepped: bool| {
            let count = move |standing, victim: Traced| {
                assert_eq!(standing, Standing::Ended(0));
                (victim.calls(), behind_marks(&victim.regions()))
            };
            let run = if stepped { Run::Stepped } else { Run::ToEnd };
            cut(&self.peer, self.run_dir.path(), run, count)
        };
        let ((calls, _), (_, windows)) = (alone(false), alone(true));
        self.peer.expect_as_before();
        (calls, windows)
    }

    fn after(&self) {
        self.peer.expect_as_before();
        self.undisturbed.go_on(5);
    }

    fn finish(self, plan: Plan) {
        let rounds = self.undisturbed.rounds.load(Ordering::Relaxed);
        plan.finish(&format!("{rounds} rounds of others checked"));
    }
}

#[test]
fn bare_killed() {
    let scene = Scene::new();
    let (calls, windows) = scene.census();
    let spread = Spread {
        calls: 60,
        instructions: 40,
    };
    let mut plan = Plan::new("bare_killed", &calls, &windows, spread);
    for_each_step(&mut plan, |step| {
        let run_dir = scene.run_dir.path();
        let was_cut = cut(&scene.peer, run_dir, Run::To(step), |standing, victim| {
            if standing == Standing::Cut {
                victim.kill();
                return true;
            }
            assert_eq!(standing, Standing::Ended(0));
            false
        });
        scene.after();
        was_cut
    });
    scene.finish(plan);
}

#[test]
fn bare_stopped() {
    let scene = Scene::new();
    let (calls, windows) = scene.census();
    let spread = Spread {
        calls: 20,
        instructions: 10,
    };
    let mut plan = Plan::new("bare_stopped", &calls, &windows, spread);
    for_each_step(&mut plan, |step| {
        let (run_dir, undisturbed) = (scene.run_dir.path(), &scene.undisturbed);
        let was_cut = cut(&scene.peer, run_dir, Run::To(step), |standing, victim| {
            if standing != Standing::Cut {
                assert_eq!(standing, Standing::Ended(0));
                return false;
            }
            undisturbed.go_on(40);
            let mut victim = Guard(victim.let_go());
            let code = victim.wait_end();
            // It goes on, or says what went wrong.
            assert!(matches!(code, Some(0 | 1)), "it ended with {code:?}");
            true
        });
        scene.after();
        was_cut
    });
    scene.finish(plan);
}
