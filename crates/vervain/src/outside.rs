//! What reads bytes from outside, with nothing around it: for fuzz targets.

use std::ffi::OsString;
use std::io::{self, Read, Write};

use crate::cli::explain;
use crate::client::SocketClient;
use crate::command::understand;

/// What a command line, without the program's name, asks for; or what is wrong with it.
///
/// # Errors
/// What the user is told.
pub fn command_line(arguments: &[OsString]) -> Result<String, String> {
    understand(arguments)
}

/// A server that has said everything before it was asked.
struct Said<'a>(&'a [u8]);

impl Read for Said<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Asks a server that answers with these bytes for an item and for its counters. Returns the value
/// and how many counters there were.
///
/// # Errors
/// What the user is told.
pub fn socket_answers(bytes: &[u8]) -> Result<(Option<Vec<u8>>, usize), String> {
    let mut client = SocketClient::over(Said(bytes));
    let told = |error: anyhow::Error| explain(&error);
    let item = client.get("key").map_err(told)?;
    // The rest of the bytes answers the next question.
    let stats = client.stats(None).map_err(told)?;
    Ok((item.map(|item| item.value), stats.len()))
}
