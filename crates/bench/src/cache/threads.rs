//! The client threads and the phases of a run: connect, preload, warm up and measure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::arrivals::Schedule;
use super::connection::Connection;
use super::drive::{Clock as _, Pace, Player, Since, TAPE_LEN_MAX, Until};
use super::fleet::Fleet;
use super::nic::NicConnection;
use super::report::{CacheReport, PreloadReport, ThreadReport};
use super::socket::SocketConfig;
use super::sockets::Sockets;
use super::tally::{Sample, Tally};
use super::{CacheRun, Length, Pinning, RunError, Sampled, Target};
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
    sampling: Option<&'a Sampling<'a>>,
    /// Where they run; none for anywhere.
    cpus: Vec<usize>,
    /// Items stored so far.
    stored: AtomicU64,
}

/// What is wanted of a run whose single requests are looked at.
pub(super) struct Sampling<'a> {
    /// All times count from here.
    pub(super) epoch: Instant,
    /// Called when the items are stored: the requests begin when it returns.
    pub(super) begin: &'a (dyn Fn() + Sync),
}

/// What a thread brings home.
struct Outcome {
    tally: Tally,
    cpu: Option<usize>,
    waited_ns: Option<u64>,
    pauses: Vec<(u64, u64)>,
}

pub(super) fn run(
    run: &CacheRun,
    generator: &Generator,
    sampling: Option<&Sampling<'_>>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Sampled, RunError> {
    let shared = Shared {
        run,
        generator,
        sampling,
        epoch: sampling.map_or_else(Instant::now, |sampling| sampling.epoch),
        cpus: match &run.pinning {
            Pinning::None => Vec::new(),
            Pinning::Last => {
                let mut allowed = allowed_cpus();
                let others = allowed.len().saturating_sub(run.threads);
                let last = allowed.split_off(others);
                if others > 0 { last } else { Vec::new() }
            }
            Pinning::Cpus(cpus) => cpus.clone(),
        },
        stored: AtomicU64::new(0),
    };
    match &run.target {
        Target::Nic { context, door } => {
            let connect = || {
                let pd = context.alloc_pd()?;
                let clients = (0..run.connections).map(|_| {
                    let now_ns = shared.epoch.elapsed().as_nanos() as u64;
                    NicConnection::connect(&pd, door, run.window, run.timeout, now_ns)
                });
                clients.collect::<Result<Vec<_>, RunError>>()
            };
            if run.connections > 1 {
                return phases(&shared, || Ok(Fleet::new(connect()?)), progress);
            }
            // A single client has nobody above it.
            phases(&shared, || Ok(connect()?.swap_remove(0)), progress)
        }
        Target::Socket(door) => {
            let config = SocketConfig {
                window: run.window as usize,
                multiget: run.multiget,
                key_len: run.key_len,
                timeout: run.timeout,
                eager: run.rate.is_some(),
            };
            let connect = || Sockets::connect(door, run.connections, config);
            phases(&shared, connect, progress)
        }
    }
}

/// One phase after the other. Connections stay until all threads are done: a client that goes costs the
/// server time.
fn phases<C: Connection + Send>(
    shared: &Shared<'_>,
    connect: impl Fn() -> Result<C, RunError> + Sync,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Sampled, RunError> {
    let run = shared.run;
    let begin = |thread, _, ()| {
        let tape = Tape::record(shared.generator, thread as u64, tape_len(run));
        Ok((tape, connect()?))
    };
    let nothing = vec![(); run.threads];
    let mut clients = shared.on_threads(nothing, begin, &mut || {})?;
    let mut preload = None;
    if run.preload {
        let mut told = 0;
        let mut tell = || {
            let stored = shared.stored.load(Ordering::Relaxed);
            if stored > told {
                told = stored;
                progress(stored, run.items);
            }
        };
        let began = Instant::now();
        let connections = clients.iter_mut().map(|(_, connection)| connection);
        let tallies = shared.on_threads(
            connections,
            |thread, _, connection| shared.store(thread, connection),
            &mut tell,
        )?;
        let mut report = PreloadReport {
            seconds: began.elapsed().as_secs_f64(),
            ..PreloadReport::default()
        };
        tallies
            .iter()
            .for_each(|tally| report.counts.add(&tally.counts));
        preload = Some(report);
    }
    let measure = |thread, cpu, (tape, connection): &mut (Tape, C)| {
        shared.measure(thread, cpu, tape, connection)
    };
    let outcomes = shared.on_threads(clients.iter_mut(), measure, &mut || {})?;
    let (mut samples, mut pauses) = (Vec::new(), Vec::new());
    let (mut threads, mut tallies) = (Vec::new(), Vec::new());
    for (mut outcome, (_, connection)) in outcomes.into_iter().zip(&clients) {
        let Outcome {
            tally,
            cpu,
            waited_ns,
            ..
        } = &outcome;
        threads.push(ThreadReport::new(
            tally,
            *cpu,
            *waited_ns,
            connection.stats(),
        ));
        pauses.append(&mut outcome.pauses);
        samples.extend(outcome.tally.samples.take().unwrap_or_default());
        tallies.push(outcome.tally);
    }
    samples.sort_unstable_by_key(|sample: &Sample| sample.due_ns);
    Ok(Sampled {
        report: CacheReport::new(run, preload, &tallies, threads),
        samples,
        pauses,
    })
}

impl Shared<'_> {
    /// Does something on each of the client threads, which are told their numbers and the CPUs that they are
    /// pinned to; `tell` is called meanwhile and at the end. The first error counts.
    fn on_threads<T: Send, R: Send>(
        &self,
        given: impl IntoIterator<Item = T>,
        work: impl Fn(usize, Option<usize>, T) -> Result<R, RunError> + Sync,
        tell: &mut dyn FnMut(),
    ) -> Result<Vec<R>, RunError> {
        std::thread::scope(|scope| {
            let (done, all_done) = channel::<()>();
            let start = |(thread, given): (usize, T)| {
                let (work, done) = (&work, done.clone());
                let cpus = &self.cpus;
                let cpu = (!cpus.is_empty()).then(|| cpus[thread % cpus.len()]);
                scope.spawn(move || {
                    let result = work(thread, cpu.filter(|&cpu| pin(cpu)), given);
                    drop(done);
                    result
                })
            };
            let threads: Vec<_> = given.into_iter().enumerate().map(start).collect();
            drop(done);
            // The channel closes when the last thread is done.
            while all_done.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
            tell();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|result| result.unwrap_or(Err(RunError::Panicked)))
                .collect()
        })
    }

    fn player<'t>(&self, tape: &'t Tape, version: u64, verify: bool) -> Player<'t, Since> {
        Player {
            tape,
            place: 0,
            version,
            value: vec![0; self.run.value_len],
            composed: false,
            verify,
            clock: Since::new(self.epoch),
            timeout: self.run.timeout,
        }
    }

    /// Stores a thread's part of the items.
    fn store(&self, thread: usize, connection: &mut impl Connection) -> Result<Tally, RunError> {
        connection.preload(true);
        let mut tally = Tally::new();
        let (run, threads) = (self.run, self.run.threads as u128);
        let bound = |part: u128| (u128::from(run.items) * part / threads) as u64;
        let (mut item, end) = (bound(thread as u128), bound(thread as u128 + 1));
        while item < end {
            let next = end.min(item + PRELOAD_TAPE_LEN);
            let tape = Tape::fill(item..next, run.key_len);
            let mut player = self.player(&tape, 0, false);
            let (until, stored) = (Until::Operations(next - item), Some(&self.stored));
            player.play(connection, &mut Pace::Closed, until, &mut tally, stored)?;
            item = next;
        }
        connection.preload(false);
        Ok(tally)
    }

    /// Warms up and measures.
    fn measure(
        &self,
        thread: usize,
        cpu: Option<usize>,
        tape: &Tape,
        connection: &mut impl Connection,
    ) -> Result<Outcome, RunError> {
        let run = self.run;
        // The preload's versions are 0; each thread counts its own.
        let mut player = self.player(tape, (thread as u64 + 1) << 48, run.verify);
        let mut pace = match run.rate {
            Some(rate) => {
                let seed = run.seed.wrapping_add((thread as u64) << 32);
                Pace::Open(Schedule::new(rate, run.threads, seed))
            }
            None => Pace::Closed,
        };
        let warm_up = until(run, run.warm_up, thread);
        player.play(connection, &mut pace, warm_up, &mut Tally::new(), None)?;
        let mut tally = Tally::new();
        if let Some(sampling) = self.sampling {
            (sampling.begin)();
            player.clock.now_ns();
            player.clock.pauses = Some(Vec::new());
            tally.samples = Some(Vec::new());
        }
        let length = until(run, run.length, thread);
        let before_ns = waited_for_cpu_ns();
        player.play(connection, &mut pace, length, &mut tally, None)?;
        let after_ns = waited_for_cpu_ns();
        Ok(Outcome {
            tally,
            cpu,
            waited_ns: after_ns
                .zip(before_ns)
                .map(|(after, before)| after - before),
            pauses: player.clock.pauses.unwrap_or_default(),
        })
    }
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
fn until(run: &CacheRun, length: Length, thread: usize) -> Until {
    match length {
        Length::Operations(count) => {
            let threads = run.threads as u64;
            let extra = u64::from((thread as u64) < count % threads);
            Until::Operations(count / threads + extra)
        }
        Length::Time(time) => Until::Time(time),
    }
}
