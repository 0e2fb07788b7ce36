//! memcached, if the machine has it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use std::os::unix::fs::PermissionsExt;

use bench::cache::Address;
use bench::process::{Child, Directory, Listen, ProcessError, START_MAX, Server, ServerSettings};

const NAME: &str = "memcached";
/// How long a question about the version may take.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Values up to here need no option.
const VALUE_LEN_PLAIN: usize = 1_000_000;
/// The largest item is a multiple of this.
const ITEM_PIECE: usize = 1 << 20;

/// The program, if it is in one of `PATH`'s directories.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(NAME))
        .find(|program| is_program(program))
}

/// Its version, as it tells it; nothing when it is not installed.
pub fn version() -> Option<String> {
    let said = Command::new(find()?)
        .arg("-V")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    Some(text.trim().strip_prefix(NAME)?.trim().to_string())
}

/// Starts it with one door: it has no TCP port beside a Unix socket.
///
/// # Errors
/// It is not installed, cannot be started, or does not answer.
pub fn start(settings: &ServerSettings, listen: Listen) -> Result<Server, ProcessError> {
    let program = find().ok_or(ProcessError::Missing(NAME))?;
    let dir = Directory::new().map_err(ProcessError::system("a directory for the server"))?;
    let (socket, ports) = (dir.path().join("door"), dir.path().join("ports"));
    let mut command = Command::new(program);
    command
        .args(["-U", "0"])
        .args(["-t", &settings.cores.to_string()])
        .args(["-m", &settings.memory.div_ceil(1 << 20).to_string()])
        // It needs some for itself.
        .args(["-c", &(settings.connections_max + 32).to_string()])
        .stdout(Stdio::null());
    if rustix::process::geteuid().is_root() {
        // It does not run as root unless it is told to.
        command.args(["-u", "root"]);
    }
    if settings.value_len_max > VALUE_LEN_PLAIN {
        // Key and header need room as well, and it wants whole pieces.
        let item = (settings.value_len_max + 4096).next_multiple_of(ITEM_PIECE);
        command.args(["-I", &item.to_string()]);
    }
    match listen {
        Listen::Tcp => {
            // A port that the kernel chooses, and that it writes into this file.
            command.args(["-l", "127.0.0.1", "-p", "-1"]);
            command.env("MEMCACHED_PORT_FILENAME", &ports);
        }
        Listen::Unix => {
            command.arg("-s").arg(&socket);
        }
    }
    let mut child = Child::start(NAME, &mut command, &settings.cpus, dir.path())?;
    let address = match listen {
        Listen::Tcp => child.wait_for(START_MAX, || port(&ports))?,
        Listen::Unix => Address::Unix(socket),
    };
    let answer = child.wait_for(START_MAX, || ask(&address).ok())?;
    let version = answer
        .trim()
        .strip_prefix("VERSION ")
        .ok_or_else(|| child.odd(&answer))?;
    let name = format!("{NAME} {version}");
    Ok(Server::of(name, address, child, dir))
}

/// Whether a path leads to something that can be executed.
fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The port in `TCP INET: 41234`.
fn port(file: &Path) -> Option<Address> {
    let text = std::fs::read_to_string(file).ok()?;
    let port = text
        .lines()
        .find_map(|line| line.strip_prefix("TCP INET: "))?;
    let port: u16 = port.trim().parse().ok()?;
    Some(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Asks for the version.
fn ask(address: &Address) -> std::io::Result<String> {
    let mut door = address.dial(ANSWER_MAX)?;
    door.write_all(b"version\r\n")?;
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.last() != Some(&b'\n') && text.len() < 256 {
        door.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
