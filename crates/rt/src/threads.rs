//! Cores on threads of their own: start, stop, join.

use std::future::Future;
use std::io;
use std::sync::{Arc, Once, mpsc};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

use crate::config::Config;
use crate::handle::Handle;
use crate::scheduler::{Core, CoreError};
use crate::task::panic_message;

pub use crate::cross::shutdown::Shutdown;

/// Why threads did not start or did not end well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// The system gave no thread.
    #[error("cannot start the thread of core {core}")]
    Spawn {
        /// The core's number.
        core: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A core did not open.
    #[error("cannot open core {core}")]
    Core {
        /// The core's number.
        core: usize,
        /// What went wrong.
        #[source]
        source: CoreError,
    },
    /// The main future of some cores panicked.
    #[error("{}", list_panics(.0))]
    Panicked(Vec<(usize, String)>),
}

fn list_panics(panics: &[(usize, String)]) -> String {
    let parts: Vec<String> = panics
        .iter()
        .map(|(core, message)| format!("core {core} panicked: {message}"))
        .collect();
    parts.join("; ")
}

/// Running cores. Dropping it detaches them.
#[must_use = "join the cores, or their panics go unseen"]
pub struct Threads<T> {
    threads: Vec<thread::JoinHandle<Option<T>>>,
    shutdown: Shutdown,
}

impl<T: Send + 'static> Threads<T> {
    /// Starts one core a configuration, each on its own thread, and runs `main` on each with the
    /// core's number. Returns when every core is open; if one fails, the others are stopped.
    ///
    /// `main` is to end when `shutdown` is triggered. One that panics triggers it: the others are not
    /// to serve on with a part of them missing.
    pub fn start<M, F>(
        configs: Vec<Config>,
        shutdown: &Shutdown,
        main: M,
    ) -> Result<Self, ThreadsError>
    where
        M: Fn(Handle, usize) -> F + Send + Sync + 'static,
        F: Future<Output = T> + 'static,
    {
        let main = Arc::new(main);
        // The cores run their mains only when all are open: `Err` is a dropped sender.
        let (opened, results) = mpsc::channel();
        let mut gates = Vec::new();
        let mut threads = Vec::new();
        let mut failure = None;
        for (number, config) in configs.into_iter().enumerate() {
            let (main, opened) = (main.clone(), opened.clone());
            let shutdown = shutdown.clone();
            let (gate, go) = mpsc::channel::<()>();
            let body = move || {
                if let Some(cpu) = config.cpu {
                    pin(cpu);
                }
                let mut core = match Core::new(config) {
                    Ok(core) => core,
                    Err(source) => {
                        // The starter waits for every core's word.
                        let error = ThreadsError::Core {
                            core: number,
                            source,
                        };
                        opened.send(Err(error)).ok();
                        return None;
                    }
                };
                opened.send(Ok(())).ok();
                // The starter counts on every sender to go, also that of a thread that panics.
                drop(opened);
                go.recv().ok()?;
                let handle = core.handle();
                let _stop = StopOnPanic(shutdown);
                Some(core.block_on(main(handle, number)))
            };
            let builder = thread::Builder::new().name(format!("core-{number}"));
            match builder.spawn(body) {
                Ok(thread) => {
                    threads.push(thread);
                    gates.push(gate);
                }
                Err(source) => {
                    failure = Some(ThreadsError::Spawn {
                        core: number,
                        source,
                    });
                    break;
                }
            }
        }
        drop(opened);
        // A thread that dies on the way drops its sender, which ends the iteration early.
        for result in results.iter().take(threads.len()) {
            failure = failure.or(result.err());
        }
        if let Some(failure) = failure {
            drop(gates);
            for thread in threads {
                // A core that was never let go has nothing to say.
                drop(thread.join());
            }
            return Err(failure);
        }
        for gate in &gates {
            // A thread that has died already shows in `join`.
            gate.send(()).ok();
        }
        Ok(Self {
            threads,
            shutdown: shutdown.clone(),
        })
    }

    /// The signal that these cores were started with.
    #[must_use]
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Waits for every core and returns what their main futures did, by number. The panics of all
    /// of them are in the error.
    pub fn join(self) -> Result<Vec<T>, ThreadsError> {
        let mut outputs = Vec::new();
        let mut panics = Vec::new();
        for (number, thread) in self.threads.into_iter().enumerate() {
            match thread.join() {
                Ok(output) => outputs.extend(output),
                Err(payload) => panics.push((number, panic_message(payload.as_ref()).to_owned())),
            }
        }
        if panics.is_empty() {
            Ok(outputs)
        } else {
            Err(ThreadsError::Panicked(panics))
        }
    }
}

/// Stops all cores when one of them panics.
struct StopOnPanic(Shutdown);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.trigger();
        }
    }
}

/// CPUs that this process may use, in order.
#[must_use]
pub fn cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        Err(error) => {
            tracing::warn!(%error, "cannot ask which CPUs to use, assuming the first");
            vec![0]
        }
    }
}

/// Keeps this thread, and those that it starts from here on, on one CPU. A refusal costs speed only, so it is reported once.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    let result = if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
        sched_setaffinity(None, &set)
    } else {
        Err(rustix::io::Errno::INVAL)
    };
    if let Err(error) = result {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| tracing::warn!(cpu, %error, "cannot pin a core to its CPU"));
    }
}
