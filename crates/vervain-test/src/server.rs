//! Programs that are killed in the end, and waiting for them.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::is_listening;

/// Nothing that tests start takes longer, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running program, killed and reaped when it is dropped.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    /// Starts it.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Server)
    }

    /// Waits until somebody listens on a TCP port of this machine, as the kernel says; nobody connects to it.
    ///
    /// # Errors
    /// If the program ends instead, or after two minutes.
    pub fn until_listening(&mut self, port: u16) -> io::Result<()> {
        let since = Instant::now();
        while !is_listening(port) {
            if let Some(status) = self.0.try_wait()? {
                let why = format!("the server ended before it listened on port {port}: {status}");
                return Err(io::Error::other(why));
            }
            if since.elapsed() > PATIENCE {
                let why = format!("the server does not listen on port {port}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Deref for Server {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
