//! The client threads and the phases of a run: connect, preload, warm up, measure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::arrivals::Schedule;
use super::connection::Connection;
use super::drive::{Pace, Player, Since, TAPE_LEN_MAX, Until};
use super::fleet::Fleet;
use super::gate::{Broken, Gate, Member};
use super::nic::NicConnection;
use super::report::{CacheReport, ConnectionStats, Counts, PreloadReport, ThreadReport};
use super::socket::SocketConfig;
use super::sockets::Sockets;
use super::tally::Tally;
use super::{CacheRun, Length, Pinning, RunError, Target};
use crate::machine::{allowed_cpus, pin, waited_for_cpu_ns};
use crate::workload::{Generator, Tape};

/// Bytes of a thread's tape at most.
const TAPE_BYTES_MAX: usize = 64 << 20;
/// Items of a preload's tape; longer preloads take several.
const PRELOAD_TAPE_LEN: u64 = 1 << 16;
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// What the threads share.
struct Shared<'a> {
    run: &'a CacheRun,
    generator: &'a Generator,
    epoch: Instant,
    stored: AtomicU64,
    gate: Gate,
}

/// What a thread brings home.
struct Outcome {
    tally: Tally,
    preload: Option<Preload>,
    connection: Option<ConnectionStats>,
    cpu: Option<usize>,
    waited_ns: Option<u64>,
}

/// A thread's part of the preload.
struct Preload {
    counts: Counts,
    began_ns: u64,
    ended_ns: u64,
}

pub(super) fn run(
    run: &CacheRun,
    generator: &Generator,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CacheReport, RunError> {
    let shared = Shared {
        run,
        generator,
        epoch: Instant::now(),
        stored: AtomicU64::new(0),
        gate: Gate::new(run.threads),
    };
    let cpus = match &run.pinning {
        Pinning::None => Vec::new(),
        Pinning::Last => {
            let allowed = allowed_cpus();
            let first = allowed
                .len()
                .checked_sub(run.threads)
                .filter(|&first| first > 0);
            first.map_or(Vec::new(), |first| allowed[first..].to_vec())
        }
        Pinning::Cpus(cpus) => cpus.clone(),
    };
    let outcomes = std::thread::scope(|scope| {
        let (done, all_done) = channel::<()>();
        let threads: Vec<_> = (0..run.threads)
            .map(|number| {
                let (shared, done) = (&shared, done.clone());
                let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
                scope.spawn(move || {
                    let outcome = client(shared, number, cpu);
                    drop(done);
                    outcome
                })
            })
            .collect();
        drop(done);
        // The channel closes when the last thread is done.
        let (mut told, mut over) = (0, false);
        while !over {
            over = all_done.recv_timeout(PROGRESS_EVERY) != Err(RecvTimeoutError::Timeout);
            let stored = shared.stored.load(Ordering::Relaxed);
            if stored > told {
                told = stored;
                progress(stored, run.items);
            }
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.collect::<Vec<_>>()
    });
    let mut threads = Vec::with_capacity(run.threads);
    let mut first_error = None;
    for outcome in outcomes {
        match outcome {
            Ok(Ok(outcome)) => threads.push(outcome),
            Ok(Err(Ended::Failed(error))) => first_error = first_error.or(Some(error)),
            Ok(Err(Ended::Followed)) => {}
            Err(_) => first_error = first_error.or(Some(RunError::Panicked)),
        }
    }
    match first_error {
        Some(error) => Err(error),
        None => Ok(report(run, threads)),
    }
}

/// Why a thread ended early.
enum Ended {
    /// By its own error.
    Failed(RunError),
    /// Because another one had.
    Followed,
}

impl From<RunError> for Ended {
    fn from(error: RunError) -> Self {
        Ended::Failed(error)
    }
}

impl From<Broken> for Ended {
    fn from(_: Broken) -> Self {
        Ended::Followed
    }
}

fn client(shared: &Shared<'_>, number: usize, cpu: Option<usize>) -> Result<Outcome, Ended> {
    let member = shared.gate.enter();
    let cpu = cpu.filter(|&cpu| pin(cpu));
    let run = shared.run;
    let mut outcome = match &run.target {
        Target::Nic { context, door } => {
            let pd = context.alloc_pd().map_err(RunError::from)?;
            let mut clients = Vec::with_capacity(run.connections);
            for one in 0..run.connections {
                let now_ns = shared.epoch.elapsed().as_nanos() as u64;
                let seed = run.seed ^ ((number * run.connections + one) as u64) << 32;
                clients.push(NicConnection::connect(
                    &pd,
                    door,
                    run.window,
                    run.timeout,
                    seed,
                    now_ns,
                )?);
            }
            through_nic(shared, &member, number, clients)?
        }
        Target::Socket(door) => {
            let config = SocketConfig {
                window: run.window as usize,
                multiget: run.multiget,
                key_len: run.key_len,
                timeout: run.timeout,
                eager: run.rate.is_some(),
            };
            let mut sockets = Sockets::connect(door, run.connections, config)?;
            phases(shared, &member, number, &mut sockets)?
        }
    };
    outcome.cpu = cpu;
    Ok(outcome)
}

fn through_nic(
    shared: &Shared<'_>,
    member: &Member<'_>,
    number: usize,
    mut clients: Vec<NicConnection>,
) -> Result<Outcome, Ended> {
    // A single client has nobody above it.
    if clients.len() == 1
        && let Some(mut client) = clients.pop()
    {
        let mut outcome = phases(shared, member, number, &mut client)?;
        outcome.connection = Some(client.stats().into());
        return Ok(outcome);
    }
    let mut fleet = Fleet::new(clients);
    let mut outcome = phases(shared, member, number, &mut fleet)?;
    let mut stats = ConnectionStats::default();
    for client in fleet.members() {
        stats.add(&client.stats().into());
    }
    outcome.connection = Some(stats);
    Ok(outcome)
}

fn phases(
    shared: &Shared<'_>,
    member: &Member<'_>,
    number: usize,
    connection: &mut impl Connection,
) -> Result<Outcome, Ended> {
    let run = shared.run;
    // The threads connect and store side by side, and record their tapes before any of them
    // measures.
    let tape = Tape::record(shared.generator, number as u64, tape_len(run));
    let value = vec![0; run.value_len];
    member.meet()?;
    let preload = if run.preload {
        connection.preload(true);
        let stored = preload(shared, number, connection, &value)?;
        connection.preload(false);
        Some(stored)
    } else {
        None
    };
    let mut player = Player {
        tape: &tape,
        place: 0,
        // The preload's versions are 0; each thread counts its own.
        version: (number as u64 + 1) << 48,
        value,
        composed: false,
        verify: run.verify,
        clock: Since(shared.epoch),
        timeout: run.timeout,
    };
    let mut pace = match run.rate {
        Some(rate) => {
            let seed = run.seed.wrapping_add((number as u64) << 32);
            Pace::Open(Schedule::new(rate, run.threads, seed))
        }
        None => Pace::Closed,
    };
    member.meet()?;
    let warm_up = until(run, run.warm_up, number);
    player.play(connection, &mut pace, warm_up, &mut Tally::new(), None)?;
    let mut tally = Tally::new();
    member.meet()?;
    let length = until(run, run.length, number);
    let waited_ns = waited_for_cpu_ns();
    player.play(connection, &mut pace, length, &mut tally, None)?;
    let waited_ns = waited_for_cpu_ns()
        .zip(waited_ns)
        .map(|(after, before)| after - before);
    // Queues stay until all are done: a client that goes costs the server time.
    member.meet()?;
    Ok(Outcome {
        tally,
        preload,
        connection: None,
        cpu: None,
        waited_ns,
    })
}

/// Stores this thread's part of the items.
fn preload(
    shared: &Shared<'_>,
    number: usize,
    connection: &mut impl Connection,
    value: &[u8],
) -> Result<Preload, RunError> {
    let now_ns = || shared.epoch.elapsed().as_nanos() as u64;
    let (mut tally, began_ns) = (Tally::new(), now_ns());
    let (run, threads) = (shared.run, shared.run.threads as u128);
    let bound = |part: u128| (u128::from(run.items) * part / threads) as u64;
    let (mut item, end) = (bound(number as u128), bound(number as u128 + 1));
    while item < end {
        let next = end.min(item + PRELOAD_TAPE_LEN);
        let tape = Tape::fill(item..next, run.key_len);
        let mut player = Player {
            tape: &tape,
            place: 0,
            version: 0,
            value: value.to_vec(),
            composed: false,
            verify: false,
            clock: Since(shared.epoch),
            timeout: run.timeout,
        };
        let (until, stored) = (Until::Operations(next - item), Some(&shared.stored));
        player.play(connection, &mut Pace::Closed, until, &mut tally, stored)?;
        item = next;
    }
    Ok(Preload {
        counts: tally.counts,
        began_ns,
        ended_ns: now_ns(),
    })
}

/// Requests on a thread's tape.
fn tape_len(run: &CacheRun) -> usize {
    let fitting = TAPE_BYTES_MAX / (run.key_len + 8);
    let len_max = TAPE_LEN_MAX.min(fitting);
    match (run.warm_up, run.length) {
        (Length::Operations(warm_up), Length::Operations(length)) => {
            let all = warm_up.saturating_add(length).div_ceil(run.threads as u64);
            (all.max(1)).min(len_max as u64) as usize
        }
        _ => len_max,
    }
}

/// A thread's part of a length.
fn until(run: &CacheRun, length: Length, number: usize) -> Until {
    match length {
        Length::Operations(count) => {
            let threads = run.threads as u64;
            let extra = u64::from((number as u64) < count % threads);
            Until::Operations(count / threads + extra)
        }
        Length::Time(time) => Until::Time(time),
    }
}

fn report(run: &CacheRun, outcomes: Vec<Outcome>) -> CacheReport {
    let mut preload: Option<PreloadReport> = None;
    let mut threads = Vec::with_capacity(outcomes.len());
    let mut tallies = Vec::with_capacity(outcomes.len());
    let (mut preload_began_ns, mut preload_ended_ns) = (u64::MAX, 0);
    for outcome in outcomes {
        if let Some(part) = outcome.preload {
            preload_began_ns = preload_began_ns.min(part.began_ns);
            preload_ended_ns = preload_ended_ns.max(part.ended_ns);
            preload.get_or_insert_default().counts.add(&part.counts);
        }
        threads.push(ThreadReport::new(
            &outcome.tally,
            outcome.cpu,
            outcome.waited_ns,
            outcome.connection,
        ));
        tallies.push(outcome.tally);
    }
    if let Some(preload) = &mut preload {
        preload.seconds = preload_ended_ns.saturating_sub(preload_began_ns) as f64 / 1e9;
    }
    CacheReport::new(run, preload, &tallies, threads)
}
